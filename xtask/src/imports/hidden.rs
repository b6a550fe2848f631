//! Public items that documentation hides: they serve only another of our crates, or generated code.
//!
//! Counted are `pub` items with `#[doc(hidden)]`: functions, types, constants, modules, methods, fields, variants, items of traits,
//! exported macros, and each name of a re-export. In a hidden `pub` module every public item counts, with or without the attribute. A glob
//! in it is a breach, since it hides the number of names.

use syn::spanned::Spanned;
use syn::{Attribute, Fields, ImplItem, Item, ItemMod, Meta, TraitItem, UseTree, Visibility};

/// The number of hidden public items of each crate; 0 if it is not listed.
pub(super) const LISTED: &[(&str, usize)] = &[
    ("farfield", 75),
    ("farfield-fabric", 1),
    ("farfield-words", 5),
    ("farfield-macros", 1),
    ("farfield-collections", 7),
];

/// A public item that is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hidden {
    /// Index of the package.
    pub(super) package: usize,
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) name: String,
}

impl Hidden {
    pub(super) fn is_glob(&self) -> bool {
        self.name.ends_with('*')
    }
}

impl std::fmt::Display for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, name, .. } = self;
        write!(f, "{file}:{line}: {name}")
    }
}

/// Returns whether the public items of a module are hidden. `is_inside` is true if those of its parent are.
pub(super) fn is_hidden_module(module: &ItemMod, is_inside: bool) -> bool {
    is_public(&module.vis) && (is_inside || is_hidden(&module.attrs))
}

/// Returns whether attributes hide an item.
pub(super) fn is_hidden(attributes: &[Attribute]) -> bool {
    let hides = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("doc") || list.path.is_ident("cfg_attr") => {
            let tokens = list.tokens.to_string();
            let mut words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| word == "hidden")
        }
        _ => false,
    };
    attributes.iter().any(hides)
}

/// The hidden public names of an item, and their lines. `is_inside` is true in a hidden module.
pub(super) fn names(item: &Item, is_inside: bool) -> Vec<(usize, String)> {
    let (vis, attributes, name) = match item {
        Item::Const(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Enum(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Fn(item) => (&item.vis, &item.attrs, &item.sig.ident),
        Item::Mod(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Static(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Struct(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Trait(item) => (&item.vis, &item.attrs, &item.ident),
        Item::TraitAlias(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Type(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Union(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Use(item) if is_public(&item.vis) && (is_inside || is_hidden(&item.attrs)) => {
            let mut found = Vec::new();
            leaves(&item.tree, &mut found);
            return found;
        }
        Item::Macro(item) => {
            let is_exported = item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"));
            let name = item.ident.as_ref().filter(|_| is_exported && is_hidden(&item.attrs));
            return name.map(|name| (line(name), format!("{name}!"))).into_iter().collect();
        }
        Item::Impl(item) => {
            let syn::Type::Path(of) = item.self_ty.as_ref() else { return vec![] };
            let of = of.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
            let is_whole = is_hidden(&item.attrs);
            let members = item.items.iter().filter_map(|member| {
                let (vis, attributes, name) = match member {
                    ImplItem::Const(member) => (&member.vis, &member.attrs, &member.ident),
                    ImplItem::Fn(member) => (&member.vis, &member.attrs, &member.sig.ident),
                    ImplItem::Type(member) => (&member.vis, &member.attrs, &member.ident),
                    _ => return None,
                };
                let is_counted = is_public(vis) && (is_whole || is_hidden(attributes));
                is_counted.then(|| (line(name), format!("{of}::{name}")))
            });
            return members.collect();
        }
        _ => return vec![],
    };
    if !is_public(vis) {
        return vec![];
    }
    if is_inside || is_hidden(attributes) {
        return vec![(line(name), name.to_string())];
    }
    members(item).into_iter().map(|(line, member)| (line, format!("{name}::{member}"))).collect()
}

/// The hidden members of an item that is not hidden.
fn members(item: &Item) -> Vec<(usize, String)> {
    match item {
        Item::Trait(item) => {
            let hidden = item.items.iter().filter_map(|member| {
                let (attributes, name) = match member {
                    TraitItem::Const(member) => (&member.attrs, &member.ident),
                    TraitItem::Fn(member) => (&member.attrs, &member.sig.ident),
                    TraitItem::Type(member) => (&member.attrs, &member.ident),
                    _ => return None,
                };
                is_hidden(attributes).then(|| (line(name), name.to_string()))
            });
            hidden.collect()
        }
        Item::Enum(item) => {
            let hidden = item.variants.iter().filter(|variant| is_hidden(&variant.attrs));
            hidden.map(|variant| (line(&variant.ident), variant.ident.to_string())).collect()
        }
        Item::Struct(item) => fields(&item.fields),
        _ => vec![],
    }
}

fn fields(fields: &Fields) -> Vec<(usize, String)> {
    let hidden = fields.iter().enumerate();
    let hidden = hidden.filter(|(_, field)| is_public(&field.vis) && is_hidden(&field.attrs));
    let name = |index: usize, field: &syn::Field| match &field.ident {
        Some(name) => name.to_string(),
        None => index.to_string(),
    };
    hidden.map(|(index, field)| (line(&field.ty), name(index, field))).collect()
}

fn leaves(tree: &UseTree, found: &mut Vec<(usize, String)>) {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, found),
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, found);
            }
        }
        UseTree::Name(name) => found.push((line(&name.ident), name.ident.to_string())),
        UseTree::Rename(renamed) => found.push((line(&renamed.rename), renamed.rename.to_string())),
        UseTree::Glob(star) => found.push((line(star), "*".to_owned())),
    }
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn line(of: &impl Spanned) -> usize {
    of.span().start().line
}

/// Crates whose number of hidden items differs from the list, and globs among them.
pub(super) fn check(package: &str, hidden: &[&Hidden], listed: &[(&str, usize)]) -> Vec<String> {
    let expected = listed.iter().find(|(name, _)| *name == package).map_or(0, |(_, count)| *count);
    let globs = hidden.iter().filter(|one| one.is_glob());
    let mut breaches: Vec<String> =
        globs.map(|one| format!("{one} is re-exported where it is hidden: name each item")).collect();
    if hidden.len() != expected {
        let each: Vec<String> = hidden.iter().map(|one| format!("\n  {one}")).collect();
        let count = hidden.len();
        breaches.push(format!(
            "{package}: {count} hidden public items, {expected} are listed in xtask/src/imports/hidden.rs:{}",
            each.concat()
        ));
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a crate's hidden items.
    fn hidden(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let metadata = r#"{"workspace_root": "/w", "packages": [{"name": "x", "manifest_path": "/w/x/Cargo.toml",
            "dependencies": [], "targets": [{"kind": ["lib"], "name": "x", "src_path": "/w/x/lib.rs"}]}]}"#;
        let packages = super::super::Packages::new(metadata, sources).unwrap();
        let tree = super::super::collector::collect(&packages).unwrap();
        tree.hidden.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_kind_of_hidden_item_is_found() {
        for (code, name) in [
            ("#[doc(hidden)]\npub fn f() {}", "f"),
            ("#[doc(hidden)]\n#[must_use]\npub const fn f() -> u8 { 1 }", "f"),
            ("#[doc(hidden)]\npub struct S;", "S"),
            ("#[doc(hidden)]\npub trait T { fn f(); }", "T"),
            ("#[doc(hidden)]\npub use std::fmt::Debug as D;", "D"),
            ("#[cfg_attr(not(feature = \"f\"), doc(hidden))]\npub fn f() {}", "f"),
            ("pub struct S;\nimpl S {\n    #[doc(hidden)]\n    pub fn f() {}\n}", "S::f"),
            ("pub struct S;\n#[doc(hidden)]\nimpl S {\n    pub fn f() {}\n    fn g() {}\n}", "S::f"),
            ("pub trait T {\n    #[doc(hidden)]\n    fn f();\n    fn g();\n}", "T::f"),
            ("pub enum E {\n    A,\n    #[doc(hidden)]\n    B,\n}", "E::B"),
            ("pub struct S {\n    #[doc(hidden)]\n    pub f: u8,\n    #[doc(hidden)]\n    g: u8,\n}", "S::f"),
            ("pub struct S(\n    #[doc(hidden)]\n    pub u8,\n);", "S::0"),
            ("#[doc(hidden)]\n#[macro_export]\nmacro_rules! m { () => {} }", "m!"),
            ("#[doc(hidden)]\npub mod m { fn f() {} mod n { pub fn g() {} } }", "m"),
        ] {
            let found = hidden(&[("x/lib.rs", code)]);
            assert!(found.len() == 1 && found[0].ends_with(&format!(": {name}")), "{code}: {found:?}");
        }
    }

    #[test]
    fn everything_public_in_a_hidden_module_is_found() {
        let found = hidden(&[
            ("x/lib.rs", "#[doc(hidden)]\npub mod private;\npub mod open;\n"),
            (
                "x/private.rs",
                "pub use std::fmt::{Debug, Display};\npub mod inner;\npub fn f() {}\nfn g() {}\n",
            ),
            ("x/private/inner.rs", "pub struct S;\npub(crate) struct P;\n"),
            ("x/open.rs", "#![doc(hidden)]\npub const C: u8 = 1;\n#[cfg(test)]\npub const D: u8 = 1;\n"),
        ]);
        let expected = [
            "x/lib.rs:2: private",
            "x/private.rs:1: Debug",
            "x/private.rs:1: Display",
            "x/private.rs:2: inner",
            "x/private/inner.rs:1: S",
            "x/private.rs:3: f",
            "x/open.rs:2: C",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn documented_and_private_items_do_not_count() {
        for code in [
            "pub fn f() {}",
            "#[doc(hidden)]\nfn f() {}",
            "#[doc(hidden)]\npub(crate) fn f() {}",
            "#[doc(hidden)]\nmod m { pub fn f() {} }",
            "#[cfg(test)]\n#[doc(hidden)]\npub fn f() {}",
            "#[doc = \"hidden\"]\npub fn f() {}",
            "#[doc(hidden)]\nmacro_rules! m { () => {} }",
        ] {
            assert_eq!(hidden(&[("x/lib.rs", code)]), [""; 0], "{code}");
        }
    }

    #[test]
    fn another_number_than_the_listed_one_is_a_breach() {
        let item =
            |name: &str| Hidden { package: 0, file: "x.rs".to_owned(), line: 7, name: name.to_owned() };
        let (f, g, star) = (item("f"), item("g"), item("*"));
        assert_eq!(check("x", &[&f, &g], &[("x", 2)]), [""; 0]);
        assert_eq!(check("y", &[], &[("x", 2)]), [""; 0]);
        let more = check("x", &[&f, &g], &[("x", 1)]);
        assert_eq!(
            more,
            [
                "x: 2 hidden public items, 1 are listed in xtask/src/imports/hidden.rs:\n  x.rs:7: f\n  x.rs:7: g"
            ]
        );
        assert_eq!(check("x", &[&f], &[("x", 2)]).len(), 1, "fewer items are a breach, too");
        assert_eq!(check("x", &[&f], &[]).len(), 1);
        assert!(check("x", &[&star], &[("x", 1)])[0].contains("name each item"));
    }
}
