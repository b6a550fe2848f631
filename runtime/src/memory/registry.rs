//! The registry: where objects are, known in debug builds only.
//!
//! Blocks have no headers, so nothing in far memory tells an object's first byte from any other. A debug build keeps account
//! of every object of the process, and refuses to free or retire what is none, or is retired already. A release build looks
//! at the last object only that went the same way, which is what doing something twice mostly looks like. The simulator keeps
//! books of its own, which know more. Where other processes allocate and free, too, nothing is known.

use crate::error::{self, Error, PointerFault, Result};
use farfield_words::Address;

#[derive(Debug)]
pub(crate) struct Registry {
    #[cfg(debug_assertions)]
    objects: Option<std::sync::Mutex<std::collections::HashMap<Address, Life>>>,
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
pub(crate) fn refused(address: Address, fault: PointerFault) -> Error {
    Error::from(error::InvalidPointer { address, fault })
}

impl Registry {
    /// One for a cluster in which this process is alone, or one that knows nothing.
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    pub(crate) fn new(is_alone: bool) -> Self {
        Self {
            #[cfg(debug_assertions)]
            objects: is_alone.then(Default::default),
        }
    }
}

#[cfg(debug_assertions)]
impl Registry {
    fn objects(&self) -> Option<std::sync::MutexGuard<'_, std::collections::HashMap<Address, Life>>> {
        // The map is whole at every moment.
        Some(self.objects.as_ref()?.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn allocated(&self, at: Address) {
        if let Some(mut objects) = self.objects() {
            objects.insert(at, Life::Live);
        }
    }

    /// An object is about to be freed by its user.
    pub(crate) fn deletes(&self, at: Address) -> Result<()> {
        let Some(objects) = self.objects() else { return Ok(()) };
        match objects.get(&at) {
            Some(Life::Live) => Ok(()),
            Some(Life::Retired) => Err(refused(at, PointerFault::Retired)),
            None => Err(refused(at, PointerFault::NoObject)),
        }
    }

    /// An object is about to be retired.
    pub(crate) fn retires(&self, at: Address) -> Result<()> {
        let Some(mut objects) = self.objects() else { return Ok(()) };
        match objects.get_mut(&at) {
            Some(life @ Life::Live) => {
                *life = Life::Retired;
                Ok(())
            }
            Some(Life::Retired) => Err(refused(at, PointerFault::Retired)),
            None => Err(refused(at, PointerFault::NoObject)),
        }
    }

    pub(crate) fn freed(&self, at: Address) {
        if let Some(mut objects) = self.objects() {
            objects.remove(&at);
        }
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
