//! Snapshots of the code that `#[remote]` generates: `tests/expand/NAME.rs` is a user's struct, `tests/expand/NAME.expanded.rs` its
//! expansion.
//!
//! `FARFIELD_BLESS=1 cargo test -p farfield-macros` writes the expansions anew: read the difference before you commit it.

use std::path::PathBuf;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{ItemStruct, Meta};

/// The limit of an expansion's length. Generated code is reviewed; code beyond the limit belongs in the runtime, as a generic function.
const MAX_LINES: usize = 160;

/// Removes the struct's `#[remote]` and returns its options.
fn options(item: &mut ItemStruct) -> TokenStream {
    let index =
        item.attrs.iter().position(|attr| attr.path().is_ident("remote")).expect("a case has `#[remote]`");
    match item.attrs.remove(index).meta {
        Meta::List(list) => list.tokens,
        _ => TokenStream::new(),
    }
}

fn check(name: &str) {
    let file =
        |extension| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/expand/{name}{extension}"));
    let source = std::fs::read_to_string(file(".rs")).expect("the case exists");
    let mut item: ItemStruct = syn::parse_str(&source).expect("the case is a struct");
    let options = options(&mut item);
    let expanded = crate::expand::remote(options, item.into_token_stream());
    let expanded = prettyplease::unparse(&syn::parse2(expanded).expect("the generated code is Rust"));
    let lines = expanded.lines().count();
    assert!(lines < MAX_LINES, "`{name}` is expanded to {lines} lines");
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(file(".expanded.rs"), &expanded).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(file(".expanded.rs"))
        .expect("the snapshot exists; `FARFIELD_BLESS=1` writes it");
    for (number, (kept, new)) in (1..).zip(kept.lines().zip(expanded.lines())) {
        assert_eq!(
            kept, new,
            "the expansion of `{name}` differs from line {number} on; `FARFIELD_BLESS=1` accepts it"
        );
    }
    assert_eq!(
        kept, expanded,
        "the expansion of `{name}` has more or fewer lines; `FARFIELD_BLESS=1` accepts it"
    );
}

#[test]
fn a_generic_node_with_marks_and_a_lock() {
    check("node");
}

#[test]
fn a_struct_with_local_fields() {
    check("set");
}

#[test]
fn a_struct_with_an_array_a_nested_struct_and_a_tail() {
    check("page");
}
