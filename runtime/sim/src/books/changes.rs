//! The first and the last changes of each object.
//!
//! The last thousand records of a livelock show its loop, not its cause. The cause is a change of the objects that its threads wait for: a lock that
//! was taken, a node that was marked. So for each object its first change and its last few are kept, and for each lock its owner.
//!
//! Bounds: [`MAX_LOGS`] objects at a time, 19 MB; changes of further objects are not kept.
//! Costs: nothing for a READ; for a change some 30 instructions of the 3,000 that an operation takes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::trace::{Action, Actor, Record};
use farfield_words::Address;

/// The most objects that have a log.
const MAX_LOGS: usize = 1 << 16;
/// The number of last changes that are kept for an object.
const KEPT: usize = 3;

/// A change of an object: a record without the object.
#[derive(Clone, Copy, Debug)]
struct Change {
    actor: Actor,
    action: Action,
    at: Address,
}

/// The changes of one object in its present life.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    changes: u64,
    first: Option<Change>,
    last: [Option<Change>; KEPT],
}

/// An object's log, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogId(Option<std::num::NonZeroU32>);

/// The logs of all objects.
#[derive(Default)]
pub(super) struct Logs(Vec<Log>);

impl Logs {
    /// Logs a change of an object.
    #[inline]
    pub(super) fn changed(&mut self, id: &mut LogId, record: &Record) {
        if id.0.is_none() {
            if self.0.len() == MAX_LOGS {
                return;
            }
            self.0.push(Log::default());
            id.0 = std::num::NonZeroU32::new(self.0.len() as u32);
        }
        let Some(log) = id.0.and_then(|id| self.0.get_mut(id.get() as usize - 1)) else { return };
        let change = Some(Change { actor: record.actor, action: record.action, at: record.at });
        if log.first.is_none() {
            log.first = change;
        } else {
            log.last[log.changes as usize % KEPT] = change;
        }
        log.changes += 1;
    }

    /// Empties a log, when a new object takes over the memory of another.
    pub(super) fn reset(&mut self, id: LogId) {
        if let Some(log) = id.0.and_then(|id| self.0.get_mut(id.get() as usize - 1)) {
            *log = Log::default();
        }
    }

    /// Returns an object's first change and its last few, in order of time.
    pub(super) fn of(&self, id: LogId) -> Vec<(Actor, Action, Address)> {
        let Some(log) = id.0.and_then(|id| self.0.get(id.get() as usize - 1)) else { return Vec::new() };
        let changes = log.first.iter().chain(log.last.iter().flatten());
        let mut changes: Vec<_> = changes.map(|change| (change.actor, change.action, change.at)).collect();
        changes.sort_by_key(|(actor, ..)| actor.at);
        changes
    }
}

/// The words that name an owning thread, by address: locks, write locks of values, and claimed names.
#[derive(Default)]
pub(crate) struct HeldWords(HashMap<u64, (u64, Actor), BuildHasherDefault<Bits>>);

impl HeldWords {
    pub(super) fn acquired(&mut self, at: Address, word: u64, actor: Actor) {
        self.0.insert(at.bits(), (word, actor));
    }

    #[inline]
    pub(super) fn released(&mut self, at: Address) {
        if !self.0.is_empty() {
            self.0.remove(&at.bits());
        }
    }

    /// Returns a held word, its owner and the time of its acquisition.
    pub(crate) fn of(&self, at: Address) -> Option<(u64, Actor)> {
        self.0.get(&at.bits()).copied()
    }

    /// Returns all held words, in the order of their acquisition.
    pub(crate) fn all(&self) -> Vec<(Address, u64, Actor)> {
        let held = self.0.iter().map(|(at, (word, actor))| (Address::from_bits(*at), *word, *actor));
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|(at, _, actor)| (actor.at, at.bits()));
        held
    }
}

/// A hasher for addresses.
#[derive(Default)]
struct Bits(u64);

impl Hasher for Bits {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u64) -> Record {
        let actor = Actor { thread: 0, task: 0, at };
        Record {
            actor,
            action: Action::FetchAdd { addend: 1, found: at },
            at: Address::new(0, 64),
            object: None,
        }
    }

    #[test]
    fn the_first_change_and_the_last_are_kept() {
        let (mut logs, mut id) = (Logs::default(), LogId::default());
        assert!(logs.of(id).is_empty());
        for time in 1..=1000 {
            logs.changed(&mut id, &change(time));
        }
        let times: Vec<u64> = logs.of(id).iter().map(|(actor, ..)| actor.at).collect();
        assert_eq!(times, [1, 998, 999, 1000]);
        logs.reset(id);
        assert!(logs.of(id).is_empty());
        logs.changed(&mut id, &change(2000));
        assert_eq!(logs.of(id).len(), 1);
    }

    #[test]
    fn logs_are_bounded() {
        let mut logs = Logs::default();
        let mut ids = vec![LogId::default(); MAX_LOGS + 10];
        for id in &mut ids {
            logs.changed(id, &change(1));
        }
        assert_eq!(logs.0.len(), MAX_LOGS);
        assert!(logs.of(ids[MAX_LOGS + 5]).is_empty());
    }
}
