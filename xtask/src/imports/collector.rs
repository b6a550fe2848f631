//! Reads the modules of the workspace from their sources.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use super::conditions::is_left_out;
use super::hidden::{self, Hidden, is_hidden, is_hidden_module};
use super::modules::{Associated, Binding, Kind, Mention, Module, ModuleId, Path, Tree};
use super::packages::Packages;

/// Macros whose tokens are code of the crate in which they are expanded.
const QUOTES: &[&str] = &["quote", "quote_spanned", "parse_quote", "parse_quote_spanned"];

/// Reads all modules of all targets.
pub(super) fn collect(packages: &Packages) -> Result<Tree, String> {
    let mut tree = Tree::default();
    for (package, described) in packages.packages.iter().enumerate() {
        for target in &described.targets {
            let root = add_module(&mut tree, package, &target.root, None);
            if let Some(library) = &target.library {
                tree.libraries.insert(package, (library.clone(), root));
            }
            let folder = parent(&target.root).to_owned();
            read_file(&mut tree, &packages.sources, root, &target.root, folder)?;
        }
    }
    Ok(tree)
}

fn add_module(tree: &mut Tree, package: usize, file: &str, parent: Option<ModuleId>) -> ModuleId {
    tree.modules.push(Module { package, file: file.to_owned(), parent, ..Module::default() });
    tree.modules.len() - 1
}

/// Reads a file as the contents of `module`. Its submodules are in `folder`.
fn read_file(
    tree: &mut Tree,
    sources: &BTreeMap<String, String>,
    module: ModuleId,
    file: &str,
    folder: String,
) -> Result<(), String> {
    let text = sources.get(file).ok_or_else(|| format!("{file}: a module is declared, but has no file"))?;
    let parsed =
        syn::parse_file(text).map_err(|error| format!("{file}:{}: {error}", error.span().start().line))?;
    tree.modules[module].is_hidden |= is_hidden(&parsed.attrs);
    let is_facade = may_be_facade(file, sources) && parsed.items.iter().all(is_declaration);
    tree.modules[module].is_facade = is_facade;
    let mut collector = Collector { tree, sources, module, folder, is_facade, failed: None };
    collector.visit_file(&parsed);
    collector.failed.map_or(Ok(()), Err)
}

/// Returns whether a file may be a room's facade.
fn may_be_facade(file: &str, sources: &BTreeMap<String, String>) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    ["lib.rs", "main.rs", "mod.rs"].contains(&name) || is_beside_folder(file, sources)
}

/// Returns whether `foo.rs` is beside a folder `foo` with sources.
fn is_beside_folder(file: &str, sources: &BTreeMap<String, String>) -> bool {
    let folder = format!("{}/", file.trim_end_matches(".rs"));
    sources.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
}

/// Returns whether an item of a facade only declares modules or re-exports.
fn is_declaration(item: &Item) -> bool {
    is_left_out(attributes(item))
        || match item {
            Item::Mod(module) => {
                module.content.as_ref().is_none_or(|(_, items)| items.iter().all(is_declaration))
            }
            Item::Use(import) => !matches!(import.vis, Visibility::Inherited),
            Item::Macro(call) => call.mac.path.is_ident("compile_error"),
            // A compile-time assertion.
            Item::Const(item) => item.ident == "_",
            Item::ExternCrate(_) => true,
            _ => false,
        }
}

struct Collector<'a> {
    tree: &'a mut Tree,
    sources: &'a BTreeMap<String, String>,
    module: ModuleId,
    /// The folder of the module's submodules.
    folder: String,
    is_facade: bool,
    failed: Option<String>,
}

impl Collector<'_> {
    fn here(&mut self) -> &mut Module {
        &mut self.tree.modules[self.module]
    }

    fn bind(&mut self, name: &syn::Ident, binding: Binding) {
        // `as _` binds no name.
        if name == "_" {
            if let Binding::Import(path) = binding {
                self.here().unnamed.push(path);
            }
            return;
        }
        self.here().names.entry(name.unraw().to_string()).or_default().push(binding);
    }

    fn mention(&mut self, path: Path, line: usize, kind: Kind) {
        self.here().mentions.push(Mention { path, line, kind });
    }

    fn submodule(&mut self, item: &syn::ItemMod) {
        let name = item.ident.unraw().to_string();
        let path = path_attribute(&item.attrs);
        let parent_file = self.tree.modules[self.module].file.clone();
        let package = self.tree.modules[self.module].package;
        let below = join(&self.folder, path.as_deref().unwrap_or(&name));
        let is_hidden = is_hidden_module(item, self.here().is_hidden);
        if let Some((_, items)) = &item.content {
            let child = add_module(self.tree, package, &parent_file, Some(self.module));
            self.tree.modules[child].is_facade = self.is_facade;
            self.tree.modules[child].is_hidden = is_hidden;
            self.bind(&item.ident, Binding::Module(child));
            let outer = std::mem::replace(&mut self.module, child);
            let folder = std::mem::replace(&mut self.folder, below);
            for item in items {
                self.visit_item(item);
            }
            (self.module, self.folder) = (outer, folder);
            return;
        }
        let (file, folder) = if let Some(path) = path {
            let file = join(parent(&parent_file), &path);
            let folder = parent(&file).to_owned();
            (file, folder)
        } else {
            let file = format!("{below}.rs");
            let inner = format!("{below}/mod.rs");
            (if self.sources.contains_key(&inner) { inner } else { file }, below)
        };
        if file.ends_with("/tests.rs") || file.contains("/tests/") {
            return;
        }
        let child = add_module(self.tree, package, &file, Some(self.module));
        self.tree.modules[child].is_hidden = is_hidden;
        self.bind(&item.ident, Binding::Module(child));
        let read = read_file(self.tree, self.sources, child, &file, folder);
        self.failed = self.failed.take().or(read.err());
    }

    /// Records each leaf of a `use` tree.
    fn import(&mut self, tree: &UseTree, before: &Path, is_counted: bool) {
        let mut path = before.clone();
        match tree {
            UseTree::Path(inner) => {
                path.segments.push(inner.ident.unraw().to_string());
                self.import(&inner.tree, &path, is_counted);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, is_counted);
                }
            }
            UseTree::Glob(star) => {
                self.here().globs.push(path.clone());
                if is_counted {
                    self.mention(path, star.star_token.spans[0].start().line, Kind::Glob);
                }
            }
            UseTree::Name(syn::UseName { ident, .. }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                if ident != "self" || path.segments.is_empty() {
                    path.segments.push(ident.unraw().to_string());
                }
                let last = syn::Ident::new(path.segments.last().map_or("_", |last| last), ident.span());
                let name = if let UseTree::Rename(renamed) = tree { &renamed.rename } else { &last };
                self.bind(name, Binding::Import(path.clone()));
                if is_counted {
                    self.mention(path, ident.span().start().line, Kind::Import);
                }
            }
        }
    }

    /// Records every path in a macro's tokens: identifiers joined by `::`, also single ones.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Path::default();
        let mut line = 0;
        // The kind of token before the next one.
        let mut before = Before::Nothing;
        for token in tokens {
            let next = match &token {
                TokenTree::Ident(ident) => {
                    if before != Before::Colons {
                        self.end_path(&mut path, line);
                    }
                    if path.segments.is_empty() {
                        line = ident.span().start().line;
                    }
                    let dollar = if before == Before::Dollar { "$" } else { "" };
                    if before == Before::Dot {
                        Before::Nothing
                    } else {
                        path.segments.push(format!("{dollar}{}", ident.unraw()));
                        Before::Segment
                    }
                }
                TokenTree::Punct(punct) => match (punct.as_char(), before) {
                    (':', Before::Colon) => Before::Colons,
                    (':', Before::Segment) if punct.spacing() == Spacing::Joint => Before::Colon,
                    (':', _) if punct.spacing() == Spacing::Joint => {
                        self.end_path(&mut path, line);
                        path.is_global = true;
                        Before::Colon
                    }
                    (mark, _) => {
                        self.end_path(&mut path, line);
                        match mark {
                            '.' => Before::Dot,
                            '$' => Before::Dollar,
                            _ => Before::Nothing,
                        }
                    }
                },
                TokenTree::Group(group) => {
                    // `a::{b, c}`, as in a `use` of a macro's definition.
                    let is_group = before == Before::Colons && group.delimiter() == Delimiter::Brace;
                    let prefix = if is_group { std::mem::take(&mut path) } else { Path::default() };
                    self.end_path(&mut path, line);
                    if is_group {
                        for leaf in leaves(group.stream()) {
                            let mut path = prefix.clone();
                            path.segments.extend(leaf);
                            self.end_path(&mut path, line);
                        }
                    } else {
                        self.tokens(group.stream());
                    }
                    Before::Nothing
                }
                TokenTree::Literal(_) => {
                    self.end_path(&mut path, line);
                    Before::Nothing
                }
            };
            before = next;
        }
        self.end_path(&mut path, line);
    }

    fn end_path(&mut self, path: &mut Path, line: usize) {
        let path = std::mem::take(path);
        if !path.segments.is_empty() {
            self.mention(path, line, Kind::Code);
        }
    }
}

/// The kind of token before another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Segment,
    /// The first of two colons.
    Colon,
    Colons,
    Dot,
    Dollar,
}

/// The paths of `{a, b::c}`, without deeper nesting.
fn leaves(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                found.last_mut().expect("never empty").push(ident.unraw().to_string());
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => found.push(Vec::new()),
            _ => {}
        }
    }
    found.retain(|leaf| !leaf.is_empty());
    found
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_left_out(attributes(item)) {
            return;
        }
        let Module { package, file, is_hidden, .. } = &self.tree.modules[self.module];
        let (package, is_hidden) = (*package, *is_hidden);
        let hidden = hidden::names(item, is_hidden).into_iter();
        let hidden = hidden.map(|(line, name)| Hidden { package, file: file.clone(), line, name });
        self.tree.hidden.extend(hidden.collect::<Vec<_>>());
        let defined = match item {
            Item::Mod(module) => return self.submodule(module),
            Item::Use(import) => {
                let is_private = matches!(import.vis, Visibility::Inherited);
                let start = Path { is_global: import.leading_colon.is_some(), segments: Vec::new() };
                return self.import(&import.tree, &start, is_private || !self.is_facade);
            }
            Item::ExternCrate(item) => {
                let name = if item.ident == "self" { "crate".to_owned() } else { item.ident.to_string() };
                let path = Path { is_global: item.ident != "self", segments: vec![name] };
                let renamed = item.rename.as_ref().map_or(&item.ident, |(_, name)| name);
                return self.bind(renamed, Binding::Import(path));
            }
            Item::Macro(item) => {
                let Some(name) = &item.ident else { return self.visit_macro(&item.mac) };
                self.bind(name, Binding::Item { is_type: false });
                let package = self.here().package;
                self.tree.macros.insert((package, name.to_string()), self.module);
                return self.tokens(item.mac.tokens.clone());
            }
            Item::Impl(item) => {
                if let (None, syn::Type::Path(of)) = (&item.trait_, item.self_ty.as_ref()) {
                    let of = path(&of.path);
                    let names = item.items.iter().filter_map(|item| match item {
                        syn::ImplItem::Fn(item) => Some(&item.sig.ident),
                        syn::ImplItem::Const(item) => Some(&item.ident),
                        _ => None,
                    });
                    let module = self.module;
                    let associated = names.map(|name| {
                        let name = name.unraw().to_string();
                        Associated { of: of.clone(), name, module }
                    });
                    self.tree.associated.extend(associated);
                }
                None
            }
            Item::Const(item) => Some((&item.ident, false)),
            Item::Static(item) => Some((&item.ident, false)),
            Item::Fn(item) => Some((&item.sig.ident, false)),
            Item::Enum(item) => Some((&item.ident, true)),
            Item::Struct(item) => Some((&item.ident, true)),
            Item::Trait(item) => Some((&item.ident, true)),
            Item::TraitAlias(item) => Some((&item.ident, true)),
            Item::Type(item) => Some((&item.ident, true)),
            Item::Union(item) => Some((&item.ident, true)),
            _ => None,
        };
        if let Some((name, is_type)) = defined {
            self.bind(name, Binding::Item { is_type });
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, found: &'ast syn::Path) {
        let line = found.segments.first().map_or(0, |first| first.ident.span().start().line);
        self.mention(path(found), line, Kind::Code);
        visit::visit_path(self, found);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = path(&call.path);
        let line = call.path.segments.first().map_or(0, |first| first.ident.span().start().line);
        let is_quote = name.segments.last().is_some_and(|last| QUOTES.contains(&last.as_str()));
        self.mention(name, line, Kind::Macro);
        if !is_quote {
            self.tokens(call.tokens.clone());
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        // Doc comments and arguments of attributes import nothing, but an attribute's path may name a crate.
        if attribute.path().segments.len() > 1 {
            let line = attribute.path().segments[0].ident.span().start().line;
            self.mention(path(attribute.path()), line, Kind::Macro);
        }
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_left_out(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        let attributes = match item {
            syn::TraitItem::Const(item) => &item.attrs,
            syn::TraitItem::Fn(item) => &item.attrs,
            syn::TraitItem::Type(item) => &item.attrs,
            syn::TraitItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_left_out(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_left_out(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !is_left_out(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_stmt_macro(&mut self, call: &'ast syn::StmtMacro) {
        if !is_left_out(&call.attrs) {
            visit::visit_stmt_macro(self, call);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_left_out(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_left_out(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_left_out(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_left_out(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }
}

fn path(of: &syn::Path) -> Path {
    let segments = of.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
    Path { is_global: of.leading_colon.is_some(), segments }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The file of `#[path = "file"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(named) if named.path.is_ident("path") => match &named.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The folder of a file or folder.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A path below or beside a folder.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
