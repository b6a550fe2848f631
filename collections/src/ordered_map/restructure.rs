//! The replacement of nodes: splits, merges, and nodes whose slots are used up.
//!
//! 1. The new nodes are allocated, so that memory does not run out later.
//! 2. The old node, and the neighbour with which it is merged, are frozen; slots of the parent are claimed.
//! 3. Slots that are not live give up what they link to.
//! 4. The new nodes are written, and linked to by the claimed slots.
//! 5. One CAS of the parent's header makes the new slots live, and the old ones dead.
//!
//! The client whose CAS freezes a node replaces it. Others wait for it, and replace the node themselves if that takes too long: the client may be dead. The live slots of a frozen
//! node are final, so all who do that make the same of it, and one succeeds with (5). The others free what they have made.

use std::future::Future;
use std::pin::Pin;

use farfield::op::Replacement;
use farfield::prelude::*;
use farfield::{Blob, Error};

use super::entries::{DEAD_ENTRY, EntryLink, EntryTag, NewEntry, capacity, class};
use super::node::{Contents, Header, Node, NodeLink, NodeTag, NodeWord, SLOTS};
use super::tree::{Child, Found, Inner, Target, Tree, prefix_of, shortest, word_of};

/// More live slots than this are distributed over two nodes.
const FULL: usize = SLOTS * 2 / 3;
/// A node with so few live slots is merged with a neighbour.
pub(super) const SPARSE: usize = SLOTS / 4;
/// Nodes are merged if they have at most so many live slots together.
const MERGED: usize = SLOTS / 2;

/// How often a client waits for another that replaces a node, before it does so itself.
pub(super) const PATIENCE: usize = 8;

/// The tag of the null link of a slot that has had a node.
const DEAD_NODE: NodeTag = NodeTag::new(0, true);

/// Why a node is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// It has no free slot. Its header was this.
    Full(Header),
    /// It has few live slots. Its header was this.
    Sparse(Header),
    /// Another client has frozen it, and may be dead.
    Frozen,
}

/// What became of the replacement of a node.
enum Outcome {
    /// It was replaced. True if what was pending is in the map now.
    Replaced(bool),
    /// Another client has frozen it before.
    LeftToAnother,
    /// It is to be tried again.
    Again,
}

/// A value that is to be in what replaces a full leaf.
#[derive(Clone, Copy)]
pub(super) struct Pending<'a> {
    /// The header of the leaf for which it was decided.
    pub(super) header: Header,
    /// The slot that it replaces.
    pub(super) replaced: Option<usize>,
    pub(super) word: u64,
    /// The bytes of a word.
    pub(super) value: &'a [u8],
}

/// A frozen node.
struct Frozen<'g, N: Node> {
    at: RemotePtr<N>,
    /// The index of its parent.
    index: usize,
    header: Header,
    read: N::Value<'g>,
    links: Vec<NodeLink<'g, N>>,
    /// True if this client has frozen it.
    is_mine: bool,
    /// True if it had the header that was expected when this client froze it.
    is_exact: bool,
}

/// What a slot of a parent has of a child, besides the link.
struct Edge<'g, N: Node> {
    slot: usize,
    link: NodeLink<'g, N>,
    separator: EntryLink<'g>,
}

/// Claimed slots of a parent, what it has of the children that are replaced, and its header.
struct Claim<'g, N: Node> {
    slots: Vec<usize>,
    edges: Vec<Edge<'g, N>>,
    header: Header,
}

/// What a new node is to have.
struct Part<'g, N: Node> {
    low: Vec<u8>,
    contents: Contents<'g, N>,
}

/// A live slot of what is replaced.
struct Item<'g, N: Node> {
    word: u64,
    /// The whole key, unless keys are words or the slots stay together.
    key: Vec<u8>,
    held: Option<N::Held<'g>>,
    child: Option<NodeWord<N>>,
}

type Replacing<'a> = Pin<Box<dyn Future<Output = Result<bool>> + 'a>>;

impl<N: Node> Tree<N> {
    /// A key was removed from a leaf, which has this header now. Merges it if it is sparse.
    pub(super) async fn is_removed(
        &self,
        key: &[u8],
        at: RemotePtr<N>,
        header: Header,
        g: &Guard<'_>,
    ) -> Result<()> {
        if header.count() != SPARSE && header.count() != 0 {
            return Ok(());
        }
        match self.restructure(key, 0, at, Why::Sparse(header), None, g).await {
            // The key is removed all the same.
            Ok(_) | Err(Error::OutOfMemory { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the node of a level that has a key, if it is `at` still. Returns whether what was pending is in the map now.
    pub(super) fn restructure<'a>(
        &'a self,
        key: &'a [u8],
        level: u8,
        at: RemotePtr<N>,
        why: Why,
        pending: Option<Pending<'a>>,
        g: &'a Guard<'_>,
    ) -> Replacing<'a> {
        Box::pin(self.restructure_now(key, level, at, why, pending, g))
    }

    async fn restructure_now(
        &self,
        key: &[u8],
        level: u8,
        at: RemotePtr<N>,
        mut why: Why,
        pending: Option<Pending<'_>>,
        g: &Guard<'_>,
    ) -> Result<bool> {
        // A client that waited has seen the parent just now.
        let mut fresh = level + 1;
        let (mut rounds, mut backoff) = (0, g.backoff());
        loop {
            rounds += 1;
            if rounds > 1 {
                // Others claim slots of the parent, too, and replace it when it has no more. Some must wait, or none would ever be done.
                backoff.wait().await;
            }
            let Some(found) = self.find(Target::At(key), level + 1, fresh, g).await? else {
                if self.replace_top(level, at, g).await? {
                    return Ok(false);
                }
                // It may be frozen, below a new top.
                fresh = level + 2;
                continue;
            };
            let parent = &found.parent;
            if found.at() != at {
                return Ok(false);
            }
            fresh = level + 2;
            let above = parent.header.get();
            if above.is_frozen() || parent.claims.get() + 2 > SLOTS as u64 {
                if !above.is_frozen() || rounds > PATIENCE {
                    let why = if above.is_frozen() { Why::Frozen } else { Why::Full(above) };
                    self.restructure(&parent.low(0), level + 1, parent.at, why, None, g).await?;
                }
                continue;
            }
            let header = match why {
                Why::Full(header) | Why::Sparse(header) => header,
                Why::Frozen => N::header(at).load(g).await?,
            };
            if why == Why::Frozen && !header.is_frozen() {
                return Ok(false);
            }
            let neighbour = match why {
                Why::Sparse(_) => match self.neighbour(&found, header, g).await? {
                    Some(neighbour) => Some(neighbour),
                    None => return Ok(false),
                },
                _ => None,
            };
            match self.replace(&found, level, why, header, neighbour, pending, g).await? {
                Outcome::Replaced(placed) => {
                    if neighbour.is_some() {
                        self.is_merged(key, parent, g).await?;
                    }
                    return Ok(placed);
                }
                Outcome::LeftToAnother => return Ok(false),
                // It is frozen, and this client has to see to it that it is replaced; as for the neighbour, with which it is perhaps not to be merged any more.
                Outcome::Again => why = Why::Frozen,
            }
            if let Some((index, _)) = neighbour {
                let (low, at) = (parent.low(index), parent.children[index]);
                self.restructure(&low, level, at, Why::Frozen, None, g).await?;
            }
        }
    }

    /// Returns a neighbour with which a sparse node is to be merged, and its header.
    async fn neighbour(
        &self,
        found: &Found<N>,
        header: Header,
        g: &Guard<'_>,
    ) -> Result<Option<(usize, Header)>> {
        let parent = &found.parent;
        let next = if found.index + 1 < parent.children.len() {
            found.index + 1
        } else if found.index > 0 {
            found.index - 1
        } else {
            return Ok(None);
        };
        if !parent.is_live(next) {
            return Ok(None);
        }
        let other = N::header(parent.children[next]).load(g).await?;
        let is_worth_it = header.count() == 0 || header.count() + other.count() <= MERGED;
        Ok(is_worth_it.then_some((next, other)))
    }

    /// Children of a node were merged. Merges it, too, if it is sparse.
    async fn is_merged(&self, key: &[u8], node: &Inner<N>, g: &Guard<'_>) -> Result<()> {
        let header = N::header(node.at).load(g).await?;
        // A separator that a slot has with a long prefix may need more than a slot with a short one.
        if self.words && header.count() <= SPARSE && node.level < self.height() && !header.is_frozen() {
            self.restructure(key, node.level, node.at, Why::Sparse(header), None, g).await?;
        }
        Ok(())
    }

    // ANCHOR: replace
    /// Replaces a node, and a neighbour.
    #[allow(clippy::too_many_arguments)] // what is replaced, and why
    async fn replace(
        &self,
        found: &Found<N>,
        level: u8,
        why: Why,
        header: Header,
        neighbour: Option<(usize, Header)>,
        pending: Option<Pending<'_>>,
        g: &Guard<'_>,
    ) -> Result<Outcome> {
        let parent = &found.parent;
        // 1.
        let expected =
            header.count() + neighbour.map_or(0, |(_, other)| other.count()) + usize::from(pending.is_some());
        let mut new = vec![self.blank(level, parent, g).await?];
        if expected > FULL {
            new.push(self.blank(level, parent, g).await?);
        }

        // 2. Others wait for the client that has frozen the node.
        let node = self.freeze(found.at(), found.index, level, header, g).await?;
        if !node.is_mine && why != Why::Frozen {
            return Ok(Outcome::LeftToAnother);
        }
        let mut old = vec![node];
        if let Some((index, header)) = neighbour {
            old.push(self.freeze(parent.children[index], index, level, header, g).await?);
            old.sort_unstable_by_key(|node| node.index);
        }
        let Some(mut claim) = self.claim(parent, &old, new.len() as u64, g).await? else {
            return Ok(Outcome::Again);
        };
        let pending = pending.filter(|pending| old[0].is_exact && old[0].header == pending.header.frozen());

        // 3. and what is to be in the new nodes.
        for node in &old {
            self.clean(node, level, g).await?;
        }
        let Some(parts) = self.parts(&old, parent, level, pending, g).await? else {
            return Ok(Outcome::Again);
        };
        let mut nodes = Vec::with_capacity(2);
        for part in &parts {
            let mut node = match new.pop() {
                Some(node) => node,
                // Keys were inserted meanwhile.
                None => self.blank(level, parent, g).await?,
            };
            N::fill(&mut node, &part.contents);
            nodes.push(node);
        }
        if nodes.len() > claim.slots.len() {
            claim.slots.push(N::claims(parent.at).fetch_add(g, 1).await? as usize);
        }
        if claim.slots.iter().any(|slot| *slot >= SLOTS) {
            parent.claims.set(SLOTS as u64);
            return Ok(Outcome::Again);
        }

        // 4.
        let nodes = g.chain(nodes.into_iter().map(op::stage).collect::<Vec<_>>()).submit().await?;
        let (mut puts, mut children) = (Vec::with_capacity(2), Vec::with_capacity(2));
        for ((number, node), part) in nodes.into_iter().enumerate().zip(&parts) {
            let slot = claim.slots[number];
            // The lowest child of a node may have a separator below all of its keys.
            let word =
                if number == 0 { parent.word(old[0].index) } else { word_of(&part.low, parent.prefix) };
            let is_long = !self.words
                && (number > 0 || !claim.edges[0].separator.is_null())
                && shortest(&parent.low(0)[..parent.prefix], word) != part.low;
            let mut separator = None;
            if is_long && let Some(place) = N::entry(parent.at, slot) {
                let new = Blob::new_in(g.near(parent.at), part.low.as_slice()).await?;
                let tag = EntryTag::new(Blob::class(&new).number(), 0, false);
                separator = Some(op::replace(place, EntryLink::NULL, 0, NewEntry::of(new, tag)?));
            }
            children.push(Child { word, separator: part.low.as_slice(), slot, at: node.as_ptr() });
            let link = node.tagged(NodeTag::new(level, false))?;
            let put = op::replace(N::child(parent.at, slot), NodeLink::NULL, 0, link);
            puts.push((put, op::store(N::key(parent.at, slot), word), separator));
        }

        // 5.
        let live = |now: Header| {
            let now = claim.slots.iter().take(parts.len()).fold(now, |now, slot| now.with(*slot));
            claim.edges.iter().fold(now, |now, edge| now.without(edge.slot))
        };
        let mut now = claim.header;
        let exchange = op::compare_exchange(N::header(parent.at), now, live(now));
        let (_, mut done) = g.chain((puts, exchange)).submit().await?;
        while let Err(found) = done {
            now = found;
            if now.is_frozen() || !claim.edges.iter().all(|edge| now.has(edge.slot)) {
                // Whoever replaces the parent takes what is linked to by slots that are not live.
                return Ok(Outcome::Again);
            }
            let exchange = op::compare_exchange(N::header(parent.at), now, live(now));
            done = g.chain(exchange).submit().await?;
        }
        // The next operation need not read the parent anew.
        parent.header.set(live(now));
        self.has_replaced(parent, old[0].index..old[0].index + old.len(), &children, g);
        for edge in &claim.edges {
            Self::unlink_child(parent.at, edge, level, g)?;
        }
        Ok(Outcome::Replaced(pending.is_some()))
    }
    // ANCHOR_END: replace

    /// Claims slots of a parent, and reads what it has of some children. `None` if it has no room, or has not all of them any more.
    async fn claim<'g>(
        &self,
        parent: &Inner<N>,
        children: &[Frozen<'_, N>],
        claims: u64,
        g: &'g Guard<'_>,
    ) -> Result<Option<Claim<'g, N>>> {
        let slots: Vec<usize> = children.iter().map(|child| usize::from(parent.slots[child.index])).collect();
        let edges = slots
            .iter()
            .map(|slot| (op::load(N::child(parent.at, *slot)), N::entry(parent.at, *slot).map(op::load)));
        let claim = op::fetch_add(N::claims(parent.at), claims);
        let chain = g.chain((claim, edges.collect::<Vec<_>>(), op::load(N::header(parent.at))));
        let (claim, edges, header) = chain.submit().await?;
        parent.claims.set(claim + claims);
        let edges = slots.into_iter().zip(edges).map(|(slot, (link, separator))| {
            let separator = separator.unwrap_or(EntryLink::NULL);
            Edge { slot, link, separator }
        });
        let edges: Vec<Edge<'_, N>> = edges.collect();
        let is_possible = claim + claims <= SLOTS as u64 && !header.is_frozen();
        if !is_possible || !edges.iter().all(|edge| header.has(edge.slot)) {
            return Ok(None);
        }
        let slots = (claim..claim + claims).map(|slot| slot as usize).collect();
        Ok(Some(Claim { slots, edges, header }))
    }

    /// Returns what one or two new nodes are to have of frozen ones. `None` if these were replaced meanwhile.
    async fn parts<'g>(
        &self,
        old: &[Frozen<'g, N>],
        parent: &Inner<N>,
        level: u8,
        pending: Option<Pending<'_>>,
        g: &'g Guard<'_>,
    ) -> Result<Option<Vec<Part<'g, N>>>> {
        let (low, high) = (parent.low(old[0].index), parent.high(old[old.len() - 1].index));
        let live: usize = old.iter().map(|node| node.header.count()).sum();
        let stay = old.len() == 1 && live + usize::from(pending.is_some()) <= FULL;
        let mut items = Vec::with_capacity(live + 1);
        for node in old {
            let Some(more) = self.items(node, parent, level, !stay, g).await? else { return Ok(None) };
            let replaced = pending.and_then(|pending| pending.replaced);
            items.extend(more.into_iter().filter(|(slot, _)| Some(*slot) != replaced).map(|(_, item)| item));
        }
        if let Some(pending) = pending {
            items.push(Item { word: pending.word, key: vec![], held: N::inline(pending.value), child: None });
        }
        if stay || self.words {
            items.sort_unstable_by_key(|item| item.word);
        } else {
            items.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        }
        let is_last = high.is_none()
            && pending.is_some_and(|pending| items.last().is_some_and(|last| last.word == pending.word));
        let first = match items.len() {
            // Keys are inserted in ascending order: the first node gets no more of them.
            len if len > FULL && is_last => len - 1,
            len if len > FULL => len.div_ceil(2),
            len => len,
        };
        let mut bounds = vec![low];
        if first < items.len() {
            bounds.push(self.separator(&items, first, level));
        }
        let mut parts = Vec::with_capacity(2);
        for (number, low) in bounds.iter().enumerate() {
            let items = if number == 0 { &items[..first] } else { &items[first..] };
            let prefix = prefix_of(low, bounds.get(number + 1).or(high.as_ref()).map(Vec::as_slice));
            let word =
                |item: &Item<'_, N>| if self.words || stay { item.word } else { word_of(&item.key, prefix) };
            // The leaves of a new node get a home of their own.
            let new_home = || g.random_range(0..g.nodes() as u64);
            let contents = Contents {
                home: if number == 0 { N::claims_id_home(&old[0].read).2 } else { new_home() },
                keys: items.iter().map(word).collect(),
                held: items.iter().filter_map(|item| item.held).collect(),
                children: items.iter().filter_map(|item| item.child).collect(),
            };
            parts.push(Part { low: low.clone(), contents });
        }
        Ok(Some(parts))
    }

    // ANCHOR: freeze
    /// Freezes a node, and reads it.
    async fn freeze<'g>(
        &self,
        at: RemotePtr<N>,
        index: usize,
        level: u8,
        mut header: Header,
        g: &'g Guard<'_>,
    ) -> Result<Frozen<'g, N>> {
        let expected = header;
        loop {
            let freeze = op::compare_exchange(N::header(at), header, header.frozen());
            let links = (level > 0).then(|| op::load_range(N::children(at), 0..SLOTS as u64));
            // Nobody claims a slot any more.
            let claims = op::fetch_add(N::claims(at), SLOTS as u64);
            let chain = g.chain((freeze, op::load(N::header(at)), claims, op::read(at), links));
            let (frozen, now, _, read, links) = chain.submit().await?;
            if now.is_frozen() {
                let is_mine = frozen.is_ok() && !header.is_frozen();
                let is_exact = is_mine && header == expected;
                let links = links.unwrap_or_default();
                return Ok(Frozen { at, index, header: now, read, links, is_mine, is_exact });
            }
            header = now;
        }
    }
    // ANCHOR_END: freeze

    // ANCHOR: clean
    /// Takes what slots link to that are not live: what was removed and not unlinked, and what was to be inserted. After that no such slot is made to link to
    /// anything. No round trip if no slot that was claimed has kept or has not yet got its link, which is the rule; else one, mostly.
    async fn clean(&self, node: &Frozen<'_, N>, level: u8, g: &Guard<'_>) -> Result<()> {
        let (dead_node, dead_entry) = (NodeLink::null(DEAD_NODE), EntryLink::null(DEAD_ENTRY));
        let (claims, ..) = N::claims_id_home(&node.read);
        // Slots that were never claimed are not used any more.
        let last = (claims as usize).saturating_sub(SLOTS).min(SLOTS);
        let dead = (0..last).filter(|slot| !node.header.has(*slot));
        let (mut nodes, mut entries) = (vec![], vec![]);
        for slot in dead {
            nodes.extend(node.links.get(slot).map(|link| (N::child(node.at, slot), *link)));
            entries.extend(N::entry(node.at, slot).map(|place| (place, N::link(N::held(&node.read, slot)))));
        }
        loop {
            nodes.retain(|(_, link)| *link != dead_node);
            entries.retain(|(_, link)| *link != dead_entry);
            if nodes.is_empty() && entries.is_empty() {
                return Ok(());
            }
            let of_nodes = nodes.iter().map(|(place, link)| {
                op::replace(*place, *link, children(level.saturating_sub(1)), Replacement::null(DEAD_NODE))
            });
            let of_entries = entries
                .iter()
                .map(|(place, link)| op::replace(*place, *link, capacity(*link), NewEntry::null(DEAD_ENTRY)));
            let chain = g.chain((of_nodes.collect::<Vec<_>>(), of_entries.collect::<Vec<_>>()));
            let (of_nodes, of_entries) = chain.submit().await?;
            for ((_, link), taken) in nodes.iter_mut().zip(of_nodes) {
                match taken {
                    Ok(taken) => {
                        taken.retire(g).await?;
                        *link = dead_node;
                    }
                    Err(refused) => *link = refused.current,
                }
            }
            for ((_, link), taken) in entries.iter_mut().zip(of_entries) {
                match taken {
                    Ok(taken) => {
                        taken.retire(g).await?;
                        *link = dead_entry;
                    }
                    Err(refused) => *link = refused.current,
                }
            }
        }
    }
    // ANCHOR_END: clean

    /// Returns the live slots of a frozen node, with their whole keys if these are asked for. `None` if it was replaced meanwhile.
    async fn items<'g>(
        &self,
        node: &Frozen<'g, N>,
        parent: &Inner<N>,
        level: u8,
        whole: bool,
        g: &'g Guard<'_>,
    ) -> Result<Option<Vec<(usize, Item<'g, N>)>>> {
        let mut items = Vec::with_capacity(node.header.count());
        for slot in node.header.live() {
            let held = N::held(&node.read, slot);
            let child = node.links.get(slot).copied();
            if child.is_some_and(NodeLink::is_null) {
                return Ok(None);
            }
            let word = N::keys(&node.read)[slot];
            items
                .push((slot, Item { word, key: vec![], held: Some(held), child: child.map(NodeWord::from) }));
        }
        if self.words || !whole {
            return Ok(Some(items));
        }
        let prefix = parent.low(node.index)[..parent.prefix(node.index, false)].to_vec();
        let mut reads = Vec::new();
        for (_, item) in &mut items {
            let link = item.held.map_or(EntryLink::NULL, N::link);
            if level > 0 && link.is_null() {
                item.key = shortest(&prefix, item.word);
            } else {
                reads.push(op::read_bytes(link.shared(), class(link)?));
            }
        }
        let mut read = g.chain(reads).submit().await?.into_iter();
        for (_, item) in &mut items {
            let link = item.held.map_or(EntryLink::NULL, N::link);
            if level > 0 && link.is_null() {
                continue;
            }
            let bytes = read.next().unwrap_or_default();
            item.key = if level > 0 {
                bytes
            } else {
                let (key, _) = (self.entries.split)(&bytes).ok_or_else(crate::entry::not_an_entry)?;
                key.to_vec()
            };
        }
        Ok(Some(items))
    }

    /// Returns the separator in front of an item: of leaves, the shortest one.
    fn separator(&self, items: &[Item<'_, N>], at: usize, level: u8) -> Vec<u8> {
        let item = &items[at];
        if self.words {
            return item.word.to_be_bytes().to_vec();
        }
        if level > 0 {
            return item.key.clone();
        }
        let shared = prefix_of(&items[at - 1].key, Some(&item.key));
        item.key[..(shared + 1).min(item.key.len())].to_vec()
    }

    /// Allocates a node without keys.
    async fn blank(&self, level: u8, parent: &Inner<N>, g: &Guard<'_>) -> Result<Owned<N>> {
        let site = if level == 0 { g.on_node(parent.home as u16) } else { g.near(parent.at) };
        N::allocate(site, g.random(), children(level)).await
    }

    /// Makes the link of a dead slot of a parent null, and retires the child. Not waited for: whoever replaces the parent does the same.
    fn unlink_child(parent: RemotePtr<N>, edge: &Edge<'_, N>, level: u8, g: &Guard<'_>) -> Result<()> {
        let place = N::child(parent, edge.slot);
        let child = op::replace(place, edge.link, children(level), Replacement::null(DEAD_NODE));
        g.chain(child).post()?;
        Self::unlink_entry(parent, edge.slot, edge.separator, g)
    }

    /// Puts a node above the highest one, if that is full, or replaces it by one with free slots. Returns whether it was replaced, by any client; if not, it may not be
    /// the highest any more.
    async fn replace_top(&self, level: u8, at: RemotePtr<N>, g: &Guard<'_>) -> Result<bool> {
        let link = self.top.load(g).await?;
        if link.shared().as_ptr() != at {
            self.read_top(g).await?;
            return Ok(link.tag().level() == level);
        }
        let header = N::header(at).load(g).await?;
        if header.count() > FULL {
            let mut above = N::allocate(g.near(at), g.random(), children(level)).await?;
            let child = NodeWord::from(link);
            N::fill(&mut above, &Contents { home: 0, keys: vec![0], held: vec![], children: vec![child] });
            // If another client was faster, there is one already.
            let _ = self.top.compare_exchange(g, link, above, NodeTag::new(level + 1, false)).await?;
            self.read_top(g).await?;
            return Ok(false);
        }
        let top = self.read_top(g).await?;
        if top.at != at {
            return Ok(top.level == level);
        }
        let mut new = N::allocate(g.near(at), g.random(), children(level)).await?;
        let old = self.freeze(at, 0, level, header, g).await?;
        self.clean(&old, level, g).await?;
        let Some(items) = self.items(&old, &top, level, false, g).await? else { return Ok(false) };
        let contents = Contents {
            home: top.home,
            keys: items.iter().map(|(_, item)| item.word).collect(),
            held: items.iter().filter_map(|(_, item)| item.held).collect(),
            children: items.iter().filter_map(|(_, item)| item.child).collect(),
        };
        N::fill(&mut new, &contents);
        let new = Replacement::of(new, NodeTag::new(level, false))?;
        match g.chain(op::replace(self.top, link, children(level), new)).submit().await? {
            Ok(old) => {
                old.retire(g).await?;
                self.read_top(g).await.map(|_| true)
            }
            Err(refused) => {
                self.read_top(g).await?;
                Ok(refused.current.tag().level() == level)
            }
        }
    }
}

/// Returns the number of links to children that a node of a level has.
pub(super) fn children(level: u8) -> u64 {
    if level == 0 { 0 } else { SLOTS as u64 }
}
