//! `Life`: a structure under test, whatever its type.
//!
//! Runs, shrinking and reports are compiled once for each model, and not for each structure: a soak has many broken copies of one
//! structure. The price is an allocation for each operation.

use std::marker::PhantomData;
use std::pin::Pin;

use farfield::{ComputeThread, Error, Result};

use crate::model::Model;
use crate::plan::{Faults, Plan};
use crate::tested::{Meaning, Tested};

/// What becomes of something that is done.
pub(crate) type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// [`Tested`], without its type.
pub(crate) trait Life<M: Model>: Sync {
    fn open<'a>(&self, ct: &'a ComputeThread) -> Doing<'a, Box<dyn Handle<M>>>;
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
pub(crate) trait Handle<M: Model> {
    fn perform<'a>(&'a self, operation: &'a M::Operation, ct: &'a ComputeThread) -> Doing<'a, M::Returned>;
    fn recover<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()>;
    fn verify<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()>;
    fn destroy(self: Box<Self>, ct: &ComputeThread) -> Doing<'_, ()>;
}

/// The life of what `T` describes.
pub(crate) struct Of<T>(PhantomData<fn() -> T>);

/// A handle to it.
struct Opened<T: Tested>(T::Structure);

impl<T> Of<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Tested> Life<T::Model> for Of<T> {
    fn open<'a>(&self, ct: &'a ComputeThread) -> Doing<'a, Box<dyn Handle<T::Model>>> {
        Box::pin(async { Ok(Box::new(Opened::<T>(T::open(ct).await?)) as Box<dyn Handle<T::Model>>) })
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

impl<T: Tested> Handle<T::Model> for Opened<T> {
    fn perform<'a>(
        &'a self,
        operation: &'a <T::Model as Model>::Operation,
        ct: &'a ComputeThread,
    ) -> Doing<'a, <T::Model as Model>::Returned> {
        Box::pin(T::perform(&self.0, operation, ct))
    }

    fn recover<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()> {
        Box::pin(T::recover(&self.0, ct))
    }

    fn verify<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()> {
        Box::pin(T::verify(&self.0, ct))
    }

    fn destroy(self: Box<Self>, ct: &ComputeThread) -> Doing<'_, ()> {
        Box::pin(T::destroy(self.0, ct))
    }
}
