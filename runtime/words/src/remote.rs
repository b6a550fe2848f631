//! `Remote`: the layout of a `#[remote]` struct.

use crate::Address;
use crate::{Describe, Field, WORD_BYTES, fingerprint};

/// A struct whose objects live in far memory. `#[remote]` implements it.
///
/// # Safety
///
/// `Self::Fields<'g>` is `#[repr(transparent)]` over [`Address`], for every `'g`, and valid for any address. Everything else
/// is checked: by the compiler in [`Remote::PROVEN`], or at run time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `#[remote]` struct",
    label = "needs `#[remote]` on its definition",
    note = "pointers into far memory point to structs annotated with `#[remote]`"
)]
pub unsafe trait Remote: Field {
    /// The accessors: an [`Address`] with a method for each field, whose places live for `'g`.
    type Fields<'g>;

    /// The struct's name without its type parameters.
    const NAME: &'static str;
    /// Each field in far memory, in order.
    const FIELDS: &'static [FieldInfo];

    /// The bytes of the fixed part: a multiple of 8.
    const SIZE: usize = size_of::<Self::Cell>();
    /// The alignment in bytes: at least 8. The bits below it, 6 at most, are a link's marks.
    const ALIGN: usize = align_of::<Self::Cell>();

    /// Its evaluation proves the layout: the compiler's offsets are those of the C layout rule, and only the last field has a tail.
    const PROVEN: () = prove(Self::SIZE, Self::ALIGN, Self::FIELDS);

    /// Returns the accessors of the object at `address`.
    #[inline]
    fn fields<'a, 'g: 'a>(address: &'a Address) -> &'a Self::Fields<'g> {
        const {
            assert!(size_of::<Self::Fields<'static>>() == size_of::<Address>());
            assert!(align_of::<Self::Fields<'static>>() == align_of::<Address>());
        }
        // SAFETY: by this trait's contract, which implementations assert by `unsafe impl`, `Fields` is transparent over `Address` and holds any
        // address. So a reference to an address is a reference to `Fields`, for as long: `'a` is the borrow's. No value contains `'g`. For any
        // `'g` of a caller, places that outlive their guard read other words of far memory than they should, after the same checks.
        unsafe { &*std::ptr::from_ref(address).cast::<Self::Fields<'g>>() }
    }
}

/// A field's entry in a layout, without its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// The fingerprint of its type.
    pub fingerprint: u64,
    /// Its size in bytes, without its tail.
    pub size: usize,
    /// Its alignment in bytes.
    pub align: usize,
    /// True if a handle keeps any part of it.
    pub frozen: bool,
    /// The bytes of one tail element, or 0.
    pub tail_stride: usize,
    /// The offset of the tail's length word, in bytes from the field's start.
    pub tail_offset: usize,
    /// Writes its description, for programs that do not have the type.
    #[doc(hidden)]
    pub describe: Describe,
}

/// One field of a remote layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldInfo {
    /// Its name in the source.
    pub name: &'static str,
    /// Bytes from the object's start.
    pub offset: usize,
    /// Its size, alignment and kind.
    pub shape: Shape,
}

impl FieldInfo {
    /// Makes the entry of the field `name` at `offset`.
    pub const fn new(name: &'static str, offset: usize, shape: Shape) -> Self {
        Self { name, offset, shape }
    }
}

/// Returns the fingerprint of a struct, computed from its name and fields.
pub const fn fingerprint_of<T: Remote>() -> u64 {
    fingerprint::fields(T::NAME, T::SIZE, T::ALIGN, T::FIELDS)
}

/// Returns the range of words that covers all frozen fields, in bytes; empty if no field is frozen.
pub const fn frozen_span(fields: &[FieldInfo]) -> (usize, usize) {
    let mut start = usize::MAX;
    let mut end = 0;
    let mut index = 0;
    while index < fields.len() {
        let field = &fields[index];
        if field.shape.frozen {
            if field.offset < start {
                start = field.offset;
            }
            if field.offset + field.shape.size > end {
                end = field.offset + field.shape.size;
            }
        }
        index += 1;
    }
    if start == usize::MAX {
        (0, 0)
    } else {
        (start / WORD_BYTES * WORD_BYTES, end.next_multiple_of(WORD_BYTES))
    }
}

/// Computes the offsets again by the C rule and compares.
const fn prove(size: usize, align: usize, fields: &[FieldInfo]) {
    assert!(align >= WORD_BYTES && align.is_power_of_two(), "a remote layout is aligned to words");
    assert!(size.is_multiple_of(WORD_BYTES), "a remote layout is a whole number of words");
    assert!(size > 0, "a remote struct needs at least one field in far memory");
    let mut end = 0;
    let mut index = 0;
    while index < fields.len() {
        let field = &fields[index];
        assert!(align >= field.shape.align, "a field is aligned more strictly than its struct");
        assert!(
            field.offset == end_aligned(end, field.shape.align),
            "a field does not have the offset of the C layout rule"
        );
        assert!(
            field.shape.tail_stride == 0 || index + 1 == fields.len(),
            "only the last field can be a `Tail`"
        );
        end = field.offset + field.shape.size;
        index += 1;
    }
    assert!(size == end_aligned(end, align), "the fields do not fill the struct");
}

const fn end_aligned(end: usize, align: usize) -> usize {
    end.next_multiple_of(align)
}
