//! Types that cannot be sent to another thread's process, judged by their names. The compiler judges the others, by the trait `Message`.

use syn::{Error, GenericArgument, Ident, PathArguments, Result, Type};

use crate::field_type::{arguments, is_called, last_segment};

/// Types whose arguments are sent with them.
const CONTAINERS: &[&str] = &["Vec", "Option", "Result"];

/// Types whose arguments are not sent with them.
const HANDLES: &[&str] = &["Trust", "RemotePtr"];

/// Integers whose size depends on the machine, and their replacements.
const BY_MACHINE: &[(&str, &str)] = &[("usize", "u64"), ("isize", "i64")];

/// Rejects a type that cannot be sent. `within` is the type whose field it is, if it is one.
pub(crate) fn check(ty: &Type, within: Option<&Ident>) -> Result<()> {
    let refused = |what: &str, instead: &str| {
        let message = format!("{what} cannot be sent to another thread's process: {instead}");
        Err(Error::new_spanned(ty, message))
    };
    match ty {
        Type::Reference(reference) => match &*reference.elem {
            elem if is_called(elem, "str") => refused("a reference", "use `String`"),
            Type::Slice(_) => refused("a reference", "use `Vec<T>`"),
            _ => refused("a reference", "use the value itself, or a `RemotePtr<T>`"),
        },
        Type::ImplTrait(_) => refused("`impl Trait`", "name a type, which both processes know"),
        Type::TraitObject(_) => refused("a trait object", "data travels, code does not; use an enum"),
        Type::FnPtr(_) => refused("a function pointer", "data travels, code does not; use an enum"),
        Type::Ptr(_) => refused("a pointer of this process", "use `RemotePtr<T>`"),
        Type::Array(array) => check(&array.elem, within),
        Type::Paren(inner) => check(&inner.elem, within),
        Type::Group(inner) => check(&inner.elem, within),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(|ty| check(ty, within)),
        Type::Path(_) => {
            if let Some((name, instead)) = BY_MACHINE.iter().find(|(name, _)| is_called(ty, name)) {
                let instead = format!("its size depends on the machine; use `{instead}`");
                return refused(&format!("`{name}`"), &instead);
            }
            if within.is_some_and(|name| is_called(ty, "Self") || is_called(ty, &name.to_string())) {
                let message = "a message cannot contain itself: send a list, whose elements name each other by their index";
                return Err(Error::new_spanned(ty, message));
            }
            if borrows(ty) {
                return refused("a type that borrows", "use one that owns its data");
            }
            let segment = last_segment(ty).filter(|_| CONTAINERS.iter().any(|name| is_called(ty, name)));
            segment.into_iter().flat_map(arguments).try_for_each(|ty| check(ty, within))
        }
        _ => Ok(()),
    }
}

/// Returns whether a type has a lifetime other than `'static` as an argument.
fn borrows(ty: &Type) -> bool {
    let Some(segment) = last_segment(ty) else { return false };
    let PathArguments::AngleBracketed(list) = &segment.arguments else { return false };
    let mut each = list.args.iter();
    each.any(|argument| matches!(argument, GenericArgument::Lifetime(lifetime) if lifetime.ident != "static"))
}

/// Returns whether a value of a type may contain one of the type parameter `name`.
pub(crate) fn contains(ty: &Type, name: &Ident) -> bool {
    match ty {
        Type::Array(array) => contains(&array.elem, name),
        Type::Paren(inner) => contains(&inner.elem, name),
        Type::Group(inner) => contains(&inner.elem, name),
        Type::Tuple(tuple) => tuple.elems.iter().any(|ty| contains(ty, name)),
        Type::Path(path) if path.path.is_ident(name) => true,
        Type::Path(_) if HANDLES.iter().any(|handle| is_called(ty, handle)) => false,
        Type::Path(path) => {
            let segments = path.path.segments.iter();
            segments.flat_map(arguments).any(|ty| contains(ty, name))
                || path.qself.iter().any(|of| contains(&of.ty, name))
                || path.path.segments.first().is_some_and(|first| first.ident == *name)
        }
        // The others are no messages.
        _ => false,
    }
}
