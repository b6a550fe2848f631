//! Segments: what the library's own words mean, and where they are.
//!
//! A segment has its control block in front, chunks of memory behind it, and the chunk table at its end. This room knows the place of each word
//! and decodes it to a bounded value; it reads and writes nothing. The protocols by which words change are those of the rooms above.
//!
//! | module | what it has |
//! |---|---|
//! | [`records`] | `records!`, which makes layouts of tables |
//! | [`tagged`] | `tagged_words!`, the same for words with a tag |
//! | [`control`] | the tables: header, directory, epochs, members, lists of candidates; names of words |
//! | [`classes`] | the sizes of blocks |
//! | [`grid`] | chunks and the chunk table |
//! | [`record`] | a member's record |
//! | [`entry`] | an entry of the directory |
//! | [`walk`] | traversals that end, whatever links say |
//! | [`decode`] | from words to bounded values, or [`Error::Corrupted`](crate::Error::Corrupted) |

pub(crate) mod classes;
pub(crate) mod control;
pub(crate) mod decode;
pub(crate) mod entry;
pub(crate) mod grid;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod tagged;
pub(crate) mod walk;
