//! The model: a struct that can be laid out.
//!
//! Whatever can not is reported while the model is built, and left out: what comes after need not look again.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, Fields, GenericParam, Generics, Ident, Item, Lifetime, Path, Type, Visibility};

use crate::attr::{self, Marks, RemoteOptions};
use crate::errors::Errors;
use crate::{check, field_type};

/// A `#[remote]` struct.
pub(crate) struct Model {
    /// Attributes that stay with the handle: documentation, lints.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    pub(crate) align: u64,
    /// Where generated code finds the runtime.
    pub(crate) krate: Path,
    /// The fields in far memory, in order; at least one.
    pub(crate) fields: Vec<RemoteField>,
    /// The fields of the handle only.
    pub(crate) locals: Vec<LocalField>,
    /// The marks that its links declare.
    pub(crate) marks: Vec<MarkSet>,
    /// The types that `#[marks(like = …)]` names.
    pub(crate) borrowed_marks: Vec<Path>,
}

/// A field in far memory.
pub(crate) struct RemoteField {
    pub(crate) docs: Vec<Attribute>,
    /// Lint levels and `#[deprecated]`: for whatever of the field is generated.
    pub(crate) attrs: Vec<Attribute>,
    /// `#[must_use]`: for the accessors.
    pub(crate) must_use: Option<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    /// What its accessors are called: its name, unless `#[accessor(…)]` says otherwise.
    pub(crate) accessor: Ident,
    /// As declared, but `[F; N]` is `Array<F, N>` and a link with marks is a `Link<T, M>`.
    pub(crate) ty: Type,
    /// Whether its value in a snapshot may be bound to a guard.
    pub(crate) is_borrowed: bool,
    /// Whether a new object needs no value for it.
    pub(crate) has_default: bool,
    /// Whether its type is a type parameter, which is then also the type of its initial value.
    pub(crate) is_parameter: bool,
}

/// A field of the handle.
pub(crate) struct LocalField {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) start: TokenStream,
}

/// The named mark bits of one link, or of several that have the same.
pub(crate) struct MarkSet {
    /// Lowest bit first; wrong names too: what is done with them is no further mistake.
    pub(crate) names: Vec<Ident>,
    /// What the names of its items begin with.
    stem: Ident,
}

impl MarkSet {
    /// The type that stands for these marks in a link's type.
    pub(crate) fn brand(&self) -> Ident {
        format_ident!("{}Marked", self.stem)
    }

    /// The trait that has the helpers.
    pub(crate) fn helpers(&self) -> Ident {
        format_ident!("{}Marks", self.stem)
    }

    /// The names of a mark's methods: to ask, to set, to clear.
    pub(crate) fn methods(mark: &Ident) -> [Ident; 3] {
        let name = mark.unraw();
        ["is", "with", "without"].map(|verb| format_ident!("{verb}_{name}", span = mark.span()))
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

impl Model {
    /// The model of an item, without what is wrong with it; `None` if the item has not even a name.
    pub(crate) fn new(options: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let RemoteOptions { align, krate } = attr::remote(options, errors);
        let mut model = match errors.ok(syn::parse2::<Item>(item))? {
            Item::Struct(item) => {
                let mut model = Self::empty(item.attrs, item.vis, item.ident, item.generics, align, krate);
                match item.fields {
                    Fields::Named(fields) => model.add_fields(fields.named, errors),
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
                Self::empty(item.attrs, item.vis, item.ident, item.generics, align, krate)
            }
            Item::Union(item) => {
                errors.at(
                    item.union_token,
                    "a union cannot be remote: its bits mean nothing by themselves; use a struct",
                );
                Self::empty(item.attrs, item.vis, item.ident, item.generics, align, krate)
            }
            other => {
                errors.at(other, "`#[remote]` goes on a struct");
                return None;
            }
        };
        check::struct_attributes(&mut model.attrs, errors);
        check::bounds(&mut model, errors);
        check::names(&mut model, errors);
        model.ensure_a_field();
        Some(model)
    }

    fn empty(
        attrs: Vec<Attribute>,
        vis: Visibility,
        name: Ident,
        generics: Generics,
        align: u64,
        krate: Path,
    ) -> Self {
        Self {
            attrs,
            vis,
            name,
            generics,
            align,
            krate,
            fields: vec![],
            locals: vec![],
            marks: vec![],
            borrowed_marks: vec![],
        }
    }

    fn add_fields(&mut self, fields: impl IntoIterator<Item = syn::Field>, errors: &mut Errors) {
        let fields: Vec<syn::Field> = fields.into_iter().collect();
        let is_remote = |field: &syn::Field| !field.attrs.iter().any(|attr| attr.path().is_ident("local"));
        let last = fields.iter().rposition(is_remote);
        if last.is_none() {
            errors.at(&self.name, "a remote struct needs at least one field in far memory");
        }
        let had_lifetimes = check::lifetimes(&mut self.generics, errors);
        self.declare_marks(&fields);
        for (index, field) in fields.into_iter().enumerate() {
            self.add_field(field, Some(index) == last, had_lifetimes, errors);
        }
    }

    /// Adds a field. If the struct `had_lifetimes`, a field that needs one is no further mistake.
    fn add_field(&mut self, mut field: syn::Field, is_last: bool, had_lifetimes: bool, errors: &mut Errors) {
        let name = field.ident.expect("the fields are named");
        let own = |name: &'static str| field.attrs.iter().filter(move |attr| attr.path().is_ident(name));
        let is_local = own("local").next().is_some();
        check::field_attributes(&field.attrs, is_local, errors);
        let marks = own("marks").next();
        let needs_lifetime = had_lifetimes && is_unusable(&field.ty);
        if let Some(local) = own("local").next() {
            if let Some(marks) = marks {
                errors.at(marks, "a `#[local]` field is no link and has no marks");
            }
            if let Some(accessor) = own("accessor").next() {
                errors.at(
                    accessor,
                    "a `#[local]` field has no accessor: it is an ordinary field of the handle",
                );
            }
            let start = attr::local(local, errors);
            let (ty, start) =
                if needs_lifetime { (syn::parse_quote!(()), quote!(())) } else { (field.ty, start) };
            let keep = |attr: &&Attribute| {
                !["local", "marks", "accessor", "must_use"].iter().any(|own| attr.path().is_ident(own))
            };
            let attrs = field.attrs.iter().filter(keep).cloned().collect();
            self.locals.push(LocalField { attrs, vis: field.vis, name, ty, start });
            return;
        }
        let (_, type_generics, _) = self.generics.split_for_impl();
        SelfNamed(self.name.clone(), quote!(#type_generics)).visit_type_mut(&mut field.ty);
        if let Some(marks) = marks {
            let brand = self.brand(marks, &field.ty, errors);
            field_type::set_marks(&mut field.ty, &brand);
        }
        // One that is named wrongly is no further mistake.
        let accessor = own("accessor")
            .next()
            .map(|attr| attr::accessor(attr, errors).unwrap_or_else(|| format_ident!("{name}_")));
        let (name, accessor) = check::name(name, accessor, &self.generics, errors);
        let docs = own("doc").cloned().collect();
        let must_use = own("must_use").next().cloned();
        let levels = ["allow", "warn", "deny", "forbid", "deprecated"];
        let attrs = field.attrs.iter().filter(|attr| levels.iter().any(|level| attr.path().is_ident(level)));
        let attrs = attrs.cloned().collect();
        let is_parameter = self.type_parameter(&field.ty).is_some();
        let is_borrowed = !field_type::is_plain(&field.ty, &self.generics);
        let has_default = field_type::has_default(&field.ty);
        let ty = if needs_lifetime {
            refused(&field.ty, &self.krate)
        } else {
            match errors.ok(field_type::check(&field.ty, &self.name, is_last)) {
                Some(()) => with_arrays(field.ty, &self.krate),
                None => refused(&field.ty, &self.krate),
            }
        };
        let vis = field.vis;
        self.fields.push(RemoteField {
            docs,
            attrs,
            must_use,
            vis,
            name,
            accessor,
            ty,
            is_borrowed,
            has_default,
            is_parameter,
        });
    }

    /// Collects the lists of marks in `#[marks(a, b)]`. Links with the same list have the same marks. If there is one list,
    /// its items are named after the struct, else after struct and field.
    fn declare_marks(&mut self, fields: &[syn::Field]) {
        for field in fields {
            // What is wrong is reported when the field is added.
            let marks = field.attrs.iter().find(|attr| attr.path().is_ident("marks"));
            let Some(Marks::Named(names)) = marks.map(|attr| attr::marks(attr, &mut Errors::default()))
            else {
                continue;
            };
            if !names.is_empty() && !self.marks.iter().any(|set| set.names == names) {
                let field = field.ident.as_ref().expect("the fields are named");
                self.marks.push(MarkSet { names, stem: format_ident!("{}{}", self.name, camel_case(field)) });
            }
        }
        if let [only] = &mut self.marks[..] {
            only.stem = self.name.clone();
        }
    }

    /// The type that stands for the marks that `attr` gives a link.
    fn brand(&mut self, attr: &Attribute, ty: &Type, errors: &mut Errors) -> Type {
        let marks = attr::marks(attr, errors);
        let names = if let Marks::Named(names) = &marks { &names[..] } else { &[] };
        check::marks(attr, names, ty, &self.name, self.align, errors);
        match &marks {
            Marks::Like(path) => {
                self.borrowed_marks.push(path.clone());
                syn::parse_quote!(#path)
            }
            Marks::Named(names) => match self.marks.iter().find(|set| set.names == *names) {
                Some(set) => {
                    let brand = set.brand();
                    syn::parse_quote!(#brand)
                }
                None => syn::parse_quote!(()),
            },
        }
    }

    /// Whether a snapshot may hold what is bound to a guard: it then has the guard's lifetime.
    pub(crate) fn snapshot_is_borrowed(&self) -> bool {
        self.fields.iter().any(|field| field.is_borrowed)
    }

    /// The type parameter that a type is.
    pub(crate) fn type_parameter(&self, ty: &Type) -> Option<&syn::TypeParam> {
        let Type::Path(path) = ty else { return None };
        let name = path.path.get_ident().filter(|_| path.qself.is_none())?;
        self.generics.type_params().find(|param| param.ident == *name)
    }

    /// After mistakes, a field to stand for those left out.
    fn ensure_a_field(&mut self) {
        if self.fields.is_empty() {
            self.fields.push(RemoteField {
                docs: vec![],
                attrs: vec![],
                must_use: None,
                vis: Visibility::Inherited,
                name: format_ident!("invalid", span = Span::mixed_site()),
                accessor: format_ident!("invalid", span = Span::mixed_site()),
                ty: syn::parse_quote!(u64),
                is_borrowed: false,
                has_default: false,
                is_parameter: false,
            });
        }
    }

    /// The name of a generated item.
    pub(crate) fn item(&self, suffix: &str) -> Ident {
        format_ident!("{}{suffix}", self.name)
    }

    /// Whether the struct has parameters, so that nothing about it is known before it is used.
    pub(crate) fn is_generic(&self) -> bool {
        self.generics.params.iter().any(|param| !matches!(param, GenericParam::Lifetime(_)))
    }
}

/// The type with each `[F; N]` as `Array<F, N>`, whose elements have places.
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

/// What stands for a type that was refused, so that what is done with the field is no further mistake: the runtime's
/// `Refused<ty>`, or `Refused<()>` where `ty` would be one.
fn refused(ty: &Type, krate: &Path) -> Type {
    let ff = private(krate);
    if is_unusable(ty) { syn::parse_quote!(#ff::Refused<()>) } else { syn::parse_quote!(#ff::Refused<#ty>) }
}

/// Whether a type needs a lifetime, or has no size.
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

/// Replaces `Self`, which means another type in each of the generated ones, by the struct's name and parameters.
struct SelfNamed(Ident, TokenStream);

impl VisitMut for SelfNamed {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident("Self")) {
            let Self(name, type_generics) = self;
            // Errors point at what the user wrote.
            name.set_span(ty.span());
            *ty = syn::parse_quote!(#name #type_generics);
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

/// `::farfield::__private`, or where the struct says it is.
pub(crate) fn private(krate: &Path) -> TokenStream {
    quote!(#krate::__private)
}
