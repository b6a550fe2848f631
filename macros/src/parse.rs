//! Builds the [`Model`] of an item.
//!
//! Mistakes are reported, most of them by `check`, and are omitted from the model.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, Fields, Generics, Ident, Item, Lifetime, Path, Type, Visibility};

use crate::attr::{self, Marks, RemoteOptions};
use crate::check::Lifetimes;
use crate::errors::Errors;
use crate::model::{InitialValue, LocalField, MarkSet, Model, RemoteField, private};
use crate::{check, field_type};

/// Builds the model of an item without its mistakes. Returns `None` if the item is not a type.
pub(crate) fn model(options: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Model> {
    let RemoteOptions { align, krate } = attr::remote(options, errors);
    let mut model = match errors.ok(syn::parse2::<Item>(item))? {
        Item::Struct(item) => {
            let mut model = empty(item.attrs, item.vis, item.ident, item.generics, align, krate);
            match item.fields {
                Fields::Named(fields) => add_fields(&mut model, fields.named, errors),
                Fields::Unnamed(fields) => {
                    errors.at(fields, "a remote struct needs named fields: write `{ name: Type }`");
                }
                Fields::Unit => {
                    errors.at(&model.name, "a remote struct needs at least one field in far memory");
                }
            }
            model
        }
        Item::Enum(item) => {
            let message = "an enum cannot be remote: derive `Word` for a C-like one and keep it in a field, or use \
                           a struct";
            errors.at(item.enum_token, message);
            empty(item.attrs, item.vis, item.ident, item.generics, align, krate)
        }
        Item::Union(item) => {
            errors.at(
                item.union_token,
                "a union cannot be remote: its bits do not show which field they belong to; use a struct",
            );
            empty(item.attrs, item.vis, item.ident, item.generics, align, krate)
        }
        other => {
            errors.at(other, "`#[remote]` must be on a struct");
            return None;
        }
    };
    check::struct_attributes(&mut model.attrs, errors);
    check::bounds(&mut model, errors);
    check::names(&mut model, errors);
    ensure_a_field(&mut model);
    Some(model)
}

fn empty(
    attrs: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    generics: Generics,
    align: u64,
    krate: Path,
) -> Model {
    Model {
        attrs,
        vis,
        name,
        generics,
        align,
        krate,
        fields: vec![],
        locals: vec![],
        marks: vec![],
        foreign_marks: vec![],
    }
}

fn add_fields(model: &mut Model, fields: impl IntoIterator<Item = syn::Field>, errors: &mut Errors) {
    let fields: Vec<syn::Field> = fields.into_iter().collect();
    let is_remote = |field: &syn::Field| !field.attrs.iter().any(|attr| attr.path().is_ident("local"));
    let last = fields.iter().rposition(is_remote);
    if last.is_none() {
        errors.at(&model.name, "a remote struct needs at least one field in far memory");
    }
    let lifetimes = check::lifetimes(&mut model.generics, errors);
    declare_marks(model, &fields);
    for (index, field) in fields.into_iter().enumerate() {
        add_field(model, field, Some(index) == last, &lifetimes, errors);
    }
}

/// Adds a field. Where `lifetimes` were removed, a field that needs one is not a second error.
fn add_field(
    model: &mut Model,
    mut field: syn::Field,
    is_last: bool,
    lifetimes: &Lifetimes,
    errors: &mut Errors,
) {
    let name = field.ident.expect("the fields are named");
    let own = |name: &'static str| field.attrs.iter().filter(move |attr| attr.path().is_ident(name));
    let is_local = own("local").next().is_some();
    check::field_attributes(&field.attrs, is_local, errors);
    let marks = own("marks").next();
    let needs_lifetime = matches!(lifetimes, Lifetimes::Removed) && is_unusable(&field.ty);
    if let Some(local) = own("local").next() {
        if let Some(marks) = marks {
            errors.at(marks, "a `#[local]` field cannot have marks: it is not in far memory");
        }
        if let Some(accessor) = own("accessor").next() {
            errors.at(accessor, "a `#[local]` field has no accessor: it is an ordinary field of the handle");
        }
        let initial = attr::local(local, errors);
        let (ty, initial) =
            if needs_lifetime { (syn::parse_quote!(()), quote!(())) } else { (field.ty, initial) };
        let keep = |attr: &&Attribute| {
            !["local", "marks", "accessor", "must_use"].iter().any(|own| attr.path().is_ident(own))
        };
        let attrs = field.attrs.iter().filter(keep).cloned().collect();
        model.locals.push(LocalField { attrs, vis: field.vis, name, ty, initial });
        return;
    }
    let (_, type_generics, _) = model.generics.split_for_impl();
    SelfNamed(model.name.clone(), quote!(#type_generics)).visit_type_mut(&mut field.ty);
    if let Some(marks) = marks {
        let brand = brand(model, marks, &field.ty, errors);
        field_type::set_marks(&mut field.ty, &brand);
    }
    // Uses of an accessor whose name was rejected are not further errors.
    let accessor = own("accessor")
        .next()
        .map(|attr| attr::accessor(attr, errors).unwrap_or_else(|| format_ident!("{name}_")));
    let (name, accessor) = check::name(name, accessor, &model.generics, errors);
    let docs = own("doc").cloned().collect();
    let must_use = own("must_use").next().cloned();
    let levels = ["allow", "warn", "deny", "forbid", "deprecated"];
    let attrs = field.attrs.iter().filter(|attr| levels.iter().any(|level| attr.path().is_ident(level)));
    let attrs = attrs.cloned().collect();
    let is_borrowed = !field_type::is_plain(&field.ty, &model.generics);
    let initial = if field_type::has_default(&field.ty) {
        InitialValue::Default
    } else if model.type_parameter(&field.ty).is_some() {
        InitialValue::Parameter
    } else {
        InitialValue::Argument
    };
    let ty = if needs_lifetime {
        refused(&field.ty, &model.krate)
    } else {
        match errors.ok(field_type::check(&field.ty, &model.name, is_last)) {
            Some(()) => with_arrays(field.ty, &model.krate),
            None => refused(&field.ty, &model.krate),
        }
    };
    let vis = field.vis;
    model.fields.push(RemoteField { docs, attrs, must_use, vis, name, accessor, ty, is_borrowed, initial });
}

/// Collects the lists of marks in `#[marks(a, b)]`. Links with the same list have the same marks. The items of a struct's only
/// list are named after the struct, those of several lists after the struct and the field.
fn declare_marks(model: &mut Model, fields: &[syn::Field]) {
    for field in fields {
        // `add_field` reports the errors.
        let marks = field.attrs.iter().find(|attr| attr.path().is_ident("marks"));
        let Some(Marks::Named(names)) = marks.map(|attr| attr::marks(attr, &mut Errors::default())) else {
            continue;
        };
        if !names.is_empty() && !model.marks.iter().any(|set| set.names == names) {
            let field = field.ident.as_ref().expect("the fields are named");
            model.marks.push(MarkSet { names, prefix: format_ident!("{}{}", model.name, camel_case(field)) });
        }
    }
    if let [only] = &mut model.marks[..] {
        only.prefix = model.name.clone();
    }
}

/// The type that identifies the marks of `attr` in a link's type.
fn brand(model: &mut Model, attr: &Attribute, ty: &Type, errors: &mut Errors) -> Type {
    let marks = attr::marks(attr, errors);
    let names = if let Marks::Named(names) = &marks { &names[..] } else { &[] };
    check::marks(attr, names, ty, &model.name, model.align, errors);
    match &marks {
        Marks::Like(path) => {
            model.foreign_marks.push(path.clone());
            syn::parse_quote!(#path)
        }
        Marks::Named(names) => match model.marks.iter().find(|set| set.names == *names) {
            Some(set) => {
                let brand = set.brand();
                syn::parse_quote!(#brand)
            }
            None => syn::parse_quote!(()),
        },
    }
}

/// Adds a field if all were rejected.
fn ensure_a_field(model: &mut Model) {
    if model.fields.is_empty() {
        model.fields.push(RemoteField {
            docs: vec![],
            attrs: vec![],
            must_use: None,
            vis: Visibility::Inherited,
            name: format_ident!("invalid", span = Span::mixed_site()),
            accessor: format_ident!("invalid", span = Span::mixed_site()),
            ty: syn::parse_quote!(u64),
            is_borrowed: false,
            initial: InitialValue::Argument,
        });
    }
}

/// `like_this` as `LikeThis`.
fn camel_case(name: &Ident) -> String {
    let name = name.unraw().to_string();
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    name.split('_').map(capital).collect()
}

/// The type with each `[F; N]` replaced by `Array<F, N>`, whose elements have places.
fn with_arrays(ty: Type, krate: &Path) -> Type {
    match ty {
        Type::Array(array) => {
            let element = with_arrays(*array.elem, krate);
            match array.len {
                length @ (Expr::Path(_) | Expr::Lit(_)) => {
                    syn::parse_quote!(#krate::Array<#element, #length>)
                }
                length => syn::parse_quote!(#krate::Array<#element, { #length }>),
            }
        }
        Type::Paren(inner) => with_arrays(*inner.elem, krate),
        Type::Group(inner) => with_arrays(*inner.elem, krate),
        other => other,
    }
}

/// A stand-in for a rejected type, so that uses of the field are not further errors: the runtime's `Refused<ty>`, or `Refused<()>`
/// where `ty` itself would be an error.
fn refused(ty: &Type, krate: &Path) -> Type {
    let ff = private(krate);
    if is_unusable(ty) { syn::parse_quote!(#ff::Refused<()>) } else { syn::parse_quote!(#ff::Refused<#ty>) }
}

/// Returns whether a type needs a lifetime or has no size.
fn is_unusable(ty: &Type) -> bool {
    let mut found = Unusable(false);
    found.visit_type(ty);
    found.0
}

struct Unusable(bool);

impl<'ast> Visit<'ast> for Unusable {
    fn visit_type(&mut self, ty: &'ast Type) {
        self.0 |= matches!(ty, Type::Slice(_) | Type::TraitObject(_) | Type::ImplTrait(_) | Type::Infer(_))
            || matches!(ty, Type::Reference(reference) if reference.lifetime.is_none())
            || field_type::is_called(ty, "str");
        visit::visit_type(self, ty);
    }
    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.0 |= lifetime.ident != "static";
    }
}

/// Replaces `Self` by the struct's name and parameters: in a generated type it would mean that type.
struct SelfNamed(Ident, TokenStream);

impl VisitMut for SelfNamed {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident("Self")) {
            let Self(name, type_generics) = self;
            // Errors point at the user's `Self`.
            name.set_span(ty.span());
            *ty = syn::parse_quote!(#name #type_generics);
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}
