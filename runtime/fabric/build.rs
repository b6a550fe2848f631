//! Reports in one line what a build with RDMA needs, before the bindings' own build scripts fail with many.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The first version of libclang whose output the generator of `rdma-sys`'s binding, bindgen 0.59, can not read.
const TOO_NEW: u32 = 19;

fn main() {
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    println!("cargo::rerun-if-changed=build.rs");
    let has = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    if has("VERBS") {
        for library in ["libibverbs", "librdmacm"] {
            let found = Command::new("pkg-config").args(["--exists", library]).status();
            if !found.is_ok_and(|status| status.success()) {
                println!(
                    "cargo::error=the feature `verbs` needs {library}: apt-get install libibverbs-dev librdmacm-dev \
                     libclang-dev pkg-config"
                );
            }
        }
        if std::env::var_os("LIBCLANG_PATH").is_none() {
            check_libclang();
        }
    }
    if has("VERBS_DLOPEN") && Command::new("cmake").arg("--version").output().is_err() {
        println!(
            "cargo::error=the feature `verbs-dlopen` needs cmake and libclang: apt-get install cmake libclang-dev"
        );
    }
}

/// The binding's generator uses the newest installed libclang. Checks that it is not too new.
fn check_libclang() {
    let folder = |version: &u32| PathBuf::from(format!("/usr/lib/llvm-{version}/lib"));
    let is_there = |version: &u32| has_libclang(&folder(version));
    let found: Vec<u32> = (6..100).filter(is_there).collect();
    let Some(newest) = found.last().filter(|newest| **newest >= TOO_NEW) else { return };
    match found.iter().rfind(|version| **version < TOO_NEW) {
        Some(older) => println!(
            "cargo::error=libclang {newest} is too new for `rdma-sys`: set LIBCLANG_PATH={}",
            folder(older).display()
        ),
        None => println!(
            "cargo::error=libclang {newest} is too new for `rdma-sys`: install libclang-14-dev, or use the feature \
             `verbs-dlopen` in place of `verbs`"
        ),
    }
}

fn has_libclang(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libclang.so"))
}
