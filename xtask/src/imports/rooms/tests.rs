//! Planted cycles and upward imports are found; trees without breaches pass.

use std::collections::BTreeMap;

use super::super::packages::{Package, Target};
use super::*;

/// Crates of these files, each with a library or a program. `dependencies` are those of the second name on the first.
fn workspace(files: &[(&str, &str)], dependencies: &[(&str, &str)]) -> Packages {
    let sources: BTreeMap<String, String> =
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let mut packages: Vec<Package> = Vec::new();
    for root in sources.keys() {
        let Some((folder, file)) = root.split_once("/src/") else { continue };
        if ["lib.rs", "main.rs"].contains(&file) {
            if packages.last().is_none_or(|last| last.name != folder) {
                let folder = folder.to_owned();
                packages.push(Package { name: folder.clone(), folder, ..Package::default() });
            }
            let package = packages.last_mut().unwrap();
            let library = (file == "lib.rs").then(|| folder.to_owned());
            package.targets.push(Target { root: root.clone(), library });
        }
    }
    for (on, name) in dependencies {
        let package = packages.iter_mut().find(|package| package.name == *name).unwrap();
        package.dependencies.insert((*on).to_owned(), (*on).to_owned());
    }
    Packages { packages, sources }
}

/// The breaches in the crate `x` with these files below `src`.
fn breaches(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<(String, &str)> =
        files.iter().map(|(path, text)| (format!("x/src/{path}"), *text)).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let packages = workspace(&files, &[]);
    cyclic_imports(&Graph::new(&packages).unwrap().rooms[0])
}

const ROOT: (&str, &str) = ("lib.rs", "mod a;\nmod b;\n");
/// Room `b`, which imports room `a`.
const B: (&str, &str) = ("b/mod.rs", "mod item;\npub use item::B;\n");
const B_ITEM: (&str, &str) = ("b/item.rs", "use crate::a::A;\npub struct B(A);\npub fn make() {}\n");
const A_ITEM: (&str, &str) = ("a/item.rs", "pub struct A;\n");

#[track_caller]
fn is_found(code: &str, path: &str) {
    let facade = ("a/mod.rs", "mod item;\nmod user;\npub use item::A;\n");
    let found = breaches(&[ROOT, facade, A_ITEM, ("a/user.rs", code), B, B_ITEM]);
    let expected = [
        format!("x/src/a/user.rs:2: imports `{path}` of b; b imports a at x/src/b/item.rs:1"),
        "x/src/b/item.rs:1: imports `crate::a::A` of a; a imports b at x/src/a/user.rs:2".to_owned(),
    ];
    assert_eq!(found, expected, "{code}");
}

#[test]
fn a_cycle_of_two_rooms_is_found_however_it_is_written() {
    is_found("\nuse crate::b::item::B;\n", "crate::b::item::B");
    is_found("\nuse super::super::b::item::B;\n", "super::super::b::item::B");
    // Through the facade.
    is_found("\nuse crate::b::B;\n", "crate::b::B");
    is_found("\npub use crate::b::B;\n", "crate::b::B");
    // Grouped and renamed.
    is_found("\nuse crate::{b::{self as other, B as Renamed}};\n", "crate::b::B");
    is_found("fn f() {}\nuse crate::b::B as _;\n", "crate::b::B");
    is_found("use crate::b as other;\nfn f(b: other::B) {}\n", "other::B");
    is_found("use crate::b::{self};\nfn f(b: &[b::B]) {}\n", "b::B");
    is_found("use crate::b::*;\nfn f(b: B) {}\n", "B");
    is_found("use super::super::*;\nfn f(b: b::B) {}\n", "b::B");
    // Qualified paths, without an import.
    is_found("\nfn f() -> crate::b::B { f() }\n", "crate::b::B");
    is_found("\nfn f() { let f = crate::b::item::make; }\n", "crate::b::item::make");
    is_found("fn f() {\n    crate::b::item::make();\n}\n", "crate::b::item::make");
    is_found("fn f<T>() where\n    T: Into<crate::b::B> {}\n", "crate::b::B");
    is_found("fn f() {\n    use crate::b::B;\n}\n", "crate::b::B");
    is_found("\nimpl From<crate::b::B> for u8 {}\n", "crate::b::B");
    // In macros.
    is_found("fn f() {\n    assert_eq!(1, g(crate::b::item::make()));\n}\n", "crate::b::item::make");
    is_found("macro_rules! m { () => {\n    $crate::b::B\n} }\n", "$crate::b::B");
    is_found("m! {\n    use crate::b::{B};\n}\n", "crate::b::B");
    // Not only in tests.
    is_found("#[cfg(any(test, feature = \"f\"))]\nuse crate::b::B;\n", "crate::b::B");
    is_found("#[cfg(not(test))]\nuse crate::b::B;\n", "crate::b::B");
}

#[track_caller]
fn is_innocent(code: &str) {
    let facade = ("a/mod.rs", "mod item;\nmod user;\npub use item::A;\n");
    assert_eq!(breaches(&[ROOT, facade, A_ITEM, ("a/user.rs", code), B, B_ITEM]), [""; 0], "{code}");
}

#[test]
fn code_without_imports_passes() {
    is_innocent("//! See [`crate::b::B`].\n/// Or [`B`](crate::b::B).\npub struct C;\n");
    is_innocent("#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n");
    is_innocent("#[test]\nfn t() { crate::b::item::make(); }\n");
    is_innocent("#[cfg(any(fuzzing, test))]\nuse crate::b::B;\n");
    is_innocent("struct C;\nimpl C {\n    #[cfg(test)]\n    fn f(_: crate::b::B) {}\n}\n");
    is_innocent("fn f() {\n    #[cfg(test)]\n    {\n        crate::b::item::make();\n    }\n}\n");
    is_innocent("fn f() -> &'static str { \"crate::b::B\" } // crate::b::B\n");
    is_innocent("use super::A;\nuse std::fmt::Display as B;\nfn f(a: A, b: &dyn B) {}\n");
    is_innocent("use std::fmt::Display as _;\nfn f() { assert!(matches!(1, _)); }\n");
    is_innocent("fn f() { quote! { crate::b::B } }\n");
    is_innocent("pub(in crate::b) fn f() {}\n");
    is_innocent("fn b() {}\nfn f() { b(); println!(\"{}\", b()); }\n");
}

#[test]
fn files_of_tests_are_left_out() {
    let facade = ("a/mod.rs", "mod item;\nmod tests;\n#[cfg(test)]\nmod more;\npub use item::A;\n");
    let test = "use crate::b::B;\n";
    assert_eq!(
        breaches(&[ROOT, facade, A_ITEM, ("a/tests.rs", test), ("a/more.rs", test), B, B_ITEM]),
        [""; 0]
    );
    // A folder with only tests is no room, nor does it make one of the file beside it.
    let item = ("b/item.rs", "use super::other::O;\npub struct B(O);\n#[cfg(test)]\nmod tests;\n");
    let other = ("b/other.rs", "use super::B;\npub struct O;\n");
    let facade = ("b/mod.rs", "mod item;\nmod other;\npub use item::B;\n");
    assert_eq!(
        breaches(&[("lib.rs", "mod b;\n"), facade, item, other, ("b/item/tests.rs", "use super::B;\n")]),
        [""; 0]
    );
}

#[test]
fn a_facade_imports_nothing_and_its_users_import_the_definition() {
    let a = ("a/mod.rs", "mod item;\npub use item::A;\n");
    let b = ("b.rs", "use crate::A;\npub struct B(A);\n");
    let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub mod prelude {\n    pub use crate::b::B;\n}\n");
    assert_eq!(
        breaches(&[root, a, A_ITEM, b]),
        [""; 0],
        "b is in the room of the root, which only re-exports"
    );
    let user = ("a/item.rs", "use crate::prelude::*;\npub struct A(B);\n");
    let found = breaches(&[root, a, user, b]);
    assert_eq!(
        found,
        [
            "x/src/a/item.rs:2: imports `B` of src; src imports a at x/src/b.rs:1",
            "x/src/b.rs:1: imports `crate::A` of a; a imports src at x/src/a/item.rs:2",
        ]
    );
}

#[test]
fn items_of_an_expanded_macro_belong_to_its_module() {
    let a = ("a/mod.rs", "mod item;\npub use item::A;\n");
    let item = ("a/item.rs", "error_type! { pub struct A; }\nfn f(_: crate::b::B) {}\n");
    let found = breaches(&[ROOT, a, item, B, B_ITEM]);
    assert_eq!(found[1], "x/src/b/item.rs:1: imports `crate::a::A` of a; a imports b at x/src/a/item.rs:2");
}

#[test]
fn a_facade_does_not_define_foreign_items() {
    let root = ("lib.rs", "mod a;\npub use std::sync::Arc;\nmod user;\n");
    let a = ("a/mod.rs", "pub struct A(crate::Arc<u8>);\n");
    let user = ("user.rs", "use crate::a::A;\n");
    assert_eq!(breaches(&[root, a, user]), [""; 0]);
    // A file that is more than a facade is imported itself.
    let user = ("user.rs", "use crate::a::A;\npub use std::rc::Rc;\npub struct U(A);\n");
    let a = ("a/mod.rs", "pub struct A(crate::user::Rc<u8>);\n");
    assert_eq!(breaches(&[root, a, user]).len(), 2);
}

#[test]
fn a_glob_that_re_exports_is_followed() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod all {\n    pub use crate::b::*;\n}\n");
    let a = ("a/mod.rs", "use crate::all::B;\npub struct A(B);\n");
    let found = breaches(&[root, a, B, B_ITEM]);
    assert!(found[0].starts_with("x/src/a/mod.rs:1: imports `crate::all::B` of b; b imports a"), "{found:?}");
}

#[test]
fn traits_without_a_name_are_imported_with_their_glob() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod methods {\n    pub use crate::b::B as _;\n}\n");
    let a = ("a/mod.rs", "use crate::methods::*;\npub struct A;\n");
    let found = breaches(&[root, a, B, B_ITEM]);
    assert!(
        found[0].starts_with("x/src/a/mod.rs:1: imports `crate::methods::*` of b; b imports a"),
        "{found:?}"
    );
}

#[test]
fn globs_that_import_each_other_end() {
    let a = ("a/mod.rs", "pub use crate::b::*;\npub struct A;\nfn f(_: B, _: Neither) {}\n");
    let b = ("b/mod.rs", "pub use crate::a::*;\npub struct B;\nfn f(_: A, _: Neither) {}\n");
    assert_eq!(breaches(&[ROOT, a, b]).len(), 2);
}

#[test]
fn a_cycle_through_three_rooms_names_the_way_back() {
    let found = breaches(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("a/mod.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b/mod.rs", "use crate::c::C;\npub struct B(C);\n"),
        ("c/mod.rs", "use std::fmt;\n\npub struct C(Option<crate::a::A>);\n"),
    ]);
    assert_eq!(found.len(), 3);
    assert_eq!(
        found[0],
        "x/src/a/mod.rs:1: imports `crate::b::B` of b; b imports c at x/src/b/mod.rs:1, c imports a at x/src/c/mod.rs:3"
    );
}

#[test]
fn parent_and_child_are_rooms_like_others() {
    let item = ("a/item.rs", "use super::child::C;\npub struct A(C);\n");
    let facade = ("a/mod.rs", "mod child;\nmod item;\npub use child::C;\n");
    let found = breaches(&[
        ("lib.rs", "mod a;\n"),
        facade,
        item,
        ("a/child/mod.rs", "use crate::a::item::A;\npub struct C;\n"),
    ]);
    assert_eq!(
        found[0],
        "x/src/a/item.rs:1: imports `super::child::C` of a/child; a/child imports a at x/src/a/child/mod.rs:1"
    );
    let innocent = ("a/child/mod.rs", "pub struct C;\n");
    assert_eq!(breaches(&[("lib.rs", "mod a;\n"), facade, item, innocent]), [""; 0]);
    // `child.rs` beside a folder belongs to that folder.
    let beside = [
        ("lib.rs", "mod a;\n"),
        ("a/mod.rs", "mod child;\nmod item;\n"),
        ("a/item.rs", "use super::child::C;\npub struct A(C);\n"),
        ("a/child.rs", "mod inner;\nuse crate::a::item::A;\npub struct C;\n"),
        ("a/child/inner.rs", "pub struct D;\n"),
    ];
    assert_eq!(breaches(&beside).len(), 2);
    assert_eq!(
        breaches(&[
            beside[0],
            beside[1],
            beside[2],
            ("a/child.rs", "use crate::a::item::A;\npub struct C;\n")
        ]),
        [""; 0]
    );
}

#[test]
fn a_re_export_outside_a_facade_is_an_import() {
    let root = ("lib.rs", "mod a;\nmod b;\n");
    let b = ("b/mod.rs", "pub use crate::a::A;\npub struct B;\n");
    let a = ("a/mod.rs", "use crate::b::B;\npub struct A(B);\n");
    assert_eq!(breaches(&[root, a, b]).len(), 2);
    let facade = ("b/mod.rs", "mod item;\npub use crate::a::A;\npub use item::B;\n");
    assert_eq!(breaches(&[root, a, facade, ("b/item.rs", "pub struct B;\n")]), [""; 0]);
}

#[test]
fn an_associated_function_is_where_its_block_is() {
    let a = ("a/mod.rs", "use crate::b::B;\nfn f() {\n    B::extended();\n}\n");
    let b = ("b/mod.rs", "pub struct B;\n");
    let c = ("c/mod.rs", "use crate::b::B;\npub use crate::a::f;\nimpl B {\n    pub fn extended() {}\n}\n");
    let found = breaches(&[("lib.rs", "mod a;\nmod b;\nmod c;\n"), a, b, c]);
    assert_eq!(found[0], "x/src/a/mod.rs:3: imports `B::extended` of c; c imports a at x/src/c/mod.rs:2");
    let sources = [("x/src/lib.rs", "mod b;\nmod c;\n"), ("x/src/b/mod.rs", b.1), ("x/src/c/mod.rs", c.1)];
    let packages = workspace(&sources, &[]);
    let listed = Graph::new(&packages).unwrap().list(None, Level::Rooms).unwrap();
    assert!(listed.contains("  B of b has methods in c (1)\n"), "{listed}");
}

#[test]
fn a_module_and_a_function_of_one_name_are_distinguished() {
    let root = ("lib.rs", "mod a;\nmod b;\n");
    let a = ("a/mod.rs", "mod make;\npub use make::make;\n");
    let make = ("a/make.rs", "use crate::b::B;\npub fn make() -> B { B }\n");
    let b = ("b/mod.rs", "pub struct B;\nfn f() {\n    crate::a::make();\n}\n");
    assert_eq!(breaches(&[root, a, make, b]).len(), 2);
}

#[test]
fn a_program_imports_the_library_beside_it() {
    let root = ("lib.rs", "pub mod a;\n");
    let a = ("a/mod.rs", "use crate::b::B;\npub struct A(B);\n");
    let main = ("main.rs", "mod args;\n\nfn main() { x::a::f(); }\n");
    let found = breaches(&[
        ("lib.rs", "pub mod a;\nmod b;\n"),
        a,
        ("b.rs", "pub struct B;\n"),
        main,
        ("args.rs", "use x::a::A;\n"),
    ]);
    assert_eq!(found[0], "x/src/a/mod.rs:1: imports `crate::b::B` of src; src imports a at x/src/args.rs:1");
    assert_eq!(
        breaches(&[root, ("a/mod.rs", "pub struct A;\n"), main, ("args.rs", "use x::a::A;\n")]),
        [""; 0]
    );
}

#[test]
fn files_of_one_room_are_distinguished_where_files_count() {
    let files = [
        ("x/src/lib.rs", "mod a;\nmod b;\n"),
        ("x/src/a.rs", "use crate::b::B;\npub struct A;\n"),
        ("x/src/b.rs", "use crate::a::A;\npub struct B;\n"),
    ];
    let packages = workspace(&files, &[]);
    let graph = Graph::new(&packages).unwrap();
    assert_eq!(cyclic_imports(&graph.rooms[0]), [""; 0]);
    assert_eq!(
        cyclic_imports(&graph.files[0])[0],
        "x/src/a.rs:1: imports `crate::b::B` of b.rs; b.rs imports a.rs at x/src/b.rs:1"
    );
    assert!(graph.list(Some("x"), Level::Files).unwrap().contains("* a.rs -> b.rs (1)"));
    assert!(graph.list(Some("y"), Level::Files).is_err());
}

#[test]
fn an_upward_import_between_crates_is_found() {
    let files = [
        ("low/src/lib.rs", "\nfn f() { high::g(); }\n#[cfg(test)]\nuse top::T;\n"),
        ("high/src/lib.rs", "use low::f;\npub fn g() {}\n"),
        ("top/src/lib.rs", "pub struct T;\n"),
    ];
    let order = ["low", "absent", "high", "top"];
    let upward = |dependencies: &[(&str, &str)]| {
        let packages = workspace(&files, dependencies);
        Graph::new(&packages).unwrap().upward_crates(&order)
    };
    assert_eq!(upward(&[("low", "high")]), [""; 0]);
    assert_eq!(
        upward(&[("high", "low")]),
        [
            "low/Cargo.toml: `low` depends on `high`, which is above it",
            "low/src/lib.rs:2: imports `high::g`, but `high` is above `low`",
        ]
    );
    assert_eq!(upward(&[("top", "low")]), ["low/Cargo.toml: `low` depends on `top`, which is above it"]);
    let packages = workspace(&files, &[]);
    let found = Graph::new(&packages).unwrap().upward_crates(&["low", "high"]);
    assert_eq!(found, ["top: has no place in the order of crates: xtask/src/imports/layers.rs"]);
}

#[test]
fn an_upward_import_between_rooms_is_found() {
    let files = [
        ("x/src/lib.rs", "mod low;\nmod high;\n"),
        ("x/src/low/mod.rs", "pub struct L;\nfn f() {\n    crate::high::inner::g();\n}\n"),
        ("x/src/high/mod.rs", "pub mod inner;\n"),
        ("x/src/high/inner/mod.rs", "pub fn g() {}\n"),
    ];
    let packages = workspace(&files, &[]);
    let graph = Graph::new(&packages).unwrap();
    let upward = |order: &[&str]| upward_rooms("x", &graph.rooms[0], order);
    assert_eq!(upward(&["high", "low", "src"]), [""; 0]);
    assert_eq!(
        upward(&["low", "high", "src"]),
        ["x/src/low/mod.rs:3: imports `crate::high::inner::g`: the layer low is below high"]
    );
    assert_eq!(upward(&["high/inner", "low", "high", "src"]), [""; 0]);
    assert_eq!(upward(&["high", "src"]), ["x: the room low is in no layer: xtask/src/imports/layers.rs"]);
}

#[test]
fn packages_are_read_as_cargo_describes_them() {
    let metadata = r#"{"workspace_root": "/w", "packages": [
        {"name": "low-one", "manifest_path": "/w/low/Cargo.toml", "dependencies": [],
         "targets": [{"kind": ["lib"], "name": "low_one", "src_path": "/w/low/src/lib.rs"},
                     {"kind": ["test"], "name": "t", "src_path": "/w/low/tests/t.rs"}]},
        {"name": "high", "manifest_path": "/w/high/Cargo.toml",
         "dependencies": [{"name": "low-one", "rename": "renamed", "kind": null},
                          {"name": "syn", "rename": null, "kind": null},
                          {"name": "low-one", "rename": null, "kind": "dev"}],
         "targets": [{"kind": ["bin"], "name": "high", "src_path": "/w/high/src/main.rs"}]}]}"#;
    let sources = [("low/src/lib.rs", "pub struct L;\n"), ("high/src/main.rs", "use renamed::L;\n")];
    let sources = sources.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let packages = Packages::new(metadata, sources).unwrap();
    assert_eq!(packages.packages[0].targets.len(), 1);
    assert_eq!(packages.packages[1].dependencies.get("renamed").unwrap(), "low-one");
    assert_eq!(packages.packages[1].dependencies.len(), 1);
    let found = Graph::new(&packages).unwrap().upward_crates(&["high", "low-one"]);
    assert_eq!(found[1], "high/src/main.rs:1: imports `renamed::L`, but `low-one` is above `high`");
    assert!(Packages::new("{}", BTreeMap::new()).is_err());
}

#[test]
fn a_module_without_a_file_is_an_error() {
    let packages = workspace(&[("x/src/lib.rs", "mod gone;\n")], &[]);
    let error = Graph::new(&packages).err().unwrap();
    assert_eq!(error, "x/src/gone.rs: a module is declared, but has no file");
}
