//! What objects look like, for programs that do not have their types: by the description that a root was published with.
//!
//! A description and all that it leads to come from far memory, so either may be anything. A dump of them ends, and is no larger than its
//! caller allows: it takes a number of *values* (fields, elements and objects, those of all objects together), of each object no more
//! than 1 MiB, of links at most 1,000 in a row, of kinds 64 inside each other, and of all that is inside each other in the result some
//! 2,000 levels: what goes through it by recursion has stack for that. Where it stops short the result says so:
//! [`DumpedValue::Omitted`], `omitted` of a list, `is_cut` of a pointer.
//!
//! Objects are read in the order of their distance from the root, one after the other and not one inside the other: a list of a
//! thousand nodes takes no deeper a stack than one. So if the limit is reached, what is near is shown and what is far is not. The objects
//! are put inside each other at the end.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use crate::error::{self, Error, Result};
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::layouts::{FieldKind, Layouts, TypeLayout};
use farfield_words::{Pod, WORD_BYTES};

/// An object as its description shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dumped {
    /// Where it is.
    pub address: Address,
    /// Its type.
    pub type_name: String,
    /// Its fields: name and value.
    pub fields: Vec<(String, DumpedValue)>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpedValue {
    /// A plain value: a number, `true`, a character, or the bytes of a value of another type, in hexadecimal.
    Plain(String),
    /// Bytes that are text: UTF-8 without control characters other than tabs and line ends, and without the zeros that follow it.
    Text(String),
    /// A pointer and its marks; the object, if it was followed.
    Pointer {
        /// Where it leads.
        address: Address,
        /// The mark bits, or the stamp of a stamped link.
        marks: u64,
        /// What is there, unless it is farther away than was asked for, was shown before, or can be no object.
        target: Option<Box<Dumped>>,
        /// True if only the limit kept it from being followed.
        is_cut: bool,
    },
    /// A lock's word.
    Lock(u64),
    /// Elements.
    List {
        /// The first elements.
        values: Vec<DumpedValue>,
        /// How many follow that are not shown.
        omitted: u64,
    },
    /// A nested struct.
    Struct(Vec<(String, DumpedValue)>),
    /// A value that is not shown: the limit was reached, or the object is too large or its description too deep.
    Omitted,
}

/// How many links are followed in a row at most.
const MOST_LINKS: usize = 1000;
/// How much of an object, and of a tail, is read, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// How deep the kinds of a field may be nested, those of the structs in it included.
const DEEPEST: u32 = 64;
/// How many objects, structs and lists may be inside each other in the result. (Those of one more object are added to that.)
const MOST_LEVELS: usize = 2000;
/// How many bytes of a plain value count as a value.
const BYTES_PER_VALUE: usize = 64;

impl ComputeThread {
    /// The object that a root names and, up to `depth` links away, what it leads to: `limit` values in all.
    ///
    /// A `depth` of more than 1,000 counts as 1,000. Takes a READ for each object, and memory in proportion to `limit`.
    ///
    /// # Errors
    /// [`Error::RootNotFound`]; [`Error::InvalidArgument`] if the root's type is not described, as where a cluster is one process's
    /// own; [`Error::InvalidPointer`] if the root leads to no object; those of a READ.
    pub async fn dump(&self, root: &str, depth: usize, limit: usize) -> Result<Dumped> {
        let roots = self.roots().await?;
        let found = roots.into_iter().find(|seen| seen.name == root);
        let found = found.ok_or_else(|| Error::from(error::RootNotFound { root: root.into() }))?;
        let layouts = self.read_description(found.description).await?.ok_or_else(|| {
            let reason = "its type is not described";
            Error::from(error::InvalidArgument { argument: "root", value: root.into(), reason })
        })?;
        self.heap().check(found.at, layouts.types[Layouts::ROOT].bytes.max(1))?;
        let dumped = self.dump_described(&layouts, found.at, depth, limit).await?;
        dumped.ok_or_else(|| Error::from(error::RootNotFound { root: root.into() }))
    }

    /// As [`dump`](Self::dump), of an object with the first type of a description; nothing if none can be there.
    ///
    /// # Errors
    /// Those of a READ that does not reach its memory node. Each address is checked before it is read, so nothing that a description says or an
    /// object holds is an error.
    pub(crate) async fn dump_described(
        &self,
        layouts: &Layouts,
        at: Address,
        depth: usize,
        limit: usize,
    ) -> Result<Option<Dumped>> {
        let _guard = self.pin();
        let wanted = vec![Wanted { at, of: Layouts::ROOT, depth: depth.min(MOST_LINKS), level: 0 }];
        let (seen, left) = (HashSet::new(), limit.max(1));
        Dump { ct: self, layouts, wanted, seen, left, nesting: 0, level: 0 }.everything().await
    }
}

/// A dump under way.
struct Dump<'a> {
    ct: &'a ComputeThread,
    layouts: &'a Layouts,
    /// What pointers lead to that are to be followed, in the order in which they were found: those of an object side by side.
    wanted: Vec<Wanted>,
    seen: HashSet<Address>,
    /// How many more values may be shown.
    left: usize,
    /// How deep the value that is looked at is in its object.
    nesting: u32,
    /// How deep it is in the result.
    level: usize,
}

/// An object that is to be looked at.
#[derive(Clone, Copy)]
struct Wanted {
    at: Address,
    of: usize,
    /// How many links may be followed from it.
    depth: usize,
    /// How deep it is in the result.
    level: usize,
}

/// What a pointer leads to.
#[derive(Default)]
enum Target {
    Object {
        dumped: Dumped,
        /// Where the targets of its pointers begin among all.
        first: usize,
    },
    /// An object that is not shown because the limit was reached.
    Cut,
    /// Nothing, or what is shown elsewhere.
    #[default]
    Nothing,
}

/// What is dumped, later.
type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

impl Dump<'_> {
    /// Counts a value; false if there may be no more.
    fn take(&mut self, values: usize) -> bool {
        let Some(left) = self.left.checked_sub(values) else { return false };
        self.left = left;
        true
    }

    /// The first object that is wanted, with all others in it.
    async fn everything(&mut self) -> Result<Option<Dumped>> {
        let mut targets = Vec::new();
        while let Some(wanted) = self.wanted.get(targets.len()).copied() {
            targets.push(self.object(wanted).await?);
        }
        // Whatever an object leads to was found after it.
        for index in (0..targets.len()).rev() {
            let (before, after) = targets.split_at_mut(index + 1);
            if let Target::Object { dumped, first } = &mut before[index] {
                let mut theirs = after.iter_mut().skip(*first - index - 1);
                dumped.fields.iter_mut().for_each(|(_, value)| put_in(value, &mut theirs));
            }
        }
        let root = targets.into_iter().next();
        Ok(root.and_then(|root| if let Target::Object { dumped, .. } = root { Some(dumped) } else { None }))
    }

    async fn object(&mut self, Wanted { at, of, depth, level }: Wanted) -> Result<Target> {
        let of = &self.layouts.types[of];
        if self.ct.heap().check(at, of.bytes.max(1)).is_err() || self.seen.contains(&at) {
            return Ok(Target::Nothing);
        }
        if !self.take(1) {
            return Ok(Target::Cut);
        }
        self.seen.insert(at);
        self.level = level;
        let words = self.ct.read_far(at, of.bytes.min(MOST_BYTES) as usize / WORD_BYTES).await?;
        let first = self.wanted.len();
        let fields = self.fields(of, at, bytemuck::cast_slice(&words), depth).await?;
        Ok(Target::Object { dumped: Dumped { address: at, type_name: of.name.to_string(), fields }, first })
    }

    /// The fields of a struct at `at`, which `bytes` begin with.
    async fn fields(
        &mut self,
        of: &TypeLayout,
        at: Address,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Vec<(String, DumpedValue)>> {
        let mut fields = Vec::new();
        for field in &of.fields {
            if self.left == 0 {
                fields.push(("…".to_owned(), DumpedValue::Omitted));
                break;
            }
            let at = at.add(field.offset);
            let value = self.value(&field.kind, at, part(bytes, field.offset), depth).await?;
            fields.push((field.name.to_string(), value));
        }
        Ok(fields)
    }

    /// A value at `at`, which `bytes` begin with.
    fn value<'a>(
        &'a mut self,
        kind: &'a FieldKind,
        at: Address,
        bytes: &'a [u8],
        depth: usize,
    ) -> Later<'a, DumpedValue> {
        Box::pin(async move {
            // Also what is too deep is counted: a list may have any number of it.
            if !self.take(1) || self.nesting == DEEPEST {
                return Ok(DumpedValue::Omitted);
            }
            self.nesting += 1;
            let value = self.shown(kind, at, bytes, depth).await;
            self.nesting -= 1;
            value
        })
    }

    async fn shown(
        &mut self,
        kind: &FieldKind,
        at: Address,
        bytes: &[u8],
        depth: usize,
    ) -> Result<DumpedValue> {
        let word = bytes.first_chunk().map(|word| u64::from_ne_bytes(*word));
        Ok(match (kind, word) {
            (FieldKind::Plain { name, bytes: size }, _) => match part_of(bytes, *size) {
                Some(bytes) if self.take(bytes.len() / BYTES_PER_VALUE) => {
                    DumpedValue::Plain(plain(name, bytes))
                }
                _ => DumpedValue::Omitted,
            },
            // The value inside is the one that was counted.
            (FieldKind::Atomic(value), _) => {
                self.left += 1;
                self.value(value, at, bytes, depth).await?
            }
            (FieldKind::Versioned { offset, value }, _) => {
                self.left += 1;
                self.value(value, at.add(*offset), part(bytes, *offset), depth).await?
            }
            (FieldKind::Array { count, stride, element }, _) => {
                self.list(element, at, bytes, (*count, *stride), depth).await?
            }
            (FieldKind::Struct(name), _) => match self.layouts.find(name) {
                Some(of) => {
                    let layouts = self.layouts;
                    self.level += 1;
                    let fields = self.fields(&layouts.types[of], at, bytes, depth).await;
                    self.level -= 1;
                    DumpedValue::Struct(fields?)
                }
                None => DumpedValue::Plain(format!("a {name}")),
            },
            (FieldKind::Pointer(to) | FieldKind::Link(to), Some(word)) => {
                self.pointer(Address::from_bits(word & !7), word & 7, to, depth)
            }
            (FieldKind::Stamped(to), Some(word)) => {
                self.pointer(Address::from_compressed(word), word >> 48, to, depth)
            }
            (FieldKind::Lock, Some(word)) => DumpedValue::Lock(word),
            (FieldKind::Tail { offset, stride, element }, Some(count)) => {
                let from = at.add(*offset);
                let bytes = self.tail(from, count, *stride).await?;
                self.list(element, from, bytemuck::cast_slice(&bytes), (count, *stride), depth).await?
            }
            (
                FieldKind::Pointer(_)
                | FieldKind::Link(_)
                | FieldKind::Stamped(_)
                | FieldKind::Lock
                | FieldKind::Tail { .. },
                None,
            ) => DumpedValue::Omitted,
        })
    }

    /// The elements of a tail: as many as may be shown, and none if it would not end in its segment or begins within a word.
    async fn tail(&self, from: Address, count: u64, stride: u64) -> Result<Vec<u64>> {
        let all = count.saturating_mul(stride);
        let is_whole = from.offset().is_multiple_of(WORD_BYTES as u64);
        if !is_whole || self.ct.heap().check(from, all.max(1)).is_err() {
            return Ok(Vec::new());
        }
        let most = (self.left as u64).saturating_mul(stride.max(BYTES_PER_VALUE as u64)).min(MOST_BYTES);
        self.ct.read_far(from, all.min(most).div_ceil(WORD_BYTES as u64) as usize).await
    }

    /// The elements that `bytes` begin with: `count` of them, so many bytes apart.
    async fn list(
        &mut self,
        element: &FieldKind,
        at: Address,
        bytes: &[u8],
        (count, stride): (u64, u64),
        depth: usize,
    ) -> Result<DumpedValue> {
        if matches!(element, FieldKind::Plain { name, .. } if &**name == "u8")
            && stride == 1
            && let Some(text) = part_of(bytes, count).and_then(text)
            && self.take(text.len() / BYTES_PER_VALUE)
        {
            return Ok(DumpedValue::Text(text));
        }
        self.level += 1;
        let values = self.elements(element, at, bytes, (count, stride), depth).await;
        self.level -= 1;
        let values = values?;
        let omitted = count - values.len() as u64;
        Ok(DumpedValue::List { values, omitted })
    }

    /// As many elements as there are in `bytes` and may be shown.
    async fn elements(
        &mut self,
        element: &FieldKind,
        at: Address,
        bytes: &[u8],
        (count, stride): (u64, u64),
        depth: usize,
    ) -> Result<Vec<DumpedValue>> {
        let mut values = Vec::new();
        let whole = (bytes.len() as u64).checked_div(stride).unwrap_or(count).min(count);
        while (values.len() as u64) < whole && self.left > 0 {
            let offset = values.len() as u64 * stride;
            values.push(self.value(element, at.add(offset), part(bytes, offset), depth).await?);
        }
        Ok(values)
    }

    /// A pointer, which is to be followed if there is a link left and its target's type is described.
    fn pointer(&mut self, at: Address, marks: u64, to: &str, depth: usize) -> DumpedValue {
        let of = self.layouts.find(to).filter(|_| depth > 0 && self.level < MOST_LEVELS);
        if let Some(of) = of {
            self.wanted.push(Wanted { at, of, depth: depth - 1, level: self.level + 1 });
        }
        DumpedValue::Pointer { address: at, marks, target: None, is_cut: of.is_some() }
    }
}

/// Puts what pointers lead to into them, in the order in which they were found. Until then `is_cut` says that a pointer is to be followed.
fn put_in<'a>(value: &mut DumpedValue, targets: &mut impl Iterator<Item = &'a mut Target>) {
    match value {
        DumpedValue::Pointer { target, is_cut, .. } if *is_cut => {
            let found = targets.next().map(std::mem::take).unwrap_or_default();
            *is_cut = matches!(found, Target::Cut);
            if let Target::Object { dumped, .. } = found {
                *target = Some(Box::new(dumped));
            }
        }
        DumpedValue::List { values, .. } => {
            for value in values {
                put_in(value, targets);
            }
        }
        DumpedValue::Struct(fields) => {
            for (_, value) in fields {
                put_in(value, targets);
            }
        }
        _ => {}
    }
}

/// The bytes from an offset on.
fn part(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default()
}

/// The first bytes, if there are so many.
fn part_of(bytes: &[u8], size: u64) -> Option<&[u8]> {
    usize::try_from(size).ok().and_then(|size| bytes.get(..size))
}

/// Bytes as text, if they are some: what stands before zeros that fill the rest.
fn text(bytes: &[u8]) -> Option<String> {
    let length = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let is_text = text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r'));
    is_text.then(|| text.to_owned())
}

/// A plain value as text: a number if its type is one that is known, else its bytes.
fn plain(name: &str, bytes: &[u8]) -> String {
    macro_rules! known {
        ($($ty:ident)*) => {
            match name {
                $(stringify!($ty) if bytes.len() == size_of::<$ty>() => {
                    <$ty as Pod>::decode(bytes).map(|value| value.to_string())
                })*
                _ => None,
            }
        };
    }
    let known = known!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 bool char);
    known.unwrap_or_else(|| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

#[cfg(test)]
mod tests;
