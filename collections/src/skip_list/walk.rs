//! Walks along the bottom: scans, counting, checking, recovery, destruction.

use std::collections::{HashMap, VecDeque};
use std::ops;

use farfield::Error;
use farfield::prelude::*;

#[allow(clippy::wildcard_imports)] // what the list consists of
use super::towers::*;

/// The most keys that a scan reads under one guard.
const PAGE: usize = 64;

/// The keys of a range and their values, in ascending order: see [`SkipList::range`](super::SkipList::range).
pub struct SkipScan<'a, K: Word, V: Word> {
    pub(super) towers: &'a Towers<K, V>,
    pub(super) ct: &'a ComputeThread,
    /// Where it goes on.
    pub(super) from: Bound<K>,
    pub(super) to: ops::Bound<K>,
    pub(super) ready: VecDeque<(K, V)>,
    pub(super) is_done: bool,
}

impl<K: Word + Ord, V: Word> SkipScan<'_, K, V> {
    /// Returns the next key and its value. One round trip for each key; one for up to 32 keys that the handle remembers. Every 64 keys it searches for its place. If the
    /// future is dropped, no key is lost.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn next(&mut self) -> Result<Option<(K, V)>> {
        if self.ready.is_empty() && !self.is_done {
            self.read_page().await?;
        }
        Ok(self.ready.pop_front())
    }

    async fn read_page(&mut self) -> Result<()> {
        let g = &self.ct.pin();
        let (mut walk, mut page) = (Walk::new(), VecDeque::new());
        let mut found = self.towers.find(&self.from, false, g).await?.found;
        let (mut path, mut from, mut is_done) = (Path::from(found.as_deref()), self.from, true);
        while let Some(seen) = found {
            walk.visit(seen.at)?;
            let is_in_range = match &self.to {
                ops::Bound::Included(to) => seen.key <= *to,
                ops::Bound::Excluded(to) => seen.key < *to,
                ops::Bound::Unbounded => true,
            };
            if !seen.is_dead() {
                if !is_in_range || page.len() == PAGE {
                    is_done = !is_in_range;
                    break;
                }
                if !from.passes(&seen.key) {
                    page.push_back((seen.key, seen.value));
                    from = Bound::Behind(seen.key);
                }
            }
            let next = marked(seen.links[0], false);
            found = if next.is_null() {
                None
            } else {
                Some(self.towers.visit(next, (0, &Bound::Last), seen.turn, &mut path, g).await?)
            };
        }
        (self.from, self.is_done, self.ready) = (from, is_done, page);
        Ok(())
    }
}

impl<K: Word + Ord, V: Word> Towers<K, V> {
    /// Counts the keys.
    pub(super) async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        let (to, ready) = (ops::Bound::Unbounded, VecDeque::new());
        let mut scan = SkipScan { towers: self, ct, from: Bound::First, to, ready, is_done: false };
        let mut len = 0;
        while scan.next().await?.is_some() {
            len += 1;
        }
        Ok(len)
    }

    /// Counts the live towers, whose keys may be equal, under one guard.
    pub(crate) async fn count(&self, g: &Guard<'_>) -> Result<u64> {
        let (mut seen, mut walk, mut count) = (self.read(self.to_head(g)?, g).await?, Walk::new(), 0);
        while !seen.links[0].is_null() {
            seen = self.read(marked(seen.links[0], false), g).await?;
            walk.visit(seen.at)?;
            count += u64::from(!seen.is_dead());
        }
        Ok(count)
    }

    /// Checks a list that nobody changes. Returns the number of keys.
    pub(crate) async fn check(&self, allows_equal: bool, ct: &ComputeThread) -> Result<u64> {
        let g = &ct.pin();
        let fault =
            |at: Shared<'_, Tower<K, V>>, what: &str| Error::other(format!("the tower {at:?} {what}"));
        let head = self.read(self.to_head(g)?, g).await?;
        let (mut len, mut last, mut heights, mut walk) = (0, None, HashMap::new(), Walk::new());
        let mut next = head.links[0];
        if head.is_leaving() {
            return Err(fault(head.at, "is the head, and dead"));
        }
        while !next.is_null() {
            walk.visit(next.shared())?;
            let seen = self.read(next, g).await?;
            if seen.is_raised && seen.at.raising().is_held(g).await? {
                return Err(fault(seen.at, "is locked"));
            }
            heights.insert(seen.at.address(), seen.links.len());
            if !seen.is_dead() {
                let ascends = last.is_none_or(|last| last < seen.key || allows_equal && last == seen.key);
                if !ascends {
                    return Err(fault(seen.at, &format!("of key {:?} is out of order", seen.key)));
                }
                (last, len) = (Some(seen.key), len + 1);
            }
            next = marked(seen.links[0], false);
        }
        for level in 1..LEVELS {
            let (mut next, mut last) = (head.links[level], None);
            while !next.is_null() {
                if heights.get(&next.shared().address()).is_none_or(|height| *height <= level) {
                    return Err(fault(
                        next.shared(),
                        &format!("is linked in level {level}, and not at the bottom"),
                    ));
                }
                let seen = self.read(next, g).await?;
                if last.is_some_and(|last| last > seen.key) {
                    let what = format!("of key {:?} is out of order in level {level}", seen.key);
                    return Err(fault(seen.at, &what));
                }
                (last, next) = (Some(seen.key), marked(seen.links[level], false));
            }
        }
        Ok(len)
    }

    /// Takes out dead towers, unless their levels are being linked.
    pub(crate) async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let (mut next, mut walk, mut behind) =
            (self.read(self.to_head(g)?, g).await?.links[0], Walk::new(), Bound::First);
        let mut is_behind_live = true;
        while !next.is_null() {
            walk.visit(next.shared())?;
            let seen = self.read(next, g).await?;
            if !seen.is_dead() {
                behind = Bound::Behind(seen.key);
            } else if is_behind_live {
                // The search passes it, and the dead ones behind it.
                self.find(&behind, true, g).await?;
            }
            is_behind_live = !seen.is_dead();
            next = marked(seen.links[0], false);
        }
        Ok(())
    }

    /// Frees all towers.
    pub(crate) async fn destroy(&self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let (mut next, mut walk) = (self.to_head(g)?, Walk::new());
        while !next.is_null() {
            walk.visit(next.shared())?;
            let seen = self.read(next, g).await?;
            next = marked(seen.links[0], false);
            ct.delete(seen.at).await?;
        }
        Ok(())
    }
}
