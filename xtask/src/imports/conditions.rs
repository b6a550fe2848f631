//! Code that no ordinary build compiles.

use syn::{Attribute, Meta};

/// Options that are set only in tests, fuzzing and documentation.
const OFF: &[&str] = &["test", "fuzzing", "doc", "doctest"];

/// Returns whether attributes exclude an item from every ordinary build.
pub(super) fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| value(&condition) == Some(false))
    })
}

/// The value of a condition, or `None` if it depends on the build.
fn value(condition: &Meta) -> Option<bool> {
    let parts = || match condition {
        Meta::List(list) => list
            .parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated)
            .map(|parts| parts.iter().map(value).collect::<Vec<_>>())
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    let name = condition.path().get_ident()?.to_string();
    match (condition, name.as_str()) {
        (Meta::Path(_), option) if OFF.contains(&option) => Some(false),
        (Meta::List(_), "not") => parts().first().copied().flatten().map(|value| !value),
        (Meta::List(_), "all") if parts().contains(&Some(false)) => Some(false),
        (Meta::List(_), "all") if parts().iter().all(|part| *part == Some(true)) => Some(true),
        (Meta::List(_), "any") if parts().contains(&Some(true)) => Some(true),
        (Meta::List(_), "any") if parts().iter().all(|part| *part == Some(false)) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_fuzzing_and_documentation_are_left_out() {
        for (attribute, expected) in [
            ("#[cfg(test)]", true),
            ("#[test]", true),
            ("#[cfg(any(fuzzing, test))]", true),
            ("#[cfg(all(test, loom))]", true),
            ("#[cfg(all(test, target_os = \"linux\"))]", true),
            ("#[cfg(all(fuzzing, not(loom)))]", true),
            ("#[cfg(doc)]", true),
            ("#[cfg(any())]", true),
            ("#[cfg(not(not(test)))]", true),
            ("#[cfg(not(test))]", false),
            ("#[cfg(not(all(test, loom)))]", false),
            ("#[cfg(any(feature = \"a\", fuzzing, test))]", false),
            ("#[cfg(all(unix, feature = \"test\"))]", false),
            ("#[cfg(loom)]", false),
            ("#[doc = \"cfg(test)\"]", false),
        ] {
            let item: syn::ItemFn = syn::parse_str(&format!("{attribute} fn f() {{}}")).unwrap();
            assert_eq!(is_left_out(&item.attrs), expected, "{attribute}");
        }
    }
}
