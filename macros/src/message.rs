//! `#[derive(Message)]`: structs and enums of messages.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Data, DeriveInput, Fields, Generics, Ident, Path};

use crate::attr;
use crate::errors::Errors;
use crate::implement::text;
use crate::model::private;
use crate::travel;

/// A variant of an enum, or the fields of a struct.
struct Variant<'a> {
    /// `None` for a struct.
    name: Option<&'a Ident>,
    fields: &'a Fields,
}

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = errors.ok(syn::parse2::<DeriveInput>(item)).and_then(|item| {
        let krate = attr::derive(&item.attrs, "message", &mut errors);
        let variants = variants(&item, &mut errors);
        check(&item, &variants, &mut errors);
        if errors.is_empty() { Some(expand(&item, &krate, &variants)) } else { stand_in(&item, &krate) }
    });
    let errors = errors.into_tokens();
    quote!(#errors #expanded)
}

fn variants<'a>(item: &'a DeriveInput, errors: &mut Errors) -> Vec<Variant<'a>> {
    match &item.data {
        Data::Struct(data) => vec![Variant { name: None, fields: &data.fields }],
        Data::Enum(data) => {
            if data.variants.is_empty() {
                errors.at(&item.ident, "a message needs at least one variant: this type has no values");
            }
            data.variants
                .iter()
                .map(|each| Variant { name: Some(&each.ident), fields: &each.fields })
                .collect()
        }
        Data::Union(data) => {
            let message =
                "a union cannot be a message: its bits do not show which field they belong to; use an enum";
            errors.at(data.union_token, message);
            vec![]
        }
    }
}

fn check(item: &DeriveInput, variants: &[Variant<'_>], errors: &mut Errors) {
    for field in variants.iter().flat_map(|variant| variant.fields) {
        errors.ok(travel::check(&field.ty, Some(&item.ident)));
    }
    if let (true, Some(lifetime)) = (errors.is_empty(), item.generics.lifetimes().next()) {
        errors.at(lifetime, "a message cannot borrow: references cannot be sent to another thread's process");
    }
}

/// The generics of the implementation: type parameters of fields are messages.
fn bounded(item: &DeriveInput, variants: &[Variant<'_>], ff: &TokenStream) -> Generics {
    let mut generics = item.generics.clone();
    for param in generics.type_params_mut() {
        let mut fields = variants.iter().flat_map(|variant| variant.fields);
        let is_sent = fields.any(|field| travel::contains(&field.ty, &param.ident));
        let bound = if is_sent { quote!(#ff::delegation::Message) } else { quote!('static) };
        param.bounds.push(syn::parse_quote!(#bound));
    }
    generics
}

/// An implementation after an error, so that uses of the type are not errors as well.
fn stand_in(item: &DeriveInput, krate: &Path) -> Option<TokenStream> {
    // A message is `'static`.
    if item.generics.lifetimes().next().is_some() {
        return None;
    }
    let ff = private(krate);
    let name = &item.ident;
    let generics = bounded(item, &[], &ff);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Some(quote! {
        impl #impl_generics #ff::delegation::Message for #name #type_generics #where_clause {
            const FINGERPRINT: u64 = 0;
            fn write(self, _: &mut #ff::delegation::Writer<'_>) {}
            fn read(_: &mut #ff::delegation::Reader<'_>) -> ::core::option::Option<Self> {
                ::core::option::Option::None
            }
        }
    })
}

fn expand(item: &DeriveInput, krate: &Path, variants: &[Variant<'_>]) -> TokenStream {
    let ff = private(krate);
    let name = &item.ident;
    let shown = text(name);
    let generics = bounded(item, variants, &ff);
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = item.generics.split_for_impl();
    let described = variants.iter().map(|variant| {
        let name = variant.name.map(text).unwrap_or_default();
        let fields = variant.fields.members().zip(variant.fields).map(|(member, field)| {
            let (member, ty) = (member.to_token_stream().to_string(), &field.ty);
            let member = member.strip_prefix("r#").unwrap_or(&member).to_owned();
            quote!((#member, <#ty as __de::Message>::FINGERPRINT))
        });
        quote!((#name, &[#(#fields),*]))
    });
    let write = variants.iter().enumerate().map(|(index, variant)| {
        let path = variant.path();
        let members = variant.fields.members();
        let locals: Vec<Ident> = (0..variant.fields.len()).map(|field| format_ident!("__{field}")).collect();
        let types = variant.fields.iter().map(|field| &field.ty);
        let discriminant = variant.name.map(|_| {
            let index = Literal::usize_unsuffixed(index);
            quote!(to.put(#index);)
        });
        quote! {
            #path { #(#members: #locals),* } => {
                #discriminant
                #(<#types as __de::Message>::write(#locals, to);)*
            }
        }
    });
    let read = variants.iter().enumerate().map(|(index, variant)| {
        let path = variant.path();
        let members = variant.fields.members();
        let types = variant.fields.iter().map(|field| &field.ty);
        let value = quote! {
            ::core::option::Option::Some(#path { #(#members: <#types as __de::Message>::read(from)?),* })
        };
        if variant.name.is_none() {
            return value;
        }
        let index = Literal::usize_unsuffixed(index);
        quote!(#index => #value,)
    });
    let read = if matches!(item.data, Data::Enum(_)) {
        quote! {
            match from.take()? {
                #(#read)*
                _ => ::core::option::Option::None,
            }
        }
    } else {
        quote!(#(#read)*)
    };
    quote! {
        const _: () = {
            use #ff::delegation as __de;
            impl #impl_generics __de::Message for #name #type_generics #where_clause {
                const FINGERPRINT: u64 = #ff::fingerprint::message(#shown, &[#(#described),*]);
                #[allow(unused_variables)]
                fn write(self, to: &mut __de::Writer<'_>) {
                    match self {
                        #(#write)*
                    }
                }
                #[allow(unused_variables)]
                fn read(from: &mut __de::Reader<'_>) -> ::core::option::Option<Self> {
                    #read
                }
            }
        };
    }
}

impl Variant<'_> {
    /// The path of its constructor.
    fn path(&self) -> TokenStream {
        match self.name {
            None => quote!(Self),
            Some(name) => quote!(Self::#name),
        }
    }
}
