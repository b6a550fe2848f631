//! Reading descriptions of layouts. See [`describe`](crate::describe) for what they look like.
//!
//! A description comes from far memory, so it may be anything: reading it checks everything, and what goes through an object by it
//! stays inside the words it is given.

use std::collections::HashMap;

use crate::Address;
use crate::WORD_BYTES;

/// How deep kinds may be nested.
const DEEPEST: u32 = 32;

/// The types that a description describes.
#[derive(Debug, Default)]
pub struct Layouts {
    /// In the order in which the description has them; the root's type is the first.
    pub types: Vec<Type>,
    by_name: HashMap<Box<str>, usize>,
}

/// A type.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name, as `std::any::type_name` has it.
    pub name: Box<str>,
    /// The size of an object, in bytes, without the elements of a tail.
    pub bytes: u64,
    /// Its fields, in the order of their offsets.
    pub fields: Vec<Described>,
}

/// A field of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: Box<str>,
    /// Bytes from the object's start.
    pub offset: u64,
    /// What it is.
    pub kind: Kind,
}

/// What a field is. Types are told by their names until all are known.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain value.
    Plain {
        /// Its type.
        name: Box<str>,
        /// Its size.
        bytes: u64,
    },
    /// A remote pointer to an object of this type.
    Pointer(Box<str>),
    /// A link to one.
    Link(Box<str>),
    /// A stamped link to one.
    Stamped(Box<str>),
    /// An atomic with a value of this kind.
    Atomic(Box<Kind>),
    /// A lock.
    Lock,
    /// A versioned value.
    Versioned {
        /// Bytes from its start to the value.
        offset: u64,
        /// The value's kind.
        value: Box<Kind>,
    },
    /// An array.
    Array {
        /// How many elements it has.
        count: u64,
        /// Bytes from one to the next.
        stride: u64,
        /// Their kind.
        element: Box<Kind>,
    },
    /// A nested struct of this type.
    Struct(Box<str>),
    /// A count, and as many elements.
    Tail {
        /// Bytes from the count to the first element.
        offset: u64,
        /// Bytes from one to the next.
        stride: u64,
        /// Their kind.
        element: Box<Kind>,
    },
}

impl Layouts {
    /// Reads a description; nothing if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut layouts = Self::default();
        for line in text.lines() {
            let mut parts = line.split('\t');
            let first = parts.next()?;
            if first.is_empty() {
                let field = Described {
                    name: parts.next()?.into(),
                    offset: parts.next()?.parse().ok()?,
                    kind: kind(&mut parts, DEEPEST)?,
                };
                layouts.types.last_mut()?.fields.push(field);
            } else {
                let bytes = parts.next()?.parse().ok()?;
                layouts.by_name.insert(first.into(), layouts.types.len());
                layouts.types.push(Type { name: first.into(), bytes, fields: Vec::new() });
            }
            if parts.next().is_some() {
                return None;
            }
        }
        (!layouts.types.is_empty()).then_some(layouts)
    }

    /// The type of the root that it was published with.
    pub const ROOT: usize = 0;

    /// The index of the type with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Tells `visit` what there is to know of an object of a type, given its words.
    pub fn look(&self, of: usize, words: &[u64], visit: &mut impl FnMut(Found)) {
        // A description may be such that going through it never ends.
        let looks = 16 * words.len() + 64;
        Walk { layouts: self, words, looks, visit }.through_type(of, 0, DEEPEST);
    }
}

/// What is found in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A pointer, and the type that it leads to, if that is described.
    Pointer(Address, Option<usize>),
    /// A lock, so many bytes from the object's start.
    Lock(u64),
    /// The right to write a `Versioned` value, likewise.
    WriteRight(u64),
}

/// A way through an object.
struct Walk<'a, V> {
    layouts: &'a Layouts,
    words: &'a [u64],
    /// How many more fields and elements are looked at.
    looks: usize,
    visit: &'a mut V,
}

impl<V: FnMut(Found)> Walk<'_, V> {
    fn word(&self, offset: u64) -> Option<u64> {
        self.words.get(usize::try_from(offset).ok()? / WORD_BYTES).copied()
    }

    fn through_type(&mut self, of: usize, offset: u64, depth: u32) {
        let (Some(of), Some(depth)) = (self.layouts.types.get(of), depth.checked_sub(1)) else { return };
        for field in &of.fields {
            self.through(&field.kind, offset.saturating_add(field.offset), depth);
        }
    }

    fn through(&mut self, kind: &Kind, offset: u64, depth: u32) {
        let Some(depth) = depth.checked_sub(1).filter(|_| self.looks > 0) else { return };
        self.looks -= 1;
        match kind {
            Kind::Plain { .. } => {}
            Kind::Lock => {
                if self.word(offset).is_some() {
                    (self.visit)(Found::Lock(offset));
                }
            }
            Kind::Pointer(target) | Kind::Link(target) => {
                if let Some(word) = self.word(offset) {
                    (self.visit)(Found::Pointer(Address::from_bits(word & !7), self.layouts.find(target)));
                }
            }
            Kind::Stamped(target) => {
                if let Some(word) = self.word(offset) {
                    (self.visit)(Found::Pointer(Address::from_compressed(word), self.layouts.find(target)));
                }
            }
            Kind::Atomic(value) => self.through(value, offset, depth),
            Kind::Versioned { offset: behind, value } => {
                if self.word(offset).is_some() {
                    (self.visit)(Found::WriteRight(offset));
                }
                self.through(value, offset.saturating_add(*behind), depth);
            }
            Kind::Array { count, stride, element } => {
                self.through_all(offset, *count, *stride, element, depth);
            }
            Kind::Struct(name) => {
                if let Some(of) = self.layouts.find(name) {
                    self.through_type(of, offset, depth);
                }
            }
            Kind::Tail { offset: behind, stride, element } => {
                let count = self.word(offset).unwrap_or(0);
                self.through_all(offset.saturating_add(*behind), count, *stride, element, depth);
            }
        }
    }

    /// Through elements: no more than there is room for, whatever the count says.
    fn through_all(&mut self, first: u64, count: u64, stride: u64, element: &Kind, depth: u32) {
        let room = ((self.words.len() * WORD_BYTES) as u64).saturating_sub(first) / stride.max(1);
        for index in 0..count.min(room) {
            if self.looks == 0 {
                return;
            }
            self.through(element, first + index * stride, depth);
        }
    }
}

/// A kind, from where it begins; what follows it is left.
fn kind(parts: &mut dyn Iterator<Item = &str>, depth: u32) -> Option<Kind> {
    let depth = depth.checked_sub(1)?;
    let number = |part: Option<&str>| part?.parse::<u64>().ok();
    Some(match parts.next()? {
        "plain" => Kind::Plain { name: parts.next()?.into(), bytes: number(parts.next())? },
        "pointer" => Kind::Pointer(parts.next()?.into()),
        "link" => Kind::Link(parts.next()?.into()),
        "stamped" => Kind::Stamped(parts.next()?.into()),
        "atomic" => Kind::Atomic(Box::new(kind(parts, depth)?)),
        "lock" => Kind::Lock,
        "versioned" => {
            let offset = number(parts.next())?;
            Kind::Versioned { offset, value: Box::new(kind(parts, depth)?) }
        }
        "array" => {
            let (count, stride) = (number(parts.next())?, number(parts.next())?);
            Kind::Array { count, stride, element: Box::new(kind(parts, depth)?) }
        }
        "struct" => Kind::Struct(parts.next()?.into()),
        "tail" => {
            let (offset, stride) = (number(parts.next())?, number(parts.next())?);
            Kind::Tail { offset, stride, element: Box::new(kind(parts, depth)?) }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_description_is_refused() {
        for text in ["", "T", "T\tx", "\ta\t0\tlock", "T\t8\n\ta\t0\tcabbage", "T\t8\n\ta\t0\tlock\tlock"] {
            assert!(Layouts::parse(text).is_none(), "{text:?}");
        }
        let deep = format!("T\t8\n\ta\t0{}\tlock", "\tatomic".repeat(1000));
        assert!(Layouts::parse(&deep).is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_text_and_no_words_panic(text in "(T\t8\n(\ta\t[0-9]{1,20}\t(link\tT|array\t[0-9]{1,20}\t[0-9]{1,20}\tstruct\tT|tail\t[0-9]{1,20}\t0\tstruct\tT)\n){0,4})?", words: Vec<u64>) {
            if let Some(layouts) = Layouts::parse(&text) {
                layouts.look(0, &words[..words.len().min(4)], &mut |_| ());
            }
        }
    }
}
