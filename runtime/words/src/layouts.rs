//! Reading descriptions of layouts. [`describe`](crate::describe) has their format.
//!
//! A description comes from far memory, so it is untrusted. Parsing checks it, and a visit by it stays inside the words of the object. Both are
//! bounded: by the depth of nested kinds, and by a number of fields and elements in proportion to the words.

use std::collections::HashMap;

use crate::address::holds_pointer;
use crate::describe::FEWEST_MARKS;
use crate::{Address, MOST_MARKS, WORD_BYTES};

/// The deepest nesting of kinds.
const MAX_DEPTH: u32 = 32;

/// The types of a description.
#[derive(Debug, Default)]
pub struct Layouts {
    /// The types in the description's order; the root's type is the first.
    pub types: Vec<TypeLayout>,
    by_name: HashMap<Box<str>, usize>,
}

/// The layout of a type.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeLayout {
    /// Its name, as `std::any::type_name` returns it.
    pub name: Box<str>,
    /// The size of an object, in bytes, without the elements of a tail.
    pub bytes: u64,
    /// Its fields, in the order of their offsets.
    pub fields: Vec<FieldLayout>,
}

/// A field of a type.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// Its name.
    pub name: Box<str>,
    /// Bytes from the object's start.
    pub offset: u64,
    /// Its kind.
    pub kind: FieldKind,
}

/// The kind of a field. It refers to other types by name; [`Layouts::find`] finds their layouts.
#[derive(Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A plain value.
    Plain {
        /// Its type.
        name: Box<str>,
        /// Its size.
        bytes: u64,
    },
    /// A remote pointer to an object of this type.
    Pointer(Box<str>),
    /// A link.
    Link {
        /// The type of the object.
        to: Box<str>,
        /// The number of its lowest bits that are marks.
        mark_bits: u32,
    },
    /// A tagged or stamped link to an object of this type.
    Tagged(Box<str>),
    /// An atomic with a value of this kind.
    Atomic(Box<FieldKind>),
    /// A lock.
    Lock,
    /// A versioned value.
    Versioned {
        /// Bytes from its start to the value.
        offset: u64,
        /// The value's kind.
        value: Box<FieldKind>,
    },
    /// An array.
    Array {
        /// The number of elements.
        count: u64,
        /// Bytes from one element to the next.
        stride: u64,
        /// The elements' kind.
        element: Box<FieldKind>,
    },
    /// A nested struct of this type.
    Struct(Box<str>),
    /// A count, and that many elements.
    Tail {
        /// Bytes from the count to the first element.
        offset: u64,
        /// Bytes from one element to the next.
        stride: u64,
        /// The elements' kind.
        element: Box<FieldKind>,
    },
}

/// Returns the address and the marks in the word of a link.
pub const fn split_link(word: u64, mark_bits: u32) -> (Address, u64) {
    let mask = (1 << mark_bits) - 1;
    (Address::from_bits(word & !mask), word & mask)
}

impl Layouts {
    /// Parses a description; `None` if the text is no description.
    pub fn parse(text: &str) -> Option<Self> {
        let mut layouts = Self::default();
        for line in text.lines() {
            let mut parts = line.split('\t');
            let first = parts.next()?;
            if first.is_empty() {
                let field = FieldLayout {
                    name: parts.next()?.into(),
                    offset: parts.next()?.parse().ok()?,
                    kind: kind(&mut parts, MAX_DEPTH)?,
                };
                layouts.types.last_mut()?.fields.push(field);
            } else {
                let bytes = parts.next()?.parse().ok()?;
                layouts.by_name.insert(first.into(), layouts.types.len());
                layouts.types.push(TypeLayout { name: first.into(), bytes, fields: Vec::new() });
            }
            if parts.next().is_some() {
                return None;
            }
        }
        (!layouts.types.is_empty()).then_some(layouts)
    }

    /// The index of the type of the root that the description was published with.
    pub const ROOT: usize = 0;

    /// Returns the index of the type with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Calls `visit` for each pointer, lock and write lock in an object of type `of`, given its words.
    pub fn visit(&self, of: usize, words: &[u64], visit: &mut impl FnMut(Found)) {
        // Without a budget, the walk by a hostile description might never end.
        let budget = 16 * words.len() + 64;
        Walk { layouts: self, words, budget, visit }.walk_type(of, 0, MAX_DEPTH);
    }
}

/// A word of an object that a visit reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A pointer, and the index of its target's type if that is described.
    Pointer(Address, Option<usize>),
    /// A lock, this many bytes from the object's start.
    Lock(u64),
    /// The write lock of a `Versioned` value, this many bytes from the object's start.
    WriteLock(u64),
}

/// A walk through the fields of an object.
struct Walk<'a, V> {
    layouts: &'a Layouts,
    words: &'a [u64],
    /// The number of fields and elements that may still be visited.
    budget: usize,
    visit: &'a mut V,
}

impl<V: FnMut(Found)> Walk<'_, V> {
    fn word(&self, offset: u64) -> Option<u64> {
        self.words.get(usize::try_from(offset).ok()? / WORD_BYTES).copied()
    }

    fn walk_type(&mut self, of: usize, offset: u64, depth: u32) {
        let (Some(of), Some(depth)) = (self.layouts.types.get(of), depth.checked_sub(1)) else { return };
        for field in &of.fields {
            self.walk_field(&field.kind, offset.saturating_add(field.offset), depth);
        }
    }

    fn walk_field(&mut self, kind: &FieldKind, offset: u64, depth: u32) {
        let Some(depth) = depth.checked_sub(1).filter(|_| self.budget > 0) else { return };
        self.budget -= 1;
        match kind {
            FieldKind::Plain { .. } => {}
            FieldKind::Lock => {
                if self.word(offset).is_some() {
                    (self.visit)(Found::Lock(offset));
                }
            }
            FieldKind::Pointer(target) => {
                if let Some(word) = self.word(offset) {
                    (self.visit)(Found::Pointer(Address::from_bits(word), self.layouts.find(target)));
                }
            }
            FieldKind::Link { to, mark_bits } => {
                if let Some(word) = self.word(offset) {
                    let (address, _) = split_link(word, *mark_bits);
                    (self.visit)(Found::Pointer(address, self.layouts.find(to)));
                }
            }
            FieldKind::Tagged(target) => {
                // Others hold a value, or a hidden pointer.
                if let Some(word) = self.word(offset).filter(|word| holds_pointer(*word)) {
                    (self.visit)(Found::Pointer(Address::from_compressed(word), self.layouts.find(target)));
                }
            }
            FieldKind::Atomic(value) => self.walk_field(value, offset, depth),
            FieldKind::Versioned { offset: behind, value } => {
                if self.word(offset).is_some() {
                    (self.visit)(Found::WriteLock(offset));
                }
                self.walk_field(value, offset.saturating_add(*behind), depth);
            }
            FieldKind::Array { count, stride, element } => {
                self.walk_elements(offset, *count, *stride, element, depth);
            }
            FieldKind::Struct(name) => {
                if let Some(of) = self.layouts.find(name) {
                    self.walk_type(of, offset, depth);
                }
            }
            FieldKind::Tail { offset: behind, stride, element } => {
                let count = self.word(offset).unwrap_or(0);
                self.walk_elements(offset.saturating_add(*behind), count, *stride, element, depth);
            }
        }
    }

    /// Walks the elements of an array or tail: at most as many as the object's words can hold.
    fn walk_elements(&mut self, first: u64, count: u64, stride: u64, element: &FieldKind, depth: u32) {
        let room = ((self.words.len() * WORD_BYTES) as u64).saturating_sub(first) / stride.max(1);
        for index in 0..count.min(room) {
            if self.budget == 0 {
                return;
            }
            self.walk_field(element, first + index * stride, depth);
        }
    }
}

/// Parses a kind; leaves the parts behind it.
fn kind(parts: &mut dyn Iterator<Item = &str>, depth: u32) -> Option<FieldKind> {
    let depth = depth.checked_sub(1)?;
    let number = |part: Option<&str>| part?.parse::<u64>().ok();
    Some(match parts.next()? {
        "plain" => FieldKind::Plain { name: parts.next()?.into(), bytes: number(parts.next())? },
        "pointer" => FieldKind::Pointer(parts.next()?.into()),
        "link" => {
            let to = parts.next()?.into();
            // A link is the last part of a field's kind.
            let mark_bits = parts.next().map_or(Some(FEWEST_MARKS), |bits| bits.parse().ok())?;
            FieldKind::Link { to, mark_bits: Some(mark_bits).filter(|bits| *bits <= MOST_MARKS)? }
        }
        "tagged" => FieldKind::Tagged(parts.next()?.into()),
        "atomic" => FieldKind::Atomic(Box::new(kind(parts, depth)?)),
        "lock" => FieldKind::Lock,
        "versioned" => {
            let offset = number(parts.next())?;
            FieldKind::Versioned { offset, value: Box::new(kind(parts, depth)?) }
        }
        "array" => {
            let (count, stride) = (number(parts.next())?, number(parts.next())?);
            FieldKind::Array { count, stride, element: Box::new(kind(parts, depth)?) }
        }
        "struct" => FieldKind::Struct(parts.next()?.into()),
        "tail" => {
            let (offset, stride) = (number(parts.next())?, number(parts.next())?);
            FieldKind::Tail { offset, stride, element: Box::new(kind(parts, depth)?) }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_descriptions_are_refused() {
        for text in [
            "",
            "T",
            "T\tx",
            "\ta\t0\tlock",
            "T\t8\n\ta\t0\tcabbage",
            "T\t8\n\ta\t0\tlock\tlock",
            "T\t8\n\ta\t0\tlink\tT\t7",
        ] {
            assert!(Layouts::parse(text).is_none(), "{text:?}");
        }
        let deep = format!("T\t8\n\ta\t0{}\tlock", "\tatomic".repeat(1000));
        assert!(Layouts::parse(&deep).is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_text_and_no_words_panic(text in "(T\t8\n(\ta\t[0-9]{1,20}\t(link\tT|array\t[0-9]{1,20}\t[0-9]{1,20}\tstruct\tT|tail\t[0-9]{1,20}\t0\tstruct\tT)\n){0,4})?", words: Vec<u64>) {
            if let Some(layouts) = Layouts::parse(&text) {
                layouts.visit(0, &words[..words.len().min(4)], &mut |_| ());
            }
        }
    }
}
