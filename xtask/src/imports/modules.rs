//! The tree of modules: what each declares, and what it names.

use std::collections::BTreeMap;

use super::hidden::Hidden;

/// An index into [`Tree::modules`].
pub(super) type ModuleId = usize;

/// The modules of all crates of the workspace.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    /// The module at the root of each package's library, with the library's name.
    pub(super) libraries: BTreeMap<usize, (String, ModuleId)>,
    /// Where each `macro_rules!` of a package is defined, by package and name.
    pub(super) macros: BTreeMap<(usize, String), ModuleId>,
    /// Functions and constants of `impl Type` blocks.
    pub(super) associated: Vec<Associated>,
    /// Public items that documentation hides.
    pub(super) hidden: Vec<Hidden>,
}

/// A module: a file, or one inside a file.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// An index of the list of packages.
    pub(super) package: usize,
    pub(super) file: String,
    pub(super) parent: Option<ModuleId>,
    /// Whether it only declares modules and re-exports.
    pub(super) is_facade: bool,
    /// Whether documentation hides its public items.
    pub(super) is_hidden: bool,
    /// What it declares and imports. A name may stand for a module and for a function.
    pub(super) names: BTreeMap<String, Vec<Binding>>,
    /// What it imports `as _`: traits, for their methods.
    pub(super) unnamed: Vec<Path>,
    /// The modules all of whose names it imports.
    pub(super) globs: Vec<Path>,
    pub(super) mentions: Vec<Mention>,
}

/// What a name stands for in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Module(ModuleId),
    /// An item that is defined here. Only a type can have further segments behind it.
    Item {
        is_type: bool,
    },
    Import(Path),
}

/// A path of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    /// Whether it begins with `::`.
    pub(super) is_global: bool,
    pub(super) segments: Vec<String>,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = if self.is_global { "::" } else { "" };
        write!(f, "{first}{}", self.segments.join("::"))
    }
}

/// A path that the code of a module names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) path: Path,
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// Where a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Code,
    /// The name of a macro that is called.
    Macro,
    /// A leaf of a `use` tree.
    Import,
    /// What stands in front of a `*`.
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
