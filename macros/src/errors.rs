//! Errors are collected, so that one mistake does not hide another.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::Error;

/// The errors found so far.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    /// Adds an error at `tokens`.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(Error::new_spanned(tokens, message));
    }

    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    /// Returns the value, or adds its error and returns `None`.
    pub(crate) fn ok<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn into_error(self) -> Option<Error> {
        self.0
    }

    /// Code that makes the compiler report the errors.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.map(Error::into_compile_error).unwrap_or_default()
    }
}
