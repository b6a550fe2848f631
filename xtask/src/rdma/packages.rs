//! The packages of the virtual machine, and their cache.
//!
//! They are downloaded by `apt-get download` and unpacked into a folder; nothing is installed, so no root privileges are needed. The C
//! library and the loader come from the host, as do the libraries of programs that are built on it: apt's packages are of the same
//! distribution, so they match.
//!
//! Downloaded packages are kept until the list below changes or `--refresh` is given. A run with an unchanged list contacts no server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bounded;
use crate::workspace::{create_folder, read, root};

/// The package that depends on the current kernel.
const KERNEL: &str = "linux-image-amd64";

/// All other packages. `image` selects files from them.
const PACKAGES: &[&str] = &[
    // A shell and the usual commands in one static program.
    "busybox-static",
    // `ip`, `rdma` and `tc`, with their libraries.
    "iproute2",
    "libbpf1",
    "libbsd0",
    "libcap2",
    "libelf1",
    "libmd0",
    "libmnl0",
    "libxtables12",
    "zlib1g",
    // Verbs, the provider for rxe, and their libraries.
    "ibverbs-providers",
    "libibverbs1",
    "libnl-3-200",
    "libnl-route-3-200",
    "librdmacm1",
    // Programs that measure and list devices, with their libraries.
    "ibverbs-utils",
    "libibumad3",
    "libpci3",
    "libudev1",
    "perftest",
    // Counts instructions.
    "valgrind",
];

/// Parts of the kernel's package that the guest may need; the rest is hundreds of megabytes of drivers.
const KERNEL_PARTS: &[&str] = &[
    "./boot/vmlinuz-*",
    "./lib/modules/*/kernel/arch",
    "./lib/modules/*/kernel/crypto",
    "./lib/modules/*/kernel/drivers/infiniband",
    "./lib/modules/*/kernel/drivers/net/*.ko*",
    "./lib/modules/*/kernel/drivers/virtio",
    "./lib/modules/*/kernel/fs/configfs",
    "./lib/modules/*/kernel/lib",
    "./lib/modules/*/kernel/net",
];

/// Timeouts for downloading, and for unpacking a package.
const DOWNLOAD: Duration = Duration::from_secs(600);
const UNPACK: Duration = Duration::from_secs(120);

/// Tools that downloading needs on the host, with their packages.
pub(super) const TOOLS: &[(&str, &str)] =
    &[("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("tar", "tar"), ("ldd", "libc-bin")];

/// The folder of cached files.
pub(super) fn cache() -> PathBuf {
    root().join("target/rdma-testbed")
}

/// The folder with the unpacked packages; downloads them if necessary.
pub(super) fn unpacked(refresh: bool) -> Result<PathBuf, String> {
    let folder = cache().join("packages");
    let record = folder.join("packages.txt");
    if !refresh && std::fs::read_to_string(&record).is_ok_and(|record| Record::parse(&record).is_current()) {
        return Ok(folder.join("root"));
    }
    // They are unpacked beside the folder and moved as a whole, so that the folder is always complete.
    let fresh = cache().join(format!("packages.{}", std::process::id()));
    let made = download(&fresh).and_then(|record| {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::write(fresh.join("packages.txt"), record.to_text()).map_err(failed)?;
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(failed)?;
        }
        std::fs::rename(&fresh, &folder).map_err(failed)
    });
    if made.is_err() {
        // A leftover folder is harmless, and the download's error is reported instead.
        let _ = std::fs::remove_dir_all(&fresh);
    }
    made.map(|()| folder.join("root"))
}

/// Downloads the packages and unpacks them into `folder`; the package files are deleted.
fn download(folder: &Path) -> Result<Record, String> {
    let unpacked = folder.join("root");
    create_folder(&unpacked)?;
    let depends = bounded::output(Command::new("apt-cache").args(["depends", KERNEL]), UNPACK)?;
    let kernel = kernel_package(&depends)
        .ok_or_else(|| format!("apt knows no package {KERNEL}: run apt-get update"))?;
    eprintln!("downloading {kernel} and {} other packages", PACKAGES.len());
    bounded::output(
        Command::new("apt-get").args(["--quiet=2", "download", &kernel]).args(PACKAGES).current_dir(folder),
        DOWNLOAD,
    )
    .map_err(|why| format!("{why} (are apt's lists up to date? apt-get update)"))?;
    let mut files = Vec::new();
    let mut bytes = 0;
    for path in crate::workspace::files(folder, "deb") {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        bytes += path.metadata().map_or(0, |metadata| metadata.len());
        unpack(&path, &unpacked, if name.starts_with(&kernel) { KERNEL_PARTS } else { &[] })?;
        std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        files.push(name);
    }
    eprintln!("downloaded and unpacked {} MB", bytes.div_ceil(1_000_000));
    Ok(Record { requested: requested(), files })
}

/// Unpacks a package, or the given parts of it.
fn unpack(package: &Path, into: &Path, parts: &[&str]) -> Result<(), String> {
    // A shell connects the two programs by a pipe.
    let script = "dpkg-deb --fsys-tarfile \"$0\" | tar --extract --directory \"$1\" --wildcards \"${@:2}\"";
    bounded::output(
        Command::new("bash").args(["-o", "pipefail", "-c", script]).arg(package).arg(into).args(parts),
        UNPACK,
    )
    .map(|_| ())
    .map_err(|why| format!("{}: {why}", package.display()))
}

/// The kernel package in the output of `apt-cache depends`.
fn kernel_package(depends: &str) -> Option<String> {
    depends.lines().find_map(|line| {
        let name = line.trim().strip_prefix("Depends:")?.trim();
        name.starts_with("linux-image-").then(|| name.to_owned())
    })
}

/// The list of packages, as a line.
fn requested() -> String {
    [&[KERNEL], PACKAGES, KERNEL_PARTS].concat().join(" ")
}

/// A record of the cache: the list, and the packages' files, whose names contain the versions.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    requested: String,
    files: Vec<String>,
}

impl Record {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::to_owned);
        Self { requested: lines.next().unwrap_or_default(), files: lines.collect() }
    }

    fn to_text(&self) -> String {
        format!("{}\n{}\n", self.requested, self.files.join("\n"))
    }

    fn is_current(&self) -> bool {
        self.requested == requested() && self.files.len() > PACKAGES.len()
    }
}

/// The kernel's image and its folder of modules.
pub(super) fn kernel(unpacked: &Path) -> Result<(PathBuf, PathBuf), String> {
    let only = |folder: PathBuf, prefix: &str| {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        found.map(|entry| entry.path()).ok_or_else(|| format!("{}: no {prefix}…", folder.display()))
    };
    Ok((only(unpacked.join("boot"), "vmlinuz-")?, only(unpacked.join("lib/modules"), "")?))
}

/// The kernel's version, for the report.
pub(super) fn kernel_version(unpacked: &Path) -> String {
    let record = unpacked.parent().map(|folder| read(&folder.join("packages.txt")));
    let record = record.and_then(Result::ok).unwrap_or_default();
    let version = Record::parse(&record).files.into_iter().find(|file| file.starts_with("linux-image-"));
    version.and_then(|file| file.split('_').nth(1).map(str::to_owned)).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_a_dependency_of_its_metapackage() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Suggests: other\n";
        assert_eq!(kernel_package(depends).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(kernel_package("linux-image-amd64\n"), None);
        assert_eq!(kernel_package(""), None);
    }

    #[test]
    fn a_record_is_current_until_the_list_changes() {
        let files = vec!["a_1_amd64.deb".to_owned(); PACKAGES.len() + 1];
        let record = Record { requested: requested(), files };
        assert_eq!(Record::parse(&record.to_text()), record);
        assert!(record.is_current());
        let older = Record { requested: requested().replace("perftest", "perftest-1"), ..record };
        assert!(!older.is_current());
    }

    #[test]
    fn a_record_that_lacks_packages_is_not_current() {
        assert!(!Record::parse("").is_current());
        assert!(!Record { requested: requested(), files: vec!["a_1_amd64.deb".to_owned()] }.is_current());
    }

    #[test]
    fn the_list_names_each_package_once() {
        let mut names = PACKAGES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PACKAGES.len());
        assert!(names.iter().all(|name| !name.is_empty() && !name.contains(char::is_whitespace)));
    }
}
