//! `#[tag(…)]`: the bit fields of a tagged link's tag.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Fields, Ident, ItemStruct, LitInt, Path, Token};

use crate::attr::default_crate;
use crate::errors::Errors;
use crate::implement::text;
use crate::model::private;

/// The bits beside a compressed address.
const MOST_BITS: u32 = 16;
/// The names of a tag's own methods.
const RESERVED: &[&str] = &["new", "bits", "from_bits", "clone", "eq", "fmt"];

/// An argument of the attribute.
enum Argument {
    /// `name: N`, or `name` alone, of one bit.
    Field(BitField),
    /// `crate = path`.
    Crate(Path),
}

struct BitField {
    name: Ident,
    bits: u32,
    is_flag: bool,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            return input.call(Path::parse_mod_style).map(Self::Crate);
        }
        let name = input.call(Ident::parse_any)?;
        if !input.peek(Token![:]) {
            return Ok(Self::Field(BitField { name, bits: 1, is_flag: true }));
        }
        input.parse::<Token![:]>()?;
        let bits: LitInt = input.parse()?;
        let number = bits.base10_parse().ok().filter(|bits| (1..=MOST_BITS).contains(bits));
        let refused =
            || syn::Error::new_spanned(&bits, format!("a field of a tag has 1 to {MOST_BITS} bits"));
        Ok(Self::Field(BitField { name, bits: number.ok_or_else(refused)?, is_flag: false }))
    }
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let (fields, krate) = arguments(options, &mut errors);
    let expanded = errors.ok(syn::parse2::<ItemStruct>(item)).map(|item| {
        if !matches!(item.fields, Fields::Unit) || !item.generics.params.is_empty() {
            errors.at(
                &item,
                "a tag is a struct without fields and parameters: `#[tag(fingerprint: 8, size: 8)] struct SlotTag;`",
            );
        }
        generate(&item, &fields, &krate)
    });
    let errors = errors.into_tokens();
    quote!(#errors #expanded)
}

/// The valid fields, and the path of the runtime.
fn arguments(options: TokenStream, errors: &mut Errors) -> (Vec<BitField>, Path) {
    let (mut fields, mut krate): (Vec<BitField>, _) = (Vec::new(), default_crate());
    let is_empty = options.is_empty();
    let Some(parsed) = errors.ok(Punctuated::<Argument, Token![,]>::parse_terminated.parse2(options)) else {
        return (fields, krate);
    };
    for argument in parsed {
        match argument {
            Argument::Crate(path) => krate = path,
            Argument::Field(field) => {
                let (name, shown) = (&field.name, text(&field.name));
                if fields.iter().any(|other| other.name == *name) {
                    errors.at(name, format!("the field `{shown}` is declared twice"));
                } else if RESERVED.contains(&shown.as_str()) {
                    errors.at(
                        name,
                        format!(
                            "a tag's field cannot be called `{shown}`: tags already have a method of that name"
                        ),
                    );
                } else {
                    fields.push(field);
                }
            }
        }
    }
    let bits: u32 = fields.iter().map(|field| field.bits).sum();
    if bits > MOST_BITS {
        let beyond = &fields.last().expect("they have bits").name;
        errors.at(
            beyond,
            format!("the fields have {bits} bits together: a link has {MOST_BITS} beside its address"),
        );
        fields.clear();
    } else if is_empty {
        errors.push(syn::Error::new(
            Span::call_site(),
            "name the tag's fields and their bits: `#[tag(fingerprint: 8, size: 8)]`",
        ));
    }
    (fields, krate)
}

fn generate(item: &ItemStruct, fields: &[BitField], krate: &Path) -> TokenStream {
    let ff = private(krate);
    let (attrs, vis, name) = (&item.attrs, &item.vis, &item.ident);
    let mut from = 0;
    let mut methods = Vec::new();
    for BitField { name: field, bits, is_flag } in fields {
        let shown = text(field);
        let with = format_ident!("with_{}", field.unraw(), span = field.span());
        let mask = proc_macro2::Literal::u16_suffixed(u16::MAX >> (MOST_BITS - bits));
        let shift = proc_macro2::Literal::u32_unsuffixed(from);
        from += bits;
        let (of_field, of_with) =
            (format!(" Returns `{shown}`."), format!(" Returns the tag with another `{shown}`."));
        let ty = value_type(*bits, *is_flag);
        let get = if *is_flag { quote!(bits != 0) } else { quote!(bits as #ty) };
        // Numbers of 8 and 16 bits fill their types.
        let check = (!is_flag && bits % 8 != 0).then(|| {
            let message = format!("`{shown}` has {bits} bits");
            quote!(::core::assert!(value as u16 <= #mask, #message);)
        });
        methods.push(quote! {
            #[doc = #of_field]
            #vis const fn #field(self) -> #ty {
                let bits = (self.0 >> #shift) & #mask;
                #get
            }
            #[doc = #of_with]
            #[must_use]
            #vis const fn #with(self, value: #ty) -> Self {
                #check
                Self(self.0 & !(#mask << #shift) | (value as u16) << #shift)
            }
        });
    }
    let names: Vec<&Ident> = fields.iter().map(|field| &field.name).collect();
    let types = fields.iter().map(|field| value_type(field.bits, field.is_flag));
    let withs = fields.iter().map(|field| format_ident!("with_{}", field.name.unraw()));
    let texts = names.iter().map(|name| text(name));
    let shown = text(name);
    let bits = proc_macro2::Literal::u32_unsuffixed(from);
    quote! {
        #(#attrs)*
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::cmp::PartialEq, ::core::cmp::Eq, ::core::default::Default)]
        #[repr(transparent)]
        #vis struct #name(u16);

        #[allow(dead_code, clippy::cast_possible_truncation, clippy::identity_op)]
        impl #name {
            /// Makes the tag of these fields.
            #vis const fn new(#(#names: #types),*) -> Self {
                Self(0)#(.#withs(#names))*
            }
            #(#methods)*
        }
        impl ::core::fmt::Debug for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(#shown)#(.field(#texts, &self.#names()))*.finish()
            }
        }
        impl #ff::Tag for #name {
            const BITS: u32 = #bits;
            fn bits(self) -> u16 {
                self.0
            }
            fn from_bits(bits: u16) -> Self {
                Self(bits)
            }
        }
    }
}

fn value_type(bits: u32, is_flag: bool) -> Ident {
    let name = match bits {
        _ if is_flag => "bool",
        ..=8 => "u8",
        _ => "u16",
    };
    Ident::new(name, Span::call_site())
}
