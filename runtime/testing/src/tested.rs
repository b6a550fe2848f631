//! `Tested`: the interface between a structure and the checker.

use farfield::{ComputeThread, Error, Result};

use crate::model::Model;
use crate::plan::{Faults, Plan};
use crate::random::Random;

/// An operation of a structure's model.
pub type OperationOf<T> = <<T as Tested>::Model as Model>::Operation;

/// A result of an operation of a structure's model.
pub type ReturnedOf<T> = <<T as Tested>::Model as Model>::Returned;

/// A structure in far memory that is compared with a [`Model`]. A test implements the trait for a type of its own, often the model, since
/// the structure's type may belong to another crate.
///
/// In a run, each thread calls [`open`](Self::open) and then [`perform`](Self::perform) for each of its operations. When all have ended, a
/// single thread performs the final operations ([`look`](Self::look)), and calls [`recover`](Self::recover) after faults,
/// [`verify`](Self::verify) and [`destroy`](Self::destroy). An object that is then still allocated and not reachable from a root is a leak.
#[allow(async_fn_in_trait)] // its futures stay on their compute thread, so none need be `Send`
pub trait Tested: Sized + 'static {
    /// The sequential specification.
    type Model: Model + 'static;
    /// A thread's handle to the structure: `Self` where the type may implement this trait.
    type Structure: 'static;

    /// Returns a handle to the structure. The first caller creates it: see [`ComputeThread::root_or_init`].
    async fn open(ct: &ComputeThread) -> Result<Self::Structure>;

    /// Performs an operation.
    ///
    /// # Errors
    /// [`meaning`](Self::meaning) classifies the error.
    async fn perform(
        structure: &Self::Structure,
        operation: &OperationOf<Self>,
        ct: &ComputeThread,
    ) -> Result<ReturnedOf<Self>>;

    /// Draws a random operation for a plan.
    fn operation(random: &mut Random) -> OperationOf<Self>;

    /// Classifies an operation's error.
    ///
    /// By default [`Error::NodeUnreachable`] means an unknown outcome, and any other error is a failure. An error that the model returns
    /// (an account without money, exhausted memory) is a result:
    ///
    /// ```
    /// # use farfield::Error;
    /// # use farfield_testing::Meaning;
    /// # fn meaning(error: &Error) -> Meaning<Result<u64, &'static str>> {
    /// match error {
    ///     Error::OutOfMemory(_) => Meaning::Answer(Err("full")),
    ///     other => Meaning::by_default(other),
    /// }
    /// # }
    /// ```
    fn meaning(operation: &OperationOf<Self>, error: &Error) -> Meaning<ReturnedOf<Self>> {
        let _ = operation;
        Meaning::by_default(error)
    }

    /// The plan of a seed.
    fn plan(seed: u64, faults: Faults) -> Plan<OperationOf<Self>> {
        Plan::draw(seed, faults, Self::operation)
    }

    /// The next final operation, after `looked` of them; the last returned `last`. `None` ends them. Final operations that read the whole
    /// structure expose a lost update even if no client's operation observed it.
    fn look(
        plan: &Plan<OperationOf<Self>>,
        looked: usize,
        last: Option<&ReturnedOf<Self>>,
    ) -> Option<OperationOf<Self>> {
        let _ = (plan, looked, last);
        None
    }

    /// Repairs the structure after threads died. A structure without locks needs no repair.
    async fn recover(structure: &Self::Structure, ct: &ComputeThread) -> Result<()> {
        let _ = (structure, ct);
        Ok(())
    }

    /// Checks the structure's internal invariants while no operation runs. Not needed if operations expose the whole structure.
    async fn verify(structure: &Self::Structure, ct: &ComputeThread) -> Result<()> {
        let _ = (structure, ct);
        Ok(())
    }

    /// Frees the structure. By default it stays reachable from its roots; leaks of unlinked objects are still found.
    async fn destroy(structure: Self::Structure, ct: &ComputeThread) -> Result<()> {
        let _ = (structure, ct);
        Ok(())
    }

    /// Returns whether its threads never wait for each other. A structure with locks may block while a link is cut: the owner is alive, so
    /// its lock is not taken over, but its release may not arrive.
    fn is_lock_free() -> bool {
        false
    }

    /// Returns simpler operations (with a smaller key, for example), the simplest first. Shrinking tries them.
    fn simpler(operation: &OperationOf<Self>) -> Vec<OperationOf<Self>> {
        let _ = operation;
        Vec::new()
    }
}

/// The meaning of an operation's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning<R> {
    /// A result: the operation returned this.
    Answer(R),
    /// The operation may take effect now, later or never. The client continues. Without faults this is a failure.
    Unknown,
    /// The operation must not fail in this way. The run ends.
    Failure,
}

impl<R> Meaning<R> {
    /// The default meaning of an error.
    pub fn by_default(error: &Error) -> Self {
        match error {
            Error::NodeUnreachable(_) => Self::Unknown,
            _ => Self::Failure,
        }
    }
}
