//! Methods of an `impl` block as a client requests them: what `#[delegated]` reads of each, and rejects.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Expr, FnArg, Ident, ImplItemFn, Pat, PatType, Path, Receiver, ReceiverKind, ReturnType,
    Safety, Signature, Type, Visibility,
};

use crate::errors::Errors;
use crate::field_type::is_called;
use crate::implement::text;
use crate::travel;

/// The most arguments of a method, the types of the runtime's `DelegatedMethod`.
pub(crate) const MOST_ARGUMENTS: usize = 6;

/// The names of a client's own functions, and of methods that every client has.
const RESERVED: &[&str] = &["entrust", "open", "via", "clone", "deref", "from", "into"];

/// A method that a client can request.
pub(crate) struct Method {
    /// Attributes of the client's method.
    pub(crate) attrs: Vec<Attribute>,
    /// Its `#[cfg]` alone.
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    /// True for `&mut self`.
    pub(crate) is_mut: bool,
    pub(crate) takes_context: bool,
    pub(crate) args: Vec<(Ident, Type)>,
    pub(crate) output: Type,
}

/// Reads a method of a block of type `of`. `None` if it has no receiver: it is not requested of a value. The error of a rejected method is a method of the client
/// that stands in for it, so that its uses are not errors as well.
pub(crate) fn parse(
    method: &ImplItemFn,
    of: &Type,
    krate: &Path,
    errors: &mut Errors,
) -> Option<Result<Method, TokenStream>> {
    let sig = &method.sig;
    let receiver = sig.receiver()?;
    let mut own = Errors::default();
    check(sig, &mut own);
    let is_mut = is_mut(receiver, &mut own);
    let mut inputs = sig.inputs.iter().skip(1).peekable();
    let takes_context = inputs.next_if(|input| is_context(input)).is_some();
    let mut named = SelfNamed(of);
    let mut args = Vec::new();
    for (index, input) in (1..).zip(inputs) {
        let FnArg::Typed(input) = input else { continue };
        own.ok(argument(input));
        let mut ty = Type::clone(&input.ty);
        named.visit_type_mut(&mut ty);
        args.push((name(&input.pat, index), ty));
    }
    if let Some((_, ty)) = args.get(MOST_ARGUMENTS) {
        let message = format!(
            "a request has {MOST_ARGUMENTS} arguments at most, not {}: group some in a struct with `#[derive(Message)]`",
            args.len()
        );
        own.at(ty, message);
    }
    let output = match &sig.output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, ty) => {
            own.ok(travel::check(ty, None));
            let mut ty = Type::clone(ty);
            named.visit_type_mut(&mut ty);
            ty
        }
    };
    let method = if let Some(error) = own.into_error() {
        errors.push(error);
        Err(stand_in(method, krate))
    } else {
        Ok(Method {
            attrs: forwarded(&method.attrs),
            cfgs: method.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).cloned().collect(),
            vis: method.vis.clone(),
            name: sig.ident.clone(),
            is_mut,
            takes_context,
            args,
            output,
        })
    };
    Some(method)
}

/// Rejects properties of a method that a request does not have.
fn check(sig: &Signature, errors: &mut Errors) {
    if let Some(token) = sig.asyncness {
        let message = "a delegated method cannot be `async`, because its trustee does not wait: take a `&Context<'_>`, and request what it needs with `apply_then`";
        errors.at(token, message);
    }
    if let Safety::Unsafe(token) = &sig.safety {
        let word = &token.span;
        errors.push(syn::Error::new(
            *word,
            "a delegated method must be safe to call: another process may request it",
        ));
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, "a delegated method cannot be `extern`: Farfield calls it by Rust's own convention");
    }
    if let Some(param) = sig.generics.params.first() {
        let message = if matches!(param, syn::GenericParam::Lifetime(_)) {
            "a delegated method cannot have lifetime parameters: nothing that it takes or returns borrows"
        } else {
            "a delegated method cannot be generic: a request names one function; write a method for each type"
        };
        errors.at(param, message);
    } else if let Some(clause) = &sig.generics.where_clause {
        errors.at(clause, "a delegated method cannot have bounds of its own: put them on the `impl` block");
    }
    if is_reserved(&sig.ident) {
        let name = text(&sig.ident);
        errors.at(
            &sig.ident,
            format!("clients already have a function `{name}`: rename the method, or move it to another `impl` block"),
        );
    }
}

fn is_reserved(name: &Ident) -> bool {
    RESERVED.contains(&text(name).as_str())
}

/// Returns whether a method takes `&mut self`, and rejects other receivers than references.
fn is_mut(receiver: &Receiver, errors: &mut Errors) -> bool {
    match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => return mutability.is_some(),
        ReceiverKind::Typed(_, ty) => {
            if let Type::Reference(reference) = &**ty
                && is_called(&reference.elem, "Self")
            {
                return reference.mutability.is_some();
            }
        }
        _ => {}
    }
    let message = "a delegated method cannot take `self` by value, because its trustee keeps the value: use `&self` or `&mut self`";
    errors.at(receiver, message);
    false
}

fn is_context(input: &FnArg) -> bool {
    let FnArg::Typed(input) = input else { return false };
    is_context_type(&input.ty)
}

fn is_context_type(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if reference.mutability.is_none() && is_called(&reference.elem, "Context"))
}

fn argument(PatType { attrs, ty, .. }: &PatType) -> syn::Result<()> {
    if let Some(cfg) = attrs.iter().find(|attr| attr.path().is_ident("cfg")) {
        let message =
            "a delegated method must have the same arguments in every build: put `#[cfg]` on the method";
        return Err(syn::Error::new_spanned(cfg, message));
    }
    if is_context_type(ty) {
        let message = "a `&Context<'_>` must be the first argument after `self`";
        return Err(syn::Error::new_spanned(ty, message));
    }
    travel::check(ty, None)
}

/// The name of an argument, or a new one for a pattern.
fn name(pattern: &Pat, index: usize) -> Ident {
    match pattern {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("argument_{index}"),
    }
}

/// The attributes that the client's method has, too.
fn forwarded(attrs: &[Attribute]) -> Vec<Attribute> {
    let kept = ["doc", "cfg", "deprecated", "allow", "warn", "deny", "forbid"];
    attrs.iter().filter(|attr| kept.iter().any(|name| attr.path().is_ident(name))).cloned().collect()
}

/// A method of the client that only has the interface of a rejected one.
fn stand_in(method: &ImplItemFn, krate: &Path) -> TokenStream {
    let (vis, Signature { ident, generics, inputs, output, .. }) = (&method.vis, &method.sig);
    if is_reserved(ident) {
        return TokenStream::new();
    }
    let types = inputs.iter().skip(1).filter_map(|input| match input {
        FnArg::Typed(input) if !is_context(&FnArg::Typed(input.clone())) => Some(&input.ty),
        _ => None,
    });
    let output = match output {
        ReturnType::Type(_, ty) if travel::check(ty, None).is_ok() => quote!(#ty),
        _ => quote!(()),
    };
    let (params, _, clause) = generics.split_for_impl();
    quote! {
        #vis async fn #ident #params (&self, _: &#krate::ComputeThread #(, _: #types)*) -> #krate::Result<#output> #clause {
            ::core::panic!("rejected")
        }
    }
}

/// Replaces `Self` by the type of the block: in generated code it would mean another type.
struct SelfNamed<'a>(&'a Type);

impl VisitMut for SelfNamed<'_> {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident("Self")) {
            *ty = self.0.clone();
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }

    /// An associated constant: the length of an array.
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        if let Expr::Path(path) = expr
            && path.qself.is_none()
            && path.path.segments.first().is_some_and(|first| first.ident == "Self")
        {
            let (of, rest) = (self.0, path.path.segments.iter().skip(1));
            *expr = syn::parse_quote!(<#of>::#(#rest)::*);
        } else {
            visit_mut::visit_expr_mut(self, expr);
        }
    }
}
