//! Dumps: objects as values, for programs without their types, by the description that a root was published with.
//!
//! A description and the objects reachable from it come from far memory, so either may have any content. A dump terminates, and is no larger than its
//! caller allows. The limits: a number of *values* (fields, elements and objects, of all objects together), 1 MiB of each object, 1,000 links in a
//! row, 64 nested kinds, and some 2,000 nested levels in the result, which recursive functions over it have stack for. Where a limit cuts the dump
//! the result shows it: [`DumpedValue::Omitted`], `omitted` of a list, [`DumpedTarget::Cut`].
//!
//! Objects are read in the order of their distance from the root, one after the other and not recursively: a list of a thousand nodes takes no deeper
//! stack than one. So if the limit is reached, near objects are shown and far ones are not. At the end the objects are nested.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use crate::error::{self, Error, Result};
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::layouts::{FieldKind, Layouts, TypeLayout, split_link};
use farfield_words::{Pod, WORD_BYTES};

/// An object, decoded by its description.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dumped {
    /// The object's address.
    pub address: Address,
    /// The name of its type.
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
    /// Bytes that are text: UTF-8 without control characters other than tabs and line ends. Trailing zeros are removed.
    Text(String),
    /// A pointer and its marks, with the object if it was followed.
    Pointer {
        /// The address in the pointer.
        address: Address,
        /// The mark bits, or the tag or stamp beside a compressed address.
        marks: u64,
        /// The object.
        target: DumpedTarget,
    },
    /// A lock's word.
    Lock(u64),
    /// The elements of an array or a tail.
    List {
        /// The first elements.
        values: Vec<DumpedValue>,
        /// The number of further elements, which are not shown.
        omitted: u64,
    },
    /// A nested struct.
    Struct(Vec<(String, DumpedValue)>),
    /// A value that is not shown: the limit was reached, or the object is too large or its description too deep.
    Omitted,
}

/// The target of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpedTarget {
    /// The object.
    Object(Box<Dumped>),
    /// An object that is not shown because the limit was reached.
    Cut,
    /// No valid object, or one that is farther away than the requested depth or shown elsewhere.
    NotShown,
}

/// The maximum number of links in a row.
const MAX_LINKS: usize = 1000;
/// The maximum size of an object, and of a tail, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The maximum nesting of the kinds of a field, including nested structs.
const MAX_NESTING: u32 = 64;
/// The maximum nesting of objects, structs and lists in the result. (One more object may exceed it by its own nesting.)
const MAX_LEVELS: usize = 2000;
/// The number of bytes of a plain value that count as one value.
const BYTES_PER_VALUE: usize = 64;

impl ComputeThread {
    /// Reads the object of a root and the objects up to `depth` links away: `limit` values in all.
    ///
    /// A `depth` of more than 1,000 counts as 1,000. Costs a READ for each object, and memory in proportion to `limit`.
    ///
    /// # Errors
    /// [`Error::RootNotFound`]; [`Error::InvalidArgument`] if the root's type is not described, as in a private cluster; [`Error::InvalidPointer`] if
    /// no object can be at the root's address; those of a READ.
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

    /// Like [`dump`](Self::dump), of an object with the first type of a description. `None` if no object can be there.
    ///
    /// # Errors
    /// Those of a READ that does not reach its memory node. Each address is checked before it is read, so no content of a description or an object is
    /// an error.
    pub(crate) async fn dump_described(
        &self,
        layouts: &Layouts,
        at: Address,
        depth: usize,
        limit: usize,
    ) -> Result<Option<Dumped>> {
        let _guard = self.pin();
        let wanted = vec![Wanted { at, of: Layouts::ROOT, depth: depth.min(MAX_LINKS), level: 0 }];
        let (seen, left) = (HashSet::new(), limit.max(1));
        Dump { ct: self, layouts, wanted, seen, left, nesting: 0, level: 0 }.everything().await
    }
}

/// A dump in progress.
struct Dump<'a> {
    ct: &'a ComputeThread,
    layouts: &'a Layouts,
    /// Pointers to be followed, in the order in which they were found. Those of an object are adjacent.
    wanted: Vec<Wanted>,
    seen: HashSet<Address>,
    /// The remaining number of values.
    left: usize,
    /// The nesting of the current value in its object.
    nesting: u32,
    /// The nesting of the current value in the result.
    level: usize,
}

/// An object to be read.
#[derive(Clone, Copy)]
struct Wanted {
    at: Address,
    of: usize,
    /// The remaining number of links.
    depth: usize,
    /// Its nesting in the result.
    level: usize,
}

/// An object that was to be read.
#[derive(Default)]
enum Target {
    Object {
        dumped: Dumped,
        /// The index of the first target of its pointers, among all targets.
        first: usize,
    },
    /// An object that is not shown because the limit was reached.
    Cut,
    /// No object, or one that is shown elsewhere.
    #[default]
    Nothing,
}

/// A recursive future.
type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

impl Dump<'_> {
    /// Counts values. Returns false if the limit is exceeded.
    fn take(&mut self, values: usize) -> bool {
        let Some(left) = self.left.checked_sub(values) else { return false };
        self.left = left;
        true
    }

    /// Reads the first wanted object, with all others nested in it.
    async fn everything(&mut self) -> Result<Option<Dumped>> {
        let mut targets = Vec::new();
        while let Some(wanted) = self.wanted.get(targets.len()).copied() {
            targets.push(self.object(wanted).await?);
        }
        // The targets of an object's pointers have higher indices than the object.
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

    /// Returns whether these bytes begin at a word boundary, and are in a segment.
    fn is_readable(&self, at: Address, bytes: u64) -> bool {
        at.offset().is_multiple_of(WORD_BYTES as u64) && self.ct.heap().check(at, bytes.max(1)).is_ok()
    }

    async fn object(&mut self, Wanted { at, of, depth, level }: Wanted) -> Result<Target> {
        let of = &self.layouts.types[of];
        if !self.is_readable(at, of.bytes) || self.seen.contains(&at) {
            return Ok(Target::Nothing);
        }
        if !self.take(1) {
            return Ok(Target::Cut);
        }
        self.seen.insert(at);
        self.level = level;
        let words = self.ct.read_far(at, of.bytes.min(MAX_BYTES) as usize / WORD_BYTES).await?;
        let first = self.wanted.len();
        let fields = self.fields(of, at, bytemuck::cast_slice(&words), depth).await?;
        Ok(Target::Object { dumped: Dumped { address: at, type_name: of.name.to_string(), fields }, first })
    }

    /// Decodes the fields of a struct at `at`, from `bytes`.
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

    /// Decodes a value at `at`, from `bytes`.
    fn value<'a>(
        &'a mut self,
        kind: &'a FieldKind,
        at: Address,
        bytes: &'a [u8],
        depth: usize,
    ) -> Later<'a, DumpedValue> {
        Box::pin(async move {
            // Values that are too deep count, too: a list may have any number of them.
            if !self.take(1) || self.nesting == MAX_NESTING {
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
            // The inner value is the one that was counted.
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
            (FieldKind::Pointer(to), Some(word)) => self.pointer(Address::from_bits(word), 0, to, depth),
            (FieldKind::Link { to, mark_bits }, Some(word)) => {
                let (address, marks) = split_link(word, *mark_bits);
                self.pointer(address, marks, to, depth)
            }
            (FieldKind::Tagged(to), Some(word)) => {
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
                | FieldKind::Link { .. }
                | FieldKind::Tagged(_)
                | FieldKind::Lock
                | FieldKind::Tail { .. },
                None,
            ) => DumpedValue::Omitted,
        })
    }

    /// Reads the elements of a tail, up to the limit. Returns none if the tail would not end in its segment, or does not begin at a word boundary.
    async fn tail(&self, from: Address, count: u64, stride: u64) -> Result<Vec<u64>> {
        let all = count.saturating_mul(stride);
        if !self.is_readable(from, all) {
            return Ok(Vec::new());
        }
        let most = (self.left as u64).saturating_mul(stride.max(BYTES_PER_VALUE as u64)).min(MAX_BYTES);
        self.ct.read_far(from, all.min(most).div_ceil(WORD_BYTES as u64) as usize).await
    }

    /// Decodes `count` elements from `bytes`, `stride` bytes apart.
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

    /// Decodes the elements that are in `bytes`, up to the limit.
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

    /// Decodes a pointer. It is followed if the depth allows it and its target's type is described.
    fn pointer(&mut self, at: Address, marks: u64, to: &str, depth: usize) -> DumpedValue {
        let of = self.layouts.find(to).filter(|_| depth > 0 && self.level < MAX_LEVELS);
        if let Some(of) = of {
            self.wanted.push(Wanted { at, of, depth: depth - 1, level: self.level + 1 });
        }
        let target = if of.is_some() { DumpedTarget::Cut } else { DumpedTarget::NotShown };
        DumpedValue::Pointer { address: at, marks, target }
    }
}

/// Stores the targets of pointers in the pointers, in the order in which they were found. Until then the target of a pointer to be followed is `Cut`.
fn put_in<'a>(value: &mut DumpedValue, targets: &mut impl Iterator<Item = &'a mut Target>) {
    match value {
        DumpedValue::Pointer { target: target @ DumpedTarget::Cut, .. } => {
            *target = match targets.next().map(std::mem::take).unwrap_or_default() {
                Target::Object { dumped, .. } => DumpedTarget::Object(Box::new(dumped)),
                Target::Cut => DumpedTarget::Cut,
                Target::Nothing => DumpedTarget::NotShown,
            };
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

/// Returns the bytes from an offset on.
fn part(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default()
}

/// Returns the first `size` bytes, if there are so many.
fn part_of(bytes: &[u8], size: u64) -> Option<&[u8]> {
    usize::try_from(size).ok().and_then(|size| bytes.get(..size))
}

/// Decodes bytes as text, without trailing zeros, if they are text.
fn text(bytes: &[u8]) -> Option<String> {
    let length = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let is_text = text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r'));
    is_text.then(|| text.to_owned())
}

/// Formats a plain value: as a number if its type is known, else as bytes.
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
