//! What `#[remote]` generates.
//!
//! Only what depends on the struct is written here: which fields there are, of which type, where. What can be a generic
//! function is one, in the runtime's `__private`. Items that users touch stand in their scope, with documentation;
//! implementations stand in a `const` block. The handle's fields are private to generated code but for `#[local]` ones,
//! which keep their visibility.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::Ident;

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

/// The layout.
fn this(model: &Model) -> TokenStream {
    let Model { vis, name, generics, align, krate, .. } = model;
    let ff = private(krate);
    let item = model.item("This");
    let where_clause = &generics.where_clause;
    let align = proc_macro2::Literal::u64_unsuffixed(*align);
    let fields = model.fields.iter().map(|RemoteField { name, ty, .. }| quote!(#name: #ff::Cell<#ty>));
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
        let name = stored(name);
        quote!(#name: #ff::Stored<#ty>)
    });
    let kept = locals.iter().map(|local| {
        let (attrs, vis, name, ty) = (&local.attrs, &local.vis, &local.name, &local.ty);
        quote!(#(#attrs)* #vis #name: #ty)
    });
    let accessors = model.fields.iter().map(|field| {
        let RemoteField { docs, vis, name, ty, .. } = field;
        let doc = format!("`{}` if it is frozen, as read on `attach`; else its place. No round trip.", text(name));
        let stored = stored(name);
        quote! {
            #(#docs)*
            #[doc = #doc]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(&self) -> #ff::Kept<'_, #ty> {
                #ff::kept::<#ty>(&self.#stored)
            }
        }
    });
    let required: Vec<&RemoteField> = model.fields.iter().filter(|field| !field.has_default).collect();
    let arguments = required.iter().map(|field| {
        let RemoteField { name, ty, is_parameter, .. } = field;
        if *is_parameter { quote!(#name: #ty) } else { quote!(#name: #ff::Init<#ty>) }
    });
    let values = model.fields.iter().map(|field| {
        let RemoteField { name, ty, .. } = field;
        if field.has_default { quote!(#name: #ff::default_init::<#ty>()) } else { quote!(#name) }
    });
    quote! {
        #(#attrs)*
        #vis struct #name #generics #where_clause {
            __this: #ff::RemotePtr<Self>,
            #(#frozen,)*
            #(#kept,)*
        }

        impl #impl_generics #name #type_generics #where_clause {
            /// The values of a new object: one for each field that has no default. Setters change the others.
            #[inline]
            #[allow(dead_code, clippy::too_many_arguments)]
            #vis fn init(#(#arguments),*) -> #init #type_generics {
                #init { #(#values),* }
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
        quote!(#(#docs)* #[doc = #doc] #vis #name: #ff::Init<#ty>)
    });
    let setters = model.fields.iter().map(|field| {
        let RemoteField { vis, name, ty, .. } = field;
        let doc = format!("Sets what `{}` starts as.", text(name));
        quote! {
            #[doc = #doc]
            #[must_use]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(mut self, value: impl #ff::Initial<#ty>) -> Self {
                self.#name = #ff::Initial::into_init(value);
                self
            }
        }
    });
    let doc = format!("The values to build a new [`{owner}`] from.");
    quote! {
        #[doc = #doc]
        #vis struct #item #generics #where_clause {
            #(#fields,)*
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
        quote!(#(#docs)* #[doc = #doc] #vis #name: #ff::Value<'g, #ty>)
    });
    let doc = format!("Every field of a [`{owner}`], from one READ.");
    quote! {
        #[doc = #doc]
        #[::core::prelude::v1::derive(::core::clone::Clone, ::core::fmt::Debug)]
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
    let [this, fields_item, init, snapshot] = ["This", "Fields", "Init", "Snapshot"].map(|suffix| model.item(suffix));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let snapshot_generics = snapshot_generics(model);
    let (_, snapshot_type_generics, _) = snapshot_generics.split_for_impl();

    let of = |function: &str, arguments: &dyn Fn(&Ident) -> TokenStream| -> Vec<TokenStream> {
        let function = format_ident!("{function}");
        let call = |(index, field): (usize, &RemoteField)| {
            let (ty, arguments) = (&field.ty, arguments(&field.name));
            quote!(#ff::#function::<#name #type_generics, #ty, #index>(#arguments))
        };
        model.fields.iter().enumerate().map(call).collect()
    };
    let names: Vec<&Ident> = model.fields.iter().map(|field| &field.name).collect();
    let encoded = of("encode", &|name| quote!(init.#name, out));
    let decoded = of("decode", &|_| quote!(at, bytes));
    let stored_values = of("store", &|_| quote!(at, bytes));
    let stored_names = names.iter().map(|name| stored(name));
    let infos = model.fields.iter().map(|RemoteField { name, ty, .. }| {
        let text = text(name);
        quote!(#ff::FieldInfo::new::<#ty>(#text, ::core::mem::offset_of!(#this #type_generics, #name)))
    });
    let (local_names, local_starts): (Vec<_>, Vec<_>) =
        model.locals.iter().map(|local| (&local.name, &local.start)).unzip();
    let last = model.fields.last().expect("a model has a field");
    let (last_name, last_type, last_index) = (&last.name, &last.ty, model.fields.len() - 1);
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
            const TAIL_STRIDE: usize = <#last_type as #ff::Field>::TAIL_STRIDE;
            const TAIL_OFFSET: usize = #ff::tail_offset::<Self, #last_type, #last_index>();
            fn tail_bytes(init: &Self::Init) -> usize {
                <#last_type as #ff::Field>::tail_bytes(&init.#last_name)
            }
            #[inline]
            fn encode(init: Self::Init, out: &mut [u8]) {
                #(#encoded;)*
            }
            #[inline]
            fn decode<'g>(at: #ff::Address, bytes: &[u8]) -> #ff::Result<Self::Value<'g>> {
                #ff::Ok(#snapshot { #(#names: #decoded?,)* __guard: ::core::marker::PhantomData })
            }
            fn store(at: #ff::Address, bytes: &[u8]) -> #ff::Result<Self> {
                #ff::Ok(Self {
                    __this: #ff::RemotePtr::from_address(at),
                    #(#stored_names: #stored_values?,)*
                    #(#local_names: #local_starts,)*
                })
            }
            #[inline]
            fn kept(stored: &Self) -> &Self {
                stored
            }
        }
        impl #impl_generics #ff::FrozenField for #name #type_generics #where_clause {}
        impl #impl_generics #ff::Initial<#name #type_generics> for #init #type_generics #where_clause {
            fn into_init(self) -> Self {
                self
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
