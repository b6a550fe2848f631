//! The file system of the guests.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::archive::Archive;
use super::guest::{Guest, Network, PRELUDE, Role, Scenario};
use super::modules::{Modules, RDMA, WIRE};

use super::{bounded, packages};

/// Programs of the packages that guests get, in `/usr/bin`.
const PROGRAMS: &[&str] = &[
    "bin/ip",
    "sbin/tc",
    "usr/bin/rdma",
    "usr/bin/ibv_devinfo",
    "usr/bin/ib_read_lat",
    "usr/bin/ib_atomic_lat",
    "usr/bin/ib_read_bw",
];

/// The profiler's files. Its programs are static, and its library needs none.
const PROFILER: &[&str] = &[
    "usr/bin/valgrind.bin",
    "usr/libexec/valgrind/callgrind-amd64-linux",
    "usr/libexec/valgrind/default.supp",
    "usr/libexec/valgrind/vgpreload_core-amd64-linux.so",
];

/// Folders of the packages with shared libraries.
const LIBRARIES: &[&str] = &["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// Libraries that programs load by name at run time, so `ldd` does not list them.
const LOADED_BY_NAME: &[&str] = &["libibverbs.so.1", "librdmacm.so.1"];

/// The folders of libibverbs' providers for devices, and of their list.
const PROVIDERS: &str = "usr/lib/x86_64-linux-gnu/libibverbs";
const PROVIDER_LIST: &str = "etc/libibverbs.d";

/// Timeout of `ldd`.
const LDD: Duration = Duration::from_secs(20);

/// Writes the file system that a scenario's guests share. It has a folder of tests or a service for each guest, named after the guest.
pub(super) fn write(scenario: &Scenario, unpacked: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    let file = File::create(to).map_err(failed)?;
    let mut image = Image { archive: Archive::new(BufWriter::new(file)), unpacked };
    image.system().map_err(failed)?;
    let has_wire = scenario.guests.iter().any(|guest| guest.network == Network::Wire);
    image.modules(if has_wire { Network::Wire } else { Network::Unconnected })?;
    for program in PROGRAMS {
        image.program(&unpacked.join(program))?;
    }
    for file in PROFILER {
        image.copy(&unpacked.join(file), &format!("/{file}"))?;
    }
    image.provider()?;
    for program in &scenario.programs {
        image.program(program)?;
    }
    for guest in &scenario.guests {
        image.plan(guest).map_err(failed)?;
    }
    image.archive.finish().map_err(failed).map(|_| ())
}

/// An archive that is being filled from the unpacked packages and from the host.
struct Image<'a> {
    archive: Archive<BufWriter<File>>,
    unpacked: &'a Path,
}

impl Image<'_> {
    /// The files of any Linux.
    fn system(&mut self) -> std::io::Result<()> {
        for folder in ["/bin", "/dev", "/etc", "/proc", "/sys", "/tmp", "/usr/bin"] {
            self.archive.directory(folder)?;
        }
        self.archive.console("/dev/console")?;
        self.archive.program("/init", include_bytes!("scripts/init.sh"))?;
        self.archive.program("/bin/busybox", &std::fs::read(self.unpacked.join("bin/busybox"))?)?;
        self.archive.link("/bin/sh", "busybox")?;
        self.archive.file("/etc/hosts", b"127.0.0.1 localhost\n")?;
        self.archive.file("/etc/passwd", b"root:x:0:0:root:/tmp:/bin/sh\n")
    }

    /// The kernel's modules, with a list of the order in which to load them.
    fn modules(&mut self, network: Network) -> Result<(), String> {
        let (_, folder) = packages::kernel(self.unpacked)?;
        let names = match network {
            Network::Wire => [WIRE, RDMA].concat(),
            Network::Unconnected => RDMA.to_vec(),
        };
        let mut order = String::new();
        for (name, bytes) in Modules::of(&folder).in_order(&names)? {
            self.archive.file(&format!("/modules/{name}.ko"), &bytes).map_err(|error| error.to_string())?;
            order.push_str(&name);
            order.push('\n');
        }
        self.archive.file("/modules/order", order.as_bytes()).map_err(|error| error.to_string())
    }

    /// The provider for rxe, and the libraries that are loaded by name.
    fn provider(&mut self) -> Result<(), String> {
        let folder = self.unpacked.join(PROVIDERS);
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let path = entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("librxe-")))
            .ok_or_else(|| format!("{}: no provider for rxe", folder.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.copy(&path, &format!("/{PROVIDERS}/{name}"))?;
        self.libraries(&path)?;
        self.copy(
            &self.unpacked.join(PROVIDER_LIST).join("rxe.driver"),
            &format!("/{PROVIDER_LIST}/rxe.driver"),
        )?;
        for library in LOADED_BY_NAME {
            let folders = LIBRARIES.iter().map(|folder| self.unpacked.join(folder).join(library));
            let path = folders.into_iter().find(|path| path.exists());
            let path = path.ok_or_else(|| format!("{library}: no package has it"))?;
            self.libraries(&path)?;
            self.library(library, &path)?;
        }
        Ok(())
    }

    /// A program and its shared libraries.
    fn program(&mut self, path: &Path) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.copy(path, &format!("/usr/bin/{name}"))?;
        self.libraries(path)
    }

    fn libraries(&mut self, of: &Path) -> Result<(), String> {
        let folders: Vec<PathBuf> = LIBRARIES.iter().map(|folder| self.unpacked.join(folder)).collect();
        let folders =
            std::env::join_paths(folders).map_err(|error| format!("{}: {error}", self.unpacked.display()))?;
        let mut ldd = Command::new("ldd");
        ldd.arg(of).env("LD_LIBRARY_PATH", folders);
        let printed = match bounded::output(&mut ldd, LDD) {
            Ok(printed) => printed,
            // A static program needs no libraries.
            Err(why) if why.contains("not a dynamic executable") => return Ok(()),
            Err(why) => return Err(format!("{}: {why}", of.display())),
        };
        for (name, path) in linked(&printed).map_err(|missing| format!("{}: {missing}", of.display()))? {
            self.library(&name, &path)?;
        }
        Ok(())
    }

    /// A library, or the loader, whose name is its path.
    fn library(&mut self, name: &str, path: &Path) -> Result<(), String> {
        let to = if name.starts_with('/') { name.to_owned() } else { format!("/lib/{name}") };
        if self.archive.has(&to) { Ok(()) } else { self.copy(path, &to) }
    }

    fn copy(&mut self, from: &Path, to: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", from.display());
        self.archive.program(to, &std::fs::read(from).map_err(failed)?).map_err(failed)
    }

    /// A guest's tests or service, for its first process.
    fn plan(&mut self, guest: &Guest) -> std::io::Result<()> {
        let folder = format!("/plan/{}", guest.name);
        self.archive.directory("/plan")?;
        self.archive.directory(&folder)?;
        if let Role::Service(script) = &guest.role {
            self.archive.file(&format!("{folder}/service"), script.as_bytes())?;
        }
        for (number, test) in guest.tests().iter().enumerate() {
            let script = format!("{PRELUDE}\n{}\n", test.command);
            self.archive.file(&format!("{folder}/{number}"), script.as_bytes())?;
            let limit = test.limit.as_secs().to_string();
            self.archive.file(&format!("{folder}/{number}.limit"), limit.as_bytes())?;
        }
        Ok(())
    }
}

/// The libraries in the output of `ldd`, by name; an error names a missing one.
fn linked(printed: &str) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut libraries = BTreeMap::new();
    for line in printed.lines().map(str::trim) {
        let (name, path) = match line.split_once(" => ") {
            Some((name, found)) if found.starts_with("not found") => {
                return Err(format!("{name}: neither a package nor the host has it"));
            }
            Some((name, found)) => (name, found),
            // The loader's name is its path.
            None if line.starts_with('/') => (line, line),
            None => continue,
        };
        let first = |text: &str| text.split(" (0x").next().unwrap_or(text).to_owned();
        libraries.insert(first(name), PathBuf::from(first(path)));
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_parsed_from_the_output_of_ldd() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f01)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let found = linked(printed).unwrap();
        assert_eq!(found.len(), 2, "the library that the kernel provides is no file");
        assert_eq!(found["libc.so.6"], PathBuf::from("/lib/x/libc.so.6"));
        assert!(found.contains_key("/lib64/ld-linux-x86-64.so.2"));
        assert!(linked("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = linked("\tlibpci.so.3 => not found\n").unwrap_err();
        assert!(error.starts_with("libpci.so.3: "), "{error}");
    }
}
