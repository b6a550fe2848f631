//! The geometry of a cluster's memory: memory nodes, segments of each, bytes of each segment.
//!
//! The three numbers come from untrusted input: a URL, a program's options, a memory node's welcome, a checkpoint. Every computation with addresses
//! relies on them, including the bounds check of mapped memory. So only the constructors make a [`Geometry`], and they check all three:
//!
//! 1. There is at least one memory node, each memory node has at least one segment, and there are at most 2^16 segments: a segment's number fits an
//!    address.
//! 2. A segment has room for its control block and a word, consists of whole words, and ends within the 47 bits of an
//!    offset: the next bit distinguishes [compressed addresses](Address::compress).
//! 3. If each segment takes as many bytes as the next power of two, all of them take less than 2^63. So no product of these numbers overflows, and
//!    every sum is an offset in a file.

use std::fmt;

use crate::Address;
use crate::WORD_BYTES;
use crate::error::{self, Error, PointerFault, Result};

/// The smallest segment. The layer above puts a control block in front, and asserts that it and a word have room.
pub const MIN_SEGMENT_BYTES: u64 = 27_336;
/// The largest segment: the highest bit of an offset is 0.
pub const MAX_SEGMENT_BYTES: u64 = 1 << (Address::OFFSET_BITS - 1);
/// The most segments: a segment's number has 16 bits.
const MAX_SEGMENTS: u64 = Address::MAX_SEGMENTS as u64;
/// All segments together are smaller than this, so that an offset fits the system's signed type.
const BYTES_END: u64 = 1 << 63;

/// The checked geometry of a cluster's memory: see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    nodes: u16,
    segments_per_node: u16,
    segment_bytes: u64,
}

/// The fault of three numbers: the first one that is out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// The number of memory nodes, and of segments of each.
    SegmentCount(u64, u64),
    /// A segment of this many bytes is too small or too large.
    SegmentSize(u64),
    /// A segment of this many bytes does not consist of whole words.
    PartialWord(u64),
    /// This many segments of this many bytes are too large together.
    TotalSize(u64, u64),
}

impl Geometry {
    /// Checks the numbers of memory nodes, segments of each, and bytes of each segment.
    pub const fn new(nodes: u64, segments_per_node: u64, segment_bytes: u64) -> Result<Self, GeometryError> {
        if segment_bytes.is_multiple_of(WORD_BYTES as u64) {
            Self::rounded(nodes, segments_per_node, segment_bytes)
        } else {
            Err(GeometryError::PartialWord(segment_bytes))
        }
    }

    /// As [`new`](Self::new), but rounds the segment's size down to whole words.
    pub const fn rounded(
        nodes: u64,
        segments_per_node: u64,
        segment_bytes: u64,
    ) -> Result<Self, GeometryError> {
        let segments = nodes.saturating_mul(segments_per_node);
        if segments == 0 || segments > MAX_SEGMENTS {
            return Err(GeometryError::SegmentCount(nodes, segments_per_node));
        }
        // With 2^16 nodes of one segment, or one node of 2^16, one of the two does not fit.
        if nodes > u16::MAX as u64 || segments_per_node > u16::MAX as u64 {
            return Err(GeometryError::SegmentCount(nodes, segments_per_node));
        }
        if segment_bytes < MIN_SEGMENT_BYTES || segment_bytes > MAX_SEGMENT_BYTES {
            return Err(GeometryError::SegmentSize(segment_bytes));
        }
        // At most 2^47 times 2^16, which is one too many.
        if segment_bytes.next_power_of_two() > (BYTES_END - 1) / segments {
            return Err(GeometryError::TotalSize(segments, segment_bytes));
        }
        Ok(Self {
            nodes: nodes as u16,
            segments_per_node: segments_per_node as u16,
            segment_bytes: segment_bytes - segment_bytes % WORD_BYTES as u64,
        })
    }

    /// The number of memory nodes, at least one.
    pub const fn nodes(&self) -> u16 {
        self.nodes
    }

    /// The number of segments of each node, at least one.
    pub const fn segments_per_node(&self) -> u16 {
        self.segments_per_node
    }

    /// Bytes of each segment: a multiple of 8, from [`MIN_SEGMENT_BYTES`] to [`MAX_SEGMENT_BYTES`].
    pub const fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The number of all segments, 2^16 at most.
    #[inline]
    pub fn segments(&self) -> u32 {
        u32::from(self.nodes) * u32::from(self.segments_per_node)
    }

    /// The bytes of all segments.
    pub fn bytes(&self) -> u64 {
        u64::from(self.segments()) * self.segment_bytes
    }

    /// log2 of the distance between segments that are mapped together.
    pub fn stride_log2(&self) -> u32 {
        self.segment_bytes.next_power_of_two().trailing_zeros()
    }

    /// The bytes of a mapping of all segments: less than 2^63.
    pub fn mapped_bytes(&self) -> u64 {
        u64::from(self.segments()) << self.stride_log2()
    }

    /// The numbers of a node's segments.
    pub fn segments_of(&self, node: u16) -> std::ops::Range<u16> {
        // At most 2^16 segments in all, but the end of the last node's may be 2^16 itself.
        let first = node * self.segments_per_node;
        first..first.saturating_add(self.segments_per_node)
    }

    /// The node that hosts a segment.
    #[inline]
    pub fn node_of(&self, segment: u16) -> u16 {
        segment / self.segments_per_node
    }

    /// Checks that `words` words from `at` on are inside one segment, its first word excluded.
    pub fn check(&self, at: Address, words: usize) -> Result<()> {
        let inside = u32::from(at.segment()) < self.segments() && self.is_inside_segment(at, words);
        if inside { Ok(()) } else { Err(self.invalid(at)) }
    }

    /// Returns whether `words` words from `at` on are inside its segment, if there is one of this number.
    #[inline]
    pub fn is_inside_segment(&self, at: Address, words: usize) -> bool {
        let bytes = (words as u64).saturating_mul(WORD_BYTES as u64);
        at.bits().is_multiple_of(WORD_BYTES as u64)
            && at.offset() >= WORD_BYTES as u64
            && at.offset().saturating_add(bytes) <= self.segment_bytes
    }

    /// Returns the error for an address that is not inside a segment.
    #[cold]
    pub fn invalid(&self, address: Address) -> Error {
        let fault = if address.is_null() {
            PointerFault::Null
        } else if u32::from(address.segment()) >= self.segments() {
            PointerFault::NoSegment { segments: self.segments() }
        } else if !address.bits().is_multiple_of(WORD_BYTES as u64) {
            PointerFault::Misaligned { align: WORD_BYTES as u32 }
        } else {
            PointerFault::PastSegment { size_bytes: self.segment_bytes }
        };
        Error::from(error::InvalidPointer { address, fault })
    }
}

impl GeometryError {
    /// The message in terms of a URL's options `nodes`, `segments` and `size`.
    pub fn of_options(self) -> String {
        let (options, (_, _, reason)) = (
            match self {
                Self::SegmentCount(nodes, per_node) => format!("nodes={nodes},segments={per_node}"),
                Self::SegmentSize(bytes) | Self::PartialWord(bytes) => format!("size={bytes}"),
                Self::TotalSize(segments, bytes) => format!("size={bytes} for {segments} segments"),
            },
            self.parts(),
        );
        format!("{options}: {reason}")
    }

    /// The name of the invalid number, its value, and its bounds.
    fn parts(self) -> (&'static str, String, &'static str) {
        match self {
            Self::SegmentCount(nodes, per_node) => {
                let reason = "a cluster has 1 to 65536 segments, on up to 65535 memory nodes";
                ("number of segments", format!("{nodes} times {per_node}"), reason)
            }
            Self::SegmentSize(bytes) => {
                let reason = "a segment has 27336 bytes (its control block and a word) to 128 TiB";
                ("segment size", bytes.to_string(), reason)
            }
            Self::PartialWord(bytes) => {
                ("segment size", bytes.to_string(), "a segment consists of words of 8 bytes")
            }
            Self::TotalSize(segments, bytes) => {
                let reason = "all segments together, each rounded up to a power of two, have less than 8 EiB";
                ("memory size", format!("{segments} segments of {bytes} bytes"), reason)
            }
        }
    }
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, value, reason) = self.parts();
        write!(f, "{what} is {value}: {reason}")
    }
}

/// For numbers from a program's arguments.
impl From<GeometryError> for Error {
    fn from(wrong: GeometryError) -> Self {
        let (argument, value, reason) = wrong.parts();
        Self::from(error::InvalidArgument { argument, value: value.into(), reason })
    }
}

/// Computes from arbitrary numbers what users of a geometry compute, and checks the results. For fuzz targets and tests.
///
/// # Panics
/// If a result breaks an invariant of a geometry.
#[cfg(any(fuzzing, test))]
pub fn exercise(nodes: u64, segments_per_node: u64, segment_bytes: u64, at: Address) {
    let made = Geometry::new(nodes, segments_per_node, segment_bytes);
    let rounded = Geometry::rounded(nodes, segments_per_node, segment_bytes);
    let Ok(geometry) = made else {
        drop(Error::from(made.unwrap_err()).to_string());
        assert!(rounded.is_err() || !segment_bytes.is_multiple_of(8), "rounding makes whole words only");
        return;
    };
    assert_eq!(rounded, made);
    let (segments, bytes) = (geometry.segments(), geometry.segment_bytes());
    assert!(bytes >= MIN_SEGMENT_BYTES && bytes.is_multiple_of(8) && bytes <= MAX_SEGMENT_BYTES);
    assert_eq!(u64::from(segments), nodes * segments_per_node);
    assert!(geometry.bytes() <= geometry.mapped_bytes() && geometry.mapped_bytes() < BYTES_END);
    assert!(bytes <= 1 << geometry.stride_log2());
    assert_eq!(
        geometry.segments_of(geometry.nodes() - 1).start,
        (segments - u32::from(geometry.segments_per_node())) as u16
    );
    assert_eq!(geometry.node_of((segments - 1) as u16), geometry.nodes() - 1);
    if geometry.check(at, 1).is_ok() {
        assert!(
            u32::from(at.segment()) < segments
                && at.offset() + 8 <= bytes
                && geometry.node_of(at.segment()) < geometry.nodes()
        );
    } else {
        drop(geometry.invalid(at).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: u64 = MIN_SEGMENT_BYTES;
    const MOST: u64 = MAX_SEGMENT_BYTES;

    #[test]
    fn numbers_in_bounds_are_unchanged() {
        for (nodes, per_node, bytes) in
            [(1, 1, LEAST), (1, 1, MOST), (65_535, 1, 1 << 20), (2, 32_768, 1 << 46), (256, 256, LEAST)]
        {
            let geometry = Geometry::new(nodes, per_node, bytes).unwrap();
            let found =
                (geometry.nodes().into(), geometry.segments_per_node().into(), geometry.segment_bytes());
            assert_eq!(found, (nodes, per_node, bytes));
            assert_eq!(Geometry::rounded(nodes, per_node, bytes), Ok(geometry));
        }
        assert_eq!(Geometry::rounded(1, 1, LEAST + 7).unwrap().segment_bytes(), LEAST);
    }

    #[test]
    fn an_error_names_the_number_that_is_out_of_bounds() {
        let said = |nodes, per_node, bytes| Geometry::new(nodes, per_node, bytes).unwrap_err();
        for (nodes, per_node) in
            [(0, 1), (1, 0), (0, 0), (65_536, 1), (1, 65_536), (257, 256), (u64::MAX, 2), (1 << 32, 1 << 32)]
        {
            assert_eq!(said(nodes, per_node, LEAST), GeometryError::SegmentCount(nodes, per_node));
        }
        for bytes in [0, 8, LEAST - 8, MOST + 8, u64::MAX - 7] {
            assert_eq!(said(1, 1, bytes), GeometryError::SegmentSize(bytes));
            assert_eq!(Geometry::rounded(1, 1, bytes), Err(GeometryError::SegmentSize(bytes)));
        }
        for bytes in [1, LEAST + 1, LEAST + 4, u64::MAX] {
            assert_eq!(said(1, 1, bytes), GeometryError::PartialWord(bytes));
        }
        // The bytes of all would be 2^63.
        assert_eq!(said(2, 1 << 15, MOST), GeometryError::TotalSize(1 << 16, MOST));
        assert_eq!(said(2, 1 << 15, (1 << 46) + 8), GeometryError::TotalSize(1 << 16, (1 << 46) + 8));
    }

    #[test]
    fn messages_name_the_bounds_of_the_constants() {
        assert!(GeometryError::SegmentSize(0).to_string().contains(&format!("has {LEAST} bytes")));
        assert!(GeometryError::SegmentSize(0).to_string().ends_with(&format!("{} TiB", MOST >> 40)));
        assert!(
            GeometryError::SegmentCount(0, 3).to_string().starts_with("number of segments is 0 times 3: ")
        );
        assert!(
            GeometryError::SegmentCount(0, 3).to_string().contains(&format!("1 to {MAX_SEGMENTS} segments"))
        );
        for wrong in [
            GeometryError::SegmentCount(0, 3),
            GeometryError::SegmentSize(0),
            GeometryError::PartialWord(1),
            GeometryError::TotalSize(1, 2),
        ] {
            assert_eq!(Error::from(wrong).to_string(), wrong.to_string(), "both have one text");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_numbers_are_a_geometry_or_an_error(numbers: [u64; 3], shifts in [0..64_u32, 0..64, 0..64], at: u64) {
            let [nodes, per_node, bytes] = std::array::from_fn(|index| numbers[index] >> shifts[index]);
            exercise(nodes, per_node, bytes, Address::from_bits(at));
            exercise(nodes % 300, per_node % 300, bytes / 8 * 8, Address::from_bits(at));
        }
    }
}
