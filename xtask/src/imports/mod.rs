//! Imports between rooms and between crates, read from the code.
//!
//! A *room* is a folder with the `.rs` files directly in it. `foo.rs` beside a folder `foo/` belongs to the room `foo/`. The folder `src` of a
//! crate is a room, too.
//!
//! Room A *imports* room B if code in A names an item that is defined in B. Parent and child folders are rooms like any others. These are the names:
//!
//! - every leaf of a `use` tree, also one that is renamed or inside a function;
//! - paths in types, expressions, patterns and bounds, with `crate::`, `self::`, `super::`, or through an imported module;
//! - paths among the tokens of a macro's call or definition, `$crate::` included. Not in `quote!`: that is code of another crate;
//! - `Type::function`, which imports the room of the type and that of the `impl` block.
//!
//! A name is followed through re-exports, globs included, to its definition. A *facade* is a `lib.rs`, `main.rs` or `mod.rs` (or the `foo.rs` beside
//! `foo/`) that only declares modules and re-exports. Its re-exports import nothing by themselves: the room that names an item through the
//! facade imports the room of the definition. A re-export in any other file counts as an import of that file.
//!
//! Not counted: code that `cfg` leaves out of every ordinary build (`test`, `fuzzing`, `doc`), functions with `#[test]`, files called `tests.rs`, files in a
//! folder `tests`, doc comments, and the paths of `pub(in path)`. Method calls are not seen, since their receivers' types are not known here. So an `impl` block
//! in another room than its type's hides imports: `--imports` lists those blocks.
//!
//! The rules, each of which `cargo xtask tidy` checks:
//!
//! 1. The rooms of a crate form no cycle. Neither do the files of a crate that is not listed in [`layers::CYCLIC_FILES`].
//! 2. A crate depends only on crates that stand before it in [`layers::CRATES`], in its manifest and in its code. Dependencies of tests do not count.
//! 3. In a crate that has a list in [`layers::ROOMS`], a room imports only rooms of its own layer and of the layers before it.
//! 4. The hidden public items of each crate are as many as [`hidden::LISTED`] says.

mod collector;
mod conditions;
mod hidden;
mod layers;
mod modules;
mod names;
mod packages;
mod rooms;

pub(crate) use packages::Packages;
pub(crate) use rooms::{Graph, Level};
