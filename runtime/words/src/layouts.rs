//! Reading descriptions of layouts. See [`describe`](crate::describe) for what they look like.
//!
//! A description comes from far memory, so it may be anything: reading it checks everything, and what goes through an object by it
//! stays inside the words it is given.

use std::collections::HashMap;

use crate::Address;
use crate::WORD_BYTES;

/// How deep kinds may be nested.
const MAX_DEPTH: u32 = 32;

/// The types that a description describes.
#[derive(Debug, Default)]
pub struct Layouts {
    /// In the order in which the description has them; the root's type is the first.
    pub types: Vec<TypeLayout>,
    by_name: HashMap<Box<str>, usize>,
}

/// A type.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeLayout {
    /// Its name, as `std::any::type_name` has it.
    pub name: Box<str>,
    /// The size of an object, in bytes, without the elements of a tail.
    pub bytes: u64,
    /// Its fields, in the order of their offsets.
    pub fields: Vec<FieldLayout>,
}

/// A field of it.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// Its name.
    pub name: Box<str>,
    /// Bytes from the object's start.
    pub offset: u64,
    /// What it is.
    pub kind: FieldKind,
}

/// What a field is. Types are told by their names until all are known.
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
    /// A link to one.
    Link(Box<str>),
    /// A stamped link to one.
    Stamped(Box<str>),
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
        /// How many elements it has.
        count: u64,
        /// Bytes from one to the next.
        stride: u64,
        /// Their kind.
        element: Box<FieldKind>,
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
        element: Box<FieldKind>,
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

    /// The type of the root that it was published with.
    pub const ROOT: usize = 0;

    /// The index of the type with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Tells `visit` what there is to know of an object of a type, given its words.
    pub fn visit(&self, of: usize, words: &[u64], visit: &mut impl FnMut(Found)) {
        // A description may be such that going through it never ends.
        let budget = 16 * words.len() + 64;
        Walk { layouts: self, words, budget, visit }.walk_type(of, 0, MAX_DEPTH);
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
            FieldKind::Pointer(target) | FieldKind::Link(target) => {
                if let Some(word) = self.word(offset) {
                    (self.visit)(Found::Pointer(Address::from_bits(word & !7), self.layouts.find(target)));
                }
            }
            FieldKind::Stamped(target) => {
                if let Some(word) = self.word(offset) {
                    (self.visit)(Found::Pointer(Address::from_compressed(word), self.layouts.find(target)));
                }
            }
            FieldKind::Atomic(value) => self.walk_field(value, offset, depth),
            FieldKind::Versioned { offset: behind, value } => {
                if self.word(offset).is_some() {
                    (self.visit)(Found::WriteRight(offset));
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

    /// Through elements: no more than there is room for, whatever the count says.
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

/// A kind, from where it begins; what follows it is left.
fn kind(parts: &mut dyn Iterator<Item = &str>, depth: u32) -> Option<FieldKind> {
    let depth = depth.checked_sub(1)?;
    let number = |part: Option<&str>| part?.parse::<u64>().ok();
    Some(match parts.next()? {
        "plain" => FieldKind::Plain { name: parts.next()?.into(), bytes: number(parts.next())? },
        "pointer" => FieldKind::Pointer(parts.next()?.into()),
        "link" => FieldKind::Link(parts.next()?.into()),
        "stamped" => FieldKind::Stamped(parts.next()?.into()),
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
                layouts.visit(0, &words[..words.len().min(4)], &mut |_| ());
            }
        }
    }
}
