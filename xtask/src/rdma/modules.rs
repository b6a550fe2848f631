//! The kernel's modules that the guest loads, in order.
//!
//! A kernel's package has no `modules.dep`: `depmod` writes it at installation, from the modules' own `depends=` lines. This module reads
//! the same lines, and needs no `depmod`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::workspace::files;

/// The modules for RDMA in software. The checksums come first: rxe requests them by algorithm, not by name, so no module depends on them.
pub(super) const RDMA: &[&str] = &[
    "crc32_generic",
    "crc32c_generic",
    "udp_tunnel",
    "ip6_udp_tunnel",
    "configfs",
    "ib_core",
    "ib_cm",
    "iw_cm",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "dummy",
];

/// Further modules for a wire to another guest, and for delays and losses of TCP's packets on it.
pub(super) const WIRE: &[&str] = &["virtio_pci", "virtio_net", "sch_prio", "sch_netem", "cls_u32"];

/// The module files of a kernel, by name.
pub(super) struct Modules(BTreeMap<String, PathBuf>);

impl Modules {
    /// The modules below a kernel's folder.
    pub(super) fn of(folder: &Path) -> Self {
        let named = |path: PathBuf| {
            let name = path.file_stem()?.to_str()?.replace('-', "_");
            Some((name, path))
        };
        Self(files(folder, "ko").into_iter().filter_map(named).collect())
    }

    /// These modules and their dependencies in order of loading, with their contents.
    ///
    /// A module without a file is built into the kernel, or missing; then loading its dependents fails.
    pub(super) fn in_order(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut order = Vec::new();
        for name in names {
            self.visit(name, &mut Vec::new(), &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        above: &mut Vec<String>,
        order: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<(), String> {
        let name = name.replace('-', "_");
        let Some(path) = self.0.get(&name) else { return Ok(()) };
        if order.iter().any(|(done, _)| *done == name) {
            return Ok(());
        }
        if above.contains(&name) {
            return Err(format!("the kernel's module {name} depends on itself"));
        }
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        above.push(name.clone());
        for dependency in depends(&bytes) {
            self.visit(&dependency, above, order)?;
        }
        above.pop();
        order.push((name, bytes));
        Ok(())
    }
}

/// The dependencies that a module lists.
fn depends(module: &[u8]) -> Vec<String> {
    // The section `.modinfo` consists of such lines, each ended by a zero.
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(depends: &str) -> Vec<u8> {
        format!("\x7fELF\0license=GPL\0depends={depends}\0retpoline=Y\0name=x\0").into_bytes()
    }

    /// A folder of modules.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(modules: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("net")).unwrap();
            for (name, depends) in modules {
                std::fs::write(folder.path().join(format!("net/{name}.ko")), module(depends)).unwrap();
            }
            Self(folder)
        }

        fn order(&self, names: &[&str]) -> Result<Vec<String>, String> {
            let order = Modules::of(self.0.path()).in_order(names)?;
            Ok(order.into_iter().map(|(name, _)| name).collect())
        }
    }

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(depends(&module("ib_core,udp_tunnel")), ["ib_core", "udp_tunnel"]);
        assert_eq!(depends(&module("")), [""; 0]);
        assert_eq!(depends(b"no module"), [""; 0]);
        assert_eq!(depends(b"\0depends=cut_off"), ["cut_off"]);
    }

    #[test]
    fn each_module_is_loaded_once_after_its_dependencies() {
        let folder =
            Folder::new(&[("rxe", "core,tunnel"), ("core", "built_in"), ("tunnel", "core"), ("x", "")]);
        assert_eq!(folder.order(&["rxe", "core"]).unwrap(), ["core", "tunnel", "rxe"]);
    }

    #[test]
    fn names_with_dashes_and_underscores_are_the_same() {
        let folder = Folder::new(&[("crc32-generic", ""), ("rxe", "crc32_generic")]);
        assert_eq!(folder.order(&["rxe"]).unwrap(), ["crc32_generic", "rxe"]);
    }

    #[test]
    fn modules_that_depend_on_each_other_are_an_error() {
        let folder = Folder::new(&[("a", "b"), ("b", "a")]);
        assert!(folder.order(&["a"]).unwrap_err().contains("module a depends on itself"));
    }
}
