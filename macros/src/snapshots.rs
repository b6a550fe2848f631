//! What `#[remote]` generates, kept in files for people to read: `tests/expand/NAME.rs` is what a user writes,
//! `tests/expand/NAME.expanded.rs` what becomes of it.
//!
//! `FARFIELD_BLESS=1 cargo test -p farfield-macros` writes them anew: read the difference before you commit it.

use std::path::PathBuf;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{ItemStruct, Meta};

/// Generated code is code that someone reads; more lines than this belong in the runtime, as a generic function.
const MAX_LINES: usize = 160;

/// The options of the struct's `#[remote]`, which is taken away.
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
    let source = std::fs::read_to_string(file(".rs")).expect("the case is there");
    let mut item: ItemStruct = syn::parse_str(&source).expect("the case is a struct");
    let options = options(&mut item);
    let expanded = crate::expand::remote(options, item.into_token_stream());
    let expanded = prettyplease::unparse(&syn::parse2(expanded).expect("what is generated is Rust"));
    let lines = expanded.lines().count();
    assert!(lines < MAX_LINES, "`{name}` is expanded to {lines} lines");
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(file(".expanded.rs"), &expanded).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(file(".expanded.rs"))
        .expect("the snapshot is there; `FARFIELD_BLESS=1` writes it");
    for (number, (kept, new)) in (1..).zip(kept.lines().zip(expanded.lines())) {
        assert_eq!(
            kept, new,
            "`{name}` is expanded otherwise from line {number} on; `FARFIELD_BLESS=1` accepts it"
        );
    }
    assert_eq!(kept, expanded, "`{name}` is expanded to more or fewer lines; `FARFIELD_BLESS=1` accepts it");
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
