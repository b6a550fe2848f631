//! The registry: where objects are, known in debug builds only.
//!
//! Blocks have no headers, so nothing in far memory tells an object's first byte from any other. A debug build keeps account
//! of every object of the process, and refuses to free or retire what is none, or is retired already. A release build looks
//! at the last object only that went the same way, which is what doing something twice mostly looks like. The simulator keeps
//! books of its own, which know more.

use crate::error::{self, Error, PointerFault, Result};
use crate::pointer::Address;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    #[cfg(debug_assertions)]
    objects: std::sync::Mutex<std::collections::HashMap<Address, Life>>,
}

/// What has become of an object that is not freed.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Live,
    Retired,
}

/// The error for `address`.
#[cold]
pub(super) fn refused(address: Address, fault: PointerFault) -> Error {
    Error::from(error::InvalidPointer { address, fault })
}

#[cfg(debug_assertions)]
impl Registry {
    fn objects(&self) -> std::sync::MutexGuard<'_, std::collections::HashMap<Address, Life>> {
        // The map is whole at every moment.
        self.objects.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn allocated(&self, at: Address) {
        self.objects().insert(at, Life::Live);
    }

    /// An object is about to be freed by its user.
    pub(crate) fn deletes(&self, at: Address) -> Result<()> {
        match self.objects().get(&at) {
            Some(Life::Live) => Ok(()),
            Some(Life::Retired) => Err(refused(at, PointerFault::Retired)),
            None => Err(refused(at, PointerFault::NoObject)),
        }
    }

    /// An object is about to be retired.
    pub(crate) fn retires(&self, at: Address) -> Result<()> {
        match self.objects().get_mut(&at) {
            Some(life @ Life::Live) => {
                *life = Life::Retired;
                Ok(())
            }
            Some(Life::Retired) => Err(refused(at, PointerFault::Retired)),
            None => Err(refused(at, PointerFault::NoObject)),
        }
    }

    pub(crate) fn freed(&self, at: Address) {
        self.objects().remove(&at);
    }
}

#[cfg(not(debug_assertions))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps)] // as in a debug build
impl Registry {
    pub(crate) fn allocated(&self, _: Address) {}

    pub(crate) fn deletes(&self, _: Address) -> Result<()> {
        Ok(())
    }

    pub(crate) fn retires(&self, _: Address) -> Result<()> {
        Ok(())
    }

    pub(crate) fn freed(&self, _: Address) {}
}
