//! RDMA devices of this host, and tests on them.
//!
//! Devices are found in `/sys/class/infiniband`, so a host without devices needs no tools. The tests use a port that is active and has a
//! global identifier derived from an IPv4 address (RoCE version 2). Memory nodes of the tests listen at that address.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::bounded;
use super::guest::{PRELUDE, Test};
use super::packages;
use super::report::{Outcome, Report, outcome};
use crate::workspace::read;

/// The kernel's folder of devices.
const DEVICES: &str = "/sys/class/infiniband";

/// Tools that the tests need on the host, with their packages.
pub(super) const TOOLS: &[(&str, &str)] = &[("ib_read_lat", "perftest"), ("ibv_devinfo", "ibverbs-utils")];

/// A device that tests can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) gid_index: u32,
    pub(super) address: Ipv4Addr,
    pub(super) kind: DeviceKind,
}

/// The kind of a device. The preferred kind comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeviceKind {
    Hardware,
    Software,
}

/// The device to use: hardware first, then by name.
pub(super) fn device() -> Option<Device> {
    best(Path::new(DEVICES))
}

fn best(folder: &Path) -> Option<Device> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut devices: Vec<Device> = entries.flatten().filter_map(|entry| usable(&entry.path())).collect();
    devices.sort_by_key(|device| (device.kind, device.name.clone()));
    devices.into_iter().next()
}

/// The device's properties; `None` if tests can not use it.
fn usable(device: &Path) -> Option<Device> {
    let port = device.join("ports/1");
    if !read(&port.join("state")).ok()?.contains("ACTIVE") {
        return None;
    }
    let index = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let entries = std::fs::read_dir(port.join("gids")).ok()?;
    let mut indices: Vec<u32> = entries.flatten().filter_map(|entry| index(&entry)).collect();
    indices.sort_unstable();
    let (gid_index, address) = indices.into_iter().find_map(|index| {
        let kind = read(&port.join(format!("gid_attrs/types/{index}"))).ok()?;
        let address = address(read(&port.join(format!("gids/{index}"))).ok()?.trim())?;
        kind.contains("v2").then_some((index, address))
    })?;
    let name = device.file_name()?.to_str()?.to_owned();
    // A software device has no hardware parent.
    let is_hardware = device.join("device").exists();
    let kind = if is_hardware { DeviceKind::Hardware } else { DeviceKind::Software };
    Some(Device { name, gid_index, address, kind })
}

/// The IPv4 address in a global identifier.
fn address(gid: &str) -> Option<Ipv4Addr> {
    gid.parse::<std::net::Ipv6Addr>().ok()?.to_ipv4_mapped()
}

/// Runs the tests in order.
pub(super) fn run(
    device: &Device,
    tests: &[Test],
    programs: &[PathBuf],
    verbose: bool,
    end: Instant,
) -> Result<Vec<Report>, String> {
    let folder = packages::cache();
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let path = search_path(programs)?;
    let log = folder.join(format!("host-{}.log", std::process::id()));
    let mut reports = Vec::new();
    for test in tests {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            reports.push(Report::aborted(&test.name, "not run: the run has exceeded its time limit"));
            continue;
        }
        let limit = test.limit.min(left);
        let mut command = Command::new("timeout");
        // This also ends background processes of the script, unlike a signal to the script alone.
        command.args(["--signal=KILL", &format!("{}", limit.as_secs_f64()), "sh", "-ec"]);
        command.arg(format!("{PRELUDE}\n{}", test.command)).env("PATH", &path);
        command.env("RDMA_DEVICE", &device.name).env("RDMA_GID_INDEX", device.gid_index.to_string());
        command.env("RDMA_ADDRESS", device.address.to_string()).env("FARFIELD_STALL", "5s");
        command.env("FARFIELD_REQUIRE", "rdma");
        let started = Instant::now();
        let file = File::create(&log).map_err(failed)?;
        let status = bounded::logged(&mut command, file, limit + Duration::from_secs(5))?;
        let took = started.elapsed();
        // `timeout` ends itself with the same signal: then there is no exit code.
        let code = status.map(|status| status.code().unwrap_or(137));
        let outcome = code.map_or(Outcome::TimedOut, |code| outcome(code, took, limit));
        let printed = std::fs::read(&log).map_err(failed)?;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        if verbose {
            eprint!("{printed}");
        }
        reports.push(Report { name: test.name.clone(), outcome, took, printed });
    }
    // A leftover file is harmless.
    let _ = std::fs::remove_file(&log);
    Ok(reports)
}

/// The search path: the folders of the run's programs first.
fn search_path(programs: &[PathBuf]) -> Result<std::ffi::OsString, String> {
    let mut folders = Vec::new();
    for program in programs {
        let whole = program.canonicalize().map_err(|error| format!("{}: {error}", program.display()))?;
        folders.extend(whole.parent().map(Path::to_owned));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    std::env::join_paths(folders).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of devices.
    struct Devices(tempfile::TempDir);

    impl Devices {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn add(&self, name: &str, state: &str, gids: &[(&str, &str)], real: bool) {
            let port = self.0.path().join(name).join("ports/1");
            for folder in ["gids", "gid_attrs/types"] {
                std::fs::create_dir_all(port.join(folder)).unwrap();
            }
            std::fs::write(port.join("state"), state).unwrap();
            for (index, (gid, kind)) in gids.iter().enumerate() {
                std::fs::write(port.join(format!("gids/{index}")), gid).unwrap();
                std::fs::write(port.join(format!("gid_attrs/types/{index}")), kind).unwrap();
            }
            if real {
                std::fs::create_dir(self.0.path().join(name).join("device")).unwrap();
            }
        }
    }

    const LOCAL: (&str, &str) = ("fe80:0000:0000:0000:5054:00ff:fe00:0001\n", "RoCE v2\n");
    const MAPPED: (&str, &str) = ("0000:0000:0000:0000:0000:ffff:0a00:0001\n", "RoCE v2\n");
    const OLDER: (&str, &str) = ("0000:0000:0000:0000:0000:ffff:0a00:0001\n", "IB/RoCE v1\n");

    #[test]
    fn a_port_with_an_address_is_used() {
        let devices = Devices::new();
        devices.add("rxe0", "4: ACTIVE\n", &[LOCAL, OLDER, MAPPED], false);
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let expected = Device { name: "rxe0".to_owned(), gid_index: 2, address, kind: DeviceKind::Software };
        assert_eq!(best(devices.0.path()), Some(expected));
    }

    #[test]
    fn hardware_is_preferred() {
        let devices = Devices::new();
        devices.add("a_rxe", "4: ACTIVE\n", &[MAPPED], false);
        devices.add("mlx5_0", "4: ACTIVE\n", &[MAPPED], true);
        assert_eq!(best(devices.0.path()).unwrap().name, "mlx5_0");
    }

    #[test]
    fn a_port_that_is_down_or_has_no_address_is_not_used() {
        let devices = Devices::new();
        devices.add("rxe0", "1: DOWN\n", &[MAPPED], false);
        devices.add("rxe1", "4: ACTIVE\n", &[LOCAL], false);
        assert_eq!(best(devices.0.path()), None);
        assert_eq!(best(Path::new("no/such/folder")), None);
    }
}
