//! Descriptions of layouts, for programs that do not have the types.
//!
//! A description is text, published with a root. It has a line for each type that is reachable from the root's type: its name and size. A line for
//! each of its fields follows: name, offset and *kind*, separated by tabs. [`layouts`](crate::layouts) reads it.
//!
//! | kind | the field is |
//! |---|---|
//! | `plain` NAME SIZE | a plain value of this type |
//! | `pointer` NAME | a `RemotePtr` to an object of this type |
//! | `link` NAME BITS | a `Link` to one, with this many mark bits; without the number there are 3 |
//! | `tagged` NAME | a `TaggedLink` or `StampedLink` to one |
//! | `atomic` KIND | a word with a value of this kind |
//! | `lock` | a `Lock` |
//! | `versioned` OFFSET KIND | the writer's token, a version, and a value this many bytes behind the token |
//! | `array` COUNT STRIDE KIND | `COUNT` values, `STRIDE` bytes apart |
//! | `struct` NAME | a nested struct of this type |
//! | `tail` OFFSET STRIDE KIND | a count, and `OFFSET` bytes behind it that many values, `STRIDE` bytes apart |

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use crate::{Pod, Remote, WORD_BYTES, mark_bits};

/// The mark bits of a link to the least aligned objects.
pub(crate) const FEWEST_MARKS: u32 = mark_bits(WORD_BYTES);

/// Writes the description of a type.
#[derive(Default)]
pub struct Describer {
    text: String,
    /// The names of types that are described or pending.
    known: BTreeSet<&'static str>,
    pending: Vec<fn(&mut Self)>,
}

/// The function that writes a field's kind.
#[derive(Clone, Copy)]
pub struct Describe(pub fn(&mut Describer));

impl fmt::Debug for Describe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Describe")
    }
}

impl PartialEq for Describe {
    /// Always true: fields of equal kinds have equal fingerprints, which are compared beside this.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Describe {}

/// Returns the description of a type and of all types that its pointers reach.
pub fn describe<T: Remote>() -> String {
    let mut describer = Describer::default();
    describer.enqueue::<T>();
    while let Some(describe) = describer.pending.pop() {
        describe(&mut describer);
    }
    describer.text
}

impl Describer {
    fn write_part(&mut self, what: impl fmt::Display) {
        let _ = write!(self.text, "\t{what}");
    }

    fn enqueue<T: Remote>(&mut self) {
        if self.known.insert(std::any::type_name::<T>()) {
            self.pending.push(Self::write_type::<T>);
        }
    }

    fn write_type<T: Remote>(&mut self) {
        let _ = writeln!(self.text, "{}\t{}", std::any::type_name::<T>(), T::SIZE);
        for field in T::FIELDS {
            let _ = write!(self.text, "\t{}\t{}", field.name, field.offset);
            (field.shape.describe.0)(self);
            self.text.push('\n');
        }
    }

    fn write_pointer<T: Remote>(&mut self, kind: &str) {
        self.enqueue::<T>();
        self.write_part(kind);
        self.write_part(std::any::type_name::<T>());
    }

    /// A plain value.
    pub fn plain<T: Pod>(&mut self) {
        self.write_part("plain");
        self.write_part(std::any::type_name::<T>());
        self.write_part(size_of::<T>());
    }

    /// A remote pointer to a `T`.
    pub fn pointer<T: Remote>(&mut self) {
        self.write_pointer::<T>("pointer");
    }

    /// A link to a `T`.
    pub fn link<T: Remote>(&mut self) {
        self.write_pointer::<T>("link");
        let bits = mark_bits(T::ALIGN);
        if bits != FEWEST_MARKS {
            self.write_part(bits);
        }
    }

    /// A tagged or stamped link to a `T`.
    pub fn tagged<T: Remote>(&mut self) {
        self.write_pointer::<T>("tagged");
    }

    /// A nested `T`.
    pub fn nested<T: Remote>(&mut self) {
        self.write_pointer::<T>("struct");
    }

    /// An atomic, whose value describes itself by `value`.
    pub fn atomic(&mut self, value: fn(&mut Self)) {
        self.write_part("atomic");
        value(self);
    }

    /// A lock.
    pub fn lock(&mut self) {
        self.write_part("lock");
    }

    /// A versioned value, `offset` bytes behind the start of its field.
    pub fn versioned(&mut self, offset: usize, value: fn(&mut Self)) {
        self.write_part("versioned");
        self.write_part(offset);
        value(self);
    }

    /// An array of `count` elements, `stride` bytes apart.
    pub fn array(&mut self, count: usize, stride: usize, element: fn(&mut Self)) {
        self.write_part("array");
        self.write_part(count);
        self.write_part(stride);
        element(self);
    }

    /// A count, and as many elements, the first `offset` bytes behind it.
    pub fn tail(&mut self, offset: usize, stride: usize, element: fn(&mut Self)) {
        self.write_part("tail");
        self.write_part(offset);
        self.write_part(stride);
        element(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::{FieldKind, Found, Layouts};
    use crate::{Address, Field, FieldInfo, Initial, Shape, fingerprint};

    /// A field of a kind that the layer above would declare.
    const fn shape(size: usize, describe: fn(&mut Describer)) -> Shape {
        Shape {
            fingerprint: fingerprint::name("test"),
            size,
            align: 8,
            frozen: false,
            tail_stride: 0,
            tail_offset: 0,
            describe: Describe(describe),
        }
    }

    /// A struct of 12 words, with a field of each kind.
    struct Node;

    #[repr(transparent)]
    struct NodeFields(#[allow(dead_code)] Address);

    impl Field for Node {
        type Cell = [u64; 12];
        type Init = ();
        type Value<'g> = ();
        type Stored = ();
        type Kept<'a> = ();
        const FINGERPRINT: u64 = fingerprint::name("Node");
        const FROZEN: bool = false;
        fn describe(describer: &mut Describer) {
            describer.nested::<Self>();
        }
        fn encode((): (), _: &mut [u8]) {}
        fn decode<'g>(_: Address, _: &[u8]) -> crate::Result<Self::Value<'g>> {
            Ok(())
        }
        fn store(_: Address, _: &[u8]) -> crate::Result<()> {
            Ok(())
        }
        fn kept((): &()) {}
    }

    // SAFETY: `NodeFields` is transparent over `Address`.
    unsafe impl Remote for Node {
        type Fields<'g> = NodeFields;
        const NAME: &'static str = "Node";
        const FIELDS: &'static [FieldInfo] = &[
            FieldInfo::new("key", 0, shape(8, <u64 as Pod>::describe)),
            FieldInfo::new("lock", 8, shape(8, Describer::lock)),
            FieldInfo::new("next", 16, shape(8, Describer::link::<Self>)),
            FieldInfo::new("top", 24, shape(8, Describer::tagged::<Self>)),
            FieldInfo::new("owner", 32, shape(8, |describer| describer.atomic(Describer::pointer::<Self>))),
            FieldInfo::new(
                "value",
                40,
                shape(24, |describer| describer.versioned(16, <u64 as Pod>::describe)),
            ),
            FieldInfo::new("pair", 64, shape(16, |describer| describer.array(2, 8, Describer::link::<Self>))),
            FieldInfo::new("rest", 80, shape(16, |describer| describer.tail(8, 8, Describer::link::<Self>))),
        ];
    }

    #[test]
    fn a_description_survives_encoding() {
        let () = Node::PROVEN;
        let text = describe::<Node>();
        let layouts = Layouts::parse(&text).unwrap();
        let name = std::any::type_name::<Node>();
        let [node] = &layouts.types[..] else { panic!("{text}") };
        assert_eq!((&*node.name, node.bytes, layouts.find(name)), (name, 96, Some(Layouts::ROOT)));
        let fields: Vec<(&str, u64)> = node.fields.iter().map(|field| (&*field.name, field.offset)).collect();
        assert_eq!(
            fields,
            Node::FIELDS.iter().map(|field| (field.name, field.offset as u64)).collect::<Vec<_>>()
        );
        let link = || FieldKind::Link { to: name.into(), mark_bits: 3 };
        let plain = || FieldKind::Plain { name: "u64".into(), bytes: 8 };
        let kinds = [
            plain(),
            FieldKind::Lock,
            link(),
            FieldKind::Tagged(name.into()),
            FieldKind::Atomic(Box::new(FieldKind::Pointer(name.into()))),
            FieldKind::Versioned { offset: 16, value: Box::new(plain()) },
            FieldKind::Array { count: 2, stride: 8, element: Box::new(link()) },
            FieldKind::Tail { offset: 8, stride: 8, element: Box::new(link()) },
        ];
        assert!(node.fields.iter().map(|field| &field.kind).eq(&kinds), "{text}");
    }

    #[test]
    fn a_visit_finds_every_pointer_and_lock_and_no_word_beyond_the_object() {
        let layouts = Layouts::parse(&describe::<Node>()).unwrap();
        let at = |number: u64| Address::new(1, number * 8);
        let mut words: Vec<u64> = (0..12).map(|number| at(number + 1).bits()).collect();
        // A pointer with a mark, a stamped one, and a tail that claims more elements than the object has.
        words[2] |= 1;
        words[3] = at(4).compress().unwrap() | 9 << Address::COMPRESSED_BITS;
        words[10] = 1000;
        let mut found = Vec::new();
        layouts.visit(Layouts::ROOT, &words, &mut |each| found.push(each));
        let pointer = |number| Found::Pointer(at(number), Some(Layouts::ROOT));
        let expected = [
            Found::Lock(8),
            pointer(3),
            pointer(4),
            pointer(5),
            Found::WriteLock(40),
            pointer(9),
            pointer(10),
            pointer(12),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_plain_value_initialises_a_field_as_it_is() {
        assert_eq!(Initial::<u64>::into_init(7_u64), 7);
    }
}
