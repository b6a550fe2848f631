//! RDMA devices and their limits.
//!
//! All limits are queried from the device. Devices are opened once and stay open until the process ends, so an object of a device never outlives it.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::binding::{query_port, sys};
use crate::error::{self, Error, Result};

/// The scope of a device's atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomics {
    /// No atomics: Farfield can not use the device.
    None,
    /// Atomic with respect to atomics through the same device.
    Device,
    /// Atomic with respect to the processors of its host, too.
    Global,
}

/// The limits of a device on which Farfield depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The largest numbers of requests in a queue pair and of completions in a completion queue.
    pub(super) requests: u32,
    pub(super) completions: u32,
    /// The largest numbers of unanswered READs and atomics of a connection, as requester and as responder.
    pub(super) reads_out: u8,
    pub(super) reads_in: u8,
    pub(super) atomics: Atomics,
    pub(super) region_bytes: u64,
    pub(super) ports: u8,
}

/// Entries of a completion queue in addition to those of requests.
pub(super) const SPARE_COMPLETIONS: u32 = 8;

/// Checks that Farfield can use a device.
pub(super) fn check(device: Device) -> Result<Limits, String> {
    let limits = device.limits().map_err(|error| error.to_string())?;
    suffices(&limits)
        .map(|()| limits)
        .map_err(|lack| format!("the RDMA device {} has no {lack}", device.name()))
}

/// Returns the name of a missing capability as the error.
fn suffices(limits: &Limits) -> Result<(), &'static str> {
    match limits.atomics {
        Atomics::None => Err("atomics"),
        _ if limits.reads_out == 0 || limits.reads_in == 0 => Err("READs"),
        _ if limits.requests == 0 || limits.completions <= SPARE_COMPLETIONS => Err("room for requests"),
        Atomics::Device | Atomics::Global => Ok(()),
    }
}

/// Returns the time after which a device retransmits a packet, as the exponent of a power of two.
///
/// Hardware tries eight times within the timeout. A software device may take longer for an answer, and its retransmissions are harmful: it is set to
/// wait practically for ever, and the lane's timeout decides.
pub(super) fn ack_timeout(device: Device, timeout: Duration) -> u8 {
    if device.is_software() {
        return 24;
    }
    let each_ns = timeout.as_nanos() / 8;
    (8..24).rfind(|exponent| 4096_u128 << exponent <= each_ns).unwrap_or(8)
}

/// An open device.
///
/// Invariant: it is one of the contexts of a list of `rdma_get_devices`, which stay open as long as the list is not freed. None is: only
/// [`Device::open_all`] makes lists and devices, and keeps no list to free. So a device may be copied, and is valid for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device(NonNull<sys::ibv_context>);

// SAFETY: it is a pointer that stays valid on every thread, and that only verbs follow, which may be called on any thread.
unsafe impl Send for Device {}
// SAFETY: verbs may be called with one context on several threads at a time ("libibverbs is fully thread safe", its documentation); its
// fields that are read here (`name`) are not changed after it was opened.
unsafe impl Sync for Device {}

/// Returns the system's last error; for functions that set `errno`.
pub(super) fn last_error(action: &'static str) -> Error {
    Error::from(error::System { action, cause: io::Error::last_os_error() })
}

pub(super) fn cannot(
    action: &'static str,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::from(error::System { action, cause: io::Error::other(why) })
}

/// Makes reading from a descriptor return immediately if there is nothing to read.
pub(super) fn set_nonblocking_fd(fd: BorrowedFd<'_>, action: &'static str) -> Result<()> {
    let set = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK));
    set.map_err(|cause| Error::from(error::System { action, cause: cause.into() }))
}

impl Device {
    /// Returns all devices of this host.
    ///
    /// # Errors
    /// [`Error::System`] if there are none or if they may not be opened.
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
        // SAFETY: the call writes to `count`, which is ours. A list that is not null is freed once, and nothing of it is kept.
        unsafe {
            let list = sys::ibv_get_device_list(&raw mut count);
            if !list.is_null() {
                sys::ibv_free_device_list(list);
            }
        }
        if count == 0 {
            return Err(cannot(ACTION, "this machine has no RDMA device"));
        }
        // SAFETY: the call writes to `count`, which is ours, and returns null or a list of as many contexts.
        let list = unsafe { sys::rdma_get_devices(&raw mut count) };
        if list.is_null() || count == 0 {
            return Err(cannot(ACTION, why_not_opened()));
        }
        // SAFETY: the list is not null, so it has `count` entries, all of them written. It is never freed, so they stay open.
        let contexts = unsafe { std::slice::from_raw_parts(list, count.unsigned_abs() as usize) };
        Ok(contexts.iter().filter_map(|context| NonNull::new(*context)).map(Device).collect())
    }

    /// Returns the device that the connection manager has chosen for a connection.
    pub(super) fn of(context: *mut sys::ibv_context) -> Option<Self> {
        Self::all().ok()?.iter().copied().find(|device| device.0.as_ptr() == context)
    }

    pub(super) fn as_ptr(self) -> *mut sys::ibv_context {
        self.0.as_ptr()
    }

    /// Returns its name.
    pub(super) fn name(self) -> String {
        // SAFETY: the context is open for ever, so its device is not freed either. The name is an array in that, which the library has terminated
        // and does not change; it is copied here.
        let name = unsafe { CStr::from_ptr(sys::ibv_get_device_name(self.0.as_ref().device)) };
        name.to_string_lossy().into_owned()
    }

    /// Returns the folder in which the kernel describes it.
    fn folder(self) -> PathBuf {
        Path::new("/sys/class/infiniband").join(self.name())
    }

    /// Returns whether it is a software device: it has no hardware device in its folder.
    pub(super) fn is_software(self) -> bool {
        !self.folder().join("device").exists()
    }

    pub(super) fn limits(self) -> Result<Limits> {
        let mut attributes = MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and the call writes to the attributes only, which are ours.
        let result = unsafe { sys::ibv_query_device(self.0.as_ptr(), attributes.as_mut_ptr()) };
        if result != 0 {
            let cause = io::Error::from_raw_os_error(result);
            return Err(Error::from(error::System { action: "query the RDMA device", cause }));
        }
        // SAFETY: all fields are integers, which were zero before the call. So they are initialised, even those that the call does not write.
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

    /// Returns whether a port is up, and its MTU in bytes.
    pub(super) fn port(self, port: u8) -> Option<(bool, u32)> {
        let mut attributes = MaybeUninit::<sys::ibv_port_attr>::zeroed();
        // SAFETY: the context is open, and the call writes to the attributes only, which are ours. All fields are integers, which were zero before.
        // So they are initialised, even those that the call does not write.
        let attributes = unsafe {
            if query_port(self.0.as_ptr(), port, attributes.as_mut_ptr()) != 0 {
                return None;
            }
            attributes.assume_init()
        };
        let up = attributes.state == sys::ibv_port_state::IBV_PORT_ACTIVE;
        Some((up, 128 << attributes.active_mtu))
    }

    /// Returns the global identifiers of a port that are in use, each with its index and type.
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

/// Returns the reason why no device could be opened.
fn why_not_opened() -> String {
    const FOLDER: &str = "/dev/infiniband";
    let files = std::fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
    let files: Vec<PathBuf> = files.collect();
    let open = |path: &PathBuf| std::fs::OpenOptions::new().read(true).write(true).open(path);
    if let Some(path) = files
        .iter()
        .find(|path| open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied))
    {
        return format!("no permission for {}: only root and its group may open it", path.display());
    }
    if files.iter().any(|path| path.ends_with("rdma_cm")) {
        return format!(
            "the devices in {FOLDER} can not be opened: install their library, ibverbs-providers"
        );
    }
    format!("there is no {FOLDER}/rdma_cm: load the kernel's module rdma_ucm")
}

/// An RDMA device of this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// True for a software device, such as `rdma_rxe`.
    pub is_software: bool,
    /// The scope of its atomics.
    pub atomics: Atomics,
    /// Requests that a queue pair holds.
    pub max_requests: u32,
    /// The most unanswered READs and atomics of a connection.
    pub max_reads: u8,
    /// Its ports.
    pub ports: Vec<PortInfo>,
    /// The reason if Farfield can not use it.
    pub unusable: Option<String>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// Its number, from 1.
    pub number: u8,
    /// True if it is up.
    pub is_up: bool,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its global identifiers that are in use: index, address, kind.
    pub identifiers: Vec<(u32, String, String)>,
}

/// Returns the devices of this machine.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let describe = |device: &Device| {
        let limits = device.limits()?;
        let ports = (1..=limits.ports).filter_map(|number| {
            let (is_up, mtu) = device.port(number)?;
            Some(PortInfo { number, is_up, mtu, identifiers: device.identifiers(number) })
        });
        Ok(DeviceInfo {
            name: device.name(),
            is_software: device.is_software(),
            atomics: limits.atomics,
            max_requests: limits.requests,
            max_reads: limits.reads_out.min(limits.reads_in),
            ports: ports.collect(),
            unusable: check(*device).err(),
        })
    };
    Device::all()?.iter().map(describe).collect()
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
