//! What generated code uses. Not part of the interface: it changes without notice.

pub use crate::layout::{DefaultInit, Field, FieldInfo, FrozenField, Initial, Pod, Remote, Word, fingerprint, fingerprint_of};
pub use crate::memory::site::Site;
pub use crate::place::{Array, Place, attach, fetch};
pub use crate::pointer::{Address, Owned, RemotePtr, Shared};
pub use crate::{ComputeThread, Error, Result};

/// What a new object's field is built from.
pub type Init<F> = <F as Field>::Init;
/// What a snapshot holds of a field.
pub type Value<'g, F> = <F as Field>::Value<'g>;
/// What a handle's accessor gives for a field.
pub type Kept<'a, F> = <F as Field>::Kept<'a>;

/// Allocates a block and builds an object's image.
pub async fn new_in<'a, T: Remote>(site: impl Into<Site<'a>>, init: T::Init) -> Result<Owned<T>> {
    Owned::new(site.into(), init).await
}
