//! Which types a field can be declared as, as far as their names tell; the compiler tells the rest.

use quote::ToTokens;
use syn::{
    Error, GenericArgument, Generics, Ident, PathArguments, PathSegment, Result, Type, TypeParam,
    TypeParamBound, WherePredicate,
};

/// Types that can not live in far memory, and what to use.
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
    ("Option", "use a `Link<T>`, which may be null, or a value that stands for none"),
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
    ("usize", "it is not the same on every machine; use `u64`"),
    ("isize", "it is not the same on every machine; use `i64`"),
    ("Duration", "use `u64`, with the unit in the field's name"),
    ("Instant", "it means nothing to another machine; use `u64`, with the unit in the field's name"),
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
    ("Guard", "it belongs to a thread"),
];

/// Cells that a new object needs no value for.
const WITH_DEFAULT: &[&str] = &["Atomic", "Link", "StampedLink", "Lock"];

/// The last segment of a type's path.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        Type::Paren(inner) => last_segment(&inner.elem),
        Type::Group(inner) => last_segment(&inner.elem),
        _ => None,
    }
}

/// Whether a type's path ends in `name`.
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

/// Whether a field of this type starts from a default.
pub(crate) fn has_default(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => has_default(&array.elem),
        Type::Paren(inner) => has_default(&inner.elem),
        Type::Group(inner) => has_default(&inner.elem),
        other => WITH_DEFAULT.iter().any(|name| is_called(other, name)),
    }
}

/// Types whose values are bound to nothing, wherever they are read.
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

/// Traits that only plain values have.
const PLAIN_TRAITS: &[&str] = &["Word", "Pod", "Integer"];

/// Whether a field of this type is known to have a value that no guard bounds: neither a link nor a tail, nor a name that may
/// stand for one.
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

/// A parameter's bounds, wherever they stand.
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

/// The type of the links that marks on a field of type `ty` are for: its own, an array's, or a tail's.
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

/// What a field's type needs of a parameter that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// What another type asks of its argument: at least that it is bound to no lifetime.
    Argument,
    /// It is a plain value.
    Plain,
    /// It is a word.
    Word,
}

/// What a field's type needs of the parameter `name`, if it names it; and the part of the type that does.
pub(crate) fn uses<'a>(ty: &'a Type, name: &Ident) -> Option<(Need, &'a Type)> {
    let is_parameter =
        |ty: &Type| matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident(name));
    match ty {
        _ if is_parameter(ty) => Some((Need::Plain, ty)),
        Type::Array(array) => uses(&array.elem, name),
        Type::Paren(inner) => uses(&inner.elem, name),
        Type::Group(inner) => uses(&inner.elem, name),
        other => {
            let segment = last_segment(other)?;
            let most = arguments(segment)
                .filter_map(|argument| uses(argument, name))
                .max_by_key(|(need, _)| *need)?;
            match segment.ident.to_string().as_str() {
                "Atomic" if most.0 == Need::Plain => Some((Need::Word, other)),
                "Versioned" | "Tail" => Some(most),
                "PhantomData" => None,
                _ => Some((Need::Argument, other)),
            }
        }
    }
}

/// Gives the links in a field's type, `Link<T>`, marks: `Link<T, brand>`.
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

/// Refuses what no field of `owner` in far memory can be declared as.
pub(crate) fn check(ty: &Type, owner: &Ident, is_last: bool) -> Result<()> {
    const CODE: &str = "data is distributed, code is replicated; keep a number that stands for it";
    const POINTER: &str = "use `RemotePtr<T>`, or `Link<T>` if it changes";
    let refuse = |what: &str, instead: &str| {
        Err(Error::new_spanned(ty, format!("{what} cannot live in far memory: {instead}")))
    };
    match ty {
        Type::Array(array) if is_called(&array.elem, "Tail") => {
            let message = "an array's elements cannot have tails: a `Tail` is a last field";
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
                "a `Tail` is the last field in far memory: what follows it would have no fixed place";
            Err(Error::new_spanned(ty, message))
        }
        "Atomic" => arguments(segment).try_for_each(|inner| check_word(ty, inner, owner)),
        "Versioned" | "Tail" => arguments(segment).try_for_each(|inner| check(inner, owner, false)),
        _ => Ok(()),
    }
}

/// Refuses what an `Atomic` cannot hold.
fn check_word(ty: &Type, inner: &Type, owner: &Ident) -> Result<()> {
    if is_called(inner, "u128") || is_called(inner, "i128") || matches!(inner, Type::Array(_)) {
        let inner = inner.to_token_stream();
        let instead = format!("use `Versioned<{inner}>`");
        let message = format!("an `Atomic` holds 8 bytes, what the network moves at once: {instead}");
        return Err(Error::new_spanned(ty, message));
    }
    for cell in ["Atomic", "Link", "StampedLink", "Lock", "Versioned", "Tail"] {
        if is_called(inner, cell) {
            let message =
                format!("`{cell}` is a cell of its own, with operations of its own: take off the `Atomic`");
            return Err(Error::new_spanned(inner, message));
        }
    }
    check(inner, owner, false)
}
