//! The graphs of rooms, files and crates, and their cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use super::collector::{collect, parent};
use super::hidden::{self, Hidden};
use super::layers;
use super::modules::{Kind, Mention, Module, Tree};
use super::names::{Meaning, Names};
use super::packages::Packages;

/// The imports of all rooms, files and crates.
pub(crate) struct Graph<'a> {
    packages: &'a Packages,
    /// By package: each room's imports of other rooms.
    rooms: Vec<Edges>,
    /// By package: each file's imports of other files.
    files: Vec<Edges>,
    /// By package: its imports of other crates, by their index.
    crates: Vec<BTreeMap<usize, BTreeSet<Import>>>,
    hidden: Vec<Hidden>,
    /// By package: types with `impl` blocks in rooms other than their own; for each room, the number of functions and constants.
    spread: Vec<BTreeMap<String, BTreeMap<String, usize>>>,
}

/// The nodes of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Rooms,
    Files,
}

/// The imports of each room or file, by target. Both are named by paths relative to the package's folder, without `src/`.
pub(super) type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<Import>>>;

/// A place in the source that names an item of another room or crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    file: String,
    line: usize,
    path: String,
}

impl Import {
    fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

impl<'a> Graph<'a> {
    /// Reads all sources.
    pub(crate) fn new(packages: &'a Packages) -> Result<Self, String> {
        let tree = collect(packages)?;
        let count = packages.packages.len();
        let (rooms, files) = (vec![Edges::new(); count], vec![Edges::new(); count]);
        let crates = vec![BTreeMap::new(); count];
        let spread = vec![BTreeMap::new(); count];
        let mut graph = Self { packages, rooms, files, crates, hidden: tree.hidden.clone(), spread };
        graph.fill(&tree);
        Ok(graph)
    }

    fn fill(&mut self, tree: &Tree) {
        let names = Names::new(tree, self.packages);
        let rooms = self.rooms_of_modules(tree);
        for associated in &tree.associated {
            let Some((module, name)) = names.type_of(associated) else { continue };
            let (own, other) = (&rooms[module], &rooms[associated.module]);
            if own != other {
                let of =
                    self.spread[tree.modules[module].package].entry(format!("{name} of {own}")).or_default();
                *of.entry(other.clone()).or_default() += 1;
            }
        }
        let files: Vec<String> =
            tree.modules.iter().map(|module| self.inside(module.package, &module.file)).collect();
        for (id, module) in tree.modules.iter().enumerate() {
            let (of_rooms, of_files) = (&mut self.rooms[module.package], &mut self.files[module.package]);
            let of_room = of_rooms.entry(rooms[id].clone()).or_default();
            let of_file = of_files.entry(files[id].clone()).or_default();
            for mention in &module.mentions {
                let import = import(&module.file, mention);
                for meaning in names.of(mention, id) {
                    match meaning {
                        Meaning::Item { module: other, .. } => {
                            if rooms[other] != rooms[id] {
                                of_room.entry(rooms[other].clone()).or_default().insert(import.clone());
                            }
                            if files[other] != files[id] {
                                of_file.entry(files[other].clone()).or_default().insert(import.clone());
                            }
                        }
                        Meaning::Crate(of) => {
                            self.crates[module.package].entry(of).or_default().insert(import.clone());
                        }
                        // The items named through it count.
                        Meaning::Module(_) => {}
                    }
                }
            }
        }
    }

    /// A path for messages: relative to the package's folder, without `src/`.
    fn inside(&self, package: usize, path: &str) -> String {
        let inside = path.strip_prefix(&self.packages.packages[package].folder).unwrap_or(path);
        let inside = inside.trim_start_matches('/');
        let inside = inside.strip_prefix("src/").unwrap_or(inside);
        if inside.is_empty() { ".".to_owned() } else { inside.to_owned() }
    }

    /// The room of each module. Folders with only tests are no rooms.
    fn rooms_of_modules(&self, tree: &Tree) -> Vec<String> {
        let folders: BTreeSet<&str> = tree.modules.iter().map(|module| parent(&module.file)).collect();
        let room = |module: &Module| {
            let folder = module.file.trim_end_matches(".rs");
            let below = format!("{folder}/");
            let is_beside = folders.iter().any(|other| *other == folder || other.starts_with(&below));
            self.inside(module.package, if is_beside { folder } else { parent(&module.file) })
        };
        tree.modules.iter().map(room).collect()
    }

    /// All breaches of the rules, a line each.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut breaches = self.upward_crates(layers::CRATES);
        for (at, package) in self.packages.packages.iter().enumerate() {
            let (name, rooms) = (package.name.as_str(), &self.rooms[at]);
            breaches.extend(cyclic_imports(rooms));
            if !layers::CYCLIC_FILES.contains(&name) {
                breaches.extend(cyclic_imports(&self.files[at]));
            }
            breaches.extend(hidden::check(name, &self.hidden_of(at), hidden::LISTED));
            if let Some((_, order)) = layers::ROOMS.iter().find(|(of, _)| *of == name) {
                breaches.extend(upward_rooms(name, rooms, order));
            }
        }
        let listed = layers::CYCLIC_FILES.iter().chain(layers::ROOMS.iter().map(|(name, _)| name));
        let is_gone = |name: &&&str| !self.packages.packages.iter().any(|package| package.name == **name);
        let gone = listed.filter(is_gone).map(|name| format!("{name}: listed in layers.rs, but no crate"));
        breaches.extend(gone);
        breaches
    }

    /// The hidden public items of a package.
    fn hidden_of(&self, package: usize) -> Vec<&Hidden> {
        self.hidden.iter().filter(|hidden| hidden.package == package).collect()
    }

    /// Lists the hidden public items of each crate.
    pub(crate) fn list_hidden(&self) -> String {
        let mut text = String::new();
        for (at, package) in self.packages.packages.iter().enumerate() {
            let hidden = self.hidden_of(at);
            if !hidden.is_empty() {
                writeln!(text, "{}: {} hidden public items", package.name, hidden.len()).expect("a text");
            }
            for hidden in hidden {
                writeln!(text, "  {hidden}").expect("a text");
            }
        }
        text
    }

    /// Crates that import one that is not before them in `order`, and crates that are not in it.
    fn upward_crates(&self, order: &[&str]) -> Vec<String> {
        let layer = |package: &str| order.iter().position(|name| *name == package);
        let mut breaches = Vec::new();
        for (index, package) in self.packages.packages.iter().enumerate() {
            let name = &package.name;
            let Some(own) = layer(name) else {
                breaches.push(format!(
                    "{name}: has no place in the order of crates: xtask/src/imports/layers.rs"
                ));
                continue;
            };
            let is_upward = |other: &str| layer(other).is_none_or(|layer| layer >= own);
            for other in package.dependencies.values().filter(|other| is_upward(other)) {
                let manifest = format!("{}/Cargo.toml", package.folder);
                breaches.push(format!("{manifest}: `{name}` depends on `{other}`, which is above it"));
            }
            for (other, imports) in &self.crates[index] {
                let other = &self.packages.packages[*other].name;
                if is_upward(other) {
                    let Import { path, .. } = &first(imports);
                    let place = first(imports).place();
                    breaches.push(format!("{place}: imports `{path}`, but `{other}` is above `{name}`"));
                }
            }
        }
        breaches
    }

    /// Lists the imports of each room or file, of one crate or of all.
    pub(crate) fn list(&self, of: Option<&str>, level: Level) -> Result<String, String> {
        let mut text = String::new();
        let (edges, unit) = match level {
            Level::Rooms => (&self.rooms, "rooms"),
            Level::Files => (&self.files, "files"),
        };
        for ((package, rooms), spread) in self.packages.packages.iter().zip(edges).zip(&self.spread) {
            if of.is_some_and(|of| of != package.name) {
                continue;
            }
            let cycles = cycles(rooms);
            let cyclic: usize = cycles.iter().map(BTreeSet::len).sum();
            writeln!(text, "{}: {} {unit}, {cyclic} in cycles", package.name, rooms.len()).expect("a text");
            for (room, imports) in rooms {
                let each = imports.iter().map(|(room, imports)| format!("{room} ({})", imports.len()));
                let each: Vec<String> = each.collect();
                let mark = if cycles.iter().any(|cycle| cycle.contains(room)) { '*' } else { ' ' };
                writeln!(text, "{mark} {room} -> {}", each.join(", ")).expect("a text");
            }
            for (of, rooms) in spread {
                let each: Vec<String> =
                    rooms.iter().map(|(room, count)| format!("{room} ({count})")).collect();
                writeln!(text, "  {of} has methods in {}", each.join(", ")).expect("a text");
            }
            for line in cyclic_imports(rooms) {
                writeln!(text, "  {line}").expect("a text");
            }
        }
        if text.is_empty() {
            Err(format!("no crate of the workspace is called `{}`", of.unwrap_or("")))
        } else {
            Ok(text)
        }
    }
}

/// The import that messages quote.
fn first(imports: &BTreeSet<Import>) -> &Import {
    imports.first().expect("an edge has an import")
}

fn import(file: &str, mention: &Mention) -> Import {
    let star = if mention.kind == Kind::Glob { "::*" } else { "" };
    Import { file: file.to_owned(), line: mention.line, path: format!("{}{star}", mention.path) }
}

/// The strongly connected components of two or more rooms.
fn cycles(rooms: &Edges) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        rooms.keys().map(|room| (room, reachable(rooms, room))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (room, others) in &reached {
        if others.contains(*room) && !found.iter().any(|cycle| cycle.contains(*room)) {
            found.push(others.iter().filter(|other| reached[other].contains(*room)).cloned().collect());
        }
    }
    found
}

/// The rooms that a room imports, directly or indirectly; itself only if it is in a cycle.
fn reachable(rooms: &Edges, from: &String) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(room) = next.pop() {
        next.extend(rooms[room].keys().filter(|other| found.insert((*other).clone())));
    }
    found
}

/// A line for each import between rooms of a cycle: its place, and the path back.
fn explain(rooms: &Edges, cycle: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for from in cycle {
        for (to, imports) in rooms[from].iter().filter(|(to, _)| cycle.contains(*to)) {
            let back = way(rooms, to, from);
            let back = back.windows(2).map(|step| {
                let place = first(&rooms[step[0]][step[1]]).place();
                format!("{} imports {} at {place}", step[0], step[1])
            });
            let back: Vec<String> = back.collect();
            let (place, path) = (first(imports).place(), &first(imports).path);
            lines.push(format!("{place}: imports `{path}` of {to}; {}", back.join(", ")));
        }
    }
    lines
}

/// A line for each import in a cycle.
fn cyclic_imports(edges: &Edges) -> Vec<String> {
    cycles(edges).iter().flat_map(|cycle| explain(edges, cycle)).collect()
}

/// The shortest path from one room to another that it reaches.
fn way<'a>(rooms: &'a Edges, from: &'a String, to: &String) -> Vec<&'a String> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(room) = next.pop_front() {
        for other in rooms[room].keys().filter(|other| *other != from) {
            if !before.contains_key(other) {
                before.insert(other, room);
                next.push_back(other);
            }
        }
    }
    let mut steps = Vec::new();
    let mut at = before.get_key_value(to).map(|(to, _)| *to);
    while let Some(room) = at {
        steps.push(room);
        at = before.get(room).copied();
    }
    steps.reverse();
    steps
}

/// Imports of rooms of a higher layer, and rooms without a layer. A room has the layer of its folder.
fn upward_rooms(name: &str, rooms: &Edges, order: &[&str]) -> Vec<String> {
    let layer = |room: &str| {
        let holds = |folder: &&str| room == *folder || room.starts_with(&format!("{folder}/"));
        let found = order.iter().enumerate().filter(|(_, folder)| holds(folder));
        found.max_by_key(|(_, folder)| folder.len()).map(|(at, folder)| (at, *folder))
    };
    let mut breaches = Vec::new();
    for (room, imports) in rooms {
        let Some((own, folder)) = layer(room) else {
            breaches.push(format!("{name}: the room {room} is in no layer: xtask/src/imports/layers.rs"));
            continue;
        };
        for (imported, places) in imports {
            if let Some((_, above)) = layer(imported).filter(|(at, _)| *at > own) {
                breaches.extend(places.iter().map(|import| {
                    let (place, path) = (import.place(), &import.path);
                    format!("{place}: imports `{path}`: the layer {folder} is below {above}")
                }));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests;
