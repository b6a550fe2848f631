//! Every rejection but those of [field types](crate::field_type), with what to write instead.

use quote::{ToTokens, format_ident};
use syn::{Attribute, GenericParam, Generics, Ident, Type};

use crate::errors::Errors;
use crate::field_type::{arguments, is_called, last_segment, link};
use crate::model::{MarkSet, Model, private};

/// What generated methods and those of pointers and places are called: theirs are found before a field's accessor.
const RESERVED: &[&str] = &[
    // of handles
    "this",
    "init",
    "new_in",
    "attach",
    // of pointers and places
    "address",
    "is_null",
    "read",
    "as_ptr",
    "marks",
    "with_marks",
    "without_marks",
    "shared",
    // of what every type has
    "clone",
    "clone_from",
    "deref",
    "eq",
    "ne",
    "into",
    "try_into",
    "to_owned",
];

/// Bits of a word below the smallest alignment: the marks that every link has.
const MARK_BITS: u32 = 3;

/// Reports marks that a link can not have.
pub(crate) fn marks(
    attr: &Attribute,
    names: &[Ident],
    ty: &Type,
    owner: &Ident,
    align: u64,
    errors: &mut Errors,
) {
    let element = link(ty);
    if is_called(element, "StampedLink") {
        return errors.at(attr, "a `StampedLink` has no marks, its spare bits are the stamp: use a `Link`");
    }
    if !is_called(element, "Link") {
        return errors.at(attr, "only a `Link` has marks");
    }
    let to_itself =
        last_segment(element).into_iter().flat_map(arguments).any(|ty| is_called(ty, &owner.to_string()));
    let bits = if to_itself { align.trailing_zeros() } else { MARK_BITS };
    if let Some(beyond) = names.get(bits as usize) {
        let aligned = if to_itself { align } else { 1 << MARK_BITS };
        let more = if to_itself { "; `#[remote(align = N)]` makes room for more" } else { "" };
        let count = names.len();
        let message =
            format!("a link to an object aligned to {aligned} bytes has {bits} mark bits, not {count}{more}");
        errors.at(beyond, message);
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            errors.at(name, format!("the mark `{name}` is named twice"));
        }
        if name == "marks" || name == "null" {
            errors.at(name, format!("a mark cannot be called `{name}`: pointers have methods of that name"));
        }
    }
}

/// Reports a name that no field in far memory can have, or none of its accessors. Gives names that they can have.
pub(crate) fn name(
    mut name: Ident,
    accessor: Option<Ident>,
    generics: &Generics,
    errors: &mut Errors,
) -> (Ident, Ident) {
    if generics.const_params().any(|param| param.ident == name) {
        errors.at(&name, format!("`{name}` is a parameter of this struct already: use another name"));
        name = format_ident!("{name}_");
    }
    let is_named = accessor.is_some();
    let accessor = accessor.unwrap_or_else(|| name.clone());
    if !RESERVED.iter().any(|reserved| accessor == reserved) {
        return (name, accessor);
    }
    let message = if is_named {
        format!("an accessor cannot be called `{accessor}`: handles or pointers have a method of that name")
    } else {
        format!(
            "handles or pointers have a method `{name}`: name the field's accessors otherwise, with `#[accessor({name}_field)]`"
        )
    };
    errors.at(&accessor, message);
    let accessor = format_ident!("{accessor}_");
    (name, accessor)
}

/// Reports names of fields that generated code uses for something else.
pub(crate) fn names(model: &Model, errors: &mut Errors) {
    let remote = || model.fields.iter().map(|field| &field.name);
    for name in remote().chain(model.locals.iter().map(|field| &field.name)) {
        if name.to_string().starts_with("__") {
            errors.at(name, "a field's name cannot begin with `__`: those of generated fields do");
        }
    }
    let accessors = || model.fields.iter().map(|field| &field.accessor);
    for (index, field) in model.fields.iter().enumerate() {
        let accessor = &field.accessor;
        // Fields of one name are the compiler's to report.
        if accessor != &field.name
            && accessors().enumerate().any(|(other, name)| other != index && name == accessor)
        {
            errors.at(
                accessor,
                format!("`{accessor}` is the accessor of another field already: use another name"),
            );
        }
    }
    for mark in model.marks.iter().flat_map(|set| &set.names) {
        for name in accessors().filter(|name| MarkSet::methods(mark).contains(name)) {
            let message = format!(
                "the mark `{mark}` has a method `{name}`: rename the mark, or the field's accessors with `#[accessor({name}_field)]`"
            );
            errors.at(name, message);
        }
    }
}

/// Reports attributes of a field that would change what the macro has seen, or that would reach nothing.
pub(crate) fn field_attributes(attrs: &[Attribute], is_local: bool, errors: &mut Errors) {
    let own = ["local", "marks", "accessor"];
    let known = ["doc", "allow", "warn", "deny", "forbid", "deprecated", "must_use"];
    for (index, attr) in attrs.iter().enumerate() {
        let path = attr.path();
        if path.is_ident("cfg") || path.is_ident("cfg_attr") {
            errors.at(attr, "a layout must be the same in every build: put `#[cfg]` on the struct, with one struct for each case");
        } else if path.is_ident("expect") {
            errors.at(
                attr,
                "a field becomes several items, and a lint may be expected of one only: write `#[allow(…)]`",
            );
        } else if is_local && path.is_ident("must_use") {
            errors.at(attr, "`#[must_use]` is for a field's accessors, and a `#[local]` field has none");
        } else if !own.iter().chain(&known).any(|name| path.is_ident(name)) {
            let name = path.to_token_stream().to_string().replace(' ', "");
            errors.at(
                attr,
                format!(
                    "`#[{name}]` on a field reaches nothing that is generated: fields take `#[local]`, `#[marks(…)]`, `#[accessor(…)]`, documentation, lint levels, `#[deprecated]` and `#[must_use]`"
                ),
            );
        } else if own
            .iter()
            .any(|own| path.is_ident(own) && attrs[..index].iter().any(|a| a.path().is_ident(own)))
        {
            errors.at(attr, "this attribute stands here already");
        }
    }
}

/// Reports, and takes away, attributes of the struct that do not go with its handle.
pub(crate) fn struct_attributes(attrs: &mut Vec<Attribute>, errors: &mut Errors) {
    attrs.retain(|attr| {
        let message = if attr.path().is_ident("repr") {
            "the layout of a remote struct is fixed; for a stricter alignment write `#[remote(align = N)]`"
        } else if attr.path().is_ident("derive") {
            "`#[remote]` generates what goes with the struct: snapshots are `Clone` and `Debug`; implement other traits by hand"
        } else {
            return true;
        };
        errors.at(attr, message);
        false
    });
}

/// Reports lifetime parameters, and takes them away. Gives whether there were any.
pub(crate) fn lifetimes(generics: &mut Generics, errors: &mut Errors) -> bool {
    let count = generics.params.len();
    for lifetime in generics.lifetimes() {
        errors.at(lifetime, "nothing in far memory has a lifetime of this process: use `RemotePtr<T>` or `Link<T>` instead of references");
    }
    let params = std::mem::take(&mut generics.params);
    generics.params =
        params.into_iter().filter(|param| !matches!(param, GenericParam::Lifetime(_))).collect();
    generics.params.len() < count
}

/// Reports type parameters that are fields and might be anything, and bounds them.
pub(crate) fn bounds(model: &mut Model, errors: &mut Errors) {
    let ff = private(&model.krate);
    let fields: Vec<Ident> = model
        .fields
        .iter()
        .filter_map(|field| model.type_parameter(&field.ty))
        .map(|param| param.ident.clone())
        .collect();
    let unbounded: Vec<Ident> = fields.into_iter().filter(|name| !has_bound(&model.generics, name)).collect();
    for param in model.generics.type_params_mut().filter(|param| unbounded.contains(&param.ident)) {
        let name = &param.ident;
        errors.at(
            name,
            format!("far memory holds plain values only: write `{name}: Word`, or `{name}: Pod` for more than 8 bytes"),
        );
        param.bounds.push(syn::parse_quote!(#ff::Word));
    }
}

/// Whether a type parameter has any bound.
fn has_bound(generics: &Generics, name: &Ident) -> bool {
    let inline = generics.type_params().any(|param| param.ident == *name && !param.bounds.is_empty());
    let in_where = generics.where_clause.iter().flat_map(|clause| &clause.predicates).any(|predicate| {
        matches!(predicate, syn::WherePredicate::Type(bound) if is_called(&bound.bounded_ty, &name.to_string()))
    });
    inline || in_where
}
