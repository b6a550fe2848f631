//! Name resolution.

use super::modules::{Associated, Binding, Kind, Mention, ModuleId, Path, Tree};
use super::packages::Packages;

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meaning {
    Module(ModuleId),
    /// An item, and the module that defines it.
    Item {
        module: ModuleId,
        name: String,
        is_type: bool,
    },
    /// A crate of the workspace, by its index.
    Crate(usize),
}

/// Resolves names.
pub(super) struct Names<'a> {
    tree: &'a Tree,
    packages: &'a Packages,
}

impl<'a> Names<'a> {
    pub(super) fn new(tree: &'a Tree, packages: &'a Packages) -> Self {
        Self { tree, packages }
    }

    /// All meanings of a mention in `module`; none if it names no crate of the workspace, or a local variable.
    pub(super) fn of(&self, mention: &Mention, module: ModuleId) -> Vec<Meaning> {
        let mut found = self.resolve(&mention.path, module, &mut Vec::new());
        if mention.kind == Kind::Glob {
            // Traits imported without a name, for their methods only.
            let unnamed: Vec<Meaning> = found.iter().flat_map(|meaning| self.unnamed(meaning)).collect();
            found.extend(unnamed);
        }
        let [only] = mention.path.segments.as_slice() else { return found };
        if mention.kind == Kind::Macro && found.is_empty() {
            // `macro_rules!` are in textual scope, also across modules.
            let package = self.tree.modules[module].package;
            let defined = self.tree.macros.get(&(package, only.clone()));
            found.extend(defined.map(|&module| Meaning::Item { module, name: only.clone(), is_type: false }));
        }
        found
    }

    /// The re-exports `as _` of a module.
    fn unnamed(&self, of: &Meaning) -> Vec<Meaning> {
        let Meaning::Module(module) = of else { return vec![] };
        let paths = self.tree.modules[*module].unnamed.iter();
        paths.flat_map(|path| self.resolve(path, *module, &mut Vec::new())).collect()
    }

    /// `visited` contains the names being resolved, so that mutual globs end.
    fn resolve(&self, path: &Path, from: ModuleId, visited: &mut Vec<(ModuleId, String)>) -> Vec<Meaning> {
        let Some((first, rest)) = path.segments.split_first() else { return vec![] };
        let mut found =
            if path.is_global { self.external(first, from) } else { self.first(first, from, visited) };
        for (at, segment) in rest.iter().enumerate() {
            let mut next = Vec::new();
            for meaning in found {
                match meaning {
                    Meaning::Module(module) if segment == "super" => {
                        next.extend(self.tree.modules[module].parent.map(Meaning::Module));
                    }
                    Meaning::Module(_) if segment == "self" => next.push(meaning),
                    Meaning::Module(module) => {
                        let names = self.lookup(module, segment, visited);
                        let of = &self.tree.modules[module];
                        // A facade's re-export from outside the workspace belongs to no room.
                        let is_foreign = of.is_facade && of.names.contains_key(segment);
                        if names.is_empty() && !is_foreign {
                            // The name comes from a macro, or from a re-export from outside: it belongs to this module.
                            next.push(Meaning::Item { module, name: segment.clone(), is_type: true });
                        }
                        next.extend(names);
                    }
                    Meaning::Item { is_type: false, .. } => {}
                    Meaning::Item { module, ref name, .. } => {
                        if at + 1 == rest.len() {
                            next.extend(self.associated(module, name, segment, visited));
                        }
                        next.push(meaning);
                    }
                    Meaning::Crate(_) => next.push(meaning),
                }
            }
            found = next;
        }
        found.sort();
        found.dedup();
        found
    }

    fn first(&self, name: &str, from: ModuleId, visited: &mut Vec<(ModuleId, String)>) -> Vec<Meaning> {
        match name {
            "crate" | "$crate" => return vec![Meaning::Module(self.tree.root(from))],
            "self" => return vec![Meaning::Module(from)],
            "super" => return self.tree.modules[from].parent.map(Meaning::Module).into_iter().collect(),
            _ => {}
        }
        let found = self.lookup(from, name, visited);
        if found.is_empty() { self.external(name, from) } else { found }
    }

    /// A crate, by its name in another crate's code.
    fn external(&self, name: &str, from: ModuleId) -> Vec<Meaning> {
        let package = self.tree.modules[from].package;
        if let Some((library, root)) = self.tree.libraries.get(&package)
            && library == name
            && *root != self.tree.root(from)
        {
            return vec![Meaning::Module(*root)];
        }
        let dependency = self.packages.packages[package].dependencies.get(name);
        let index =
            dependency.and_then(|name| self.packages.packages.iter().position(|one| one.name == *name));
        index.map(Meaning::Crate).into_iter().collect()
    }

    /// The meaning of a name in a module: its declarations and imports first, then its globs.
    fn lookup(&self, module: ModuleId, name: &str, visited: &mut Vec<(ModuleId, String)>) -> Vec<Meaning> {
        let key = (module, name.to_owned());
        // In `pub use random::random;` beside `mod random;`, the first segment is the module.
        let is_nested = visited.contains(&key);
        visited.push(key);
        let here = &self.tree.modules[module];
        let mut found = Vec::new();
        for binding in here.names.get(name).into_iter().flatten() {
            match binding {
                Binding::Import(_) if is_nested => {}
                Binding::Module(module) => found.push(Meaning::Module(*module)),
                Binding::Item { is_type } => {
                    found.push(Meaning::Item { module, name: name.to_owned(), is_type: *is_type });
                }
                // `use farfield;` imports the crate.
                Binding::Import(path) if path.segments == [name] => found.extend(self.external(name, module)),
                Binding::Import(path) => found.extend(self.resolve(path, module, visited)),
            }
        }
        if found.is_empty() && !is_nested {
            for glob in &here.globs {
                for meaning in self.resolve(glob, module, visited) {
                    if let Meaning::Module(of) = meaning {
                        found.extend(self.lookup(of, name, visited));
                    }
                }
            }
        }
        visited.pop();
        found
    }

    /// The module and the name of an `impl` block's type.
    pub(super) fn type_of(&self, associated: &Associated) -> Option<(ModuleId, String)> {
        let found = self.resolve(&associated.of, associated.module, &mut Vec::new());
        found.into_iter().find_map(|meaning| match meaning {
            Meaning::Item { module, name, is_type: true } => Some((module, name)),
            _ => None,
        })
    }

    /// The module of the `impl` block with this function or constant of a type.
    fn associated(
        &self,
        module: ModuleId,
        of: &str,
        name: &str,
        visited: &mut Vec<(ModuleId, String)>,
    ) -> Vec<Meaning> {
        let is_it = |one: &&Associated| {
            one.name == name && one.of.segments.last().is_some_and(|last| last == of) && one.module != module
        };
        let candidates = self.tree.associated.iter().filter(is_it);
        let package = self.tree.modules[module].package;
        let mut found = Vec::new();
        for one in candidates.filter(|one| self.tree.modules[one.module].package == package) {
            let types = self.resolve(&one.of, one.module, visited);
            if types
                .iter()
                .any(|of| matches!(of, Meaning::Item { module: defined, .. } if *defined == module))
            {
                found.push(Meaning::Item { module: one.module, name: name.to_owned(), is_type: false });
            }
        }
        found
    }
}
