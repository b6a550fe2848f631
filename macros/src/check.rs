//! Rejections, each with the remedy. Those of field types are in [`field_type`](crate::field_type).

use quote::{ToTokens, format_ident};
use syn::{Attribute, GenericParam, Generics, Ident, Type, TypeParamBound};

use crate::errors::Errors;
use crate::field_type::{self, Requirement, arguments, is_called, last_segment, link};
use crate::model::{MarkSet, Model, private};

/// The names of methods of handles, pointers and places. Method calls would find these instead of a field's accessor.
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
    // of every type
    "clone",
    "clone_from",
    "deref",
    "eq",
    "ne",
    "into",
    "try_into",
    "to_owned",
];

/// The mark bits that every link has: those below the smallest alignment.
const MARK_BITS: u32 = 3;
/// The most mark bits that a link can have: `MOST_MARKS` of the runtime.
const MOST_MARKS: u32 = 6;

/// Rejects marks that a link cannot have.
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
        return errors
            .at(attr, "a `StampedLink` has no marks, because its spare bits hold the stamp: use a `Link`");
    }
    if is_called(element, "TaggedLink") {
        return errors.at(attr, "a `TaggedLink` has no marks: add a flag to its tag, `#[tag(deleted, …)]`");
    }
    if !is_called(element, "Link") {
        return errors.at(attr, "only a `Link` can have marks");
    }
    let to_itself =
        last_segment(element).into_iter().flat_map(arguments).any(|ty| is_called(ty, &owner.to_string()));
    let bits = if to_itself { align.trailing_zeros().min(MOST_MARKS) } else { MARK_BITS };
    if let Some(beyond) = names.get(bits as usize) {
        let aligned = if to_itself { align } else { 1 << MARK_BITS };
        let more = match (to_itself, bits) {
            (true, MOST_MARKS) => ": the most that a link can have",
            (true, _) => "; `#[remote(align = N)]` makes room for more",
            (false, _) => "",
        };
        let count = names.len();
        let message =
            format!("a link to an object aligned to {aligned} bytes has {bits} mark bits, not {count}{more}");
        errors.at(beyond, message);
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            errors.at(name, format!("the mark `{name}` is declared twice"));
        }
        let taken = match name.to_string().as_str() {
            "marks" => "with_marks",
            "null" => "is_null",
            _ => continue,
        };
        errors
            .at(name, format!("a mark cannot be called `{name}`: pointers already have a method `{taken}`"));
    }
}

/// Rejects names of a field in far memory and of its accessors. Returns valid names: these, or others in place of rejected ones.
pub(crate) fn name(
    mut name: Ident,
    accessor: Option<Ident>,
    generics: &Generics,
    errors: &mut Errors,
) -> (Ident, Ident) {
    if generics.const_params().any(|param| param.ident == name) {
        errors.at(&name, format!("`{name}` is already a parameter of this struct: use another name"));
        name = format_ident!("{name}_");
    }
    let is_named = accessor.is_some();
    let accessor = accessor.unwrap_or_else(|| name.clone());
    if !RESERVED.iter().any(|reserved| accessor == reserved) {
        return (name, accessor);
    }
    let message = if is_named {
        format!(
            "an accessor cannot be called `{accessor}`: handles or pointers already have a method of that name"
        )
    } else {
        format!(
            "handles or pointers already have a method `{name}`: rename the field's accessors with `#[accessor({name}_field)]`"
        )
    };
    errors.at(&accessor, message);
    let accessor = format_ident!("{accessor}_");
    (name, accessor)
}

/// Rejects names that clash with those of generated items.
pub(crate) fn names(model: &mut Model, errors: &mut Errors) {
    let remote = || model.fields.iter().map(|field| &field.name);
    for name in remote().chain(model.locals.iter().map(|field| &field.name)) {
        if name.to_string().starts_with("__") {
            errors.at(name, "a field's name cannot begin with `__`, which is reserved for generated fields");
        }
    }
    let accessors: Vec<Ident> = model.fields.iter().map(|field| field.accessor.clone()).collect();
    for (index, field) in model.fields.iter_mut().enumerate() {
        let accessor = &field.accessor;
        let mut others = accessors.iter().enumerate().filter(|(other, _)| *other != index);
        // The compiler reports fields of the same name.
        if *accessor != field.name && others.any(|(_, name)| name == accessor) {
            errors.at(
                accessor,
                format!("another field already has an accessor `{accessor}`: use another name"),
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

/// Rejects attributes of a field that would change its meaning after expansion, or that would have no effect.
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
                "`#[expect]` would apply to several generated items, and only some cause the lint: write `#[allow(…)]`",
            );
        } else if is_local && path.is_ident("must_use") {
            errors.at(attr, "`#[must_use]` applies to accessors, and a `#[local]` field has none");
        } else if !own.iter().chain(&known).any(|name| path.is_ident(name)) {
            let name = path.to_token_stream().to_string().replace(' ', "");
            errors.at(
                attr,
                format!(
                    "`#[{name}]` has no effect on a field of a remote struct: fields accept `#[local]`, `#[marks(…)]`, `#[accessor(…)]`, documentation, lint levels, `#[deprecated]` and `#[must_use]`"
                ),
            );
        } else if own
            .iter()
            .any(|own| path.is_ident(own) && attrs[..index].iter().any(|a| a.path().is_ident(own)))
        {
            errors.at(attr, "this attribute is repeated");
        }
    }
}

/// Rejects and removes attributes of the struct that its handle cannot have.
pub(crate) fn struct_attributes(attrs: &mut Vec<Attribute>, errors: &mut Errors) {
    attrs.retain(|attr| {
        let message = if attr.path().is_ident("repr") {
            "the layout of a remote struct is fixed; for a larger alignment write `#[remote(align = N)]`"
        } else if attr.path().is_ident("derive") {
            "a remote struct cannot derive traits: its snapshots are `Clone` and `Debug`; implement other traits by hand"
        } else {
            return true;
        };
        errors.at(attr, message);
        false
    });
}

/// The lifetime parameters that the struct was written with.
pub(crate) enum Lifetimes {
    None,
    /// Types of fields may still name them.
    Removed,
}

/// Rejects and removes lifetime parameters.
pub(crate) fn lifetimes(generics: &mut Generics, errors: &mut Errors) -> Lifetimes {
    let count = generics.params.len();
    for lifetime in generics.lifetimes() {
        errors.at(lifetime, "an object in far memory cannot borrow from this process: use `RemotePtr<T>` or `Link<T>` instead of references");
    }
    let params = std::mem::take(&mut generics.params);
    generics.params =
        params.into_iter().filter(|param| !matches!(param, GenericParam::Lifetime(_))).collect();
    if generics.params.len() < count { Lifetimes::Removed } else { Lifetimes::None }
}

/// Traits of the standard library that do not make a type a plain value. A parameter bounded only by these need not be `'static`.
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

/// The guarantee of a bound for a parameter, from weakest to strongest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Guarantee {
    Nothing,
    /// A plain value of any size.
    Plain,
    /// A word, or an unknown trait: the compiler judges the bound.
    Word,
}

impl Guarantee {
    fn of(bound: &TypeParamBound) -> Self {
        let TypeParamBound::Trait(bound) = bound else { return Self::Word };
        let name = bound.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        match name.as_str() {
            "Pod" => Self::Plain,
            name if LOCAL_TRAITS.contains(&name) => Self::Nothing,
            _ => Self::Word,
        }
    }
}

/// Rejects type parameters of fields in far memory whose bounds are too weak, once each, and bounds them.
///
/// The compiler would report the same parameter at each generated item that needs the bound.
pub(crate) fn bounds(model: &mut Model, errors: &mut Errors) {
    let ff = private(&model.krate);
    let generics = model.generics.clone();
    for param in generics.type_params() {
        let name = &param.ident;
        let requirements = model.fields.iter().filter_map(|field| field_type::requirement(&field.ty, name));
        let Some((required, ty)) = requirements.max_by_key(|(requirement, _)| *requirement) else { continue };
        let guarantees = field_type::bounds(param, &generics).map(Guarantee::of);
        let message = match (required, guarantees.max().unwrap_or(Guarantee::Nothing)) {
            (_, Guarantee::Word) | (Requirement::Plain | Requirement::Argument, Guarantee::Plain) => continue,
            (Requirement::Word, Guarantee::Plain) => {
                format!("an `Atomic` holds a word: write `{name}: Word` instead of `{name}: Pod`")
            }
            (Requirement::Word, Guarantee::Nothing) => {
                format!("an `Atomic` holds a word: write `{name}: Word`")
            }
            (Requirement::Plain, Guarantee::Nothing) => format!(
                "far memory holds plain values only: write `{name}: Word`, or `{name}: Pod` for more than 8 bytes"
            ),
            (Requirement::Argument, Guarantee::Nothing) => format!(
                "far memory holds plain values only: write `{name}: Word`, or the bound that this type requires"
            ),
        };
        // At the type that names the parameter, or at the parameter if it is the whole type of the field.
        match required {
            Requirement::Plain => errors.at(name, message),
            _ => errors.at(ty, message),
        }
        let bound = syn::parse_quote!(#ff::Word);
        let params = model.generics.type_params_mut();
        params
            .filter(|param| param.ident == *name)
            .for_each(|param| param.bounds.push(TypeParamBound::clone(&bound)));
    }
}
