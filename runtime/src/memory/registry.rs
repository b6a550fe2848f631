//! The registry: the addresses of live and retired objects, in debug builds only.
//!
//! Blocks have no headers, so no word in far memory shows whether an address is an object's. A debug build records every object of the
//! process, and refuses to free or retire other addresses and objects that are retired already. Release builds detect only a double free of
//! the block freed last, and a double retirement of the one retired last. The simulator has more detailed books of its own. In a cluster of
//! several processes the registry is off, since other processes allocate and free, too.

use crate::error::{self, Error, PointerFault, Result};
use farfield_words::Address;

#[derive(Debug)]
pub(crate) struct Registry {
    #[cfg(debug_assertions)]
    objects: Option<std::sync::Mutex<std::collections::HashMap<Address, Life>>>,
}

/// The state of an object that is not freed.
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
    /// A registry, which is on in a cluster without other processes.
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            #[cfg(debug_assertions)]
            objects: is_on.then(Default::default),
        }
    }
}

#[cfg(debug_assertions)]
impl Registry {
    fn objects(&self) -> Option<std::sync::MutexGuard<'_, std::collections::HashMap<Address, Life>>> {
        // The map is consistent at any time.
        Some(self.objects.as_ref()?.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn allocated(&self, at: Address) {
        if let Some(mut objects) = self.objects() {
            objects.insert(at, Life::Live);
        }
    }

    /// Checks an object that its user is about to free.
    pub(crate) fn check_deletion(&self, at: Address) -> Result<()> {
        let Some(objects) = self.objects() else { return Ok(()) };
        match objects.get(&at) {
            Some(Life::Live) => Ok(()),
            Some(Life::Retired) => Err(refused(at, PointerFault::Retired)),
            None => Err(refused(at, PointerFault::NoObject)),
        }
    }

    /// Checks an object that is about to be retired, and marks it retired.
    pub(crate) fn note_retirement(&self, at: Address) -> Result<()> {
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
#[allow(clippy::unused_self, clippy::unnecessary_wraps)] // the signatures of a debug build
impl Registry {
    pub(crate) fn allocated(&self, _: Address) {}

    pub(crate) fn check_deletion(&self, _: Address) -> Result<()> {
        Ok(())
    }

    pub(crate) fn note_retirement(&self, _: Address) -> Result<()> {
        Ok(())
    }

    pub(crate) fn freed(&self, _: Address) {}
}
