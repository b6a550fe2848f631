//! `#[main]` and `#[test]`: an `async fn` of a compute thread, run on a cluster.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, ReturnType};

use crate::attr::{self, EntryOptions};
use crate::errors::Errors;
use crate::model::private;

pub(crate) fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(options, item, "main", |function, options| {
        let EntryOptions { threads, cluster, krate, .. } = options;
        let ff = private(&krate);
        let (attrs, vis, name, body) = run(function, &ff);
        quote! {
            #(#attrs)*
            #vis fn #name() -> ::std::process::ExitCode {
                #ff::run_main(#cluster, #threads, #body)
            }
        }
    })
}

pub(crate) fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(options, item, "test", |function, options| {
        let EntryOptions { threads, cluster, krate, seeds } = options;
        let ff = private(&krate);
        let (attrs, vis, name, body) = run(function, &ff);
        let run = match seeds {
            None => quote!(#ff::run_test(#cluster, #threads, #body)),
            Some(seeds) => quote! {{
                let __name = ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name));
                #ff::run_sim_test(__name, #cluster, #threads, #seeds, #body)
            }},
        };
        quote! {
            #[::core::prelude::v1::test]
            #(#attrs)*
            #vis fn #name() {
                #run
            }
        }
    })
}

/// The function's attributes, visibility and name, and an async closure that calls its body.
fn run<'a>(
    function: &'a ItemFn,
    ff: &TokenStream,
) -> (&'a [syn::Attribute], &'a syn::Visibility, &'a syn::Ident, TokenStream) {
    let ItemFn { attrs, vis, sig, block, .. } = function;
    let (inputs, output) = (&sig.inputs, &sig.output);
    let call = quote!(__body(ct).await);
    let result = match output {
        ReturnType::Default => quote!({ #call; #ff::Result::<()>::Ok(()) }),
        ReturnType::Type(..) => quote!({ #call }),
    };
    let body = quote!({
        async fn __body(#inputs) #output #block
        async |ct| #result
    });
    (attrs, vis, &sig.ident, body)
}

fn expand(
    options: TokenStream,
    item: TokenStream,
    attribute: &str,
    expand: impl FnOnce(&ItemFn, EntryOptions) -> TokenStream,
) -> TokenStream {
    let mut errors = Errors::default();
    let options = attr::entry(options, attribute, &mut errors);
    let function = errors.ok(syn::parse2::<ItemFn>(item));
    let expanded = function.map(|function| {
        if function.sig.asyncness.is_none() {
            errors.at(function.sig.fn_token, format!("`#[{attribute}]` must be on an `async fn`"));
        }
        if function.sig.inputs.len() != 1 {
            let message =
                format!("`#[{attribute}]` must be on a function of one argument: `ct: &ComputeThread`");
            errors.at(&function.sig.ident, message);
        }
        if !function.sig.generics.params.is_empty() {
            errors.at(
                &function.sig.generics,
                format!("a function with `#[{attribute}]` cannot have generic parameters"),
            );
        }
        (expand(&function, options), function)
    });
    let errors = errors.into_tokens();
    match expanded {
        Some((expanded, _)) if errors.is_empty() => expanded,
        // Without a `main` the compiler would report a second error.
        Some((_, function)) => {
            let ItemFn { sig, block, .. } = function;
            let name = sig.ident;
            let (inputs, output) = (sig.inputs, sig.output);
            quote! {
                #errors
                #[allow(unused)]
                fn #name() {
                    #[allow(unused)]
                    async fn __body(#inputs) #output #block
                }
            }
        }
        None => errors,
    }
}
