//! The model: a struct that can be laid out.
//!
//! Whatever can not is reported while the model is built, and left out: what comes after need not look again.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Attribute, Expr, Fields, GenericParam, Generics, Ident, Item, Path, Type, Visibility};

use crate::attr::{self, RemoteOptions};
use crate::check;
use crate::errors::Errors;

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
    /// The marks of all links, by name.
    pub(crate) marks: Vec<Mark>,
}

/// A field in far memory.
pub(crate) struct RemoteField {
    pub(crate) docs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    /// As declared, but `[F; N]` is `Array<F, N>`.
    pub(crate) ty: Type,
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

/// A named mark bit.
pub(crate) struct Mark {
    pub(crate) name: Ident,
    pub(crate) bit: u32,
}

impl Model {
    /// The model of an item, without what is wrong with it; `None` if the item has not even a name.
    pub(crate) fn new(options: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let RemoteOptions { align, krate } = attr::remote(options, errors);
        let mut model = match errors.ok(syn::parse2::<Item>(item))? {
            Item::Struct(item) => {
                let mut model = Self::empty(item.attrs, item.vis, item.ident, item.generics, align, krate);
                match item.fields {
                    // With lifetimes, the fields are beside the point.
                    Fields::Named(_) if model.generics.lifetimes().count() > 0 => {}
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
        check::generics(&mut model, errors);
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
        Self { attrs, vis, name, generics, align, krate, fields: vec![], locals: vec![], marks: vec![] }
    }

    fn add_fields(&mut self, fields: impl IntoIterator<Item = syn::Field>, errors: &mut Errors) {
        let fields: Vec<syn::Field> = fields.into_iter().collect();
        let is_remote = |field: &syn::Field| !field.attrs.iter().any(|attr| attr.path().is_ident("local"));
        let last = fields.iter().rposition(is_remote);
        if last.is_none() {
            errors.at(&self.name, "a remote struct needs at least one field in far memory");
        }
        for (index, field) in fields.into_iter().enumerate() {
            self.add_field(field, Some(index) == last, errors);
        }
    }

    fn add_field(&mut self, field: syn::Field, is_last: bool, errors: &mut Errors) {
        let name = field.ident.expect("the fields are named");
        let own = |name: &'static str| field.attrs.iter().filter(move |attr| attr.path().is_ident(name));
        check::field_attributes(&field.attrs, errors);
        if !check::name(&name, errors) {
            return;
        }
        let marks = own("marks").next();
        if let Some(local) = own("local").next() {
            if let Some(marks) = marks {
                errors.at(marks, "a `#[local]` field is no link and has no marks");
            }
            let start = attr::local(local, errors);
            let keep = |attr: &&Attribute| !attr.path().is_ident("local") && !attr.path().is_ident("marks");
            let attrs = field.attrs.iter().filter(keep).cloned().collect();
            self.locals.push(LocalField { attrs, vis: field.vis, name, ty: field.ty, start });
            return;
        }
        if let Some(marks) = marks {
            self.add_marks(marks, &field.ty, errors);
        }
        let docs = own("doc").cloned().collect();
        if !check::field_type(&field.ty, &self.name, is_last, errors) {
            return;
        }
        let is_parameter = self.type_parameter(&field.ty).is_some();
        let has_default = check::has_default(&field.ty);
        let ty = with_arrays(field.ty, &self.krate);
        self.fields.push(RemoteField { docs, vis: field.vis, name, ty, has_default, is_parameter });
    }

    fn add_marks(&mut self, attr: &Attribute, ty: &Type, errors: &mut Errors) {
        let names = attr::marks(attr, errors);
        if !check::marks(attr, &names, ty, &self.name, self.align, errors) {
            return;
        }
        for (bit, name) in (0..).zip(names) {
            match self.marks.iter().find(|mark| mark.name == name) {
                None => self.marks.push(Mark { name, bit }),
                Some(mark) if mark.bit == bit => {}
                Some(_) => {
                    let message =
                        format!("`{name}` is another bit in another link of this struct: use another name");
                    errors.at(name, message);
                }
            }
        }
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
                vis: Visibility::Inherited,
                name: format_ident!("invalid", span = Span::mixed_site()),
                ty: syn::parse_quote!(u64),
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

/// `::farfield::__private`, or where the struct says it is.
pub(crate) fn private(krate: &Path) -> TokenStream {
    quote!(#krate::__private)
}
