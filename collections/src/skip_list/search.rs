//! Searches: where a key is, or would be. Towers whose keys were removed are taken out on the way.

use std::rc::Rc;

use farfield::Error;
use farfield::op::{Operations, Replacement};
use farfield::prelude::*;

#[allow(clippy::wildcard_imports)] // what the list consists of
use super::towers::*;

/// A tower and the word of one of its links, as far as this thread knows.
pub(super) type Before<'g, K, V> = (Rc<Seen<'g, K, V>>, Next<'g, K, V>);

/// The end of a search.
pub(crate) struct Position<'g, K: Word, V: Word> {
    /// The last live tower in front of the bound, or the head.
    pub(crate) pred: Rc<Seen<'g, K, V>>,
    /// The word of its bottom link.
    pub(super) next: Next<'g, K, V>,
    /// The first live tower behind the bound.
    pub(crate) found: Option<Rc<Seen<'g, K, V>>>,
    /// The place in front of the bound in each level, where one can be linked. That of the bottom is `None`.
    pub(super) above: Vec<Option<Before<'g, K, V>>>,
    /// True if dead towers are between `pred` and `found`, or were.
    pub(super) has_skipped: bool,
}

impl<K: Word + Ord, V: Word> Towers<K, V> {
    /// Returns the value of a key.
    pub(super) async fn get(&self, key: K, g: &Guard<'_>) -> Result<Option<V>> {
        if g.is_immediate()
            && let Some(found) = self.get_by_words(key, g).await?
        {
            return Ok(found);
        }
        let found = self.find(&Bound::At(key), false, g).await?.found;
        Ok(found.filter(|found| found.key == key).map(|found| found.value))
    }

    /// Returns the value of a key, where a word costs no round trip: of each tower, only the words that are needed are read. `None` if a tower on the way is dead.
    async fn get_by_words(&self, key: K, g: &Guard<'_>) -> Result<Option<Option<V>>> {
        let mut pred = self.head.shared(g);
        for level in (0..LEVELS as u64).rev() {
            loop {
                let next = pred.links().at(level).load(g).await?.shown();
                if next.tag().dead() {
                    return Ok(None);
                }
                let curr = next.shared();
                if next.is_null() {
                    break;
                }
                let found = curr.key().read(g).await?;
                if found < key {
                    pred = curr;
                    continue;
                }
                if found > key {
                    break;
                }
                let value = curr.value().read(g).await?;
                // Of several towers with a key, only one is live.
                return Ok((!curr.links().at(0).load(g).await?.tag().dead()).then_some(Some(value)));
            }
        }
        Ok(Some(None))
    }

    /// Searches for a bound. `cleans` says whether it takes out dead towers on the way. A round trip for each tower that the handle does not remember.
    pub(crate) async fn find<'g>(
        &self,
        bound: &Bound<K>,
        cleans: bool,
        g: &'g Guard<'_>,
    ) -> Result<Position<'g, K, V>> {
        let mut path = Path::new();
        let top = if matches!(bound, Bound::First) { 0 } else { LEVELS - 1 };
        let mut pred = self.visit(self.to_head(g)?, (top, bound), 0, &mut path, g).await?;
        let mut above = vec![None; LEVELS];
        let mut walk = Walk::new();
        for level in (1..LEVELS).rev() {
            let (mut next, mut after, mut is_behind_dead) = (pred.links[level], pred.turn, false);
            let mut word = next;
            while !next.is_null() && !matches!(bound, Bound::First) {
                let mut seen = self.visit(next, (level, bound), after, &mut path, g).await?;
                after = seen.turn;
                if cleans && seen.is_leaving() && !linked_at(&seen, level)?.tag().dead() {
                    seen = self.freeze(&seen, g).await?;
                }
                let link = linked_at(&seen, level)?;
                if seen.is_leaving() {
                    let behind = marked(link, false);
                    if cleans && link.tag().dead() && !is_behind_dead {
                        let unlink = exchange_link(&pred, level, word, behind);
                        g.chain(unlink).post()?;
                        self.remember_link(&pred, level, behind);
                        word = behind;
                    } else {
                        is_behind_dead = true;
                    }
                    next = behind;
                } else if bound.passes(&seen.key) {
                    walk.visit(seen.at)?;
                    (pred, word, next, is_behind_dead) = (seen, link, link, false);
                } else {
                    break;
                }
            }
            // A tower that is linked in front of a dead one could hide it from `is_unlinked_above`.
            above[level] = (!is_behind_dead).then(|| (Rc::clone(&pred), word));
        }
        let (mut next, mut after) = (pred.links[0], pred.turn);
        let (mut word, mut is_behind_dead, mut has_skipped) = (next, false, false);
        let found = loop {
            if next.is_null() {
                break None;
            }
            let seen = self.visit(next, (0, bound), after, &mut path, g).await?;
            walk.visit(seen.at)?;
            after = seen.turn;
            if seen.is_dead() {
                next = marked(seen.links[0], false);
                has_skipped = true;
                if cleans && !is_behind_dead && self.is_unlinked_above(&seen, g).await? {
                    self.post_unlink(&pred, word, seen.links.len(), next, g)?;
                    word = next;
                } else {
                    is_behind_dead = true;
                }
            } else if bound.passes(&seen.key) {
                next = seen.links[0];
                (pred, word, is_behind_dead) = (seen, next, false);
            } else {
                break Some(seen);
            }
        };
        Ok(Position { pred, next: word, found, above, has_skipped })
    }

    /// Takes a dead tower out of the bottom, without waiting. The CAS that does so retires it.
    pub(super) fn post_unlink<'g>(
        &self,
        pred: &Seen<'g, K, V>,
        word: Next<'g, K, V>,
        height: usize,
        behind: Next<'g, K, V>,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        let behind = marked(behind, false);
        self.remember_link(pred, 0, behind);
        g.chain(op::replace(pred.link(0), word, height as u64, Replacement::existing(behind))).post()
    }

    /// Searches for the first tower so that it was the first at some moment. A round trip more if dead towers are in front of it.
    pub(crate) async fn front<'g>(&self, cleans: bool, g: &'g Guard<'_>) -> Result<Position<'g, K, V>> {
        let mut backoff = g.backoff();
        loop {
            let place = self.find(&Bound::First, cleans, g).await?;
            if !place.has_skipped {
                return Ok(place);
            }
            // Between the head and it there are only towers that were dead before the head is read once more.
            let head = op::load(place.pred.link(0));
            let found = place.found.as_ref().map(|found| op::load(found.link(0)));
            let (next, found) = g.chain((head, found)).submit().await?;
            if next == place.next && !found.is_some_and(|link| link.tag().dead()) {
                return Ok(place);
            }
            backoff.wait().await;
        }
    }

    /// Marks the links above the bottom of a tower that are not marked yet, and reads it again. One round trip.
    pub(super) async fn freeze<'g>(
        &self,
        dead: &Seen<'g, K, V>,
        g: &'g Guard<'_>,
    ) -> Result<Rc<Seen<'g, K, V>>> {
        let next = linked(dead.at, dead.links.len())?;
        g.chain(marks(dead)).post()?;
        self.read(next, g).await
    }

    /// Returns whether a dead tower is linked in no level above the bottom, and will not be.
    ///
    /// All its links are seen marked before its lock is seen free, so nobody links it any more. Then the levels are searched for its key. Keys ascend in them, among
    /// equal ones too; a link that is not marked belongs to a tower that is linked. So if the tower were linked in a level, the walk would meet it there. A round trip for each
    /// tower that it visits.
    pub(super) async fn is_unlinked_above<'g>(
        &self,
        dead: &Seen<'g, K, V>,
        g: &'g Guard<'_>,
    ) -> Result<bool> {
        if dead.links.len() == 1 {
            return Ok(true);
        }
        let frozen;
        let dead = if dead.is_frozen() {
            dead
        } else {
            frozen = self.freeze(dead, g).await?;
            &*frozen
        };
        if !dead.is_frozen() || dead.is_raised && dead.at.raising().is_held(g).await? {
            return Ok(false);
        }
        let mut pred = self.read(self.to_head(g)?, g).await?;
        for level in (1..LEVELS).rev() {
            let (mut before, mut next) = (Rc::clone(&pred), pred.links[level]);
            while !next.is_null() {
                let mut seen = self.read(next, g).await?;
                while seen.is_leaving() && !linked_at(&seen, level)?.tag().dead() {
                    seen = self.freeze(&seen, g).await?;
                }
                let link = linked_at(&seen, level)?;
                if link.tag().dead() {
                    let behind = marked(link, false);
                    let unlink = exchange_link(&before, level, next, behind);
                    if g.chain(unlink).submit().await?.is_err() {
                        return Ok(false);
                    }
                    next = behind;
                    continue;
                }
                if seen.key > dead.key {
                    break;
                }
                next = link;
                if seen.key < dead.key {
                    pred = Rc::clone(&seen);
                }
                before = seen;
            }
        }
        Ok(true)
    }
}

/// Operations that mark the links above the bottom of a tower.
pub(super) fn marks<'g, K: Word, V: Word>(
    tower: &Seen<'g, K, V>,
) -> Vec<impl Operations<'g> + use<'g, K, V>> {
    let levels = (1..tower.links.len()).rev().filter(|level| !tower.links[*level].tag().dead());
    let mark = |level: usize| {
        let link = tower.links[level];
        exchange_link(tower, level, link, marked(link, true))
    };
    levels.map(mark).collect()
}

/// Returns the link of a tower that was reached in a level.
fn linked_at<'g, K: Word, V: Word>(tower: &Seen<'g, K, V>, level: usize) -> Result<Next<'g, K, V>> {
    let link = tower.links.get(level).copied();
    link.ok_or_else(|| Error::other(format!("the tower {:?} is linked above its height", tower.at)))
}
