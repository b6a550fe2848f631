//! Every rejection but those of [field types](crate::field_type), with what to write instead.

use quote::{ToTokens, format_ident};
use syn::{Attribute, GenericParam, Generics, Ident, Type, TypeParamBound};

use crate::errors::Errors;
use crate::field_type::{self, Need, arguments, is_called, last_segment, link};
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
pub(crate) fn names(model: &mut Model, errors: &mut Errors) {
    let remote = || model.fields.iter().map(|field| &field.name);
    for name in remote().chain(model.locals.iter().map(|field| &field.name)) {
        if name.to_string().starts_with("__") {
            errors.at(name, "a field's name cannot begin with `__`: those of generated fields do");
        }
    }
    let accessors: Vec<Ident> = model.fields.iter().map(|field| field.accessor.clone()).collect();
    for (index, field) in model.fields.iter_mut().enumerate() {
        let accessor = &field.accessor;
        let mut others = accessors.iter().enumerate().filter(|(other, _)| *other != index);
        // Fields of one name are the compiler's to report.
        if *accessor != field.name && others.any(|(_, name)| name == accessor) {
            errors.at(
                accessor,
                format!("`{accessor}` is the accessor of another field already: use another name"),
            );
            field.accessor = format_ident!("{accessor}_");
        }
    }
    for mark in model.marks.iter().flat_map(|set| &set.names) {
        for name in accessors.iter().filter(|name| MarkSet::methods(mark).contains(name)) {
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

/// Traits of the standard library that say nothing of far memory: a parameter that has no other bound is not even `'static`.
const LOCAL_TRAITS: &[&str] = &[
    "Copy",
    "Clone",
    "Debug",
    "Display",
    "Default",
    "PartialEq",
    "Eq",
    "PartialOrd",
    "Ord",
    "Hash",
    "Send",
    "Sync",
    "Sized",
    "Unpin",
];

/// What a bound says of a parameter's place in far memory.
enum Says {
    /// That it is a word.
    Word,
    /// That it is a plain value, of any size.
    Plain,
    /// Something that only the compiler can look into.
    Unknown,
    Nothing,
}

impl Says {
    fn of(bound: &TypeParamBound) -> Self {
        let TypeParamBound::Trait(bound) = bound else { return Self::Unknown };
        let name = bound.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        match name.as_str() {
            "Word" | "Integer" => Self::Word,
            "Pod" => Self::Plain,
            name if LOCAL_TRAITS.contains(&name) => Self::Nothing,
            _ => Self::Unknown,
        }
    }
}

/// Reports type parameters of fields in far memory whose bounds do not do, once each, and bounds them.
///
/// The compiler would say the same of each generated item that needs the bound.
pub(crate) fn bounds(model: &mut Model, errors: &mut Errors) {
    let ff = private(&model.krate);
    let generics = model.generics.clone();
    for param in generics.type_params() {
        let name = &param.ident;
        let uses = model.fields.iter().filter_map(|field| field_type::uses(&field.ty, name));
        let Some(most) = uses.max_by_key(|(need, _)| *need) else { continue };
        let (mut is_word, mut is_plain, mut is_unknown) = (false, false, false);
        for bound in field_type::bounds(param, &generics) {
            match Says::of(bound) {
                Says::Word => is_word = true,
                Says::Plain => is_plain = true,
                Says::Unknown => is_unknown = true,
                Says::Nothing => {}
            }
        }
        let message = match most {
            _ if is_word || is_unknown => continue,
            (Need::Word, _) if is_plain => {
                format!("an `Atomic` holds a word: write `{name}: Word` instead of `{name}: Pod`")
            }
            (Need::Word, _) => format!("an `Atomic` holds a word: write `{name}: Word`"),
            _ if is_plain => continue,
            (Need::Plain, _) => {
                format!(
                    "far memory holds plain values only: write `{name}: Word`, or `{name}: Pod` for more than 8 bytes"
                )
            }
            (Need::Argument, _) => format!(
                "far memory holds plain values only: write `{name}: Word`, or whatever bound that type has"
            ),
        };
        // Where it is used, or, if that is all that the field is, where the bound is missing.
        match most {
            (Need::Plain, _) => errors.at(name, message),
            (_, ty) => errors.at(ty, message),
        }
        let bound = syn::parse_quote!(#ff::Word);
        let params = model.generics.type_params_mut();
        params
            .filter(|param| param.ident == *name)
            .for_each(|param| param.bounds.push(TypeParamBound::clone(&bound)));
    }
}
