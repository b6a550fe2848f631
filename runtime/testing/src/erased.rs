//! `DynTested`: a structure under test, with its type erased.
//!
//! Runs, shrinking and reports are compiled once for each model, not for each structure: a soak has many mutants of one structure. This
//! costs an allocation for each operation.

use std::marker::PhantomData;
use std::pin::Pin;

use farfield::{ComputeThread, Error, Result};

use crate::model::Model;
use crate::plan::{Faults, Plan};
use crate::tested::{Meaning, Tested};

/// A future on its compute thread.
pub(crate) type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// [`Tested`] with its type erased.
pub(crate) trait DynTested<M: Model>: Sync {
    fn open<'a>(&self, ct: &'a ComputeThread) -> LocalFuture<'a, Box<dyn DynStructure<M>>>;
    fn meaning(&self, operation: &M::Operation, error: &Error) -> Meaning<M::Returned>;
    fn plan(&self, seed: u64, faults: Faults) -> Plan<M::Operation>;
    fn look(
        &self,
        plan: &Plan<M::Operation>,
        looked: usize,
        last: Option<&M::Returned>,
    ) -> Option<M::Operation>;
    fn is_lock_free(&self) -> bool;
    fn simpler(&self, operation: &M::Operation) -> Vec<M::Operation>;
}

/// A thread's handle to the structure.
pub(crate) trait DynStructure<M: Model> {
    fn perform<'a>(
        &'a self,
        operation: &'a M::Operation,
        ct: &'a ComputeThread,
    ) -> LocalFuture<'a, M::Returned>;
    fn recover<'a>(&'a self, ct: &'a ComputeThread) -> LocalFuture<'a, ()>;
    fn verify<'a>(&'a self, ct: &'a ComputeThread) -> LocalFuture<'a, ()>;
    fn destroy(self: Box<Self>, ct: &ComputeThread) -> LocalFuture<'_, ()>;
}

/// [`DynTested`] for a type `T` that is [`Tested`].
pub(crate) struct Typed<T>(PhantomData<fn() -> T>);

/// A thread's handle of this type.
struct Opened<T: Tested>(T::Structure);

impl<T> Typed<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Tested> DynTested<T::Model> for Typed<T> {
    fn open<'a>(&self, ct: &'a ComputeThread) -> LocalFuture<'a, Box<dyn DynStructure<T::Model>>> {
        Box::pin(async { Ok(Box::new(Opened::<T>(T::open(ct).await?)) as Box<dyn DynStructure<T::Model>>) })
    }

    fn meaning(
        &self,
        operation: &<T::Model as Model>::Operation,
        error: &Error,
    ) -> Meaning<<T::Model as Model>::Returned> {
        T::meaning(operation, error)
    }

    fn plan(&self, seed: u64, faults: Faults) -> Plan<<T::Model as Model>::Operation> {
        T::plan(seed, faults)
    }

    fn look(
        &self,
        plan: &Plan<<T::Model as Model>::Operation>,
        looked: usize,
        last: Option<&<T::Model as Model>::Returned>,
    ) -> Option<<T::Model as Model>::Operation> {
        T::look(plan, looked, last)
    }

    fn is_lock_free(&self) -> bool {
        T::is_lock_free()
    }

    fn simpler(&self, operation: &<T::Model as Model>::Operation) -> Vec<<T::Model as Model>::Operation> {
        T::simpler(operation)
    }
}

impl<T: Tested> DynStructure<T::Model> for Opened<T> {
    fn perform<'a>(
        &'a self,
        operation: &'a <T::Model as Model>::Operation,
        ct: &'a ComputeThread,
    ) -> LocalFuture<'a, <T::Model as Model>::Returned> {
        Box::pin(T::perform(&self.0, operation, ct))
    }

    fn recover<'a>(&'a self, ct: &'a ComputeThread) -> LocalFuture<'a, ()> {
        Box::pin(T::recover(&self.0, ct))
    }

    fn verify<'a>(&'a self, ct: &'a ComputeThread) -> LocalFuture<'a, ()> {
        Box::pin(T::verify(&self.0, ct))
    }

    fn destroy(self: Box<Self>, ct: &ComputeThread) -> LocalFuture<'_, ()> {
        Box::pin(T::destroy(self.0, ct))
    }
}
