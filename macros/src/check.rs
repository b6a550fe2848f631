//! Every rejection, with what to write instead.

use quote::ToTokens;
use syn::{Attribute, GenericArgument, GenericParam, Generics, Ident, PathArguments, PathSegment, Type};

use crate::errors::Errors;
use crate::model::Model;

/// What generated methods and those of pointers and places are called.
const RESERVED: &[&str] = &[
    "this",
    "init",
    "new_in",
    "attach", // of the handle
    "address",
    "is_null",
    "read",
    "as_ptr",
    "marks",
    "with_marks",
    "without_marks",
    "shared",
    "clone",
    "deref", // of pointers
];

/// Types that can not live in far memory, and what to use.
const REFUSED: &[(&str, &str)] = &[
    ("String", "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`"),
    ("Vec", "use `[T; N]` for a fixed number of elements, or a last field `Tail<T>`"),
    ("VecDeque", "use `[T; N]`, or link the elements with `Link<T>`"),
    ("Box", "use `RemotePtr<T>` if it never changes, or `Link<T>`"),
    ("Rc", "use `RemotePtr<T>` or `Link<T>`"),
    ("Arc", "use `RemotePtr<T>` or `Link<T>`"),
    ("NonNull", "use `RemotePtr<T>`"),
    ("Option", "use a `Link<T>`, which may be null, or a value that stands for none"),
    ("HashMap", "build it from `#[remote]` structs and `Link<T>`"),
    ("BTreeMap", "build it from `#[remote]` structs and `Link<T>`"),
    ("HashSet", "build it from `#[remote]` structs and `Link<T>`"),
    ("BTreeSet", "build it from `#[remote]` structs and `Link<T>`"),
    ("Mutex", "use a `Lock` beside the fields it protects"),
    ("RwLock", "use a `Lock`, or a `Versioned<T>`, whose readers do not wait"),
    ("Cell", "mark the field `#[local]`, or use `Atomic<T>`"),
    ("RefCell", "mark the field `#[local]`"),
    ("usize", "it is not the same on every machine; use `u64`"),
    ("isize", "it is not the same on every machine; use `i64`"),
    ("AtomicBool", "use `Atomic<bool>`"),
    ("AtomicU8", "use `Atomic<u8>`"),
    ("AtomicU16", "use `Atomic<u16>`"),
    ("AtomicU32", "use `Atomic<u32>`"),
    ("AtomicU64", "use `Atomic<u64>`"),
    ("AtomicI32", "use `Atomic<i32>`"),
    ("AtomicI64", "use `Atomic<i64>`"),
    ("AtomicUsize", "use `Atomic<u64>`"),
    ("AtomicPtr", "use `Link<T>`"),
    ("Owned", "publish it through a `Link<T>`"),
    ("Shared", "it lives no longer than its guard; use `Link<T>` or `RemotePtr<T>`"),
    ("Guard", "it belongs to a thread"),
];

/// Cells that a new object needs no value for.
const WITH_DEFAULT: &[&str] = &["Atomic", "Link", "StampedLink", "Lock"];

/// Bits of a word below the smallest alignment: the marks that every link has.
const MARK_BITS: u32 = 3;

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        Type::Paren(inner) => last_segment(&inner.elem),
        Type::Group(inner) => last_segment(&inner.elem),
        _ => None,
    }
}

fn is_called(ty: &Type, name: &str) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == name)
}

fn type_arguments(segment: &PathSegment) -> impl Iterator<Item = &Type> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Whether a field of this type starts from a default.
pub(crate) fn has_default(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => has_default(&array.elem),
        other => WITH_DEFAULT.iter().any(|name| is_called(other, name)),
    }
}

/// Reports a type that no remote field can have. Gives whether it is one that may.
pub(crate) fn field_type(ty: &Type, owner: &Ident, is_last: bool, errors: &mut Errors) -> bool {
    let refuse = |errors: &mut Errors, what: &str, instead: &str| {
        errors.at(ty, format!("{what} cannot live in far memory: {instead}"));
        false
    };
    match ty {
        Type::Array(array) => {
            if is_called(&array.elem, "Tail") {
                errors.at(&array.elem, "an array's elements cannot have tails: a `Tail` is a last field");
                return false;
            }
            return field_type(&array.elem, owner, false, errors);
        }
        Type::Paren(inner) => return field_type(&inner.elem, owner, is_last, errors),
        Type::Group(inner) => return field_type(&inner.elem, owner, is_last, errors),
        Type::Reference(_) => {
            return refuse(errors, "a reference", "use `RemotePtr<T>`, or `Link<T>` if it changes");
        }
        Type::Ptr(_) => {
            return refuse(
                errors,
                "a pointer of this process",
                "use `RemotePtr<T>`, or `Link<T>` if it changes",
            );
        }
        Type::FnPtr(_) => {
            return refuse(
                errors,
                "a function pointer",
                "data is distributed, code is replicated; keep a number that stands for it",
            );
        }
        Type::Tuple(_) => return refuse(errors, "a tuple", "use a `#[remote]` struct with named fields"),
        Type::Slice(_) => return refuse(errors, "a slice", "use `[T; N]`, or a last field `Tail<T>`"),
        Type::TraitObject(_) => {
            return refuse(
                errors,
                "a trait object",
                "data is distributed, code is replicated; keep a number that stands for the type",
            );
        }
        Type::ImplTrait(_) | Type::Never(_) | Type::Infer(_) => {
            return refuse(errors, "this", "use a plain value, a cell or a `#[remote]` struct");
        }
        _ => {}
    }
    let Some(segment) = last_segment(ty) else { return true };
    let name = segment.ident.to_string();
    if segment.ident == *owner {
        errors.at(
            ty,
            format!("`{name}` cannot contain itself: point to it with `Link<{name}>` or `RemotePtr<{name}>`"),
        );
        return false;
    }
    if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| name == *refused) {
        return refuse(errors, &format!("`{name}`"), instead);
    }
    match name.as_str() {
        "Tail" if !is_last => {
            errors.at(
                ty,
                "a `Tail` is the last field in far memory: what follows it would have no fixed place",
            );
            false
        }
        "Atomic" => type_arguments(segment).all(|inner| {
            let wide =
                ["u128", "i128"].iter().any(|name| is_called(inner, name)) || matches!(inner, Type::Array(_));
            if wide {
                let inner = inner.to_token_stream();
                let instead = format!("use `Versioned<{inner}>`");
                errors
                    .at(ty, format!("an `Atomic` holds 8 bytes, what the network moves at once: {instead}"));
            }
            !wide && field_type(inner, owner, false, errors)
        }),
        "Versioned" | "Tail" => type_arguments(segment).all(|inner| field_type(inner, owner, false, errors)),
        _ => true,
    }
}

/// Reports marks that a link can not have. Gives whether they can be used.
pub(crate) fn marks(
    attr: &Attribute,
    names: &[Ident],
    ty: &Type,
    owner: &Ident,
    align: u64,
    errors: &mut Errors,
) -> bool {
    let mut element = ty;
    while let Type::Array(array) = element {
        element = &array.elem;
    }
    if is_called(element, "StampedLink") {
        errors.at(attr, "a `StampedLink` has no marks, its spare bits are the stamp: use a `Link`");
        return false;
    }
    if !is_called(element, "Link") {
        errors.at(attr, "only a `Link` has marks");
        return false;
    }
    let to_itself = last_segment(element)
        .into_iter()
        .flat_map(type_arguments)
        .any(|ty| is_called(ty, &owner.to_string()));
    let bits = if to_itself { align.trailing_zeros() } else { MARK_BITS };
    let mut usable = true;
    if names.len() > bits as usize {
        let aligned = if to_itself { align } else { 1 << MARK_BITS };
        let more = if to_itself { "; `#[remote(align = N)]` makes room for more" } else { "" };
        let message = format!(
            "a link to an object aligned to {aligned} bytes has {bits} mark bits, not {}{more}",
            names.len()
        );
        errors.at(&names[bits as usize], message);
        usable = false;
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            errors.at(name, format!("the mark `{name}` is named twice"));
            usable = false;
        }
        if name == "marks" || name == "null" {
            errors.at(name, format!("a mark cannot be called `{name}`: pointers have methods of that name"));
            usable = false;
        }
    }
    usable
}

/// Reports a field's name that is taken. Gives whether it can be used.
pub(crate) fn name(name: &Ident, errors: &mut Errors) -> bool {
    let taken = RESERVED.iter().any(|reserved| name == reserved);
    if taken {
        errors.at(
            name,
            format!("a field cannot be called `{name}`: handles or pointers have a method of that name"),
        );
    }
    !taken
}

/// Reports attributes of a field that would change what the macro has seen.
pub(crate) fn field_attributes(attrs: &[Attribute], errors: &mut Errors) {
    let known = ["doc", "allow", "expect", "warn", "deny", "local", "marks"];
    for (index, attr) in attrs.iter().enumerate() {
        let path = attr.path();
        if path.is_ident("cfg") || path.is_ident("cfg_attr") {
            errors.at(attr, "a layout must be the same in every build: put `#[cfg]` on the struct, with one struct for each case");
        } else if !known.iter().any(|name| path.is_ident(name)) {
            errors.at(attr, "unknown attribute: fields of a remote struct take `#[local]` and `#[marks(…)]`");
        } else if ["local", "marks"]
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

/// Reports parameters that far memory knows nothing of.
pub(crate) fn generics(model: &mut Model, errors: &mut Errors) {
    let had_lifetimes = model.generics.lifetimes().count() > 0;
    for lifetime in model.generics.lifetimes() {
        errors.at(lifetime, "nothing in far memory has a lifetime of this process: use `RemotePtr<T>` or `Link<T>` instead of references");
    }
    if had_lifetimes {
        let params = std::mem::take(&mut model.generics.params);
        model.generics.params =
            params.into_iter().filter(|param| !matches!(param, GenericParam::Lifetime(_))).collect();
    }
    let krate = model.krate.clone();
    for index in 0..model.generics.params.len() {
        let GenericParam::Type(param) = &model.generics.params[index] else { continue };
        let name = param.ident.clone();
        let stands_alone = model
            .fields
            .iter()
            .any(|field| model.type_parameter(&field.ty).is_some_and(|param| param.ident == name));
        if stands_alone && !has_bound(&model.generics, &name) {
            errors.at(&name, format!("far memory holds plain values only: write `{name}: Word`, or `{name}: Pod` for more than 8 bytes"));
            if let GenericParam::Type(param) = &mut model.generics.params[index] {
                param.bounds.push(syn::parse_quote!(#krate::__private::Word));
            }
        }
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
