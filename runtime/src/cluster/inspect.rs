//! What there is to see of a cluster, for programs that know none of its types.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use super::ComputeThread;
use super::control;
use super::directory::RootSeen;
use crate::error::{self, Error, Result};
use crate::layout::described::{Kind, Layouts, Type};
use crate::layout::{Pod, WORD_BYTES};
use crate::memory::chunks::HeapUse;
use crate::memory::classes::{CLASSES, Class};
use crate::memory::grid::Use;
use crate::place::unpack_stamped;
use crate::pointer::Address;

/// A cluster at a moment: [`ComputeThread::status`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The epoch.
    pub epoch: u64,
    /// How many processes have been evicted since the cluster was started.
    pub evictions: u64,
    /// How many processes have ended whose memory the others have not yet taken back.
    pub unswept: u64,
    /// The bytes that were taken back from processes that had ended while others lived, and when nobody did.
    pub swept_bytes: u64,
    /// See above.
    pub collected_bytes: u64,
    /// The processes that are there, this one among them.
    pub members: Vec<MemberStatus>,
    /// How the memory of each memory node is used.
    pub heap: Vec<HeapUse>,
    /// The bytes of chunks that are cut into blocks, by memory node and size of blocks; 0 stands for chunks of large objects.
    pub classes: Vec<Vec<(u64, u64)>>,
    /// The named roots.
    pub roots: Vec<RootStatus>,
}

/// A process of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Tells it from all others that are or were there.
    pub number: u32,
    /// The number that the system of its machine gives it.
    pub pid: u32,
    /// How often it has shown that it lives.
    pub heartbeats: u32,
    /// The epoch that it has announced.
    pub epoch: u64,
    /// Whether it has ended without leaving, and is yet to be evicted.
    pub is_gone: bool,
    /// Whether it is this process.
    pub is_this: bool,
}

/// A named root.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootStatus {
    /// Its name.
    pub name: String,
    /// Where the object is.
    pub address: Address,
    /// The name of its type (55 bytes of it).
    pub type_name: String,
    /// Its type's layout fingerprint.
    pub fingerprint: u64,
    /// Whether its type is described, so that it can be [dumped](ComputeThread::dump).
    pub is_described: bool,
}

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
    /// A plain value, as text.
    Plain(String),
    /// A pointer and its marks; the object, if it was followed.
    Pointer {
        /// Where it leads.
        address: Address,
        /// The mark bits, or the stamp of a stamped link.
        marks: u64,
        /// What is there.
        target: Option<Box<Dumped>>,
    },
    /// A lock's word.
    Lock(u64),
    /// Elements.
    List(Vec<DumpedValue>),
    /// A nested struct.
    Struct(Vec<(String, DumpedValue)>),
}

/// How many objects are dumped at most.
const MOST_OBJECTS: usize = 10_000;
/// The largest object that is dumped, in bytes.
const LARGEST_BYTES: u64 = 1 << 20;
/// How many elements of an array or a tail.
const MOST_ELEMENTS: u64 = 256;

impl From<RootSeen> for RootStatus {
    fn from(root: RootSeen) -> Self {
        Self {
            is_described: !root.description.is_null(),
            name: root.name,
            address: root.at,
            type_name: root.type_name,
            fingerprint: root.fingerprint,
        }
    }
}

impl ComputeThread {
    /// What there is to see of the cluster at this moment. A few round trips for each memory node.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn status(&self) -> Result<Status> {
        let me = self.process.shared.as_ref().map(|member| member.identity);
        let mut members = Vec::new();
        for member in self.members().await? {
            members.push(MemberStatus {
                number: member.identity,
                pid: member.pid(),
                heartbeats: member.heartbeats(),
                epoch: self.read_word(member.slot()).await?,
                is_gone: member.is_gone(),
                is_this: Some(member.identity) == me,
            });
        }
        let mut classes = Vec::new();
        for node in 0..self.heap().geometry.nodes {
            classes.push(self.bytes_by_class(node).await?);
        }
        let [debts, collected, _, swept] = self.read_array(control::debts()).await?;
        let [swept_bytes, collected_bytes] = self.read_array(control::swept_bytes()).await?;
        Ok(Status {
            unswept: debts.saturating_sub(collected.max(swept)),
            swept_bytes,
            collected_bytes,
            epoch: self.read_word(control::epoch()).await?,
            evictions: self.read_word(control::evictions()).await?,
            members,
            heap: self.heap_use().await?,
            classes,
            roots: self.roots().await?.into_iter().map(RootStatus::from).collect(),
        })
    }

    async fn bytes_by_class(&self, node: u16) -> Result<Vec<(u64, u64)>> {
        let (mut bytes, mut large) = ([0; CLASSES], 0);
        for segment in self.heap().geometry.segments_of(node) {
            for usage in self.read_table(segment).await? {
                match usage {
                    Use::Small(class) => bytes[class.index()] += self.heap().grid.chunk_bytes(),
                    Use::Large(chunks) => large += chunks * self.heap().grid.chunk_bytes(),
                    Use::Untaken | Use::Free | Use::Continued => {}
                }
            }
        }
        let small = (0..CLASSES).filter_map(|index| Some((Class::from_index(index)?.bytes(), bytes[index])));
        Ok(small.chain([(0, large)]).filter(|(_, bytes)| *bytes > 0).collect())
    }

    /// The object that a root names and, up to `depth` links away, what it leads to. A READ for each object.
    ///
    /// # Errors
    /// [`Error::RootNotFound`]; [`Error::InvalidArgument`] if the root's type is not described, as where a cluster is one process's
    /// own; those of a READ.
    pub async fn dump(&self, root: &str, depth: usize) -> Result<Dumped> {
        let roots = self.roots().await?;
        let found = roots.into_iter().find(|seen| seen.name == root);
        let found = found.ok_or_else(|| Error::from(error::RootNotFound { root: root.into() }))?;
        let layouts = self.read_description(found.description).await?.ok_or_else(|| {
            let reason = "its type is not described";
            Error::from(error::InvalidArgument { argument: "root", value: root.into(), reason })
        })?;
        let _guard = self.pin();
        let mut dump = Dump { ct: self, layouts: &layouts, seen: HashSet::new() };
        let dumped = dump.object(found.at, Layouts::ROOT, depth).await?;
        dumped.ok_or_else(|| Error::from(error::RootNotFound { root: root.into() }))
    }
}

/// A dump under way.
struct Dump<'a> {
    ct: &'a ComputeThread,
    layouts: &'a Layouts,
    seen: HashSet<Address>,
}

/// What is dumped, later.
type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

impl Dump<'_> {
    /// An object, unless it was dumped before or can not be one.
    fn object(&mut self, at: Address, of: usize, depth: usize) -> Later<'_, Option<Dumped>> {
        Box::pin(async move {
            let of = &self.layouts.types[of];
            let is_object = self.ct.heap().check(at, of.bytes.max(1)).is_ok() && of.bytes <= LARGEST_BYTES;
            if !is_object || self.seen.len() >= MOST_OBJECTS || !self.seen.insert(at) {
                return Ok(None);
            }
            let words = self.ct.read_far(at, of.bytes as usize / WORD_BYTES).await?;
            let fields = self.fields(of, at, &words, depth).await?;
            Ok(Some(Dumped { address: at, type_name: of.name.to_string(), fields }))
        })
    }

    /// The fields of a struct at `at`, whose words are given.
    async fn fields(
        &mut self,
        of: &Type,
        at: Address,
        words: &[u64],
        depth: usize,
    ) -> Result<Vec<(String, DumpedValue)>> {
        let mut fields = Vec::new();
        for field in &of.fields {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            let value =
                self.value(&field.kind, at.add(field.offset), part(bytes, field.offset), depth).await?;
            fields.push((field.name.to_string(), value));
        }
        Ok(fields)
    }

    /// A value at `at`, which `bytes` begin with.
    fn value<'a>(
        &'a mut self,
        kind: &'a Kind,
        at: Address,
        bytes: &'a [u8],
        depth: usize,
    ) -> Later<'a, DumpedValue> {
        Box::pin(async move {
            let word = u64::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default());
            Ok(match kind {
                Kind::Plain { name, bytes: size } => DumpedValue::Plain(plain(name, part_of(bytes, *size))),
                Kind::Pointer(to) | Kind::Link(to) => {
                    self.pointer(Address::from_bits(word & !7), word & 7, to, depth).await?
                }
                Kind::Stamped(to) => self.pointer(unpack_stamped(word), word >> 48, to, depth).await?,
                Kind::Atomic(value) => self.value(value, at, bytes, depth).await?,
                Kind::Lock => DumpedValue::Lock(word),
                Kind::Versioned { offset, value } => {
                    self.value(value, at.add(*offset), part(bytes, *offset), depth).await?
                }
                Kind::Array { count, stride, element } => {
                    DumpedValue::List(self.elements(element, at, bytes, (*count, *stride), depth).await?)
                }
                Kind::Struct(name) => match self.layouts.find(name) {
                    Some(of) => {
                        let words: Vec<u64> =
                            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
                        let layouts = self.layouts;
                        DumpedValue::Struct(self.fields(&layouts.types[of], at, &words, depth).await?)
                    }
                    None => DumpedValue::Plain(format!("a {name}")),
                },
                Kind::Tail { offset, stride, element } => {
                    let count = word.min(MOST_ELEMENTS);
                    let (from, size) = (at.add(*offset), count.saturating_mul(*stride).next_multiple_of(8));
                    if size > LARGEST_BYTES || self.ct.heap().check(from, size.max(1)).is_err() {
                        return Ok(DumpedValue::Plain(format!("{word} elements")));
                    }
                    let words = self.ct.read_far(from, size as usize / WORD_BYTES).await?;
                    let bytes: &[u8] = bytemuck::cast_slice(&words);
                    DumpedValue::List(self.elements(element, from, bytes, (count, *stride), depth).await?)
                }
            })
        })
    }

    async fn elements(
        &mut self,
        element: &Kind,
        at: Address,
        bytes: &[u8],
        (count, stride): (u64, u64),
        depth: usize,
    ) -> Result<Vec<DumpedValue>> {
        let mut elements = Vec::new();
        for index in 0..count.min(MOST_ELEMENTS) {
            let offset = index.saturating_mul(stride);
            elements.push(self.value(element, at.add(offset), part(bytes, offset), depth).await?);
        }
        Ok(elements)
    }

    async fn pointer(&mut self, address: Address, marks: u64, to: &str, depth: usize) -> Result<DumpedValue> {
        let of = self.layouts.find(to).filter(|_| depth > 0);
        let target = match of {
            Some(of) => self.object(address, of, depth - 1).await?.map(Box::new),
            None => None,
        };
        Ok(DumpedValue::Pointer { address, marks, target })
    }
}

/// The bytes from an offset on.
fn part(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default()
}

/// The first bytes.
fn part_of(bytes: &[u8], size: u64) -> &[u8] {
    usize::try_from(size).ok().and_then(|size| bytes.get(..size)).unwrap_or(bytes)
}

/// A plain value as text: a number if its type is one that is known, else its bytes.
fn plain(name: &str, bytes: &[u8]) -> String {
    macro_rules! number {
        ($($ty:ident)*) => {
            match name {
                $(stringify!($ty) => <$ty as Pod>::decode(bytes).map(|value| value.to_string()),)*
                _ => None,
            }
        };
    }
    let is_whole = |size: usize| bytes.len() >= size;
    let known = match name {
        "u128" | "i128" => is_whole(16),
        "u64" | "i64" | "f64" => is_whole(8),
        "u32" | "i32" | "f32" | "char" => is_whole(4),
        "u16" | "i16" => is_whole(2),
        _ => is_whole(1),
    };
    let text = if known { number!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 bool char) } else { None };
    text.unwrap_or_else(|| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}
