//! What `#[remote]` generates.
//!
//! Only what depends on the struct is written here: which fields there are, of which type, where. What can be a generic
//! function is one, in the runtime's `__private`. Items that users touch stand in their scope, with documentation;
//! implementations stand in a `const` block. The handle's fields are private to generated code but for `#[local]` ones,
//! which keep their visibility.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Type};

use crate::errors::Errors;
use crate::model::{Model, RemoteField, private};

/// The expansion of `#[remote(options)] item`.
pub(crate) fn remote(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = Model::new(options, item, &mut errors).map(|model| expand(&model));
    let errors = errors.into_tokens();
    quote!(#errors #expanded)
}

fn expand(model: &Model) -> TokenStream {
    let this = this(model);
    let handle = handle(model);
    let fields = fields(model);
    let init = init(model);
    let snapshot = snapshot(model);
    let marks = marks(model);
    let implementations = implementations(model);
    quote! {
        #handle
        #this
        #fields
        #init
        #snapshot
        #marks
        const _: () = { #implementations };
    }
}

/// A field's name as text, without `r#`.
fn text(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}

/// `<ty as Field>::item`, all of it where the type stands in the source: what is wrong with the type is then said there,
/// and once, because the compiler does not repeat itself at one place.
fn of(ty: &Type, ff: &TokenStream, item: &TokenStream) -> TokenStream {
    quote_spanned!(ty.span()=> <#ty as #ff::Field>::#item)
}

/// The layout.
fn this(model: &Model) -> TokenStream {
    let Model { vis, name, generics, align, krate, .. } = model;
    let ff = private(krate);
    let item = model.item("This");
    let where_clause = &generics.where_clause;
    let align = proc_macro2::Literal::u64_unsuffixed(*align);
    let fields = model.fields.iter().map(|RemoteField { name, ty, .. }| {
        let cell = of(ty, &ff, &quote!(Cell));
        quote!(#name: #cell)
    });
    let marker = marker(model);
    let doc = format!("The layout of a [`{name}`] in far memory.");
    quote! {
        #[doc = #doc]
        #[repr(C, align(#align))]
        #[allow(dead_code)]
        #vis struct #item #generics #where_clause {
            #(#fields,)*
            __parameters: #marker,
        }
    }
}

/// A zero-sized type that uses every type parameter: one that only stands in its own recursion is not used otherwise.
fn marker(model: &Model) -> TokenStream {
    let parameters = model.generics.type_params().map(|param| &param.ident);
    quote!(::core::marker::PhantomData<fn() -> (#(#parameters,)*)>)
}

/// The handle, its constructors and accessors.
fn handle(model: &Model) -> TokenStream {
    let Model { attrs, vis, name, generics, krate, locals, .. } = model;
    let ff = private(krate);
    let init = model.item("Init");
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let frozen = model.fields.iter().map(|RemoteField { name, ty, .. }| {
        let (name, ty) = (stored(name), of(ty, &ff, &quote!(Stored)));
        quote!(#name: #ty)
    });
    let kept = locals.iter().map(|local| {
        let (attrs, vis, name, ty) = (&local.attrs, &local.vis, &local.name, &local.ty);
        quote!(#(#attrs)* #vis #name: #ty)
    });
    let accessors = model.fields.iter().map(|field| {
        let RemoteField { docs, vis, name, ty, .. } = field;
        let doc =
            format!("`{}` if it is frozen, as read on `attach`; else its place. No round trip.", text(name));
        let stored = stored(name);
        let (kept_type, kept) = (of(ty, &ff, &quote!(Kept<'_>)), of(ty, &ff, &quote!(kept)));
        quote! {
            #(#docs)*
            #[doc = #doc]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(&self) -> #kept_type {
                #kept(&self.#stored)
            }
        }
    });
    let required: Vec<&RemoteField> = model.fields.iter().filter(|field| !field.has_default).collect();
    let arguments = required.iter().map(|field| {
        let RemoteField { name, ty, is_parameter, .. } = field;
        let init = of(ty, &ff, &quote!(Init));
        if *is_parameter { quote!(#name: #ty) } else { quote!(#name: #init) }
    });
    let values = model.fields.iter().map(|field| {
        let RemoteField { name, ty, .. } = field;
        let default = quote_spanned!(ty.span()=> <#ty as #ff::DefaultInit>::default_init());
        if field.has_default { quote!(#name: #default) } else { quote!(#name) }
    });
    quote! {
        #(#attrs)*
        #vis struct #name #generics #where_clause {
            #(#frozen,)*
            #(#kept,)*
            __this: #ff::RemotePtr<Self>,
        }

        impl #impl_generics #name #type_generics #where_clause {
            /// The values of a new object: one for each field that has no default. Setters change the others.
            #[inline]
            #[allow(dead_code, clippy::too_many_arguments)]
            #vis fn init(#(#arguments),*) -> #init #type_generics {
                #init { #(#values,)* __parameters: ::core::marker::PhantomData }
            }
            /// Allocates an object at `site` and builds its image; publishing it, or `write`, is the one WRITE.
            /// No round trip, but for one FAA a chunk.
            #[allow(dead_code, clippy::missing_errors_doc)]
            #vis async fn new_in<'a>(
                site: impl ::core::convert::Into<#ff::Site<'a>>,
                init: #init #type_generics,
            ) -> #ff::Result<#ff::Owned<Self>> {
                #ff::new_in(site, init).await
            }
            /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
            #[allow(dead_code, clippy::missing_errors_doc)]
            #vis async fn attach(ptr: #ff::RemotePtr<Self>, ct: &#ff::ComputeThread) -> #ff::Result<Self> {
                #ff::attach(ptr, ct).await
            }
            /// Where the object is: `This` is for data, `self` is for code.
            #[inline]
            #[allow(dead_code)]
            #vis fn this(&self) -> #ff::RemotePtr<Self> {
                self.__this
            }
            #(#accessors)*
        }
    }
}

/// What a handle calls what it keeps of a field: the user's own `#[local]` fields and methods keep their names.
fn stored(name: &Ident) -> Ident {
    format_ident!("__{}", text(name), span = name.span())
}

/// The accessors of pointers.
fn fields(model: &Model) -> TokenStream {
    let Model { vis, name: owner, generics, krate, .. } = model;
    let ff = private(krate);
    let item = model.item("Fields");
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let marker = marker(model);
    let accessors = model.fields.iter().enumerate().map(|(index, field)| {
        let RemoteField { docs, vis, name, ty, .. } = field;
        let doc = format!("The place of `{}`. No round trip.", text(name));
        quote! {
            #(#docs)*
            #[doc = #doc]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(&self) -> #ff::Place<#ty> {
                #ff::place::<#owner #type_generics, #ty, #index>(self.0)
            }
        }
    });
    let doc = format!("The accessors of a [`{owner}`] in far memory; pointers to it dereference to this.");
    quote! {
        #[doc = #doc]
        #[repr(transparent)]
        #vis struct #item #generics (#ff::Address, #marker) #where_clause;

        impl #impl_generics #item #type_generics #where_clause {
            #(#accessors)*
        }
    }
}

/// The values of a new object.
fn init(model: &Model) -> TokenStream {
    let Model { vis, name: owner, generics, krate, .. } = model;
    let ff = private(krate);
    let item = model.item("Init");
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let fields = model.fields.iter().map(|field| {
        let RemoteField { docs, vis, name, ty, .. } = field;
        let doc = format!("What `{}` starts as.", text(name));
        let init = of(ty, &ff, &quote!(Init));
        quote!(#(#docs)* #[doc = #doc] #vis #name: #init)
    });
    let setters = model.fields.iter().map(|field| {
        let RemoteField { vis, name, ty, .. } = field;
        let doc = format!("Sets what `{}` starts as.", text(name));
        let init = of(ty, &ff, &quote!(Init));
        quote! {
            #[doc = #doc]
            #[must_use]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(mut self, value: impl #ff::Initial<#init>) -> Self {
                self.#name = #ff::Initial::into_init(value);
                self
            }
        }
    });
    let marker = marker(model);
    let doc = format!("The values to build a new [`{owner}`] from.");
    quote! {
        #[doc = #doc]
        #vis struct #item #generics #where_clause {
            #(#fields,)*
            __parameters: #marker,
        }

        impl #impl_generics #item #type_generics #where_clause {
            #(#setters)*
        }
    }
}

/// What one READ shows.
fn snapshot(model: &Model) -> TokenStream {
    let Model { vis, name: owner, krate, .. } = model;
    let ff = private(krate);
    let item = model.item("Snapshot");
    let generics = snapshot_generics(model);
    let where_clause = &generics.where_clause;
    let fields = model.fields.iter().map(|field| {
        let RemoteField { docs, vis, name, ty, .. } = field;
        let doc = format!("What `{}` held.", text(name));
        let value = of(ty, &ff, &quote!(Value<'g>));
        quote!(#(#docs)* #[doc = #doc] #vis #name: #value)
    });
    let doc = format!("Every field of a [`{owner}`], from one READ.");
    quote! {
        #[doc = #doc]
        #[allow(dead_code)]
        #vis struct #item #generics #where_clause {
            #(#fields,)*
            __guard: ::core::marker::PhantomData<&'g ()>,
        }
    }
}

fn snapshot_generics(model: &Model) -> syn::Generics {
    let mut generics = model.generics.clone();
    generics.params.insert(0, syn::parse_quote!('g));
    generics
}

/// The helpers for named marks.
fn marks(model: &Model) -> Option<TokenStream> {
    if model.marks.is_empty() {
        return None;
    }
    let Model { vis, name: owner, krate, .. } = model;
    let ff = private(krate);
    let item = model.item("Marks");
    let (mut declarations, mut definitions) = (vec![], vec![]);
    for mark in &model.marks {
        let (name, bit) = (text(&mark.name), 1_u64 << mark.bit);
        let bit = proc_macro2::Literal::u64_unsuffixed(bit);
        let [is, with, without] =
            ["is", "with", "without"].map(|verb| format_ident!("{verb}_{name}", span = mark.name.span()));
        let docs = [
            format!("Whether the mark `{name}` is set."),
            format!("The same address and marks, with `{name}` set."),
            format!("The same address and marks, without `{name}`."),
        ];
        let [doc_is, doc_with, doc_without] = docs;
        declarations.push(quote! {
            #[doc = #doc_is]
            fn #is(&self) -> bool;
            #[doc = #doc_with]
            #[must_use]
            fn #with(self) -> Self;
            #[doc = #doc_without]
            #[must_use]
            fn #without(self) -> Self;
        });
        definitions.push(quote! {
            #[inline]
            fn #is(&self) -> bool {
                self.marks() & #bit != 0
            }
            #[inline]
            fn #with(self) -> Self {
                self.with_marks(self.marks() | #bit)
            }
            #[inline]
            fn #without(self) -> Self {
                self.with_marks(self.marks() & !#bit)
            }
        });
    }
    let doc = format!("The named marks of the links in [`{owner}`].");
    Some(quote! {
        #[doc = #doc]
        #[allow(dead_code)]
        #vis trait #item: ::core::marker::Sized {
            #(#declarations)*
        }
        impl<T: #ff::Remote> #item for #ff::Shared<'_, T> {
            #(#definitions)*
        }
    })
}

/// The traits.
fn implementations(model: &Model) -> TokenStream {
    let Model { name, generics, krate, .. } = model;
    let ff = private(krate);
    let [this, fields_item, init, snapshot] =
        ["This", "Fields", "Init", "Snapshot"].map(|suffix| model.item(suffix));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let snapshot_generics = snapshot_generics(model);
    let (snapshot_impl_generics, snapshot_type_generics, _) = snapshot_generics.split_for_impl();
    let snapshot_text = snapshot.to_string();

    let names: Vec<&Ident> = model.fields.iter().map(|field| &field.name).collect();
    let each = |function: &str| -> Vec<TokenStream> {
        let function = format_ident!("{function}");
        model.fields.iter().map(|field| of(&field.ty, &ff, &quote!(#function))).collect()
    };
    let (encode, decode, store) = (each("encode"), each("decode"), each("store"));
    let indices: Vec<usize> = (0..names.len()).collect();
    let texts = names.iter().map(|name| text(name)).collect::<Vec<_>>();
    let stored_names = names.iter().map(|name| stored(name));
    let infos = model.fields.iter().map(|RemoteField { name, ty, .. }| {
        let text = text(name);
        let shape = of(ty, &ff, &quote!(SHAPE));
        quote!(#ff::FieldInfo::new(#text, ::core::mem::offset_of!(#this #type_generics, #name), #shape))
    });
    let (local_names, local_starts): (Vec<_>, Vec<_>) =
        model.locals.iter().map(|local| (&local.name, &local.start)).unzip();
    let last = model.fields.last().expect("a model has a field");
    let last_name = &last.name;
    let [tail_stride, tail_offset, tail_bytes] =
        [quote!(TAIL_STRIDE), quote!(TAIL_OFFSET), quote!(tail_bytes)].map(|item| of(&last.ty, &ff, &item));
    let text = text(name);
    let align = model.align as usize;
    let proven = (!model.is_generic()).then(|| {
        // Where nothing depends on parameters the proof is made here and now, at the struct.
        quote! {
            const _: () = {
                <#name as #ff::Remote>::PROVEN;
                ::core::assert!(::core::mem::align_of::<#this>() >= #align);
            };
        }
    });
    quote! {
        impl #impl_generics #ff::Field for #name #type_generics #where_clause {
            type Cell = #this #type_generics;
            type Init = #init #type_generics;
            type Value<'g> = #snapshot #snapshot_type_generics;
            type Stored = Self;
            type Kept<'a> = &'a Self;
            const FINGERPRINT: u64 = #ff::fingerprint_of::<Self>();
            const FROZEN: bool = #ff::is_frozen::<Self>();
            const TAIL_STRIDE: usize = #tail_stride;
            const TAIL_OFFSET: usize = #ff::tail_offset::<Self>(#tail_offset);
            fn tail_bytes(init: &Self::Init) -> usize {
                #tail_bytes(&init.#last_name)
            }
            #[inline]
            fn encode(init: Self::Init, out: &mut [u8]) {
                #(#encode(init.#names, &mut out[#ff::offset::<Self, #indices>()..]);)*
            }
            #[inline]
            fn decode<'g>(at: #ff::Address, bytes: &[u8]) -> #ff::Result<Self::Value<'g>> {
                #ff::Ok(#snapshot {
                    #(#names: {
                        let (at, bytes) = #ff::part::<Self, #indices>(at, bytes);
                        #decode(at, bytes)?
                    },)*
                    __guard: ::core::marker::PhantomData,
                })
            }
            fn store(at: #ff::Address, bytes: &[u8]) -> #ff::Result<Self> {
                #ff::Ok(Self {
                    #(#stored_names: {
                        let (at, bytes) = #ff::part::<Self, #indices>(at, bytes);
                        #store(at, bytes)?
                    },)*
                    #(#local_names: #local_starts,)*
                    __this: #ff::RemotePtr::from_address(at),
                })
            }
            #[inline]
            fn kept(stored: &Self) -> &Self {
                stored
            }
        }
        impl #impl_generics #ff::FrozenField for #name #type_generics #where_clause {}
        impl #snapshot_impl_generics ::core::clone::Clone for #snapshot #snapshot_type_generics #where_clause {
            fn clone(&self) -> Self {
                Self {
                    #(#names: ::core::clone::Clone::clone(&self.#names),)*
                    __guard: ::core::marker::PhantomData,
                }
            }
        }
        impl #snapshot_impl_generics ::core::fmt::Debug for #snapshot #snapshot_type_generics #where_clause {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(#snapshot_text)#(.field(#texts, &self.#names))*.finish()
            }
        }
        // SAFETY: the accessors are `repr(transparent)` over an address, as `Remote` asks.
        unsafe impl #impl_generics #ff::Remote for #name #type_generics #where_clause {
            type Fields = #fields_item #type_generics;
            const NAME: &'static str = #text;
            const FIELDS: &'static [#ff::FieldInfo] = &[#(#infos),*];
        }
        #proven
    }
}
