//! `#[derive(Word)]`: newtypes around a word, and C-like enums.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, Ident, Path, Type};

use crate::attr;
use crate::errors::Errors;
use crate::model::private;

/// The integers of fixed size that fit in a word.
const DISCRIMINANTS: &[&str] = &["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];

/// The conversion between the type and an integer or an inner word.
struct Bits {
    inner: Type,
    /// An expression of type `inner`, from `self`.
    to: TokenStream,
    /// An expression of type `Option<Self>`, from `bits`.
    from: TokenStream,
    initial: TokenStream,
}

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = errors.ok(syn::parse2::<DeriveInput>(item)).and_then(|item| {
        let krate = attr::derive(&item.attrs, "word", &mut errors);
        let bits = match &item.data {
            Data::Struct(data) => newtype(&item, &data.fields, &krate, &mut errors),
            Data::Enum(data) => c_like(&item, data, &mut errors),
            Data::Union(data) => {
                errors.at(data.union_token, "a union cannot be a word: wrap an integer in a struct");
                None
            }
        };
        bits.map(|bits| expand(&item, &krate, &bits))
    });
    let errors = errors.into_tokens();
    quote!(#errors #expanded)
}

fn newtype(item: &DeriveInput, fields: &Fields, krate: &Path, errors: &mut Errors) -> Option<Bits> {
    let mut each = fields.iter();
    let (Some(field), None) = (each.next(), each.next()) else {
        errors.at(
            &item.ident,
            "`Word` can be derived for a struct of one field that is a word, or for an enum without fields",
        );
        return None;
    };
    let ff = private(krate);
    let inner = field.ty.clone();
    let member = field.ident.as_ref().map_or_else(|| quote!(0), |name| quote!(#name));
    Some(Bits {
        to: quote!(self.#member),
        from: quote!(::core::option::Option::Some(Self { #member: bits })),
        initial: quote!(Self { #member: <#inner as #ff::Word>::initial() }),
        inner,
    })
}

fn c_like(item: &DeriveInput, data: &syn::DataEnum, errors: &mut Errors) -> Option<Bits> {
    let mut names: Vec<&Ident> = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            errors.at(&variant.fields, "an enum whose variants have fields cannot be a word");
            return None;
        }
        if let Some(attr) = variant.attrs.iter().find(|attr| attr.path().is_ident("cfg")) {
            errors.at(attr, "the variants of a word must be the same in every build");
            return None;
        }
        names.push(&variant.ident);
    }
    let Some(first) = names.first() else {
        errors.at(&item.ident, "a word needs at least one variant");
        return None;
    };
    let Some(repr) = representation(item, errors) else {
        errors.at(&item.ident, "the size of an enum is not fixed: add `#[repr(u8)]`, or a wider integer");
        return None;
    };
    let inner = syn::parse_quote!(#repr);
    Some(Bits {
        to: quote!(self as #repr),
        from: quote! {
            #(if bits == Self::#names as #repr {
                return ::core::option::Option::Some(Self::#names);
            })*
            ::core::option::Option::None
        },
        // The variant with discriminant 0, if there is one: what zeroed memory decodes to.
        initial: quote! {
            #(if Self::#names as #repr == 0 {
                return Self::#names;
            })*
            Self::#first
        },
        inner,
    })
}

/// The integer in `#[repr(u8)]`.
fn representation(item: &DeriveInput, errors: &mut Errors) -> Option<Ident> {
    let mut found = None;
    for attr in item.attrs.iter().filter(|attr| attr.path().is_ident("repr")) {
        errors.ok(attr.parse_nested_meta(|meta| {
            if let Some(name) = meta.path.get_ident()
                && DISCRIMINANTS.iter().any(|known| name == known)
            {
                found = Some(name.clone());
            }
            if meta.input.peek(syn::token::Paren) {
                meta.input.parse::<proc_macro2::Group>()?;
            }
            Ok(())
        }));
    }
    found
}

fn expand(item: &DeriveInput, krate: &Path, bits: &Bits) -> TokenStream {
    let ff = private(krate);
    let Bits { inner, to, from, initial } = bits;
    let name = &item.ident;
    let text = name.to_string();
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    quote! {
        const _: () = {
            impl #impl_generics #ff::Pod for #name #type_generics #where_clause {
                const FINGERPRINT: u64 = {
                    ::core::assert!(::core::mem::size_of::<Self>() == ::core::mem::size_of::<#inner>());
                    #ff::fingerprint::wrap(#text, <#inner as #ff::Pod>::FINGERPRINT)
                };
                #[inline]
                fn encode(self, out: &mut [u8]) {
                    <#inner as #ff::Pod>::encode(#to, out);
                }
                #[inline]
                fn decode(bytes: &[u8]) -> ::core::option::Option<Self> {
                    let bits = <#inner as #ff::Pod>::decode(bytes)?;
                    #from
                }
                fn describe(describer: &mut #ff::Describer) {
                    <#inner as #ff::Pod>::describe(describer);
                }
            }
            impl #impl_generics #ff::Word for #name #type_generics #where_clause {
                #[inline]
                fn to_word(self) -> u64 {
                    <#inner as #ff::Word>::to_word(#to)
                }
                #[inline]
                fn from_word(word: u64) -> ::core::option::Option<Self> {
                    let bits = <#inner as #ff::Word>::from_word(word)?;
                    #from
                }
                fn initial() -> Self {
                    #initial
                }
            }
        };
    }
}
