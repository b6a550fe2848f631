//! The order of crates, and of rooms in a crate.

/// The workspace's crates: each depends only on crates before it. A crate of the workspace that is not listed is a breach.
pub(super) const CRATES: &[&str] = &[
    "farfield-macros",
    "farfield-words",
    "farfield-fabric",
    "farfield-sim",
    "farfield",
    "farfield-collections",
    "farfield-kv",
    "farfield-testing",
    "farfield-examples",
    "farfield-soak",
    "farfield-benches",
    "farfield-cli",
    "farfield-ui-tests",
    "farfield-renamed-test",
    "xtask",
];

/// Crates with layers of rooms, from the lowest to the highest. A folder includes all rooms below it that have no entry of their own.
pub(super) const ROOMS: &[(&str, &[&str])] = &[
    (
        "farfield",
        &[
            "error",
            "epoch",
            "segment",
            "io",
            "memory",
            "session",
            "pointer",
            "cell",
            "membership",
            "directory",
            "admin",
            "sweep",
            "delegation",
            "cluster",
            "client",
            "src",
            "__private",
        ],
    ),
    ("farfield-examples", &["src", "bin"]),
    // Its build script compiles one file of the testing crate.
    ("farfield-soak", &["runtime/testing/src", "planted", "model", "src", "corrupt", "crash", "bin", "."]),
    ("xtask", &["workspace", "imports", "tables", "drawings", "corrupt", "rdma", "tcp", "src"]),
];

/// Crates whose files may import each other in a cycle inside a room. The files of all other crates form no cycle.
pub(super) const CYCLIC_FILES: &[&str] =
    &["farfield-words", "farfield-fabric", "farfield-sim", "farfield", "farfield-soak"];
