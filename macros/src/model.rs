//! The model: a struct that can be laid out.
//!
//! Invariant: a model is valid. `parse` reports mistakes and omits them, so `expand` checks nothing.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, GenericParam, Generics, Ident, Path, Type, Visibility};

/// A `#[remote]` struct.
pub(crate) struct Model {
    /// Attributes of the handle: documentation, lints.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    pub(crate) align: u64,
    /// The path of the runtime in generated code.
    pub(crate) krate: Path,
    /// The fields in far memory, in order; at least one.
    pub(crate) fields: Vec<RemoteField>,
    /// The `#[local]` fields, which only the handle has.
    pub(crate) locals: Vec<LocalField>,
    /// The marks that the struct's links declare.
    pub(crate) marks: Vec<MarkSet>,
    /// The types in `#[marks(like = …)]`: marks that other links declare.
    pub(crate) foreign_marks: Vec<Path>,
}

/// A field in far memory.
pub(crate) struct RemoteField {
    pub(crate) docs: Vec<Attribute>,
    /// Lint levels and `#[deprecated]`: for every item generated from the field.
    pub(crate) attrs: Vec<Attribute>,
    /// `#[must_use]`: for the accessors.
    pub(crate) must_use: Option<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    /// The name of its accessors: from `#[accessor(…)]`, or the field's name.
    pub(crate) accessor: Ident,
    /// As declared, but `[F; N]` is `Array<F, N>` and a link with marks is a `Link<T, M>`.
    pub(crate) ty: Type,
    /// True if its value in a snapshot may be bound to a guard.
    pub(crate) is_borrowed: bool,
    pub(crate) initial: InitialValue,
}

/// The source of a field's initial value in a new object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialValue {
    /// The type's default. The initial values have a setter for the field.
    Default,
    /// An argument of `init`, of the type `Field::Init`.
    Argument,
    /// An argument of `init`, of the field's own type: a type parameter.
    Parameter,
}

/// A `#[local]` field.
pub(crate) struct LocalField {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) initial: TokenStream,
}

/// The named mark bits of one link, or of several links with the same list.
pub(crate) struct MarkSet {
    /// Lowest bit first. Rejected names are kept, so that their uses are not errors as well.
    pub(crate) names: Vec<Ident>,
    /// The prefix of the generated items' names.
    pub(crate) prefix: Ident,
}

impl MarkSet {
    /// The name of the type that identifies these marks in a link's type.
    pub(crate) fn brand(&self) -> Ident {
        format_ident!("{}Marked", self.prefix)
    }

    /// The name of the trait with the marks' methods.
    pub(crate) fn helpers(&self) -> Ident {
        format_ident!("{}Marks", self.prefix)
    }

    /// The names of a mark's methods: test, set, clear.
    pub(crate) fn methods(mark: &Ident) -> [Ident; 3] {
        let name = mark.unraw();
        ["is", "with", "without"].map(|verb| format_ident!("{verb}_{name}", span = mark.span()))
    }
}

impl Model {
    /// Returns whether a snapshot may hold values bound to a guard. If so, it has the guard's lifetime.
    pub(crate) fn snapshot_is_borrowed(&self) -> bool {
        self.fields.iter().any(|field| field.is_borrowed)
    }

    /// The type parameter that `ty` names, if it names one.
    pub(crate) fn type_parameter(&self, ty: &Type) -> Option<&syn::TypeParam> {
        let Type::Path(path) = ty else { return None };
        let name = path.path.get_ident().filter(|_| path.qself.is_none())?;
        self.generics.type_params().find(|param| param.ident == *name)
    }

    /// The name of a generated item: the struct's name with a suffix.
    pub(crate) fn item(&self, suffix: &str) -> Ident {
        format_ident!("{}{suffix}", self.name)
    }

    /// Returns whether the struct has type or const parameters. Its layout is then known only where it is used.
    pub(crate) fn is_generic(&self) -> bool {
        self.generics.params.iter().any(|param| !matches!(param, GenericParam::Lifetime(_)))
    }
}

/// `::farfield::__private`, or the same in a renamed crate.
pub(crate) fn private(krate: &Path) -> TokenStream {
    quote!(#krate::__private)
}
