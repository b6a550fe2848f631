//! What a memory node puts into its memory, given by the layer above.
//!
//! A memory node serves words. Three things it must do by their meaning: say which version of the layout they have, write the words that
//! a fresh segment begins with, and mark a client that has gone. The layer above implements them.

use std::sync::atomic::AtomicU64;

use farfield_words::Address;

/// How far a client is gone, as its memory node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// From this memory node: the others are yet to be asked.
    FromNode,
    /// Nothing of it takes effect anywhere any more.
    FromCluster,
}

/// The meaning of a memory node's words.
pub trait Contents: Send + Sync {
    /// The version of the layout, which a client must know as well.
    fn layout_version(&self) -> u64;

    /// The words that a fresh segment has which are not zero, and their offsets. `is_first` is true for segment 0 of the cluster.
    fn initial_words(&self, is_first: bool) -> Vec<(u64, u64)>;

    /// Marks a client process that is gone. Called by the first memory node alone, which has segment 0 in `word`.
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
