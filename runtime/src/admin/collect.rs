//! Collection: frees the memory that dead processes have lost, while the cluster has one member.
//!
//! The death of a process loses its local knowledge of memory: the free lists and limbo lists of its threads, and objects that it had allocated and
//! not linked. No word in far memory records the owner of such blocks; recording it would cost every operation. Instead memory is *collected* after
//! such losses. Evictions are counted, and so are processes that left garbage because guards of others protected it. Blocks that are reachable from the
//! roots are in use; all others are free.
//!
//! # When
//!
//! A process collects when it joins and finds no other member, before its first operation. `farfield collect` is such a process. In a cluster with
//! other members memory is [swept](crate::sweep), if the cluster was made with `--sweep`. Without other members no process holds a block that is
//! unreachable from the roots. A process that joins meanwhile [waits](super::sole_member).
//!
//! # Tracing and rebuilding
//!
//! Objects are traced by the [descriptions](farfield_words::describe) that are published with roots. All words of an object without a description are
//! treated as pointers. A pointer that a described type hides in an integer is not followed.
//!
//! All of the allocator's state is rebuilt: the pool's lists are emptied *first*, then chunks without a marked block become free, and the unmarked
//! blocks of the others go to the pool. A collector that dies leaves at worst too few blocks in the pool. The collection is recorded last, so the
//! next collector starts again.
//!
//! It costs a READ for each object, up to 32 of which share a round trip, one for each chunk table, and for each chunk in use the WRITEs of one page
//! of the pool.

use std::collections::HashMap;

use super::pace::Pace;
use crate::error::Result;
use crate::io::operations::*;
use crate::io::{ABANDONED, write_lock_of_dead_writer};
use crate::memory::cache::NodeCache;
use crate::memory::candidates::BlockRange;
use crate::memory::far::WORDS_PER_READ;
use crate::memory::heap::ThreadHeap;
use crate::memory::map::Map;
use crate::segment::classes::{CLASSES, Class};
use crate::segment::control::{self, SLOT_PAGES};
use crate::segment::decode;
use crate::segment::grid::Use;
use crate::segment::record::SeenMember;
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::layouts::{Found, Layouts};
use farfield_words::link_target;

/// The number of objects that are read at a time.
const OBJECTS_PER_CHAIN: usize = 32;
/// The type of an object, in the description of its root, if it is described.
type Type = Option<usize>;

/// The environment of a trace.
#[derive(Clone, Copy)]
pub(crate) enum TraceMode<'a> {
    /// This process is the only member. Locks may be freed.
    Exclusive { frees_locks: bool },
    /// The cluster is in use: the result may be out of date when it is returned.
    Concurrent(&'a Pace),
}

fn words_of(block: Block) -> usize {
    block.bytes as usize / WORD_BYTES
}

impl ThreadHeap {
    /// Clears the free lists of the thread and its process, which the collection finds again.
    fn clear_caches(&self) {
        drop(self.process.take_spare());
        self.process.known.forget();
        for node in &self.nodes {
            let segment = node.borrow().current_segment;
            *node.borrow_mut() = NodeCache::new(segment);
        }
    }

    /// Adds a free block that the collection has found.
    fn put_free(&self, class: Class, at: Address) {
        if self.node(at).borrow_mut().put(class, at) > self.max_cached_blocks() {
            self.has_surplus.set(true);
        }
    }
}

impl ComputeThread {
    /// Collects memory if dead processes have lost some and this process is the only member. Returns how many bytes were lost. For a process that has
    /// joined and not done any operation yet.
    pub(crate) async fn collect_if_alone(&self) -> Result<u64> {
        let [exits, collected] = self.read_array(control::unclean_exits()).await?;
        if exits == collected {
            return Ok(0);
        }
        self.collect_alone().await.map(|lost| lost.unwrap_or_default())
    }

    /// Collects memory if this process is the only member, and returns how many bytes were lost; otherwise returns the other members. Like
    /// [`collect_if_alone`](Self::collect_if_alone), also if no process has died.
    pub(crate) async fn collect_alone(&self) -> Result<Result<u64, Vec<SeenMember>>> {
        let body = async |ct: &Self| {
            let exits = ct.read_word(control::unclean_exits()).await?;
            let lost = ct.collect(false).await?;
            ct.write_word(control::collected_exits(), exits).await?;
            Ok(lost)
        };
        self.while_alone(body).await
    }

    /// Collects memory, as the only member. With `frees_locks`, held locks of described objects become free, and their next owners are notified.
    /// Returns how many bytes were lost: neither reachable from a root nor in the pool.
    pub(crate) async fn collect(&self, frees_locks: bool) -> Result<u64> {
        let heap = self.heap();
        let geometry = heap.geometry;
        // This process's blocks are found again, like all others.
        heap.clear_caches();
        let mut map = self.read_map().await?;
        let live = self.mark_all(&mut map, TraceMode::Exclusive { frees_locks }).await?;
        let lost = map.candidates(Some(&self.read_pool(&Pace::default()).await?));
        let lost = lost.iter().map(BlockRange::candidate_bytes).sum();
        self.fetch_add_word(control::collected_bytes(), lost).await?;
        // First, since no block may be in two lists.
        for node in 0..geometry.nodes() {
            let first = geometry.segments_of(node).start;
            self.write_words(control::pool_head(first, 0), &[0; CLASSES]).await?;
        }
        let mut freed = 0;
        for segment in 0..geometry.segments() {
            freed += self.rebuild(&map, segment as u16).await?;
        }
        self.give_everything();
        self.wait_for_detached().await;
        for (node, bytes) in live {
            self.write_word(control::live_bytes(geometry.segments_of(node).start), bytes).await?;
        }
        self.write_word(control::left_bytes(), 0).await?;
        tracing::info!(lost_bytes = lost, free_bytes = freed, "collected the memory of ended processes");
        Ok(lost)
    }

    /// Reads the use of all chunks. No block is marked.
    pub(crate) async fn read_map(&self) -> Result<Map> {
        let geometry = self.heap().geometry;
        let mut tables = Vec::new();
        for segment in 0..geometry.segments() {
            tables.push(self.read_table(segment as u16).await?);
        }
        Ok(Map::new(self.heap().grid, tables, geometry.segment_bytes()))
    }

    pub(crate) async fn read_table(&self, segment: u16) -> Result<Vec<Use>> {
        let chunks = self.heap().grid.chunks(segment);
        let taken = self.read_word(control::taken_chunks(segment)).await?.min(chunks) as usize;
        let words = self.read_far(self.heap().grid.word(segment, 0), taken).await?;
        (0..).zip(words).map(|(chunk, word)| self.heap().grid.usage(segment, chunk, word)).collect()
    }

    /// Marks all blocks that are reachable from the roots. Returns the bytes of objects, by memory node.
    pub(crate) async fn mark_all(&self, map: &mut Map, mode: TraceMode<'_>) -> Result<HashMap<u16, u64>> {
        let frees_locks = matches!(mode, TraceMode::Exclusive { frees_locks: true });
        let mut live: HashMap<u16, u64> = (0..self.heap().geometry.nodes()).map(|node| (node, 0)).collect();
        // Pages of slots and records are outside the control block, among the objects.
        let pages = self.read_words(control::epoch_page(0), SLOT_PAGES, |words| Ok(words.to_vec())).await?;
        let pages = (0..).zip(pages).map(|(index, word)| decode::slot_page(&self.heap().grid, index, word));
        let pages: Vec<Option<Address>> = pages.collect::<Result<_>>()?;
        for at in pages.into_iter().flatten().chain(self.kept_descriptions().await?) {
            if let Some(block) = map.block(at) {
                map.mark(block);
            }
        }
        for root in self.roots().await? {
            let layouts = self.read_description(root.description).await?;
            let of = layouts.as_ref().map(|_| Layouts::ROOT);
            let mut pending = vec![(root.at, of)];
            loop {
                let objects = Self::take_unmarked(&mut pending, map);
                if objects.is_empty() {
                    break;
                }
                let blocks: Vec<_> = objects.iter().map(|(block, _)| *block).collect();
                let read = self.read_blocks(&blocks, mode).await?;
                let mut rest = &read[..];
                for (block, of) in objects {
                    let words;
                    (words, rest) = rest.split_at(words_of(block));
                    let at = block.address;
                    *live.entry(self.node_of(at)).or_default() += block.bytes;
                    match (&layouts, of) {
                        (Some(layouts), Some(of)) => {
                            let (mut locks, mut rights) = (Vec::new(), Vec::new());
                            layouts.visit(of, words, &mut |found| match found {
                                Found::Pointer(at, of) => pending.push((at, of)),
                                Found::Lock(offset) => locks.push(offset),
                                Found::WriteLock(offset) => rights.push(offset),
                            });
                            for offset in locks.into_iter().filter(|_| frees_locks) {
                                let held = words[offset as usize / WORD_BYTES];
                                if held > ABANDONED {
                                    self.write_word(at.add(offset), ABANDONED).await?;
                                }
                            }
                            for offset in rights.into_iter().filter(|_| frees_locks) {
                                if let Some(left) =
                                    write_lock_of_dead_writer(words[offset as usize / WORD_BYTES])
                                {
                                    self.write_word(at.add(offset), left).await?;
                                }
                            }
                        }
                        _ => pending.extend(words.iter().map(|word| (link_target(*word), None))),
                    }
                }
            }
        }
        Ok(live)
    }

    /// Takes objects that are not marked yet, and marks them: as many as one round trip reads. Pointers from objects without a description may have a link's marks.
    fn take_unmarked(pending: &mut Vec<(Address, Type)>, map: &mut Map) -> Vec<(Block, Type)> {
        let (mut objects, mut words) = (Vec::new(), 0);
        while objects.len() < OBJECTS_PER_CHAIN
            && let Some((at, of)) = pending.pop()
        {
            let Some(block) = map.target(at) else { continue };
            words += words_of(block);
            if words > WORDS_PER_READ && !objects.is_empty() {
                pending.push((at, of));
                break;
            }
            if map.mark(block) {
                objects.push((block, of));
            } else {
                words -= words_of(block);
            }
        }
        objects
    }

    /// Reads blocks, one after the other in the result: all in one round trip, or one block that is larger than the limit of a READ.
    async fn read_blocks(&self, blocks: &[Block], mode: TraceMode<'_>) -> Result<Vec<u64>> {
        if let [block] = blocks {
            return match mode {
                TraceMode::Exclusive { .. } => self.read_far(block.address, words_of(*block)).await,
                TraceMode::Concurrent(pace) => self.scan_far(block.address, words_of(*block), pace).await,
            };
        }
        let mut read: Vec<Vec<u64>> = vec![Vec::new(); blocks.len()];
        let mut nodes: Vec<u16> = blocks.iter().map(|block| self.node_of(block.address)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        // A chain accesses one memory node. Chains to several nodes overlap.
        let submitted = nodes.into_iter().map(|node| {
            let mut chain = self.empty_chain();
            let mut slots = Vec::new();
            for (index, block) in blocks.iter().enumerate() {
                if self.node_of(block.address) == node {
                    let slot = match mode {
                        TraceMode::Exclusive { .. } => chain.read(block.address, words_of(*block)),
                        TraceMode::Concurrent(_) => chain.scan(block.address, words_of(*block)),
                    };
                    slots.push((index, slot));
                }
            }
            (slots, self.submit(chain))
        });
        for (slots, submitted) in submitted.collect::<Vec<_>>() {
            let done = submitted.await?;
            for (index, slot) in slots {
                read[index] = done.words(slot).to_vec();
            }
        }
        if let TraceMode::Concurrent(pace) = mode {
            pace.pause(self).await;
        }
        Ok(read.concat())
    }

    /// Rebuilds a segment's chunks. Returns the free bytes.
    async fn rebuild(&self, map: &Map, segment: u16) -> Result<u64> {
        let (heap, grid) = (self.heap(), self.heap().grid);
        let table = &map.tables[usize::from(segment)];
        let mut words = Vec::with_capacity(table.len());
        let (mut chunk, mut freed) = (0, 0);
        while chunk < table.len() as u64 {
            match table[chunk as usize] {
                Use::Large(chunks) if map.is_large_marked(segment, chunk, chunks) => {
                    words.push(Use::Large(chunks).to_word());
                    words.extend((1..chunks).map(|_| Use::Continued.to_word()));
                    chunk += chunks;
                    continue;
                }
                Use::Small(class) => {
                    let (start, bytes) = grid.blocks(segment, chunk, class);
                    let blocks = (0..bytes / class.bytes()).map(|index| start.add(index * class.bytes()));
                    let free: Vec<Address> = blocks.clone().filter(|at| !map.is_marked(*at)).collect();
                    freed += free.len() as u64 * class.bytes();
                    if free.len() as u64 == bytes / class.bytes() {
                        words.push(Use::Free.to_word());
                    } else {
                        words.push(Use::Small(class).to_word());
                        for at in free {
                            heap.put_free(class, at);
                        }
                    }
                }
                // A chunk that was taken and never used, or part of a large object that is not complete.
                _ => {
                    freed += grid.chunk_bytes();
                    words.push(Use::Free.to_word());
                }
            }
            chunk += 1;
        }
        words.truncate(table.len());
        let free = words.iter().filter(|word| **word == Use::Free.to_word()).count() as u64;
        self.write_far(self.heap().grid.word(segment, 0), &words).await?;
        self.write_word(control::freed_chunks(segment), free).await?;
        self.give_surplus();
        Ok(freed)
    }
}
