//! Descriptions of layouts, for programs that do not have the types.
//! A description is text, published with a root. It has a line for each type that is reachable from the root's type: its name and size. A line for
//! each of its fields follows: name, offset and *kind*, separated by tabs. [`layouts`](crate::layouts) reads it.
//!
//! | kind | the field is |
//! |---|---|
//! | `plain` NAME SIZE | a plain value of this type |
//! | `pointer` NAME | a `RemotePtr` to an object of this type |
//! | `link` NAME, `stamped` NAME | a `Link`, a `StampedLink` to one |
//! | `atomic` KIND | a word with a value of this kind |
//! | `lock` | a `Lock` |
//! | `versioned` OFFSET KIND | the writer's token, a version, and a value this many bytes behind the token |
//! | `array` COUNT STRIDE KIND | `COUNT` values, `STRIDE` bytes apart |
//! | `struct` NAME | a nested struct of this type |
//! | `tail` OFFSET STRIDE KIND | a count, and `OFFSET` bytes behind it that many values, `STRIDE` bytes apart |

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use crate::{Pod, Remote};

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
    }

    /// A stamped link to a `T`.
    pub fn stamped<T: Remote>(&mut self) {
        self.write_pointer::<T>("stamped");
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
