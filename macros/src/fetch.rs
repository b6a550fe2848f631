//! `fetch!(g, node.{key, next})`: reads several fields of one object by one READ.
//!
//! It expands to a tuple of the fields' places. The runtime computes the span that covers them. The places are one address
//! plus constants, so the compiler folds the span.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, Path, Token};

use crate::model::private;

/// The maximum number of fields in braces.
const MAX_FIELDS: usize = 8;

struct Fetch {
    krate: Path,
    guard: Expr,
    object: Expr,
    fields: Vec<Ident>,
}

impl Parse for Fetch {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut krate = syn::parse_quote!(::farfield);
        if input.peek(Token![crate]) && input.peek2(Token![=]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            krate = input.call(Path::parse_mod_style)?;
            input.parse::<Token![,]>()?;
        }
        let guard = input.parse()?;
        input.parse::<Token![,]>()?;
        let mut object: Vec<TokenTree> = input.parse::<TokenStream>()?.into_iter().collect();
        if matches!(object.last(), Some(TokenTree::Punct(comma)) if comma.as_char() == ',') {
            object.pop();
        }
        let usage = "name the fields in braces: `fetch!(g, node.{key, next})`";
        let group = match object.pop() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => group,
            Some(other) => return Err(syn::Error::new_spanned(other, usage)),
            None => return Err(input.error(usage)),
        };
        match object.pop() {
            Some(TokenTree::Punct(dot)) if dot.as_char() == '.' && !object.is_empty() => {}
            _ => return Err(syn::Error::new_spanned(group, usage)),
        }
        let fields = Punctuated::<Ident, Token![,]>::parse_terminated.parse2(group.stream())?;
        let fields: Vec<Ident> = fields.into_iter().collect();
        if fields.is_empty() {
            return Err(syn::Error::new_spanned(group, usage));
        }
        if let Some(extra) = fields.get(MAX_FIELDS) {
            let message = "`fetch!` reads at most eight fields; `read` reads the whole object";
            return Err(syn::Error::new_spanned(extra, message));
        }
        // The parentheses around an expression that needs them before the dot.
        let object = match syn::parse2(object.into_iter().collect())? {
            Expr::Paren(inner) => *inner.expr,
            other => other,
        };
        Ok(Self { krate, guard, object, fields })
    }
}

pub(crate) fn expand(input: TokenStream) -> TokenStream {
    match syn::parse2::<Fetch>(input) {
        Ok(Fetch { krate, guard, object, fields }) => {
            let ff = private(&krate);
            // Not a block: a guard made in the arguments must live until the end of the awaiting statement.
            quote!(#ff::fetch(#guard, #object, |__object| (#(__object.#fields(),)*)))
        }
        Err(error) => error.into_compile_error(),
    }
}
