//! `#[delegated]`: a client of a type, which requests the methods of an `impl` block.
//!
//! The block stays as it is. Each method becomes a type that implements the runtime's `DelegatedMethod`, which has the types of its arguments and
//! its result, and calls it. The table of the trustee and the methods of the client are made from these. The client has each method twice: as an `async fn`, which awaits
//! the result, and, for delegated code, which can not wait, as a request that is made through a `Context`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericParam, Generics, Ident, ImplItem, Item, ItemImpl, Path, Type, TypeParamBound, Visibility};

use crate::attr;
use crate::errors::Errors;
use crate::field_type::last_segment;
use crate::implement::text;
use crate::model::private;
use crate::request::{self, MOST_ARGUMENTS, Method};

/// Bounds of which each makes a type parameter `'static`.
const OWNED: &[&str] = &["Message", "Word", "Pod", "Remote"];

/// The types of the arguments in the runtime's `DelegatedMethod`.
const ARGUMENTS: [&str; MOST_ARGUMENTS] = ["A", "B", "C", "D", "E", "F"];

/// An `impl` block, and its client.
struct Block {
    of: Type,
    /// The name of `of`, without its parameters.
    name: String,
    /// True if documentation can link to this name.
    is_in_scope: bool,
    client: Ident,
    /// The type that has the methods for delegated code.
    requests: Ident,
    vis: Visibility,
    generics: Generics,
    krate: Path,
    methods: Vec<Method>,
    stand_ins: Vec<TokenStream>,
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let options = attr::delegated(options, &mut errors);
    let parsed = errors.ok(syn::parse2::<Item>(item.clone()));
    let generated = parsed.and_then(|parsed| {
        let Item::Impl(parsed) = parsed else {
            errors.at(&item, "`#[delegated]` must be on an `impl` block");
            return None;
        };
        block(&parsed, options, &mut errors).map(|block| generate(&block))
    });
    let errors = errors.into_tokens();
    quote!(#item #errors #generated)
}

fn block(item: &ItemImpl, options: attr::DelegatedOptions, errors: &mut Errors) -> Option<Block> {
    if let Some((path, _)) = &item.trait_ {
        let message = "`#[delegated]` must be on an `impl` block of the type's own methods, not of a trait";
        errors.at(path, message);
        return None;
    }
    let Some(segment) = last_segment(&item.self_ty) else {
        errors.at(&item.self_ty, "`#[delegated]` must be on an `impl` block of a type with a name");
        return None;
    };
    if let Some(lifetime) = item.generics.lifetimes().next() {
        errors.at(
            lifetime,
            "a value of a trustee cannot borrow: it stays when the function that made it returns",
        );
        return None;
    }
    let (name, span) = (text(&segment.ident), segment.ident.span());
    let krate = options.krate;
    let (mut methods, mut stand_ins) = (Vec::new(), Vec::new());
    let mut vis = Visibility::Inherited;
    for method in &item.items {
        let ImplItem::Fn(method) = method else { continue };
        let Some(parsed) = request::parse(method, &item.self_ty, &krate, errors) else { continue };
        if rank(&method.vis) > rank(&vis) {
            vis = method.vis.clone();
        }
        match parsed {
            Ok(method) => methods.push(method),
            Err(stand_in) => stand_ins.push(stand_in),
        }
    }
    if methods.is_empty() && stand_ins.is_empty() {
        errors.at(
            &item.self_ty,
            "there is no method to delegate: a delegated method takes `&self` or `&mut self`",
        );
    }
    let base = options.client.as_ref().map_or_else(|| name.clone(), text);
    Some(Block {
        of: Type::clone(&item.self_ty),
        requests: format_ident!("{base}Requests", span = span),
        client: options.client.unwrap_or_else(|| format_ident!("{name}Client", span = span)),
        is_in_scope: matches!(&*item.self_ty, Type::Path(path) if path.path.segments.len() == 1),
        name,
        vis,
        generics: owned(item.generics.clone()),
        krate,
        methods,
        stand_ins,
    })
}

/// The order of visibilities: the widest is last.
fn rank(vis: &Visibility) -> u8 {
    match vis {
        Visibility::Public(_) => 3,
        Visibility::Restricted(within) if within.path.is_ident("crate") => 2,
        Visibility::Restricted(within) if !within.path.is_ident("self") => 1,
        _ => 0,
    }
}

/// Adds `'static` to type parameters without a bound that implies it.
fn owned(mut generics: Generics) -> Generics {
    for param in generics.type_params_mut() {
        let implies = |bound: &TypeParamBound| {
            matches!(bound, TypeParamBound::Trait(bound)
                if bound.path.segments.last().is_some_and(|last| OWNED.iter().any(|name| last.ident == name)))
        };
        if !param.bounds.iter().any(implies) {
            param.bounds.push(syn::parse_quote!('static));
        }
    }
    generics
}

fn generate(block: &Block) -> TokenStream {
    let Block { of, name, client, requests, vis, generics, krate, .. } = block;
    let ff = private(krate);
    let link = if block.is_in_scope { format!("[`{name}`]") } else { format!("`{name}`") };
    let documentation = format!(" A client of a {link}: requests its methods of the thread that has it.");
    let of_requests =
        format!(" Requests of [`{client}`]'s methods by delegated code: made by its function `via`.");
    let clause = &generics.where_clause;
    let (client_impl, traits, requests_impl) = (client_impl(block), traits(block), requests_impl(block));
    let borrowing = borrowing(generics);
    let methods = block.methods.iter().map(|method| as_type(block, method));
    let (impl_generics, type_generics, _) = generics.split_for_impl();
    let table = block.methods.iter().map(|method| {
        let (cfgs, marker) = (&method.cfgs, marker(method));
        quote!(#(#cfgs)* <#marker #type_generics as __de::DelegatedMethod>::METHOD)
    });
    quote! {
        #[doc = #documentation]
        #[allow(dead_code)]
        #vis struct #client #generics (#krate::Trust<#of>) #clause;

        #[doc = #of_requests]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #[allow(dead_code)]
        #vis struct #requests #borrowing (&'__via #krate::Trust<#of>, &'__via #krate::Context<'__via>) #clause;

        #[allow(
            dead_code,
            deprecated,
            non_camel_case_types,
            clippy::missing_errors_doc,
            clippy::should_implement_trait,
            clippy::too_many_arguments,
            clippy::wrong_self_convention
        )]
        const _: () = {
            use #ff::delegation as __de;
            #(#methods)*
            impl #impl_generics __de::Delegated for #of #clause {
                const METHODS: &'static [__de::Method] = &[#(#table),*];
            }
            #client_impl
            #requests_impl
            #traits
        };
    }
}

/// The name of the type that stands for a method.
fn marker(method: &Method) -> Ident {
    format_ident!("__{}", text(&method.name))
}

/// The tuple of a method's arguments, as a pattern and as an expression.
fn values(method: &Method) -> TokenStream {
    let names = method.args.iter().map(|(name, _)| quote!(#name));
    let each = names.chain(std::iter::repeat(quote!(()))).take(MOST_ARGUMENTS);
    quote!((#(#each),*))
}

/// The type that stands for a method.
fn as_type(block: &Block, method: &Method) -> TokenStream {
    let Block { of, name: of_name, generics, krate, .. } = block;
    let Method { cfgs, name, is_mut, output, .. } = method;
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let marker = marker(method);
    let shown = format!("{of_name}::{}", text(name));
    let (names, values) = (method.args.iter().map(|(name, _)| name), values(method));
    let types = ARGUMENTS.iter().enumerate().map(|(index, argument)| {
        let (argument, ty) =
            (Ident::new(argument, Span::mixed_site()), method.args.get(index).map(|(_, ty)| ty));
        let ty = ty.map_or_else(|| quote!(()), |ty| quote!(#ty));
        quote!(type #argument = #ty;)
    });
    let value = Ident::new("value", Span::mixed_site());
    let context = Ident::new("context", Span::mixed_site());
    let argument = method.takes_context.then(|| quote!(, #context));
    let parameter = if method.takes_context { quote!(#context) } else { quote!(_) };
    quote! {
        #(#cfgs)*
        struct #marker #generics (::core::marker::PhantomData<fn() -> #of>) #clause;
        #(#cfgs)*
        impl #impl_generics __de::DelegatedMethod for #marker #type_generics #clause {
            type Of = #of;
            #(#types)*
            type Output = #output;
            const NAME: &'static str = #shown;
            const IS_MUT: bool = #is_mut;
            fn call(#value: &mut #of, #parameter: &#krate::Context<'_>, #values: __de::Args<Self>) -> Self::Output {
                <#of>::#name(#value #argument #(, #names)*)
            }
        }
    }
}

/// The client's own functions, and its methods.
fn client_impl(block: &Block) -> TokenStream {
    let Block { of, client, requests, vis, generics, krate, stand_ins, .. } = block;
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let borrowing = borrowing(generics);
    let (_, borrowed, _) = borrowing.split_for_impl();
    let context = Ident::new("context", Span::mixed_site());
    let methods = block.methods.iter().map(|method| {
        let Method { attrs, vis, name, output, .. } = method;
        let marker = marker(method);
        let args = method.args.iter().map(|(name, ty)| quote!(#name: #ty));
        let values = values(method);
        let ct = Ident::new("ct", Span::mixed_site());
        quote! {
            #(#attrs)*
            #vis async fn #name(&self, #ct: &#krate::ComputeThread #(, #args)*) -> #krate::Result<#output> {
                __de::request::<#marker #type_generics>(&self.0, #ct, #values).await
            }
        }
    });
    quote! {
        impl #impl_generics #client #type_generics #clause {
            /// Gives a value to this thread, its trustee, and returns the first client of it. See `ComputeThread::entrust`.
            #vis async fn entrust(ct: &#krate::ComputeThread, value: #of) -> #krate::Result<Self> {
                ct.entrust_delegated(value).await.map(Self)
            }
            /// Makes a client of a handle that is stored in far memory. See `Trust::open`.
            #vis async fn open(
                stored: #krate::RemotePtr<#krate::StoredTrust<#of>>,
                ct: &#krate::ComputeThread,
            ) -> #krate::Result<Self> {
                #krate::Trust::open(stored, ct).await.map(Self)
            }
            /// Returns the methods for delegated code, which requests through a context.
            #[must_use]
            #vis fn via<'__via>(&'__via self, #context: &'__via #krate::Context<'_>) -> #requests #borrowed {
                #requests(&self.0, #context)
            }
            #(#methods)*
            #(#stand_ins)*
        }
    }
}

/// The parameters of the type that has the methods for delegated code.
fn borrowing(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    generics.params.insert(0, GenericParam::Lifetime(syn::parse_quote!('__via)));
    generics
}

/// The methods for delegated code.
fn requests_impl(block: &Block) -> TokenStream {
    let Block { requests, generics, krate, .. } = block;
    let (_, type_generics, _) = generics.split_for_impl();
    let borrowing = borrowing(generics);
    let (impl_generics, borrowed, clause) = borrowing.split_for_impl();
    let methods = block.methods.iter().map(|method| {
        let Method { attrs, vis, name, output, .. } = method;
        let marker = marker(method);
        let args = method.args.iter().map(|(name, ty)| quote!(#name: #ty));
        let values = values(method);
        quote! {
            #(#attrs)*
            #vis fn #name(self #(, #args)*) -> #krate::Request<'__via, impl __de::DelegatedMethod<Output = #output>> {
                __de::through::<#marker #type_generics>(self.0, self.1, #values)
            }
        }
    });
    quote! {
        impl #impl_generics #requests #borrowed #clause {
            #(#methods)*
        }
    }
}

/// The client's implementations of traits.
fn traits(block: &Block) -> TokenStream {
    let Block { of, client, generics, krate, .. } = block;
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let shown = text(client);
    let trust = quote!(#krate::Trust<#of>);
    // The compiler's error about a type that is less visible than its client is where the type is.
    let target = quote_spanned!(of.span()=> type Target = #trust;);
    quote! {
        impl #impl_generics ::core::clone::Clone for #client #type_generics #clause {
            fn clone(&self) -> Self {
                Self(::core::clone::Clone::clone(&self.0))
            }
        }
        impl #impl_generics ::core::fmt::Debug for #client #type_generics #clause {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_tuple(#shown).field(&self.0).finish()
            }
        }
        impl #impl_generics ::core::convert::From<#trust> for #client #type_generics #clause {
            fn from(trust: #trust) -> Self {
                Self(trust)
            }
        }
        impl #impl_generics ::core::convert::From<#client #type_generics> for #trust #clause {
            fn from(client: #client #type_generics) -> Self {
                client.0
            }
        }
        impl #impl_generics ::core::ops::Deref for #client #type_generics #clause {
            #target
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
        impl #impl_generics __de::Message for #client #type_generics #clause {
            const FINGERPRINT: u64 = <#trust as __de::Message>::FINGERPRINT;
            fn write(self, to: &mut __de::Writer<'_>) {
                __de::Message::write(self.0, to);
            }
            fn read(from: &mut __de::Reader<'_>) -> ::core::option::Option<Self> {
                <#trust as __de::Message>::read(from).map(Self)
            }
        }
    }
}
