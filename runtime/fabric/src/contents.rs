//! The words that a memory node itself writes, defined by the layer above.
//!
//! A memory node serves words without knowing their meaning, with three exceptions: it reports the version of their layout, writes the initial words
//! of a fresh segment, and marks a departed client. The layer above implements these.

use std::sync::atomic::AtomicU64;

use farfield_words::Address;

/// How far a client has departed, as its memory node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// From this memory node; the others must still be asked.
    FromNode,
    /// From all memory nodes: no operation of the client takes effect any more.
    FromCluster,
}

/// The meaning of the words that a memory node writes.
pub trait Contents: Send + Sync {
    /// Returns the version of the layout, which must equal the client's.
    fn layout_version(&self) -> u64;

    /// Returns the non-zero words of a fresh segment, with their offsets. `is_first` is true for segment 0 of the cluster.
    fn initial_words(&self, is_first: bool) -> Vec<(u64, u64)>;

    /// Marks a departed client process. Only the first memory node calls this; `word` finds words of segment 0.
    fn mark_departed<'a>(
        &self,
        process: u32,
        departure: Departure,
        word: &dyn Fn(Address) -> Option<&'a AtomicU64>,
    );
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Memory that stays zero.
    pub(crate) struct Empty;

    impl Empty {
        pub(crate) const VERSION: u64 = 77;
    }

    impl Contents for Empty {
        fn layout_version(&self) -> u64 {
            Self::VERSION
        }

        fn initial_words(&self, _: bool) -> Vec<(u64, u64)> {
            Vec::new()
        }

        fn mark_departed<'a>(&self, _: u32, _: Departure, _: &dyn Fn(Address) -> Option<&'a AtomicU64>) {}
    }
}
