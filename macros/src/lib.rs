//! The macros of Farfield: `#[remote]`, `#[derive(Word)]`, `fetch!`, `#[main]` and `#[test]`.
//!
//! `#[remote]` is a pipeline. `attr` reads options and keeps their tokens, so that errors point at them; `parse`
//! turns the struct into a `model`, which can be laid out, and collects every mistake that `check` and `field_type` find;
//! `expand` writes the code, and rejects nothing. After a mistake the model is expanded all the same, with a stand-in for
//! each type that was refused: so the user sees one error, and not those that follow from missing items.
//!
//! What these macros generate is documented in the crate `farfield`, which re-exports them; use them through it.

mod attr;
mod check;
mod entry;
mod errors;
mod expand;
mod fetch;
mod field_type;
mod implement;
mod model;
mod parse;
mod word;

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod snapshots;

use proc_macro::TokenStream;

/// Puts a struct's fields into far memory.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_attribute]
pub fn remote(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::remote(options.into(), item.into()).into()
}

/// Lets a newtype or a C-like enum be held by an atomic word.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_derive(Word, attributes(word))]
pub fn derive_word(item: TokenStream) -> TokenStream {
    word::derive(item.into()).into()
}

/// Reads several fields of one object with one READ: `fetch!(g, node.{key, next}).await?`.
///
/// See the re-export in the crate `farfield`.
#[proc_macro]
pub fn fetch(input: TokenStream) -> TokenStream {
    fetch::expand(input.into()).into()
}

/// The second stage of `#[remote]`: the traits of a struct, from a list of its fields. Not part of the interface.
#[doc(hidden)]
#[proc_macro]
pub fn implement(input: TokenStream) -> TokenStream {
    implement::expand(input.into()).into()
}

/// Connects to a cluster and runs an `async fn` on its compute threads.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    entry::main(options.into(), item.into()).into()
}

/// Makes a test of an `async fn` that runs on compute threads.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    entry::test(options.into(), item.into()).into()
}
