//! Types of fields, judged by their names. The compiler judges the types whose names are not known here.

use quote::ToTokens;
use syn::{
    Error, GenericArgument, Generics, Ident, PathArguments, PathSegment, Result, Type, TypeParam,
    TypeParamBound, WherePredicate,
};

/// Types that cannot be in far memory, and their replacements.
const REFUSED: &[(&str, &str)] = &[
    ("String", "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`"),
    ("str", "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`"),
    ("PathBuf", "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`"),
    ("CString", "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`"),
    ("OsString", "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`"),
    ("Cow", "use `[T; N]` for a fixed number of elements, or a last field `Tail<T>`"),
    ("Vec", "use `[T; N]` for a fixed number of elements, or a last field `Tail<T>`"),
    ("VecDeque", "use `[T; N]`, or link the elements with `Link<T>`"),
    ("BinaryHeap", "use `[T; N]`, or link the elements with `Link<T>`"),
    ("LinkedList", "build it from `#[remote]` structs and `Link<T>`"),
    ("Box", "use `RemotePtr<T>` if it never changes, or `Link<T>`"),
    ("Rc", "use `RemotePtr<T>` or `Link<T>`"),
    ("Arc", "use `RemotePtr<T>` or `Link<T>`"),
    ("Weak", "use `RemotePtr<T>` or `Link<T>`"),
    ("NonNull", "use `RemotePtr<T>`"),
    ("Option", "use a `Link<T>`, which may be null, or reserve a value for `None`"),
    ("Result", "use a C-like enum with `#[derive(Word)]` beside the value"),
    ("HashMap", "build it from `#[remote]` structs and `Link<T>`"),
    ("BTreeMap", "build it from `#[remote]` structs and `Link<T>`"),
    ("HashSet", "build it from `#[remote]` structs and `Link<T>`"),
    ("BTreeSet", "build it from `#[remote]` structs and `Link<T>`"),
    ("Mutex", "use a `Lock` beside the fields it protects"),
    ("RwLock", "use a `Lock`, or a `Versioned<T>`, whose readers do not wait"),
    ("Cell", "mark the field `#[local]`, or use `Atomic<T>`"),
    ("RefCell", "mark the field `#[local]`"),
    ("UnsafeCell", "mark the field `#[local]`, or use `Atomic<T>`"),
    ("OnceCell", "mark the field `#[local]`"),
    ("usize", "its size depends on the machine; use `u64`"),
    ("isize", "its size depends on the machine; use `i64`"),
    ("Duration", "use `u64`, with the unit in the field's name"),
    ("Instant", "it has no meaning on another machine; use `u64`, with the unit in the field's name"),
    ("SystemTime", "use `u64`, with the unit in the field's name"),
    ("AtomicBool", "use `Atomic<bool>`"),
    ("AtomicU8", "use `Atomic<u8>`"),
    ("AtomicU16", "use `Atomic<u16>`"),
    ("AtomicU32", "use `Atomic<u32>`"),
    ("AtomicU64", "use `Atomic<u64>`"),
    ("AtomicI8", "use `Atomic<i8>`"),
    ("AtomicI16", "use `Atomic<i16>`"),
    ("AtomicI32", "use `Atomic<i32>`"),
    ("AtomicI64", "use `Atomic<i64>`"),
    ("AtomicUsize", "use `Atomic<u64>`"),
    ("AtomicIsize", "use `Atomic<i64>`"),
    ("AtomicPtr", "use `Link<T>`"),
    ("Owned", "publish it through a `Link<T>`"),
    ("Shared", "it lives no longer than its guard; use `Link<T>` or `RemotePtr<T>`"),
    ("Guard", "it belongs to one thread"),
];

/// Cells with a default initial value.
const WITH_DEFAULT: &[&str] = &["Atomic", "Link", "TaggedLink", "StampedLink", "Lock"];

/// The last segment of a type's path.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        Type::Paren(inner) => last_segment(&inner.elem),
        Type::Group(inner) => last_segment(&inner.elem),
        _ => None,
    }
}

/// Returns whether a type's path ends in `name`.
pub(crate) fn is_called(ty: &Type, name: &str) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == name)
}

/// The types in a segment's angle brackets.
pub(crate) fn arguments(segment: &PathSegment) -> impl Iterator<Item = &Type> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Returns whether a field of this type has a default initial value.
pub(crate) fn has_default(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => has_default(&array.elem),
        Type::Paren(inner) => has_default(&inner.elem),
        Type::Group(inner) => has_default(&inner.elem),
        other => WITH_DEFAULT.iter().any(|name| is_called(other, name)),
    }
}

/// Types whose values are not bound to a guard.
const PLAIN: &[&str] = &[
    "bool",
    "char",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "f32",
    "f64",
    "Atomic",
    "Lock",
    "Versioned",
    "RemotePtr",
];

/// Traits that only plain values implement.
const PLAIN_TRAITS: &[&str] = &["Word", "Pod", "Integer"];

/// Returns whether the value of a field of this type is known not to be bound to a guard. An unknown name may be an alias of a
/// link or a tail.
pub(crate) fn is_plain(ty: &Type, generics: &Generics) -> bool {
    match ty {
        Type::Array(array) => is_plain(&array.elem, generics),
        Type::Paren(inner) => is_plain(&inner.elem, generics),
        Type::Group(inner) => is_plain(&inner.elem, generics),
        other => {
            PLAIN.iter().any(|name| is_called(other, name))
                || generics.type_params().any(|param| {
                    is_called(other, &param.ident.to_string()) && bounds(param, generics).any(is_plain_trait)
                })
        }
    }
}

/// A parameter's bounds, those in the `where` clause included.
pub(crate) fn bounds<'a>(
    param: &'a TypeParam,
    generics: &'a Generics,
) -> impl Iterator<Item = &'a TypeParamBound> {
    let clauses = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let named = |ty: &Type| matches!(ty, Type::Path(path) if path.path.is_ident(&param.ident));
    let elsewhere = clauses.filter_map(move |clause| match clause {
        WherePredicate::Type(bound) if named(&bound.bounded_ty) => Some(&bound.bounds),
        _ => None,
    });
    param.bounds.iter().chain(elsewhere.flatten())
}

fn is_plain_trait(bound: &TypeParamBound) -> bool {
    let TypeParamBound::Trait(bound) = bound else { return false };
    bound.path.segments.last().is_some_and(|segment| PLAIN_TRAITS.iter().any(|name| segment.ident == name))
}

/// The type that `#[marks]` on a field of type `ty` applies to: `ty`, or the element type of an array or a tail.
pub(crate) fn link(ty: &Type) -> &Type {
    match ty {
        Type::Array(array) => link(&array.elem),
        Type::Paren(inner) => link(&inner.elem),
        Type::Group(inner) => link(&inner.elem),
        other => match last_segment(other).filter(|segment| segment.ident == "Tail") {
            Some(tail) => arguments(tail).next().map_or(other, link),
            None => other,
        },
    }
}

/// The requirement of a field's type for a parameter that it names, from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requirement {
    /// The bound of a type that has the parameter as an argument: at least `'static`.
    Argument,
    /// A plain value.
    Plain,
    /// A word.
    Word,
}

/// Returns the requirement of a field's type for the parameter `name`, and the part of the type that requires it. `None` if the type does not
/// name the parameter.
pub(crate) fn requirement<'a>(ty: &'a Type, name: &Ident) -> Option<(Requirement, &'a Type)> {
    let is_parameter =
        |ty: &Type| matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident(name));
    match ty {
        _ if is_parameter(ty) => Some((Requirement::Plain, ty)),
        Type::Array(array) => requirement(&array.elem, name),
        Type::Paren(inner) => requirement(&inner.elem, name),
        Type::Group(inner) => requirement(&inner.elem, name),
        other => {
            let segment = last_segment(other)?;
            let most = arguments(segment)
                .filter_map(|argument| requirement(argument, name))
                .max_by_key(|(requirement, _)| *requirement)?;
            match segment.ident.to_string().as_str() {
                "Atomic" if most.0 == Requirement::Plain => Some((Requirement::Word, other)),
                "Versioned" | "Tail" => Some(most),
                "PhantomData" => None,
                _ => Some((Requirement::Argument, other)),
            }
        }
    }
}

/// Replaces `Link<T>` in a field's type by `Link<T, brand>`.
pub(crate) fn set_marks(ty: &mut Type, brand: &Type) {
    match ty {
        Type::Array(array) => set_marks(&mut array.elem, brand),
        Type::Paren(inner) => set_marks(&mut inner.elem, brand),
        Type::Group(inner) => set_marks(&mut inner.elem, brand),
        Type::Path(path) => {
            let Some(segment) = path.path.segments.last_mut() else { return };
            let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else { return };
            if segment.ident == "Link" {
                arguments.args.push(GenericArgument::Type(brand.clone()));
            } else if segment.ident == "Tail" {
                for argument in &mut arguments.args {
                    if let GenericArgument::Type(inner) = argument {
                        set_marks(inner, brand);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Rejects types that no field of `owner` in far memory can have.
pub(crate) fn check(ty: &Type, owner: &Ident, is_last: bool) -> Result<()> {
    const CODE: &str = "data is distributed, code is replicated; store a number that identifies it";
    const POINTER: &str = "use `RemotePtr<T>`, or `Link<T>` if it changes";
    let refuse = |what: &str, instead: &str| {
        Err(Error::new_spanned(ty, format!("{what} cannot live in far memory: {instead}")))
    };
    match ty {
        Type::Array(array) if is_called(&array.elem, "Tail") => {
            let message = "a `Tail` cannot be an array's element: it must be the last field in far memory";
            Err(Error::new_spanned(&array.elem, message))
        }
        Type::Array(array) => check(&array.elem, owner, false),
        Type::Paren(inner) => check(&inner.elem, owner, is_last),
        Type::Group(inner) => check(&inner.elem, owner, is_last),
        Type::Reference(_) => refuse("a reference", POINTER),
        Type::Ptr(_) => refuse("a pointer of this process", POINTER),
        Type::FnPtr(_) => refuse("a function pointer", CODE),
        Type::TraitObject(_) => refuse("a trait object", CODE),
        Type::Tuple(_) => refuse("a tuple", "use a `#[remote]` struct with named fields"),
        Type::Slice(_) => refuse("a slice", "use `[T; N]`, or a last field `Tail<T>`"),
        Type::ImplTrait(_) | Type::Never(_) | Type::Infer(_) => {
            refuse("this", "use a plain value, a cell or a `#[remote]` struct")
        }
        _ => last_segment(ty).map_or(Ok(()), |segment| check_path(ty, segment, owner, is_last)),
    }
}

/// [`check`] for a type with a name.
fn check_path(ty: &Type, segment: &PathSegment, owner: &Ident, is_last: bool) -> Result<()> {
    let name = segment.ident.to_string();
    if segment.ident == *owner {
        let message =
            format!("`{name}` cannot contain itself: point to it with `Link<{name}>` or `RemotePtr<{name}>`");
        return Err(Error::new_spanned(ty, message));
    }
    if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| name == *refused) {
        return Err(Error::new_spanned(ty, format!("`{name}` cannot live in far memory: {instead}")));
    }
    match name.as_str() {
        "Tail" if !is_last => {
            let message =
                "a `Tail` must be the last field in far memory: a field after it would have no fixed offset";
            Err(Error::new_spanned(ty, message))
        }
        "Atomic" => arguments(segment).try_for_each(|inner| check_word(ty, inner, owner)),
        "Versioned" | "Tail" => arguments(segment).try_for_each(|inner| check(inner, owner, false)),
        _ => Ok(()),
    }
}

/// Rejects types that an `Atomic` cannot hold.
fn check_word(ty: &Type, inner: &Type, owner: &Ident) -> Result<()> {
    if is_called(inner, "u128") || is_called(inner, "i128") || matches!(inner, Type::Array(_)) {
        let inner = inner.to_token_stream();
        let instead = format!("use `Versioned<{inner}>`");
        let message =
            format!("an `Atomic` holds 8 bytes, the most that the network changes atomically: {instead}");
        return Err(Error::new_spanned(ty, message));
    }
    for cell in ["Atomic", "Link", "TaggedLink", "StampedLink", "Lock", "Versioned", "Tail"] {
        if is_called(inner, cell) {
            let message = format!("`{cell}` is a cell with operations of its own: remove the `Atomic`");
            return Err(Error::new_spanned(inner, message));
        }
    }
    check(inner, owner, false)
}
