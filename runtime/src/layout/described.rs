//! Reading descriptions of layouts. See [`describe`](super::describe) for what they look like.
//!
//! A description comes from far memory, so it may be anything: reading it checks everything, and what goes through an object by it
//! stays inside the words it is given.

use std::collections::HashMap;

use super::WORD_BYTES;
use crate::place::unpack_stamped;
use crate::pointer::Address;

/// How deep kinds may be nested.
const DEEPEST: u32 = 32;

/// The types that a description describes.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    pub(crate) types: Vec<Type>,
    by_name: HashMap<Box<str>, usize>,
}

/// A type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) name: Box<str>,
    pub(crate) bytes: u64,
    pub(crate) fields: Vec<Described>,
}

/// A field of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) name: Box<str>,
    pub(crate) offset: u64,
    pub(crate) kind: Kind,
}

/// What a field is. Types are told by their names until all are known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain { name: Box<str>, bytes: u64 },
    Pointer(Box<str>),
    Link(Box<str>),
    Stamped(Box<str>),
    Atomic(Box<Kind>),
    Lock,
    Versioned { offset: u64, value: Box<Kind> },
    Array { count: u64, stride: u64, element: Box<Kind> },
    Struct(Box<str>),
    Tail { offset: u64, stride: u64, element: Box<Kind> },
}

impl Layouts {
    /// Reads a description; nothing if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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
    pub(crate) const ROOT: usize = 0;

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Tells `visit` what there is to know of an object of a type, given its words.
    pub(crate) fn look(&self, of: usize, words: &[u64], visit: &mut impl FnMut(Found)) {
        // A description may be such that going through it never ends.
        let looks = 16 * words.len() + 64;
        Walk { layouts: self, words, looks, visit }.through_type(of, 0, DEEPEST);
    }
}

/// What is found in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
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
                    (self.visit)(Found::Pointer(unpack_stamped(word), self.layouts.find(target)));
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
    use super::super::describe::describe;
    use super::*;
    use crate::prelude::*;

    #[remote]
    struct Leaf {
        word: u64,
    }

    #[remote]
    struct Pair {
        first: Link<Leaf>,
        number: Atomic<u32>,
    }

    #[remote]
    struct Root {
        number: u64,
        leaf: RemotePtr<Leaf>,
        pairs: [Pair; 2],
        stamped: StampedLink<Leaf>,
        atomic: Atomic<RemotePtr<Root>>,
        several: Versioned<[RemotePtr<Leaf>; 2]>,
        lock: Lock,
        rest: Tail<Link<Root>>,
    }

    fn pointers(words: &[u64]) -> Vec<(u64, Option<Box<str>>)> {
        let layouts = Layouts::parse(&describe::<Root>()).unwrap();
        let mut found = Vec::new();
        layouts.look(Layouts::ROOT, words, &mut |what| {
            if let Found::Pointer(at, of) = what {
                let name = of.map(|of| layouts.types[of].name.rsplit("::").next().unwrap_or_default().into());
                found.push((at.bits(), name));
            }
        });
        found
    }

    #[test]
    fn every_pointer_of_an_object_is_found() {
        let words = [1, 16, 25, 0, 32, 0, 5, 40, 0, 0, 48, 56, 9, 2, 64, 72];
        let (leaf, root) = (Some("Leaf".into()), Some("Root".into()));
        let leaves = [16, 24, 32, 40].map(|at| (at, leaf.clone()));
        let found = pointers(&words);
        assert_eq!(found[..4], leaves, "marks are not part of an address");
        assert_eq!(found[4], (40, root.clone()));
        assert_eq!(found[5..7], [(48, leaf.clone()), (56, leaf)]);
        assert_eq!(found[7..], [(64, root.clone()), (72, root)]);
    }

    #[test]
    fn what_an_object_says_of_itself_is_not_believed() {
        assert_eq!(pointers(&[0; 3]).len(), 1, "an element that is cut off is none");
        let found = pointers(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, u64::MAX, 8]);
        assert_eq!(found.len(), 8, "a tail has no more elements than there are words");
    }

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
