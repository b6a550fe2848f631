//! The values of a trustee, and the count of their handles.
//!
//! # Counting
//!
//! A handle is an *edge*: a random number of 128 bits. The trustee has the exclusive or of all edges of a value. A copy of a handle inside its thread
//! shares the edge. A handle that is sent takes a fresh edge with it, and the sender's edge is changed by the same number: so the exclusive or stays as it is, and
//! no message is needed. A thread without any handle left sends its edge, which the trustee removes. When the exclusive or is 0, no handle lives: all
//! edges are random, so it is 0 by chance with a probability of 2^-128. This is right in whatever order messages arrive. Toggling an identity at each
//! clone and drop is not: a drop that overtakes the message of its clone frees too early.
//!
//! A dead thread can not send its edge. So the trustee knows of each other thread how much of the exclusive or is its own; this share is removed when the thread
//! ends. The shares must be right *before* a handle is visible to its receiver: the trustee writes them itself if it sends or receives the handle,
//! and a third thread tells it first (`GIVE`), and waits for the answer.

use std::any::Any;
use std::collections::HashSet;

use super::function::Method;
use super::slots::Refusal;
use farfield_words::ThreadId;

/// The bits of an object's number that are its index.
const INDEX_BITS: u32 = 20;

/// The values of a trustee.
#[derive(Default)]
pub(super) struct Objects {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Threads that have ended: what they still seem to have of an exclusive or is nobody's.
    ended: HashSet<ThreadId>,
}

struct Entry {
    /// How often the entry was used, so that old numbers are recognised.
    generation: u32,
    is_taken: bool,
    /// `None` while a function runs.
    value: Option<Box<dyn Any>>,
    methods: &'static [Method],
    edges: u128,
    /// The shares of other threads.
    shares: Vec<(ThreadId, u128)>,
}

/// A value that a function uses, with the methods of its type.
pub(super) type Taken = (Box<dyn Any>, &'static [Method]);

/// A value that no handle leads to any more, to be dropped outside of all borrows.
pub(super) type Unwanted = Option<Box<dyn Any>>;

impl Objects {
    /// Adds a value with one edge. Returns its number. `None` if there are 2^20 values.
    pub(super) fn add(&mut self, value: Box<dyn Any>, methods: &'static [Method], edge: u128) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() >> INDEX_BITS > 0 => return None,
            None => {
                self.entries.push(Entry {
                    generation: 0,
                    is_taken: false,
                    value: None,
                    methods: &[],
                    edges: 0,
                    shares: Vec::new(),
                });
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[index as usize];
        (entry.is_taken, entry.value, entry.methods, entry.edges) = (true, Some(value), methods, edge);
        Some(entry.generation << INDEX_BITS | index)
    }

    #[inline]
    fn entry(&mut self, object: u32) -> Option<&mut Entry> {
        let entry = self.entries.get_mut((object & ((1 << INDEX_BITS) - 1)) as usize)?;
        let generation = object >> INDEX_BITS;
        (entry.is_taken && entry.generation << INDEX_BITS >> INDEX_BITS == generation).then_some(entry)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == self.free.len()
    }

    pub(super) fn has(&mut self, object: u32) -> bool {
        self.entry(object).is_some()
    }

    /// Adds an edge of the trustee's own.
    pub(super) fn add_edge(&mut self, object: u32, edge: u128) {
        if let Some(entry) = self.entry(object) {
            entry.edges ^= edge;
        }
    }

    /// Takes a value out, so that a function can use it.
    #[inline]
    pub(super) fn take(&mut self, object: u32) -> Result<Taken, Refusal> {
        let entry = self.entry(object).ok_or(Refusal::NoSuchValue)?;
        let value = entry.value.take().ok_or(Refusal::InUse)?;
        Ok((value, entry.methods))
    }

    /// Puts a value back. Returns it if no handle is left.
    #[inline]
    pub(super) fn put(&mut self, object: u32, value: Box<dyn Any>) -> Unwanted {
        match self.entry(object) {
            Some(entry) => {
                entry.value = Some(value);
                if entry.edges != 0 {
                    return None;
                }
            }
            None => return Some(value),
        }
        self.settle(object)
    }

    /// Removes an edge. Returns the value if it was the last.
    pub(super) fn drop_edge(&mut self, object: u32, of: Option<ThreadId>, edge: u128) -> Unwanted {
        let entry = self.entry(object)?;
        entry.edges ^= edge;
        if let Some(thread) = of {
            self.share(object, thread, edge);
        }
        self.settle(object)
    }

    /// Adds an edge of another thread. Returns whether there is such a value.
    pub(super) fn join(&mut self, object: u32, thread: ThreadId, edge: u128) -> bool {
        let Some(entry) = self.entry(object) else { return false };
        entry.edges ^= edge;
        self.share(object, thread, edge);
        true
    }

    /// An edge that was one thread's, or nobody's, is another's.
    pub(super) fn give(
        &mut self,
        object: u32,
        from: Option<ThreadId>,
        to: Option<ThreadId>,
        edge: u128,
    ) -> Unwanted {
        for thread in from.into_iter().chain(to) {
            self.share(object, thread, edge);
        }
        self.settle(object)
    }

    /// Changes a thread's share. That of an ended thread is removed at once.
    fn share(&mut self, object: u32, thread: ThreadId, edge: u128) {
        let has_ended = self.ended.contains(&thread);
        let Some(entry) = self.entry(object) else { return };
        if has_ended {
            entry.edges ^= edge;
            return;
        }
        match entry.shares.iter_mut().find(|(other, _)| *other == thread) {
            Some((_, share)) => *share ^= edge,
            None => entry.shares.push((thread, edge)),
        }
        entry.shares.retain(|(_, share)| *share != 0);
    }

    /// Another thread has ended. Returns the values to which no handle is left.
    pub(super) fn ended(&mut self, thread: ThreadId) -> Vec<Box<dyn Any>> {
        if !self.ended.insert(thread) {
            return Vec::new();
        }
        let mut unwanted = Vec::new();
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            let Some(place) = entry.shares.iter().position(|(other, _)| *other == thread) else { continue };
            entry.edges ^= entry.shares.swap_remove(place).1;
            let object = entry.generation << INDEX_BITS | index as u32;
            unwanted.extend(self.settle(object));
        }
        unwanted
    }

    /// Returns the threads with shares.
    pub(super) fn sharers(&self) -> HashSet<ThreadId> {
        self.entries.iter().flat_map(|entry| &entry.shares).map(|(thread, _)| *thread).collect()
    }

    /// Removes a value without handles, unless a function uses it.
    fn settle(&mut self, object: u32) -> Unwanted {
        let entry = self.entry(object)?;
        if entry.edges != 0 {
            return None;
        }
        let value = entry.value.take()?;
        entry.is_taken = false;
        entry.generation = entry.generation.wrapping_add(1);
        entry.shares.clear();
        self.free.push(object & ((1 << INDEX_BITS) - 1));
        Some(value)
    }

    /// Removes all values.
    pub(super) fn clear(&mut self) -> Vec<Box<dyn Any>> {
        self.free.clear();
        self.entries.drain(..).filter_map(|entry| entry.value).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::prelude::*;

    use super::*;

    fn thread(number: usize) -> ThreadId {
        ThreadId::new(NonZeroU64::new(number as u64 + 1).unwrap())
    }

    #[test]
    fn a_number_of_a_dropped_value_is_of_no_other() {
        let mut objects = Objects::default();
        let first = objects.add(Box::new(1_u64), &[], 5).unwrap();
        assert!(objects.drop_edge(first, None, 5).is_some());
        let second = objects.add(Box::new(2_u64), &[], 6).unwrap();
        assert_ne!(first, second);
        assert!(!objects.has(first) && objects.has(second));
        assert_eq!(objects.take(first).err(), Some(Refusal::NoSuchValue));
    }

    #[test]
    fn a_value_in_use_is_dropped_when_it_is_put_back() {
        let mut objects = Objects::default();
        let object = objects.add(Box::new(1_u64), &[], 5).unwrap();
        let (value, _) = objects.take(object).ok().unwrap();
        assert_eq!(objects.take(object).err(), Some(Refusal::InUse));
        assert!(objects.drop_edge(object, None, 5).is_none());
        assert!(objects.put(object, value).is_some());
        assert!(objects.is_empty());
    }

    proptest! {
        /// Threads send handles to each other and drop them; drops arrive late and in any order; some threads die. The value is dropped
        /// exactly when no live thread has a handle, and all drops of live threads have arrived.
        #[test]
        fn handles_are_counted_in_whatever_order_messages_arrive(
            steps in prop::collection::vec((0_usize..4, 0_usize..4, any::<u128>(), 0_u8..8), 1..60)
        ) {
            let mut objects = Objects::default();
            let mut edges = [0_u128; 4];
            edges[0] = 77;
            let object = objects.add(Box::new(()), &[], 77).unwrap();
            objects.give(object, None, Some(thread(0)), 77);
            let (mut dead, mut late) = ([false; 4], Vec::new());
            let mut is_dropped = false;
            for (from, to, random, action) in steps {
                if dead[from] {
                    continue;
                }
                match action {
                    // A thread sends a handle: the trustee knows it before it is visible.
                    0..=3 if edges[from] != 0 && from != to && !dead[to] => {
                        let edge = if action == 0 { edges[from] } else { random | 1 };
                        is_dropped |= objects.give(object, Some(thread(from)), Some(thread(to)), edge).is_some();
                        edges[from] ^= edge;
                        edges[to] ^= edge;
                    }
                    4 | 5 if edges[from] != 0 => {
                        late.push((from, std::mem::take(&mut edges[from])));
                    }
                    6 if !late.is_empty() => {
                        let (from, edge) = late.swap_remove((random as usize) % late.len());
                        is_dropped |= objects.drop_edge(object, Some(thread(from)), edge).is_some();
                    }
                    7 => {
                        dead[from] = true;
                        edges[from] = 0;
                        // Its messages are lost, or come late.
                        if random & 1 == 0 {
                            late.retain(|(by, _)| *by != from);
                        }
                        is_dropped |= !objects.ended(thread(from)).is_empty();
                    }
                    _ => {}
                }
                let is_held = edges.iter().any(|edge| *edge != 0);
                prop_assert!(!(is_held && is_dropped), "dropped while a handle lives");
                if !is_held && late.is_empty() {
                    prop_assert!(is_dropped, "no handle lives, and nothing is on its way");
                }
            }
        }
    }
}
