//! Memory that a device may access.
//!
//! # Why no work request can corrupt this process
//!
//! A device reads and writes memory of this process on its own. Requests are posted by safe functions, though, because of three facts:
//!
//! 1. A device reaches memory only through a *registration*. A work request names an address and a key. If the address is not inside the registration
//!    of that key, or the registration is in another protection domain, the device refuses the request with an error completion. (InfiniBand, volume
//!    1, "Memory registration".)
//! 2. Only [`Region::new`] registers memory, and always a whole mapping of its own. [`Region`] ends the registration before it unmaps the
//!    memory, after which the device refuses its key. If the registration can not be ended, the memory stays mapped for ever.
//! 3. This process accesses the memory through `AtomicU64` only ([`Region::words`]), so a device that writes at the same time is like another
//!    thread that does.
//!
//! So a wrong address in a request, or a ring that is reused too early, can mix up words, which the pipeline's and the lane's invariants exclude; it
//! is no undefined behaviour. The arguments at each `unsafe` are about the *library*'s behaviour during the call.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::process::{Resource, getrlimit};

use super::binding::sys;
use super::device::{Device, cannot, last_error};
use super::objects::{count_created, count_destroyed};
use crate::error::{self, Error, Result};
use crate::lanes::pipeline::Ring;
use farfield_words::WORD_BYTES;

/// The size of huge pages for segments, if the system has any: the smallest.
const HUGE_PAGE_BITS: u8 = 21;

/// A protection domain: its queue pairs can access its memory and no other.
///
/// Invariant: `pd` was allocated by `new` and is freed in `drop` only, so it is alive as long as the domain.
#[derive(Debug)]
pub(super) struct Domain {
    pd: NonNull<sys::ibv_pd>,
}

// SAFETY: verbs may be called on any thread, several at a time ("libibverbs is fully thread safe", its documentation), and `pd` is only
// handed to them. It is freed once, by `drop`, which has the only reference left.
unsafe impl Send for Domain {}
// SAFETY: as for `Send`: its one method copies the pointer, and only verbs follow it.
unsafe impl Sync for Domain {}

impl Domain {
    pub(super) fn new(device: Device) -> Result<Arc<Self>> {
        // SAFETY: a `Device` is an open context, which is never closed.
        let pd = unsafe { sys::ibv_alloc_pd(device.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| last_error("allocate a protection domain"))?;
        count_created();
        Ok(Arc::new(Self { pd }))
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it and nothing frees it but this, which runs once. Queue pairs and regions own an `Arc` of it, so none
        // exists that would use it; if destroying one of those failed, the device refuses this and the domain stays.
        count_destroyed("protection domain", unsafe { sys::ibv_dealloc_pd(self.pd.as_ptr()) });
    }
}

/// Memory that a device may access, all zero at first.
///
/// Invariant: `mr` registers all of `map`, from `new` to `drop`. `map` is mapped for as long, begins at a page and is a multiple of words
/// long; this process accesses it through [`Region::words`] only.
#[derive(Debug)]
pub(crate) struct Region {
    mr: NonNull<sys::ibv_mr>,
    /// Unmapped by `drop`, unless the device can still reach it.
    map: ManuallyDrop<MmapMut>,
    _domain: Arc<Domain>,
}

// SAFETY: the mapping belongs to the process, not to a thread; `mr` is read only (see `keys`), and ended once, by `drop`, which verbs allow on
// any thread.
unsafe impl Send for Region {}
// SAFETY: shared memory is accessed through `&[AtomicU64]`, and `mr` is only read.
unsafe impl Sync for Region {}

/// Access rights to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// For the local device.
    Local,
    /// For the remote ends of the domain's queue pairs, too: reads, writes and atomics.
    Remote,
}

impl Region {
    /// Maps and registers memory: on huge pages if the system has some, on ordinary ones otherwise. `bytes` is a multiple of words.
    pub(super) fn new(domain: &Arc<Domain>, bytes: u64, access: Access) -> Result<Self> {
        const ACTION: &str = "register memory with the RDMA device";
        let failed = |cause| Error::from(error::System { action: "map far memory", cause });
        let bytes = usize::try_from(bytes).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let plain = || MmapOptions::new().len(bytes).map_anon();
        let huge = || MmapOptions::new().len(bytes).huge(Some(HUGE_PAGE_BITS)).map_anon();
        let mut map = if access == Access::Remote && bytes >> HUGE_PAGE_BITS > 0 {
            huge().or_else(|_| {
                // The advice affects speed only, so its failure is ignored.
                plain().inspect(|map| drop(map.advise(Advice::HugePage)))
            })
        } else {
            plain()
        }
        .map_err(failed)?;
        let rights = match access {
            Access::Local => sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
            Access::Remote => {
                sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC
            }
        };
        // SAFETY: the domain is borrowed, so its `pd` is allocated. The range is that of `map`, which this function owns; from here on the
        // device may write to it, and everything that this process does with it is atomic (fact 3 above). If the region is made, its `drop`
        // keeps the memory mapped until the registration has ended; if it is not, nothing was registered.
        let mr = unsafe {
            sys::ibv_reg_mr(domain.as_ptr(), map.as_mut_ptr().cast(), bytes, rights.0.cast_signed())
        };
        let mr = NonNull::new(mr).ok_or_else(|| {
            let cause = io::Error::last_os_error();
            match getrlimit(Resource::Memlock).current {
                Some(limit) if limit < bytes as u64 => cannot(
                    ACTION,
                    format!(
                        "{bytes} bytes are more than RLIMIT_MEMLOCK, {limit} bytes, allows; raise it with `ulimit -l` or \
                         in /etc/security/limits.conf ({cause})"
                    ),
                ),
                _ => Error::from(error::System { action: ACTION, cause }),
            }
        })?;
        count_created();
        Ok(Self { mr, map: ManuallyDrop::new(map), _domain: Arc::clone(domain) })
    }

    /// Returns its start address, which is the same for the process and the device.
    pub(super) fn base(&self) -> u64 {
        self.map.as_ptr().expose_provenance() as u64
    }

    /// Returns the local and the remote key.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: `new` got `mr` from the library, which filled it in; it is freed by `drop` only, and nothing writes to it: neither this module
        // nor, but for `ibv_rereg_mr`, which is not called, the library.
        let mr = unsafe { self.mr.as_ref() };
        (mr.lkey, mr.rkey)
    }

    /// Returns its words.
    #[inline]
    #[allow(clippy::cast_ptr_alignment)] // mappings begin at pages
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` owns so many bytes from its start on and stays mapped while the region is borrowed. It begins at a page, so it is
        // aligned; anonymous memory is zero, and any bits are a valid `AtomicU64`. Nothing makes a plain reference into it: `map` is private,
        // and only its address and length are used. What the device writes meanwhile is as if another thread wrote it.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / WORD_BYTES) }
    }

    /// Returns the scatter/gather element of a part of it.
    pub(super) fn element(&self, offset: usize, bytes: usize) -> sys::ibv_sge {
        sys::ibv_sge { addr: self.base() + offset as u64, length: bytes as u32, lkey: self.keys().0 }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `new` registered it and nothing ends that but this, which runs once.
        if count_destroyed("memory region", unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) }) {
            // SAFETY: `drop` runs once and nothing uses `map` after it. The device reaches it no more (fact 2 above).
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

impl Ring for Region {
    #[inline]
    fn read(&self, at: usize, into: &mut [u64]) {
        if into.is_empty() {
            return;
        }
        // Most answers are one word.
        if let [word] = into {
            *word = self.words()[at].load(Ordering::Relaxed);
            return;
        }
        for (to, from) in into.iter_mut().zip(&self.words()[at..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }
    #[inline]
    fn write(&self, at: usize, from: &[u64]) {
        // As above.
        if let [word] = from {
            return self.words()[at].store(*word, Ordering::Relaxed);
        }
        for (to, from) in self.words()[at..].iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
    }
}
