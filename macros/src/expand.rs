//! The code that `#[remote]` generates.
//!
//! Only code that depends on the struct's fields is generated. Everything else is a generic function in the runtime's
//! `__private`. Implementations of traits repeat one pattern for each field; a second stage,
//! [`implement`](crate::implement), writes them from a list. Items for users are in the struct's scope, with documentation.
//! Implementations are in a `const` block, where the runtime has the short name `__ff`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, GenericParam, Generics, Type};

use crate::errors::Errors;
use crate::implement::text;
use crate::model::{InitialValue, MarkSet, Model, RemoteField, private};
use crate::parse;

/// The expansion of `#[remote(options)] item`.
pub(crate) fn remote(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = parse::model(options, item, &mut errors).map(|model| expand(&model));
    let errors = errors.into_tokens();
    quote!(#errors #expanded)
}

fn expand(model: &Model) -> TokenStream {
    let (types, marks) = (types(model), marks(model));
    let (handle, fields, init) = (handle(model), fields(model), init(model));
    let (implementations, proof) = (implementations(model), proof(model));
    let foreign = model.foreign_marks.iter().map(|path| {
        let are_marks = quote_spanned!(path.span()=> __ff::are_marks::<#path>());
        quote!(#are_marks;)
    });
    let ff = private(&model.krate);
    quote! {
        #types
        #marks
        #[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
        const _: () = {
            use #ff as __ff;
            #handle
            #fields
            #init
            #implementations
            #(#foreign)*
            #proof
        };
    }
}

/// `<ty as Field>::item`, with the span of the type in the source. So errors about the type point there, and the compiler reports
/// each only once, because it does not repeat an error at one span.
fn of(ty: &Type, ff: &TokenStream, item: &TokenStream) -> TokenStream {
    quote_spanned!(ty.span()=> <#ty as #ff::Field>::#item)
}

/// The runtime's short name inside the `const` block.
fn short() -> TokenStream {
    quote!(__ff)
}

/// A field's own documentation, and a generated sentence in a paragraph after it.
fn docs(own: &[Attribute], generated: &str) -> TokenStream {
    let gap = (!own.is_empty()).then(|| quote!(#[doc = ""]));
    let generated = format!(" {generated}");
    quote!(#(#own)* #gap #[doc = #generated])
}

/// A field's lint levels, for generated items without its other attributes.
fn lint_levels(field: &RemoteField) -> impl Iterator<Item = &Attribute> {
    field.attrs.iter().filter(|attr| !attr.path().is_ident("deprecated"))
}

/// A zero-sized type that uses every type parameter. A parameter that occurs only in the struct's recursion would be unused.
fn marker(model: &Model) -> TokenStream {
    let parameters = parameters(model);
    quote!(::core::marker::PhantomData<#parameters>)
}

/// A type that uses every type parameter.
fn parameters(model: &Model) -> TokenStream {
    let parameters = model.generics.type_params().map(|param| &param.ident);
    quote!(fn() -> (#(#parameters,)*))
}

/// The struct's parameters, after the lifetime of a guard.
fn guarded(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    generics.params.insert(0, syn::parse_quote!('g));
    generics
}

/// The handle, the layout, the accessors' address, the initial values and the snapshot.
fn types(model: &Model) -> TokenStream {
    let Model { attrs, vis, name, generics, align, krate, .. } = model;
    let (ff, marker, parameters) = (private(krate), marker(model), parameters(model));
    let [this, fields, init, snapshot] =
        ["This", "Fields", "Init", "Snapshot"].map(|suffix| model.item(suffix));
    let where_clause = &generics.where_clause;
    let fields_generics = guarded(generics);
    let is_borrowed = model.snapshot_is_borrowed();
    let snapshot_generics = if is_borrowed { &fields_generics } else { generics };
    // A borrowed snapshot names the guard's lifetime in its marker, because its fields may not.
    let (guard, bound) = if is_borrowed {
        (quote!('g), quote!((&'g (), #parameters)))
    } else {
        (quote!('static), quote!(#parameters))
    };
    let align = proc_macro2::Literal::u64_unsuffixed(*align);
    let each = |write: &dyn Fn(&RemoteField) -> TokenStream| -> Vec<TokenStream> {
        model.fields.iter().map(write).collect()
    };
    let kept = each(&|field| {
        let RemoteField { name, ty, .. } = field;
        let (levels, ty) = (lint_levels(field), of(ty, &ff, &quote!(Stored)));
        quote!(#(#levels)* #name: #ty)
    });
    let locals = model.locals.iter().map(|local| {
        let (attrs, vis, name, ty) = (&local.attrs, &local.vis, &local.name, &local.ty);
        quote!(#(#attrs)* #vis #name: #ty)
    });
    let cells = each(&|field| {
        let RemoteField { name, ty, .. } = field;
        let (levels, cell) = (lint_levels(field), of(ty, &ff, &quote!(Cell)));
        quote!(#(#levels)* #name: #cell)
    });
    let initial = each(&|RemoteField { attrs, vis, name, ty, .. }| {
        let (docs, init) =
            (docs(&[], &format!("The initial value of `{}`.", text(name))), of(ty, &ff, &quote!(Init)));
        quote!(#docs #(#attrs)* #vis #name: #init)
    });
    let values = each(&|RemoteField { docs: own, attrs, vis, name, ty, .. }| {
        let (docs, value) = (
            docs(own, &format!("The value of `{}` when it was read.", text(name))),
            of(ty, &ff, &quote!(Value<#guard>)),
        );
        quote!(#docs #(#attrs)* #vis #name: #value)
    });
    let about = |what: &str| format!(" {what}");
    let [of_this, of_fields, of_init, of_snapshot] = [
        about(&format!("The layout of a [`{name}`] in far memory.")),
        about(&format!(
            "The accessors of a [`{name}`] in far memory. Pointers to it dereference to this type."
        )),
        about(&format!("The initial values of a new [`{name}`].")),
        about(&format!("The values of all fields of a [`{name}`], from one READ.")),
    ];
    quote! {
        #(#attrs)*
        #vis struct #name #generics #where_clause {
            #(#kept,)*
            #(#locals,)*
            __this: #ff::RemotePtr<Self>,
        }
        #[doc = #of_this]
        #[repr(C, align(#align))]
        #[allow(dead_code)]
        #vis struct #this #generics #where_clause {
            #(#cells,)*
            __parameters: #marker,
        }
        #[doc = #of_fields]
        #[repr(transparent)]
        #vis struct #fields #fields_generics (
            #ff::Address,
            ::core::marker::PhantomData<(&'g (), #parameters)>,
        ) #where_clause;
        #[doc = #of_init]
        #[must_use]
        #vis struct #init #generics #where_clause {
            #(#initial,)*
            __parameters: #marker,
        }
        #[doc = #of_snapshot]
        #[allow(dead_code)]
        #vis struct #snapshot #snapshot_generics #where_clause {
            #(#values,)*
            __guard: ::core::marker::PhantomData<#bound>,
        }
    }
}

/// The handle's constructors and accessors.
fn handle(model: &Model) -> TokenStream {
    let Model { vis, name, generics, .. } = model;
    let ff = short();
    let init = model.item("Init");
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let accessors = model.fields.iter().map(|field| {
        let RemoteField { docs: own, attrs, must_use, vis, name, accessor, ty, .. } = field;
        let generated = format!(
            "Returns the value of `{}` that `attach` read if the field is frozen, else its place. No round trip.",
            text(name)
        );
        let docs = docs(own, &generated);
        let (kept_type, kept) = (of(ty, &ff, &quote!(Kept<'_>)), of(ty, &ff, &quote!(kept)));
        quote! {
            #docs
            #(#attrs)*
            #must_use
            #vis fn #accessor(&self) -> #kept_type {
                #kept(&self.#name)
            }
        }
    });
    let arguments = model.fields.iter().filter_map(|field| {
        let RemoteField { name, ty, initial, .. } = field;
        let (levels, init) = (lint_levels(field), of(ty, &ff, &quote!(Init)));
        match initial {
            InitialValue::Default => None,
            InitialValue::Argument => Some(quote!(#(#levels)* #name: #init)),
            InitialValue::Parameter => Some(quote!(#(#levels)* #name: #ty)),
        }
    });
    let values = model.fields.iter().map(|field| {
        let RemoteField { name, ty, initial, .. } = field;
        let default = quote_spanned!(ty.span()=> <#ty as #ff::DefaultInit>::default_init());
        if *initial == InitialValue::Default { quote!(#name: #default) } else { quote!(#name) }
    });
    quote! {
        impl #impl_generics #name #type_generics #where_clause {
            /// Returns the initial values of a new object: an argument for each field without a default, and setters for the others.
            #vis fn init(#(#arguments),*) -> #init #type_generics {
                #init { #(#values,)* __parameters: ::core::marker::PhantomData }
            }
            /// Allocates an object, whose image stays in local memory until it is published or written by `write`: one WRITE.
            #[inline]
            #vis fn new_in<'a>(
                site: impl ::core::convert::Into<__ff::Site<'a>>,
                init: #init #type_generics,
            ) -> __ff::NewObject<'a, Self> {
                __ff::new_in(site, init)
            }
            /// Returns a handle to the object at `ptr`. One READ for the frozen fields; none if there are none.
            #vis async fn attach(ptr: __ff::RemotePtr<Self>, ct: &__ff::ComputeThread) -> __ff::Result<Self> {
                __ff::attach(ptr, ct).await
            }
            /// Returns the pointer to the object in far memory: `This` is for data, `self` is for code.
            #vis fn this(&self) -> __ff::RemotePtr<Self> {
                self.__this
            }
            #(#accessors)*
        }
    }
}

/// The accessors of pointers.
fn fields(model: &Model) -> TokenStream {
    let Model { name: owner, generics, .. } = model;
    let item = model.item("Fields");
    let (_, type_generics, where_clause) = generics.split_for_impl();
    let guarded = guarded(generics);
    let (impl_generics, item_generics, _) = guarded.split_for_impl();
    let accessors = model.fields.iter().enumerate().map(|(index, field)| {
        let RemoteField { docs: own, attrs, must_use, vis, name, accessor, ty, .. } = field;
        let docs = docs(own, &format!("Returns the place of `{}`. No round trip.", text(name)));
        let index = proc_macro2::Literal::usize_unsuffixed(index);
        quote! {
            #docs
            #(#attrs)*
            #must_use
            #vis fn #accessor(&self) -> __ff::Place<'g, #ty> {
                __ff::place::<#owner #type_generics, #ty, #index>(self.0)
            }
        }
    });
    quote! {
        impl #impl_generics #item #item_generics #where_clause {
            #(#accessors)*
        }
    }
}

/// The setters of the initial values that are not arguments of `init`.
fn init(model: &Model) -> TokenStream {
    let item = model.item("Init");
    let (impl_generics, type_generics, where_clause) = model.generics.split_for_impl();
    let setters = model.fields.iter().filter(|field| field.initial == InitialValue::Default).map(|field| {
        let RemoteField { attrs, vis, name, ty, .. } = field;
        let docs = docs(&[], &format!("Sets the initial value of `{}`.", text(name)));
        let init = quote_spanned!(ty.span()=> __ff::Init<#ty>);
        quote! {
            #docs
            #(#attrs)*
            #vis fn #name(mut self, value: impl __ff::Initial<#init>) -> Self {
                self.#name = __ff::Initial::into_init(value);
                self
            }
        }
    });
    quote! {
        impl #impl_generics #item #type_generics #where_clause {
            #(#setters)*
        }
    }
}

/// For each list of marks: a type that identifies it in a link's type, and a trait with the marks' methods for pointers of that type.
fn marks(model: &Model) -> TokenStream {
    let Model { vis, name: owner, krate, .. } = model;
    let ff = private(krate);
    let sets = model.marks.iter().map(|set| {
        let (brand, trait_name) = (set.brand(), set.helpers());
        let helpers = (0..).zip(&set.names).filter(|(bit, name)| !set.names[..*bit].contains(name));
        let helpers = helpers.map(|(bit, mark)| {
            let (name, bit) = (text(mark), proc_macro2::Literal::u64_unsuffixed(1 << bit.min(63)));
            let [is, with, without] = MarkSet::methods(mark);
            let [of_is, of_with, of_without] = [
                format!(" Returns whether the mark `{name}` is set."),
                format!(" Returns the pointer with the mark `{name}` set."),
                format!(" Returns the pointer with the mark `{name}` cleared."),
            ];
            quote! {
                #[doc = #of_is]
                fn #is(&self) -> bool {
                    self.has_mark(#bit)
                }
                #[doc = #of_with]
                fn #with(self) -> Self {
                    self.set_mark(#bit)
                }
                #[doc = #of_without]
                fn #without(self) -> Self {
                    self.clear_mark(#bit)
                }
            }
        });
        let of_brand = format!(" The marks of a link in [`{owner}`], as part of the link's type.");
        let of_trait = format!(" Methods of pointers with the marks [`{brand}`].");
        quote! {
            #[doc = #of_brand]
            #vis enum #brand {}
            #[doc = #of_trait]
            #[allow(dead_code)]
            #vis trait #trait_name: #ff::Marked {
                #(#helpers)*
            }
        }
    });
    quote!(#(#sets)*)
}

/// The traits: a list for the runtime's `implement!`.
fn implementations(model: &Model) -> TokenStream {
    let Model { name, generics, .. } = model;
    let ff = short();
    let [this, fields, init, snapshot] =
        ["This", "Fields", "Init", "Snapshot"].map(|suffix| model.item(suffix));
    let parameters = generics.params.iter().cloned().map(|mut param| {
        // Parameters of an `impl` have no defaults.
        match &mut param {
            GenericParam::Type(param) => param.default = None,
            GenericParam::Const(param) => param.default = None,
            GenericParam::Lifetime(_) => {}
        }
        param
    });
    let arguments = generics.params.iter().map(|param| match param {
        GenericParam::Type(param) => &param.ident,
        GenericParam::Const(param) => &param.ident,
        GenericParam::Lifetime(param) => &param.lifetime.ident,
    });
    let where_clause = &generics.where_clause;
    let guard = model.snapshot_is_borrowed().then(|| quote!('g,));
    let (brands, helpers): (Vec<_>, Vec<_>) =
        model.marks.iter().map(|set| (set.brand(), set.helpers())).unzip();
    let list = model.fields.iter().enumerate().map(|(index, RemoteField { name, ty, .. })| {
        let index = proc_macro2::Literal::usize_unsuffixed(index);
        let [encode, decode, store, shape] =
            [quote!(encode), quote!(decode), quote!(store), quote!(SHAPE)].map(|item| of(ty, &ff, &item));
        quote!(#name #index: [#encode] [#decode] [#store] [#shape];)
    });
    let (locals, starts): (Vec<_>, Vec<_>) =
        model.locals.iter().map(|local| (&local.name, &local.initial)).unzip();
    let RemoteField { name: tail, ty, .. } = model.fields.last().expect("a model has a field");
    let (tail_bytes, tail_shape) = (of(ty, &ff, &quote!(tail_bytes)), of(ty, &ff, &quote!(SHAPE)));
    quote! {
        __ff::implement! {
            impl [#(#parameters),*] for #name [#(#arguments),*] [#where_clause];
            #this #fields #init #snapshot [#guard];
            { #(#list)* }
            { #(#locals = [#starts];)* }
            #tail [#tail_bytes] [#tail_shape] { #(#brands #helpers;)* }
        }
    }
}

/// For a struct without parameters: code that evaluates the proof of its layout at the struct. Otherwise the first use does.
fn proof(model: &Model) -> Option<TokenStream> {
    let (name, this) = (&model.name, model.item("This"));
    let align = proc_macro2::Literal::u64_unsuffixed(model.align);
    (!model.is_generic()).then(|| {
        quote! {
            <#name as __ff::Remote>::PROVEN;
            ::core::assert!(::core::mem::align_of::<#this>() >= #align);
        }
    })
}
