//! Changes: a CAS of a bottom link, and the linking and unlinking of levels above it.

use farfield::op::Replacement;
use farfield::prelude::*;

use super::search::{Position, marks};
#[allow(clippy::wildcard_imports)] // what the list consists of
use super::towers::*;

/// What becomes of a key.
pub(crate) enum Change<V> {
    Keep,
    Store(V),
    Remove,
}

impl<K: Word + Ord, V: Word> Towers<K, V> {
    /// Makes of a key what `decide` decides of its value. Returns the value.
    pub(super) async fn change(
        &self,
        key: K,
        mut decide: impl FnMut(Option<V>) -> Change<V>,
        g: &Guard<'_>,
    ) -> Result<Option<V>> {
        let mut backoff = g.backoff();
        loop {
            let place = self.find(&Bound::At(key), true, g).await?;
            let old = place.found.as_ref().filter(|found| found.key == key);
            let value = old.map(|old| old.value);
            let is_done = match (decide(value), old) {
                (Change::Keep, _) | (Change::Remove, None) => true,
                (Change::Store(new), None) => self.insert(&place, key, new, g).await?,
                (Change::Store(new), Some(old)) => self.kill(&place, old, Some(new), g).await?,
                (Change::Remove, Some(old)) => self.kill(&place, old, None, g).await?,
            };
            if is_done {
                return Ok(value);
            }
            backoff.wait().await;
        }
    }

    /// Inserts a tower behind `place.pred`. Returns `false` if its bottom link has changed.
    pub(crate) async fn insert(
        &self,
        place: &Position<'_, K, V>,
        key: K,
        value: V,
        g: &Guard<'_>,
    ) -> Result<bool> {
        let height = Self::height(g);
        let above = |level: usize| place.above[level].as_ref().map(|(_, word)| *word);
        let links = (0..height).map(|level| if level == 0 { Some(place.next) } else { above(level) });
        let links: Vec<Next<'_, K, V>> = links.map(|link| link.unwrap_or(Next::NULL)).collect();
        let new = self.tower(key, value, &links, g).await?;
        let (at, new) = (new.as_ptr(), Replacement::of(new, TowerTag::new(height as u8, false))?);
        let publish = op::publish(place.pred.link(0), place.next, new);
        if g.chain(publish).submit().await?.is_err() {
            return Ok(false);
        }
        let new = linked(at.shared(g), height)?;
        self.remember_link(&place.pred, 0, new);
        self.raise(new, key, &links, place, g).await?;
        Ok(true)
    }

    /// Makes a tower.
    async fn tower(
        &self,
        key: K,
        value: V,
        links: &[Next<'_, K, V>],
        g: &Guard<'_>,
    ) -> Result<Owned<Tower<K, V>>> {
        let links = links.iter().enumerate().map(|(level, link)| stored(*link, level).into()).collect();
        Tower::new_in(g.near(self.head), Tower::init(key, value, links)).await
    }

    /// Removes a tower's key, or replaces the tower by a new one with another value. Returns `false` if its bottom link has changed.
    pub(crate) async fn kill<'g>(
        &self,
        place: &Position<'g, K, V>,
        old: &Seen<'g, K, V>,
        value: Option<V>,
        g: &'g Guard<'_>,
    ) -> Result<bool> {
        let (height, mut links, mut new) = (Self::height(g), Vec::new(), Next::NULL);
        let behind = match value {
            None => Replacement::existing(marked(old.links[0], true)),
            Some(value) => {
                let above = |level: usize| {
                    let word = place.above[level].as_ref().map(|(_, word)| *word);
                    // The old tower is unlinked before the new one is linked.
                    word.map(
                        |word| if word.shared() == old.at { marked(old.links[level], false) } else { word },
                    )
                };
                let next = |level: usize| if level == 0 { Some(old.links[0]) } else { above(level) };
                links = (0..height).map(|level| next(level).unwrap_or(Next::NULL)).collect();
                let tower = self.tower(old.key, value, &links, g).await?;
                new = linked(tower.as_ptr().shared(g), height)?;
                Replacement::of(tower, TowerTag::new(height as u8, true))?
            }
        };
        let exchange = op::publish(old.link(0), old.links[0], behind);
        let levels = old.links.len() as u64;
        let again = (levels > 1).then(|| (op::load_range(old.at.links(), 0..levels), op::read(old.at)));
        let (_, exchanged, again) = g.chain((marks(old), exchange, again)).submit().await?;
        if exchanged.is_err() {
            return Ok(false);
        }
        let frozen = again.map(|(links, tower)| (links, tower.raising.is_held()));
        let behind = if new.is_null() { old.links[0] } else { new };
        self.unlink(place, old, frozen, behind, g).await?;
        if !new.is_null() {
            self.raise(new, old.key, &links, place, g).await?;
        }
        Ok(true)
    }

    /// Takes out a tower that this thread has just killed, if it is where the search has found it, in each level. Otherwise a later search does. `frozen` are its links, read
    /// after they were marked, and whether its levels were being linked then.
    async fn unlink<'g>(
        &self,
        place: &Position<'g, K, V>,
        old: &Seen<'g, K, V>,
        frozen: Option<(Vec<Next<'g, K, V>>, bool)>,
        behind: Next<'g, K, V>,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        if let Some((links, is_raised)) = frozen {
            if is_raised || links.iter().any(|link| !link.tag().dead()) {
                return Ok(());
            }
            let mut unlinks = Vec::new();
            for level in (1..links.len()).rev() {
                match &place.above[level] {
                    Some((pred, word)) if word.shared() == old.at => {
                        let behind = marked(links[level].shown(), false);
                        self.remember_link(pred, level, behind);
                        unlinks.push(exchange_link(pred, level, *word, behind));
                    }
                    _ => return Ok(()),
                }
            }
            if g.chain(unlinks).submit().await?.iter().any(Result::is_err) {
                return Ok(());
            }
        }
        if place.next.shared() == old.at {
            self.post_unlink(&place.pred, place.next, old.links.len(), behind, g)?;
        }
        Ok(())
    }

    /// Links a new tower in the levels above the bottom, one after the other: whoever reaches it in a level finds it linked in all levels below. Gives up if something has
    /// changed: the tower is lower then. A round trip for each level.
    async fn raise(
        &self,
        new: Next<'_, K, V>,
        key: K,
        links: &[Next<'_, K, V>],
        place: &Position<'_, K, V>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let known = links.iter().map(|link| (link.shared().address(), link.tag().height()));
        self.remember_links(new.shared().address(), Some(key), known);
        if links.len() == 1 {
            return Ok(());
        }
        let tower = new.shared();
        let claim = (op::try_lock(tower.raising()), op::load_range(tower.links(), 0..links.len() as u64));
        let (Some(lock), seen) = g.chain(claim).submit().await? else { return Ok(()) };
        if seen.iter().any(|link| link.tag().dead()) {
            return Ok(());
        }
        let mut lock = Some(lock);
        for level in 1..links.len() {
            let Some((pred, _)) = &place.above[level] else { break };
            let link = exchange_link(pred, level, links[level], new);
            self.remember_link(pred, level, new);
            if level + 1 == links.len() {
                let last = g.chain((link, lock.take().map(op::release)));
                // Only when the head's node is full, towers are on several.
                let is_on_one_node = pred.at.address().segment() == tower.address().segment();
                return if is_on_one_node { last.post() } else { last.submit().await.map(drop) };
            }
            if g.chain(link).submit().await?.is_err() {
                break;
            }
        }
        drop(lock);
        Ok(())
    }
}
