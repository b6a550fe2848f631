//! RDMA devices, their limits, and memory that they may reach.
//!
//! Everything is queried from the device and nothing assumed. Devices are opened once and stay open for as long as the process
//! lives, so what is made of one never outlives it.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use memmap2::{Advice, MmapMut, MmapOptions};

use super::binding::{query_port, sys};
use super::pipeline::Ring;
use crate::error::{self, Error, Result};
use crate::layout::WORD_BYTES;

/// Size of the pages that segments lie on if the system has any to give: the smallest that is called huge.
const HUGE_PAGE_BITS: u8 = 21;

/// Whether a device's atomics are atomic with respect to anything, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomics {
    /// It has none: Farfield can not use it.
    None,
    /// With respect to others through the same device.
    Device,
    /// With respect to the processors of its host too.
    Global,
}

/// What a device can do, as far as Farfield depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests in a queue, and completions in one.
    pub(super) requests: u32,
    pub(super) completions: u32,
    /// READs and atomics without an answer that a connection may have at this end, and at the other.
    pub(super) reads_out: u8,
    pub(super) reads_in: u8,
    pub(super) atomics: Atomics,
    pub(super) region_bytes: u64,
    pub(super) ports: u8,
}

/// Completions that a queue has room for beside those of requests: what tells of nothing but itself.
pub(super) const SPARE_COMPLETIONS: u32 = 8;

/// Whether Farfield can use a device.
pub(super) fn check(device: Device) -> Result<Limits, String> {
    let limits = device.limits().map_err(|error| error.to_string())?;
    suffices(&limits)
        .map(|()| limits)
        .map_err(|lack| format!("the RDMA device {} has no {lack}", device.name()))
}

/// What a device lacks.
fn suffices(limits: &Limits) -> Result<(), &'static str> {
    match limits.atomics {
        Atomics::None => Err("atomics"),
        _ if limits.reads_out == 0 || limits.reads_in == 0 => Err("READs"),
        _ if limits.requests == 0 || limits.completions <= SPARE_COMPLETIONS => Err("room for requests"),
        Atomics::Device | Atomics::Global => Ok(()),
    }
}

/// How long a device waits before it sends a packet again, as the power of two that it takes.
///
/// Hardware tries eight times within the timeout. A device in software may take longer for an answer than that, and what it sends
/// again is harmful: it is told to wait as good as for ever, and the clock above it decides.
pub(super) fn ack_timeout(device: Device, timeout: Duration) -> u8 {
    if device.is_software() {
        return 24;
    }
    let each_ns = timeout.as_nanos() / 8;
    (8..24).rfind(|exponent| 4096_u128 << exponent <= each_ns).unwrap_or(8)
}

/// An open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device(NonNull<sys::ibv_context>);

// SAFETY: a context is never closed, and the library's functions may be called with it on any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What the system said last; for functions that set `errno`.
pub(super) fn last_error(action: &'static str) -> Error {
    Error::from(error::System { action, cause: io::Error::last_os_error() })
}

fn cannot(action: &'static str, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::from(error::System { action, cause: io::Error::other(why) })
}

impl Device {
    /// All devices of this host.
    ///
    /// # Errors
    /// [`Error::System`] in a line if there are none or if they may not be opened.
    pub(super) fn all() -> Result<&'static [Self]> {
        static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
        if let Some(devices) = DEVICES.get() {
            return Ok(devices);
        }
        let devices = Self::open_all()?;
        Ok(DEVICES.get_or_init(|| devices))
    }

    fn open_all() -> Result<Vec<Self>> {
        const ACTION: &str = "use RDMA";
        let mut count = 0;
        // SAFETY: `count` may be written; the list, if there is one, is freed below and nothing of it is kept.
        unsafe {
            let list = sys::ibv_get_device_list(&raw mut count);
            if !list.is_null() {
                sys::ibv_free_device_list(list);
            }
        }
        if count == 0 {
            return Err(cannot(ACTION, "this machine has no RDMA device"));
        }
        // SAFETY: `count` may be written. The list is terminated by null and its contexts stay open until it is freed, which
        // it never is.
        let list = unsafe { sys::rdma_get_devices(&raw mut count) };
        if list.is_null() || count == 0 {
            return Err(cannot(ACTION, why_not_opened()));
        }
        // SAFETY: the list has `count` entries.
        let devices =
            (0..count.unsigned_abs() as usize).filter_map(|index| NonNull::new(unsafe { *list.add(index) }));
        Ok(devices.map(Device).collect())
    }

    /// The device that the connection manager has chosen for a connection.
    pub(super) fn of(context: *mut sys::ibv_context) -> Option<Self> {
        Self::all().ok()?.iter().copied().find(|device| device.0.as_ptr() == context)
    }

    pub(super) fn as_ptr(self) -> *mut sys::ibv_context {
        self.0.as_ptr()
    }

    /// What it is called.
    pub(super) fn name(self) -> String {
        // SAFETY: the context is open, so it has a device, whose name is a string that lives as long.
        let name = unsafe { CStr::from_ptr(sys::ibv_get_device_name(self.0.as_ref().device)) };
        name.to_string_lossy().into_owned()
    }

    /// Where the kernel describes it.
    fn folder(self) -> PathBuf {
        Path::new("/sys/class/infiniband").join(self.name())
    }

    /// Whether it is a program and no hardware: it then has no hardware that it belongs to.
    pub(super) fn is_software(self) -> bool {
        !self.folder().join("device").exists()
    }

    pub(super) fn limits(self) -> Result<Limits> {
        let mut attributes = MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the context is open and the attributes may be written.
        let result = unsafe { sys::ibv_query_device(self.0.as_ptr(), attributes.as_mut_ptr()) };
        if result != 0 {
            let cause = io::Error::from_raw_os_error(result);
            return Err(Error::from(error::System { action: "query the RDMA device", cause }));
        }
        // SAFETY: zeroed integers are valid, and the call has filled them in.
        let attributes = unsafe { attributes.assume_init() };
        let small = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
        Ok(Limits {
            requests: attributes.max_qp_wr.unsigned_abs(),
            completions: attributes.max_cqe.unsigned_abs(),
            reads_out: small(attributes.max_qp_init_rd_atom.max(0)),
            reads_in: small(attributes.max_qp_rd_atom.max(0)),
            atomics: match attributes.atomic_cap {
                sys::ibv_atomic_cap::IBV_ATOMIC_NONE => Atomics::None,
                sys::ibv_atomic_cap::IBV_ATOMIC_GLOB => Atomics::Global,
                _ => Atomics::Device,
            },
            region_bytes: attributes.max_mr_size,
            ports: attributes.phys_port_cnt,
        })
    }

    /// Whether a port is up, and the most bytes of a packet on it.
    pub(super) fn port(self, port: u8) -> Option<(bool, u32)> {
        let mut attributes = MaybeUninit::<sys::ibv_port_attr>::zeroed();
        // SAFETY: the context is open and the attributes may be written; zeroed integers are valid.
        let attributes = unsafe {
            if query_port(self.0.as_ptr(), port, attributes.as_mut_ptr()) != 0 {
                return None;
            }
            attributes.assume_init()
        };
        let up = attributes.state == sys::ibv_port_state::IBV_PORT_ACTIVE;
        Some((up, 128 << attributes.active_mtu))
    }

    /// The global identifiers of a port that are in use, each with its index and kind.
    pub(super) fn identifiers(self, port: u8) -> Vec<(u32, String, String)> {
        let folder = self.folder().join("ports").join(port.to_string());
        let read = |path: PathBuf| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let used = |index: u32| {
            let identifier: std::net::Ipv6Addr = read(folder.join(format!("gids/{index}")))?.parse().ok()?;
            let kind = read(folder.join(format!("gid_attrs/types/{index}")))?;
            let text = identifier.to_ipv4_mapped().map_or(identifier.to_string(), |ip| ip.to_string());
            (!identifier.is_unspecified()).then_some((index, text, kind))
        };
        (0..256).filter_map(used).collect()
    }
}

/// Why none of the devices that there are could be opened.
fn why_not_opened() -> String {
    const FOLDER: &str = "/dev/infiniband";
    let files = std::fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
    let files: Vec<PathBuf> = files.collect();
    let open = |path: &PathBuf| std::fs::OpenOptions::new().read(true).write(true).open(path);
    if let Some(path) = files
        .iter()
        .find(|path| open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied))
    {
        return format!("no permission for {}: its group may, or nobody but root", path.display());
    }
    if files.iter().any(|path| path.ends_with("rdma_cm")) {
        return format!(
            "the devices in {FOLDER} can not be opened: is their library in ibverbs-providers installed?"
        );
    }
    format!("there is no {FOLDER}/rdma_cm: load the kernel's module rdma_ucm")
}

/// A protection domain: queue pairs of one reach its memory and no other.
#[derive(Debug)]
pub(super) struct Domain {
    pd: NonNull<sys::ibv_pd>,
}

// SAFETY: the library's functions may be called with it on any thread, and it is freed once, by the last owner.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(super) fn new(device: Device) -> Result<Arc<Self>> {
        // SAFETY: the context is open.
        let pd = unsafe { sys::ibv_alloc_pd(device.0.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| last_error("allocate a protection domain"))?;
        made();
        Ok(Arc::new(Self { pd }))
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: it was allocated, and what is made in it holds a reference to it.
        gone("protection domain", unsafe { sys::ibv_dealloc_pd(self.pd.as_ptr()) });
    }
}

/// How many objects of devices there are: made, and not destroyed.
static OBJECTS: AtomicU64 = AtomicU64::new(0);

/// An object of a device has been made.
pub(super) fn made() {
    OBJECTS.fetch_add(1, Ordering::Relaxed);
}

/// An object of a device has been destroyed, or would not be: that is a bug of ours, since each owns what it was made from.
pub(super) fn gone(what: &'static str, result: std::ffi::c_int) {
    if result == 0 {
        OBJECTS.fetch_sub(1, Ordering::Relaxed);
    } else {
        let cause = io::Error::last_os_error();
        tracing::error!(what, result, %cause, "an object of the RDMA device is lost: it could not be destroyed");
    }
}

/// How many there are.
#[cfg(test)]
pub(super) fn objects() -> u64 {
    OBJECTS.load(Ordering::Relaxed)
}

/// Memory that a device may reach, all zero at first.
///
/// Invariant: `mr` registers all of `map`, which stays where it is; `map` is a multiple of words, and all accesses by this
/// process are to atomic words.
#[derive(Debug)]
pub(super) struct Region {
    mr: NonNull<sys::ibv_mr>,
    map: MmapMut,
    _domain: Arc<Domain>,
}

// SAFETY: the memory is only accessed through atomics, and the registration is ended once, by the owner.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Who may reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The own device.
    Local,
    /// Whoever is connected in its domain: reading, writing, atomics.
    Remote,
}

impl Region {
    /// Maps and registers memory: on huge pages if the system has some, on ordinary ones otherwise.
    pub(super) fn new(domain: &Arc<Domain>, bytes: u64, reach: Reach) -> Result<Self> {
        const ACTION: &str = "register memory with the RDMA device";
        let failed = |cause| Error::from(error::System { action: "map far memory", cause });
        let bytes = usize::try_from(bytes).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let plain = || MmapOptions::new().len(bytes).map_anon();
        let huge = || MmapOptions::new().len(bytes).huge(Some(HUGE_PAGE_BITS)).map_anon();
        let mut map = if reach == Reach::Remote && bytes >> HUGE_PAGE_BITS > 0 {
            huge().or_else(|_| {
                // Whether the system takes the advice makes no difference but in speed.
                plain().inspect(|map| drop(map.advise(Advice::HugePage)))
            })
        } else {
            plain()
        }
        .map_err(failed)?;
        let rights = match reach {
            Reach::Local => sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
            Reach::Remote => {
                sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC
            }
        };
        // SAFETY: the domain and the mapping are there, and stay until after the registration has ended.
        let mr = unsafe {
            sys::ibv_reg_mr(domain.as_ptr(), map.as_mut_ptr().cast(), bytes, rights.0.cast_signed())
        };
        let mr = NonNull::new(mr).ok_or_else(|| {
            let cause = io::Error::last_os_error();
            match memlock_limit() {
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
        made();
        Ok(Self { mr, map, _domain: Arc::clone(domain) })
    }

    /// Where it begins, in this process's memory and to the device.
    pub(super) fn base(&self) -> u64 {
        self.map.as_ptr().addr() as u64
    }

    /// The key for its own device, and for others.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: the registration is there.
        let mr = unsafe { self.mr.as_ref() };
        (mr.lkey, mr.rkey)
    }

    /// Its words.
    #[allow(clippy::cast_ptr_alignment)] // mappings begin at pages
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned, mapped and all of it initialised; every access of this process is atomic, and what
        // the device does to it is no access of the program's.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / WORD_BYTES) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was registered, and the mapping is still there.
        gone("memory region", unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) });
    }
}

impl Ring for Region {
    fn read(&self, at: usize, into: &mut [u64]) {
        for (to, from) in into.iter_mut().zip(&self.words()[at..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }
    fn write(&self, at: usize, from: &[u64]) {
        for (to, from) in self.words()[at..].iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
    }
}

/// How many bytes the process may lock in memory; none if there is no limit.
fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` may be written.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_atomics_is_not_used() {
        let limits = Limits {
            requests: 100,
            completions: 100,
            reads_out: 16,
            reads_in: 16,
            atomics: Atomics::Device,
            region_bytes: 1 << 40,
            ports: 1,
        };
        assert_eq!(suffices(&limits), Ok(()));
        assert_eq!(suffices(&Limits { atomics: Atomics::None, ..limits }), Err("atomics"));
        assert_eq!(suffices(&Limits { reads_in: 0, ..limits }), Err("READs"));
        assert_eq!(suffices(&Limits { completions: 8, ..limits }), Err("room for requests"));
    }
}
