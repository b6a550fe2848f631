//! `Tested`: what a structure must say of itself to be checked.

use farfield::{ComputeThread, Error, Result};

use crate::model::Model;
use crate::plan::{Faults, Plan};
use crate::random::Random;

/// An operation of a structure's model.
pub type OperationOf<T> = <<T as Tested>::Model as Model>::Operation;

/// An answer of a structure's model.
pub type ReturnedOf<T> = <<T as Tested>::Model as Model>::Returned;

/// A structure in far memory that is compared with a [`Model`]. The trait is implemented by a type of the test's own, often the model
/// itself, since a test may not implement it for a type of another crate.
///
/// A run is its life: [`open`](Self::open) by each thread, [`perform`](Self::perform) for each operation of the plan, then, by a thread
/// that is alone, the operations of [`look`](Self::look), [`recover`](Self::recover) after faults, [`verify`](Self::verify) and
/// [`destroy`](Self::destroy). What is still allocated after that, and no root leads to, is a leak.
#[allow(async_fn_in_trait)] // its futures stay on their compute thread, so none need be `Send`
pub trait Tested: Sized + 'static {
    /// What the structure must look like.
    type Model: Model + 'static;
    /// A thread's handle to the structure: `Self` where the type may implement this trait.
    type Structure: 'static;

    /// A handle to the structure, which is made by the first thread that asks: see [`ComputeThread::root_or_init`].
    async fn open(ct: &ComputeThread) -> Result<Self::Structure>;

    /// Performs an operation.
    ///
    /// # Errors
    /// What an error says of the operation is decided by [`meaning`](Self::meaning).
    async fn perform(
        structure: &Self::Structure,
        operation: &OperationOf<Self>,
        ct: &ComputeThread,
    ) -> Result<ReturnedOf<Self>>;

    /// An operation for a plan: something that a client may do.
    fn operation(random: &mut Random) -> OperationOf<Self>;

    /// What an error of an operation says.
    ///
    /// By default [`Error::NodeUnreachable`] leaves the outcome unknown, and any other error is a failure. An error that the
    /// model knows (an account without money, memory that is out) is an answer:
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

    /// The plan that a seed stands for.
    fn plan(seed: u64, faults: Faults) -> Plan<OperationOf<Self>> {
        Plan::draw(seed, faults, Self::operation)
    }

    /// The next operation of the thread that looks at the structure when all others have ended, after `looked` such operations, the
    /// last of which returned `last`. Operations that read everything make a lost update visible whatever the clients had asked. None
    /// ends the look.
    fn look(
        plan: &Plan<OperationOf<Self>>,
        looked: usize,
        last: Option<&ReturnedOf<Self>>,
    ) -> Option<OperationOf<Self>> {
        let _ = (plan, looked, last);
        None
    }

    /// Puts right what threads that died have left. A structure without locks is always right.
    async fn recover(structure: &Self::Structure, ct: &ComputeThread) -> Result<()> {
        let _ = (structure, ct);
        Ok(())
    }

    /// Looks whether the structure is in order, at a quiescent point. A structure that its operations show in full needs no look.
    async fn verify(structure: &Self::Structure, ct: &ComputeThread) -> Result<()> {
        let _ = (structure, ct);
        Ok(())
    }

    /// Frees the structure. By default its roots keep it, and leaks of unlinked objects are found all the same.
    async fn destroy(structure: Self::Structure, ct: &ComputeThread) -> Result<()> {
        let _ = (structure, ct);
        Ok(())
    }

    /// Whether its threads never wait for each other. A structure with locks is excused for being stuck where a link is cut: its owner lives,
    /// so the lock is not taken from it, but could not reach it to give it back.
    fn is_lock_free() -> bool {
        false
    }

    /// Operations that are simpler than this one, the simplest first: with a smaller key, say. Tried as a failing plan is made smaller.
    fn simpler(operation: &OperationOf<Self>) -> Vec<OperationOf<Self>> {
        let _ = operation;
        Vec::new()
    }
}

/// What an operation's error says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning<R> {
    /// It is an answer like any other: the operation returned this.
    Answer(R),
    /// The operation may have taken effect, may still do so, or may not. The client goes on. Without faults that is a failure.
    Unknown,
    /// The operation must not fail in this way. The run ends.
    Failure,
}

impl<R> Meaning<R> {
    /// What an error says of which nothing special is known.
    pub fn by_default(error: &Error) -> Self {
        match error {
            Error::NodeUnreachable(_) => Self::Unknown,
            _ => Self::Failure,
        }
    }
}
