//! The macros of Farfield: `#[remote]`, `#[tag]`, `#[derive(Word)]`, `#[derive(Message)]`, `#[delegated]`, `fetch!`, `#[main]` and `#[test]`.
//!
//! Programs use them through the crate `farfield`, which re-exports and documents them. This page is for changes of the macros.
//!
//! `#[remote]` is a pipeline: options, struct → model → code. Every rejection happens before the model is complete; `expand`
//! rejects nothing. After an error the model is expanded all the same, with a stand-in for each refused type. So a mistake is
//! one error, and uses of the struct are not errors as well.
//!
//! | stage | file in `src/` | look here to |
//! |---|---|---|
//! | read options | `attr.rs` | add an option to `#[remote]`, to a field, or to `#[main]` and `#[test]` |
//! | build the model | `parse.rs` | change how fields are read: `Self`, arrays, marks, stand-ins for refused types |
//! | reject | `check.rs` | reject names, marks, attributes, lifetimes or bounds |
//! | | `field_type.rs` | reject a field's type, and name its replacement; give a type a default |
//! | the model | `model.rs` | add a property of a struct or a field that `expand` needs |
//! | write code | `expand.rs` | change the types, constructors, accessors and marks that users see |
//! | | `implement.rs` | change the implementations of traits: the second stage, expanded from a list of the fields |
//! | delegation | `delegated.rs` | change how methods are read, and the code of `#[delegated]` |
//! | | `request.rs` | reject a method that a client cannot request |
//! | | `message.rs`, `travel.rs` | change `#[derive(Message)]`; reject a type that cannot be sent |
//! | other macros | `tag.rs`, `word.rs`, `fetch.rs`, `entry.rs` | change `#[tag]`, `#[derive(Word)]`, `fetch!`, `#[main]` and `#[test]` |
//! | report | `errors.rs` | change how errors are collected |
//!
//! Tests: `mistakes.rs` has the message of each rejection, and `snapshots.rs` compares the generated code with the files in
//! `tests/expand/` (`FARFIELD_BLESS=1 cargo test -p farfield-macros` writes them anew). The crate `farfield-ui-tests` has the compiler's
//! output.

mod attr;
mod check;
mod delegated;
mod entry;
mod errors;
mod expand;
mod fetch;
mod field_type;
mod implement;
mod message;
mod model;
mod parse;
mod request;
mod tag;
mod travel;
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

/// Declares the tag of a tagged link.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_attribute]
pub fn tag(options: TokenStream, item: TokenStream) -> TokenStream {
    tag::expand(options.into(), item.into()).into()
}

/// Lets a newtype or a C-like enum be held by an atomic word.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_derive(Word, attributes(word))]
pub fn derive_word(item: TokenStream) -> TokenStream {
    word::derive(item.into()).into()
}

/// Lets a struct or an enum of messages be sent to another thread.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_derive(Message, attributes(message))]
pub fn derive_message(item: TokenStream) -> TokenStream {
    message::derive(item.into()).into()
}

/// Generates a client of a type, which requests the methods of an `impl` block from the thread that has a value.
///
/// See the re-export in the crate `farfield`.
#[proc_macro_attribute]
pub fn delegated(options: TokenStream, item: TokenStream) -> TokenStream {
    delegated::expand(options.into(), item.into()).into()
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
