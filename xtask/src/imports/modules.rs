//! The tree of modules: their declarations, and the names that they use.

use std::collections::BTreeMap;

use super::hidden::Hidden;

/// An index into [`Tree::modules`].
pub(super) type ModuleId = usize;

/// The modules of all crates of the workspace.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    /// The root module of each package's library, with the library's name.
    pub(super) libraries: BTreeMap<usize, (String, ModuleId)>,
    /// The module of each `macro_rules!`, by package and name.
    pub(super) macros: BTreeMap<(usize, String), ModuleId>,
    /// Functions and constants of `impl Type` blocks.
    pub(super) associated: Vec<Associated>,
    /// Public items that documentation hides.
    pub(super) hidden: Vec<Hidden>,
}

/// A module: a file, or an inline module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Index of the package.
    pub(super) package: usize,
    pub(super) file: String,
    pub(super) parent: Option<ModuleId>,
    /// True if it only declares modules and re-exports.
    pub(super) is_facade: bool,
    /// True if documentation hides its public items.
    pub(super) is_hidden: bool,
    /// Its declarations and imports. A name may denote both a module and a function.
    pub(super) names: BTreeMap<String, Vec<Binding>>,
    /// Its imports `as _`: traits, for their methods.
    pub(super) unnamed: Vec<Path>,
    /// The modules of its glob imports.
    pub(super) globs: Vec<Path>,
    pub(super) mentions: Vec<Mention>,
}

/// The meaning of a name in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Module(ModuleId),
    /// An item defined here. Only a type can be followed by further segments.
    Item {
        is_type: bool,
    },
    Import(Path),
}

/// A path in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    /// True if it begins with `::`.
    pub(super) is_global: bool,
    pub(super) segments: Vec<String>,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = if self.is_global { "::" } else { "" };
        write!(f, "{first}{}", self.segments.join("::"))
    }
}

/// A path that the code of a module uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) path: Path,
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// The context of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Code,
    /// The name in a macro call.
    Macro,
    /// A leaf of a `use` tree.
    Import,
    /// The path before a `*`.
    Glob,
}

/// A function or constant of an `impl Type` block.
#[derive(Debug)]
pub(super) struct Associated {
    pub(super) of: Path,
    pub(super) name: String,
    pub(super) module: ModuleId,
}

impl Tree {
    /// The root of the crate that a module belongs to.
    pub(super) fn root(&self, module: ModuleId) -> ModuleId {
        self.modules[module].parent.map_or(module, |parent| self.root(parent))
    }
}
