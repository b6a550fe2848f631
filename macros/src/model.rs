//! The model: a struct that can be laid out.
//!
//! It has no mistakes: `parse` reports them and leaves them out, so what comes after need not look again.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, GenericParam, Generics, Ident, Path, Type, Visibility};

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
    pub(crate) stem: Ident,
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

impl Model {
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

    /// The name of a generated item.
    pub(crate) fn item(&self, suffix: &str) -> Ident {
        format_ident!("{}{suffix}", self.name)
    }

    /// Whether the struct has parameters, so that nothing about it is known before it is used.
    pub(crate) fn is_generic(&self) -> bool {
        self.generics.params.iter().any(|param| !matches!(param, GenericParam::Lifetime(_)))
    }
}

/// `::farfield::__private`, or where the struct says it is.
pub(crate) fn private(krate: &Path) -> TokenStream {
    quote!(#krate::__private)
}
