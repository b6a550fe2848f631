//! Pointers into far memory, from unprotected addresses to new objects.
//!
//! | type | contents | validity |
//! |---|---|---|
//! | [`Address`] | segment and offset | unlimited |
//! | [`RemotePtr<T>`] | a typed address | unlimited: roots, frozen fields |
//! | [`Shared<'g, T>`](Shared) | an address, and its marks if they are named, loaded under a guard | the guard's lifetime |
//! | [`Owned<T>`](crate::Owned) | a new object that no other thread can reach | until it is published or dropped |
//!
//! The first three are `Copy`. `RemotePtr` and `Shared` dereference to `T`'s accessors: `ptr.next()` is the place of the field `next`, an address
//! that is computed without a memory access.

pub(crate) mod counted;
mod guard;
mod held;
mod remote_ptr;
mod shared;
mod site;
mod walk;

pub use crate::segment::walk::Walk;
pub use farfield_words::Address;
pub use guard::{GracePeriod, Guard, PinnedEpoch};
pub use held::Held;
pub use remote_ptr::RemotePtr;
pub use shared::{Marks, MaybeMarks, Shared};
pub use site::Site;

/// A pointer to an object: a [`RemotePtr`], or a [`Shared`] with or without named marks.
///
/// A bound for functions that only need the object's address, such as [`near`](crate::ComputeThread::near).
pub trait Pointer: sealed::Sealed {
    /// The type of the object.
    type Pointee;
}

mod sealed {
    use super::Address;

    pub trait Sealed {
        /// Returns the object's address, without marks.
        fn points_to(&self) -> Address;
    }
}
