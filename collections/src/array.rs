//! An array whose blocks are spread over all memory nodes.
//!
//! Block `b` is on memory node `b mod n`, so a long range is read from all nodes at once, and work on all elements can be divided by where they are. A block is
//! an object of its own; a handle knows the addresses of all: 8 bytes for each.
//!
//! # What is atomic
//!
//! Each element is a word, which is read and written atomically. A range is not: a `read` beside a `write` of the same elements may have some of the old and
//! some of the new ones. A client that dies during a `write`, or drops its future, leaves some elements written. Nothing else is left by either: elements never move.
//!
//! # Costs
//!
//! | operation | round trips |
//! |---|---|
//! | `create` | one for each 16 blocks, and one |
//! | `attach` | 2 |
//! | `load`, `store`, `fetch_add`, `compare_exchange` | 1 |
//! | `read`, `write` | 1 for each MiB on a memory node; the nodes work at the same time |
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::Array;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:nodes=2")?.run(4, async |ct| {
//!     let root = ct.root_or_init("counts", async || Array::<u64>::create(10_000, ct).await).await?;
//!     let counts = Array::attach(root, ct).await?;
//!     counts.fetch_add(17, 1, ct).await?;
//!     ct.barrier("counted").await?;
//!     assert_eq!(counts.load(17, ct).await?, 4);
//!     let mut sum = 0;
//!     for range in counts.share(ct) {
//!         sum += counts.read(range, ct).await?.iter().sum::<u64>();
//!     }
//!     # let _ = sum;
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use farfield::layout::{Field, Integer, fingerprint};
use farfield::prelude::*;
use farfield::{Error, Word, error};

/// The words of the smallest and of the largest block that [`Array::create`] chooses. With its length, a block fills whole chunks of memory, or a size class.
const BLOCK_WORDS: [u64; 2] = [64, 8192];
/// The least blocks of a memory node, as far as the array is long enough.
const BLOCKS_PER_NODE: u64 = 8;
/// The most elements that a chain reads or writes.
const MOST_PER_CHAIN: u64 = 1 << 17;
/// The blocks that are written at the same time.
const TASKS: usize = 16;

/// The root of an array, from which [`Array::attach`] makes a handle.
#[remote]
pub struct ArrayRoot<T: Word> {
    /// Stands for the type of the elements.
    types: u64,
    length: u64,
    /// The elements of a block.
    per_block: u64,
    blocks: Tail<RemotePtr<Block<T>>>,
}

/// Neighbouring elements.
#[remote]
struct Block<T: Word> {
    elements: Tail<Atomic<T>>,
}

/// An array in far memory. The handle of a thread, for all of its tasks.
pub struct Array<T: Word> {
    root: RemotePtr<ArrayRoot<T>>,
    length: u64,
    per_block: u64,
    blocks: Vec<RemotePtr<Block<T>>>,
    element: PhantomData<fn() -> T>,
}

/// A range of elements within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    block: usize,
    /// The first element in the block.
    first: u64,
    count: u64,
    /// The place of its first element in the whole range.
    at: usize,
}

impl<T: Word> Array<T> {
    /// Stands for the type of the elements.
    const TYPES: u64 = fingerprint::wrap("Array", <Atomic<T> as Field>::FINGERPRINT);

    /// Creates an array of `length` elements, all of them [initial](Word::initial), in blocks of at most 64 KiB.
    ///
    /// If it fails, nothing is left. If its future is dropped, the blocks that were written are lost until a sweep.
    ///
    /// # Errors
    /// Those of allocations.
    pub async fn create(length: u64, ct: &ComputeThread) -> Result<RemotePtr<ArrayRoot<T>>> {
        let [least, most] = BLOCK_WORDS;
        let wanted = length / (ct.nodes() as u64 * BLOCKS_PER_NODE) + 1;
        Self::create_in_blocks(length, wanted.clamp(least, most).next_power_of_two() - 1, ct).await
    }

    /// Creates an array whose blocks have `per_block` elements. A block of 2^k - 1 elements leaves the least memory unused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for blocks without elements, or of more than a MiB; those of allocations.
    pub async fn create_in_blocks(
        length: u64,
        per_block: u64,
        ct: &ComputeThread,
    ) -> Result<RemotePtr<ArrayRoot<T>>> {
        if per_block == 0 || per_block > MOST_PER_CHAIN {
            let reason = "a block has 1 to 131072 elements";
            return Err(invalid("per_block", per_block.to_string(), reason));
        }
        let count = length.div_ceil(per_block) as usize;
        let mut blocks = Vec::new();
        let made = async {
            while blocks.len() < count {
                let from = blocks.len();
                let made = ct.tasks(TASKS.min(count - from), async |task| {
                    let block = (from + task) as u64;
                    let elements = per_block.min(length - block * per_block) as usize;
                    let node = ct.on_node((block % ct.nodes() as u64) as u16);
                    let block = Block::init(vec![T::initial(); elements]);
                    // A failure of one does not lose the others.
                    Ok(async { Block::new_in(node, block).await?.write(ct).await }.await)
                });
                let mut failed = None;
                for block in made.await? {
                    match block {
                        Ok(block) => blocks.push(block),
                        Err(error) => failed = Some(error),
                    }
                }
                failed.map_or(Ok(()), Err)?;
            }
            let root = ArrayRoot::init(Self::TYPES, length, per_block, blocks.clone());
            ArrayRoot::new_in(ct, root).await?.write(ct).await
        };
        match made.await {
            Ok(root) => Ok(root),
            Err(error) => {
                for block in blocks {
                    ct.delete(block).await?;
                }
                Err(error)
            }
        }
    }

    /// Makes a handle of an array. Two round trips.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the array has elements of another type; [`Error::InvalidValue`] if it is corrupt.
    pub async fn attach(root: RemotePtr<ArrayRoot<T>>, ct: &ComputeThread) -> Result<Self> {
        let g = &ct.pin();
        let read = root.read(g).await?;
        if read.types != Self::TYPES {
            let reason = "the array has elements of another type";
            return Err(invalid("root", format!("{root:?}"), reason));
        }
        let blocks = read.blocks.read(g).await?;
        if read.per_block == 0 || blocks.len() as u64 != read.length.div_ceil(read.per_block) {
            let reason = "its length and that of its blocks contradict each other";
            return Err(invalid("root", format!("{root:?}"), reason));
        }
        let (length, per_block) = (read.length, read.per_block);
        Ok(Self { root, length, per_block, blocks, element: PhantomData })
    }

    /// Frees the array. Nobody may use it any more. No round trip for most blocks.
    ///
    /// # Errors
    /// Those of [`ComputeThread::delete`].
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        ct.tasks(self.blocks.len(), async |block| ct.delete(self.blocks[block]).await).await?;
        ct.delete(self.root).await
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of elements of a block; the last one may have fewer.
    pub fn per_block(&self) -> u64 {
        self.per_block
    }

    /// Returns the place of an element, with the operations of an atomic. No round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] past the end.
    pub fn at(&self, index: u64) -> Result<Place<'_, Atomic<T>>> {
        if index >= self.length {
            return Err(self.past_the_end("index", index.to_string()));
        }
        let block = self.blocks[(index / self.per_block) as usize];
        Ok(block.elements().at(index % self.per_block))
    }

    /// Returns an element. One round trip.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub async fn load(&self, index: u64, ct: &ComputeThread) -> Result<T> {
        self.at(index)?.load(ct).await
    }

    /// Replaces an element. One round trip.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub async fn store(&self, index: u64, value: T, ct: &ComputeThread) -> Result<()> {
        self.at(index)?.store(ct, value).await
    }

    /// Replaces an element by `new` if it is `current`. Returns the old one, as `Ok` if it was replaced. One round trip.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub async fn compare_exchange(
        &self,
        index: u64,
        current: T,
        new: T,
        ct: &ComputeThread,
    ) -> Result<Result<T, T>> {
        self.at(index)?.compare_exchange(ct, current, new).await
    }

    /// Reads the elements of a range. One round trip for each MiB on a memory node; those of several nodes overlap.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the range is reversed, or reaches past the end.
    pub async fn read(&self, range: Range<u64>, ct: &ComputeThread) -> Result<Vec<T>> {
        let chains = self.chains(&range, ct)?;
        let read = ct
            .tasks(chains.len(), async |chain| {
                let g = &ct.pin();
                let pieces = chains[chain].iter().map(|piece| {
                    let elements = self.blocks[piece.block].elements();
                    op::load_range(elements, piece.first..piece.first + piece.count)
                });
                g.chain(pieces.collect::<Vec<_>>()).submit().await
            })
            .await?;
        let mut values = vec![T::initial(); (range.end - range.start) as usize];
        for (pieces, read) in chains.iter().zip(read) {
            for (piece, read) in pieces.iter().zip(read) {
                values[piece.at..][..read.len()].copy_from_slice(&read);
            }
        }
        Ok(values)
    }

    /// Replaces the elements from `first` on. One round trip for each MiB on a memory node; those of several nodes overlap.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they reach past the end; nothing is written then.
    pub async fn write(&self, first: u64, values: &[T], ct: &ComputeThread) -> Result<()> {
        let end = first.saturating_add(values.len() as u64);
        let chains = self.chains(&(first..end), ct)?;
        ct.tasks(chains.len(), async |chain| {
            let g = &ct.pin();
            let pieces = chains[chain].iter().map(|piece| {
                let elements = self.blocks[piece.block].elements();
                op::store_range(elements, piece.first, &values[piece.at..][..piece.count as usize])
            });
            g.chain(pieces.collect::<Vec<_>>()).submit().await
        })
        .await?;
        Ok(())
    }

    /// Returns the ranges of this thread's share of the elements, one for each block: all threads of the run together have each element once, and each thread has
    /// elements of as few memory nodes as possible. No round trip.
    pub fn share<'a>(&'a self, ct: &ComputeThread) -> impl Iterator<Item = Range<u64>> + use<'a, T> {
        self.share_of(ct.index(), ct.threads(), ct.nodes())
    }

    fn share_of(
        &self,
        thread: usize,
        threads: usize,
        nodes: usize,
    ) -> impl Iterator<Item = Range<u64>> + use<'_, T> {
        (0..self.blocks.len()).filter(move |block| owner(*block, threads, nodes) == thread).map(|block| {
            let start = block as u64 * self.per_block;
            start..(start + self.per_block).min(self.length)
        })
    }

    /// Divides a range into what each chain accesses: of one memory node, and of not too many elements.
    fn chains(&self, range: &Range<u64>, ct: &ComputeThread) -> Result<Vec<Vec<Piece>>> {
        if range.start > range.end || range.end > self.length {
            return Err(self.past_the_end("range", format!("{range:?}")));
        }
        let mut chains: Vec<Vec<Piece>> = Vec::new();
        // The chain of each memory node that has room, and its elements.
        let mut open: Vec<Option<(usize, u64)>> = vec![None; ct.nodes()];
        let mut next = range.start;
        while next < range.end {
            let (block, first) = ((next / self.per_block) as usize, next % self.per_block);
            let count = (self.per_block - first).min(range.end - next);
            let open = &mut open[block % ct.nodes()];
            let (chain, elements) = match *open {
                Some((chain, elements)) if elements + count <= MOST_PER_CHAIN => (chain, elements),
                _ => {
                    chains.push(Vec::new());
                    (chains.len() - 1, 0)
                }
            };
            *open = Some((chain, elements + count));
            chains[chain].push(Piece { block, first, count, at: (next - range.start) as usize });
            next += count;
        }
        Ok(chains)
    }

    #[cold]
    fn past_the_end(&self, argument: &'static str, value: String) -> Error {
        invalid(argument, format!("{value} of {}", self.length), "the array has no such elements")
    }
}

impl<T: Integer> Array<T> {
    /// Adds to an element, modulo 2 to the number of bits. Returns the old value. One round trip for 64-bit integers, two for narrower ones.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub async fn fetch_add(&self, index: u64, addend: T, ct: &ComputeThread) -> Result<T> {
        self.at(index)?.fetch_add(ct, addend).await
    }
}

/// The thread that has a block. A memory node's blocks belong to the threads whose index has the node's remainder, in turn; with fewer threads than memory nodes, a
/// thread has several nodes.
fn owner(block: usize, threads: usize, nodes: usize) -> usize {
    let node = block % nodes;
    if threads <= node {
        return node % threads;
    }
    let of_node = (threads - node).div_ceil(nodes);
    node + nodes * (block / nodes % of_node)
}

#[cold]
fn invalid(argument: &'static str, value: String, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument, value: value.into(), reason })
}

impl<T: Word> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("root", &self.root)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_one_owner_and_threads_have_equal_shares() {
        for nodes in 1..6 {
            for threads in 1..9 {
                let mut shares = vec![0; threads];
                let blocks = 840 * nodes;
                for block in 0..blocks {
                    shares[owner(block, threads, nodes)] += 1;
                }
                let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
                assert!(*least > 0 || threads > blocks, "{threads} threads, {nodes} nodes: {shares:?}");
                // A node's blocks are not given to threads of other nodes.
                assert!(*most <= 2 * *least, "{threads} threads, {nodes} nodes: {shares:?}");
            }
        }
    }
}
