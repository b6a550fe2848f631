//! `implement!`: the traits of a `#[remote]` struct, from a list of its fields.
//!
//! The implementations repeat one pattern for each field. So the expansion of `#[remote]` ends in a list of the fields, and this
//! second stage writes the implementations from it. The list has each field's name, its number, and the functions of its `Field`
//! implementation, whose tokens have the span of the type in the source. Everything else written here has one span, that of the
//! attribute. So an invalid type is reported at the type, and errors that follow from it are reported once instead of at each
//! expression: the compiler does not repeat an error at one span.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, LitInt, Token, braced, bracketed};

/// Tokens in brackets, unparsed.
struct Verbatim(TokenStream);

impl Parse for Verbatim {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let inside;
        bracketed!(inside in input);
        inside.parse().map(Self)
    }
}

/// One field in far memory: its name and number, and `<type as Field>::` `encode`, `decode`, `store`, `SHAPE`.
struct Field {
    name: Ident,
    index: LitInt,
    functions: [TokenStream; 4],
}

struct List {
    parameters: TokenStream,
    handle: Ident,
    arguments: TokenStream,
    bounds: TokenStream,
    /// The types of the layout, the accessors, the initial values and the snapshot.
    types: [Ident; 4],
    /// The guard's lifetime, if the snapshot has it.
    guard: TokenStream,
    fields: Vec<Field>,
    /// The names and initial values of `#[local]` fields.
    locals: Vec<(Ident, TokenStream)>,
    /// The last field, and its `<type as Field>::` `tail_bytes`, `SHAPE`.
    tail: (Ident, TokenStream, TokenStream),
    /// For each list of marks: its type, and the trait with its methods.
    marks: Vec<(Ident, Ident)>,
}

fn verbatim(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    input.parse::<Verbatim>().map(|verbatim| verbatim.0)
}

fn name(input: ParseStream<'_>) -> syn::Result<Ident> {
    input.call(syn::ext::IdentExt::parse_any)
}

impl Parse for List {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<Token![impl]>()?;
        let parameters = verbatim(input)?;
        input.parse::<Token![for]>()?;
        let (handle, arguments, bounds) = (name(input)?, verbatim(input)?, verbatim(input)?);
        input.parse::<Token![;]>()?;
        let types = [name(input)?, name(input)?, name(input)?, name(input)?];
        let guard = verbatim(input)?;
        input.parse::<Token![;]>()?;
        let (mut fields, mut locals) = (Vec::new(), Vec::new());
        let list;
        braced!(list in input);
        while !list.is_empty() {
            let (name, index) = (name(&list)?, list.parse()?);
            list.parse::<Token![:]>()?;
            let functions = [verbatim(&list)?, verbatim(&list)?, verbatim(&list)?, verbatim(&list)?];
            list.parse::<Token![;]>()?;
            fields.push(Field { name, index, functions });
        }
        let list;
        braced!(list in input);
        while !list.is_empty() {
            let name = name(&list)?;
            list.parse::<Token![=]>()?;
            locals.push((name, verbatim(&list)?));
            list.parse::<Token![;]>()?;
        }
        let tail = (name(input)?, verbatim(input)?, verbatim(input)?);
        let mut marks = Vec::new();
        let list;
        braced!(list in input);
        while !list.is_empty() {
            marks.push((name(&list)?, name(&list)?));
            list.parse::<Token![;]>()?;
        }
        Ok(Self { parameters, handle, arguments, bounds, types, guard, fields, locals, tail, marks })
    }
}

pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let list = match syn::parse2::<List>(input) {
        Ok(list) => list,
        Err(error) => return error.into_compile_error(),
    };
    let List { parameters, handle, arguments, bounds, types: [this, fields, init, snapshot], guard, .. } =
        &list;
    let (tail, tail_bytes, tail_shape) = &list.tail;
    let names: Vec<&Ident> = list.fields.iter().map(|field| &field.name).collect();
    let indices: Vec<&LitInt> = list.fields.iter().map(|field| &field.index).collect();
    let texts = names.iter().map(|name| text(name)).collect::<Vec<_>>();
    let each = |which: usize| -> Vec<&TokenStream> {
        list.fields.iter().map(|field| &field.functions[which]).collect()
    };
    let (encode, decode, store, shape) = (each(0), each(1), each(2), each(3));
    let (locals, starts): (Vec<&Ident>, Vec<&TokenStream>) =
        list.locals.iter().map(|(name, start)| (name, start)).unzip();
    // Hygienic: the user's expressions for local fields do not see these names.
    let (at, bytes) = (Ident::new("at", Span::mixed_site()), Ident::new("bytes", Span::mixed_site()));
    let (brands, helpers): (Vec<&Ident>, Vec<&Ident>) =
        list.marks.iter().map(|(brand, helpers)| (brand, helpers)).unzip();
    let (handle_text, snapshot_text) = (text(handle), text(snapshot));
    quote! {
        impl<#parameters> __ff::Field for #handle<#arguments> #bounds {
            type Cell = #this<#arguments>;
            type Init = #init<#arguments>;
            type Value<'g> = #snapshot<#guard #arguments>;
            type Stored = Self;
            type Kept<'a> = &'a Self;
            const FINGERPRINT: u64 = __ff::fingerprint_of::<Self>();
            const FROZEN: bool = __ff::is_frozen::<Self>();
            const TAIL_STRIDE: usize = #tail_shape.tail_stride;
            const TAIL_OFFSET: usize = __ff::tail_offset::<Self>(#tail_shape.tail_offset);

            fn describe(describer: &mut __ff::Describer) {
                __ff::describe_nested::<Self>(describer);
            }
            fn tail_bytes(init: &Self::Init) -> usize {
                #tail_bytes(&init.#tail)
            }
            #[inline]
            fn encode(init: Self::Init, out: &mut [u8]) {
                #(#encode(init.#names, &mut out[__ff::offset::<Self, #indices>()..]);)*
            }
            #[inline]
            fn decode<'g>(at: __ff::Address, bytes: &[u8]) -> __ff::Decoded<Self::Value<'g>> {
                __ff::Ok(#snapshot {
                    #(#names: {
                        let (at, bytes) = __ff::part::<Self, #indices>(at, bytes);
                        #decode(at, bytes)?
                    },)*
                    __guard: ::core::marker::PhantomData,
                })
            }
            fn store(#at: __ff::Address, #bytes: &[u8]) -> __ff::Decoded<Self> {
                __ff::Ok(Self {
                    #(#names: {
                        let (at, bytes) = __ff::part::<Self, #indices>(#at, #bytes);
                        #store(at, bytes)?
                    },)*
                    #(#locals: #starts,)*
                    __this: __ff::RemotePtr::from_address(#at),
                })
            }
            #[inline]
            fn kept(stored: &Self) -> &Self {
                stored
            }
        }
        impl<#parameters> __ff::FrozenField for #handle<#arguments> #bounds {}
        // SAFETY: `Fields` is the struct of accessors that `#[remote]` writes beside this list, in the same scope, which can have no other item of
        // that name: `repr(transparent)` over an address and a `PhantomData`, for any parameters. It has none of the user's attributes. Its methods
        // make places at any address; each access to a place checks the address.
        unsafe impl<#parameters> __ff::Remote for #handle<#arguments> #bounds {
            type Fields<'g> = #fields<'g, #arguments>;
            const NAME: &'static str = #handle_text;
            const FIELDS: &'static [__ff::FieldInfo] = &[
                #(__ff::FieldInfo::new(#texts, ::core::mem::offset_of!(#this<#arguments>, #names), #shape),)*
            ];
        }
        #(
            impl __ff::Marks for #brands {}
            impl<T: __ff::Remote> #helpers for __ff::Shared<'_, T, #brands> {}
        )*
        impl<#guard #parameters> ::core::clone::Clone for #snapshot<#guard #arguments> #bounds {
            fn clone(&self) -> Self {
                Self {
                    #(#names: ::core::clone::Clone::clone(&self.#names),)*
                    __guard: ::core::marker::PhantomData,
                }
            }
        }
        impl<#guard #parameters> ::core::fmt::Debug for #snapshot<#guard #arguments> #bounds {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(#snapshot_text)#(.field(#texts, &self.#names))*.finish()
            }
        }
    }
}

/// A name as text, without a leading `r#`.
pub(crate) fn text(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}
