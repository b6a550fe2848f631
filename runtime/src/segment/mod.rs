//! Segments: the layout of the library's own words, and their decoding.
//!
//! A segment has its control block in front, chunks of memory behind it, and the chunk table at its end. This room has the address of each word
//! and decodes it to a bounded value. It reads and writes no far memory: the rooms above have the protocols by which words change.
//!
//! | module | contents |
//! |---|---|
//! | [`records`] | `records!`, which generates layouts from tables |
//! | [`tagged`] | `tagged_words!`, the same for words with a tag |
//! | [`control`] | the tables: header, directory, epochs, members, lists of candidates; names of words |
//! | [`classes`] | the sizes of blocks |
//! | [`grid`] | chunks and the chunk table |
//! | [`record`] | a member's record |
//! | [`entry`] | an entry of the directory |
//! | [`walk`] | detection of cycles in traversals |
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
