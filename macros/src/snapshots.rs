//! Snapshots of the code that `#[remote]`, `#[delegated]` and `#[derive(Message)]` generate: `tests/expand/NAME.rs` is a user's item,
//! `tests/expand/NAME.expanded.rs` its expansion.
//!
//! `FARFIELD_BLESS=1 cargo test -p farfield-macros` writes the expansions anew: read the difference before you commit it.

use std::path::PathBuf;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Item, Meta};

/// The limit of an expansion's length. Generated code is reviewed; code beyond the limit belongs in the runtime, as a generic function.
const MAX_LINES: usize = 180;

/// Removes the item's attribute and returns its name and its options.
fn take_attribute(attrs: &mut Vec<Attribute>) -> (String, TokenStream) {
    let known = ["remote", "delegated", "derive"];
    let index = attrs.iter().position(|attr| known.iter().any(|name| attr.path().is_ident(name)));
    let attr = attrs.remove(index.expect("a case has a macro's attribute"));
    let name = attr.path().require_ident().expect("it is one of these").to_string();
    match attr.meta {
        Meta::List(list) => (name, list.tokens),
        _ => (name, TokenStream::new()),
    }
}

fn check(name: &str) {
    let file =
        |extension| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/expand/{name}{extension}"));
    let source = std::fs::read_to_string(file(".rs")).expect("the case exists");
    let mut item: Item = syn::parse_str(&source).expect("the case is an item");
    let attrs = match &mut item {
        Item::Struct(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        Item::Impl(item) => &mut item.attrs,
        _ => panic!("no macro is for such an item"),
    };
    let (attribute, options) = take_attribute(attrs);
    let item = item.into_token_stream();
    let expanded = match &attribute[..] {
        "remote" => crate::expand::remote(options, item),
        "delegated" => crate::delegated::expand(options, item),
        _ => crate::message::derive(item),
    };
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

#[test]
fn a_block_of_delegated_methods() {
    check("counter");
}

#[test]
fn an_enum_that_is_a_message() {
    check("change");
}
