//! Pointers into far memory, from the plainest to the most protected.
//!
//! | type | is | lives |
//! |---|---|---|
//! | [`Address`] | segment and offset | anywhere |
//! | [`RemotePtr<T>`] | a typed address | anywhere: roots, frozen fields |
//! | [`Shared<'g, T>`](Shared) | an address and its marks, loaded under a guard | not longer than the guard |
//! | [`Owned<T>`] | a new object that nobody else can reach | until it is published or dropped |
//!
//! The first three are `Copy` and dereference to `T`'s accessors: `ptr.next()` is the place of the field `next`, an
//! address computed without touching memory.

mod guard;
mod held;
mod remote_ptr;
mod shared;
mod site;
mod walk;

pub use crate::segment::walk::Walk;
pub use farfield_words::Address;
pub use guard::Guard;
pub use held::Held;
pub use remote_ptr::RemotePtr;
pub use shared::{Marks, Shared};
pub use site::Site;

/// A pointer to an object: a [`RemotePtr`], or a [`Shared`] with or without marks.
///
/// For what needs only to know where the object is, such as [`near`](crate::ComputeThread::near).
pub trait Pointer: sealed::Sealed {
    /// What it points to.
    type Pointee;
}

mod sealed {
    use super::Address;

    pub trait Sealed {
        /// Its address, without marks.
        fn points_to(&self) -> Address;
    }
}
