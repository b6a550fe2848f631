//! Walks over all nodes: counting, checking, recovery, destruction.

use farfield::Error;
use farfield::prelude::*;

use super::entries::class;
use super::node::{Header, Node, NodeLink, SLOTS};
use super::restructure::Why;
use super::tree::{Target, Tree, prefix_of, shortest, word_of};

/// A node with what its parent has of it.
struct Visited<N: Node> {
    at: RemotePtr<N>,
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl<N: Node> Tree<N> {
    /// Counts the keys. One round trip for each node above the leaves, and one for its leaves.
    pub(super) async fn len(&self, g: &Guard<'_>) -> Result<u64> {
        let (mut len, mut next) = (0, Some(vec![]));
        while let Some(low) = next {
            let found = self.find_leaf(Target::At(&low), 2, g).await?;
            let parent = &found.parent;
            let headers =
                (found.index..parent.children.len()).map(|index| op::load(N::header(parent.children[index])));
            let headers = g.chain(headers.collect::<Vec<_>>()).submit().await?;
            len += headers.iter().map(|header| header.count() as u64).sum::<u64>();
            next = parent.high(parent.children.len() - 1);
        }
        Ok(len)
    }

    /// Replaces the nodes that dead clients have frozen. Two round trips for each node above the leaves.
    pub(super) async fn recover(&self, g: &Guard<'_>) -> Result<()> {
        let mut level = 1;
        loop {
            let mut next = Some(vec![]);
            while let Some(low) = next {
                let Some(found) = self.find(Target::At(&low), level, level + 1, g).await? else {
                    return Ok(());
                };
                let parent = &found.parent;
                let headers = parent.children.iter().map(|child| op::load(N::header(*child)));
                let headers = g.chain(headers.collect::<Vec<_>>()).submit().await?;
                for (index, header) in headers.into_iter().enumerate() {
                    if header.is_frozen() {
                        let (low, child) = (parent.low(index), parent.children[index]);
                        self.restructure(&low, level - 1, child, Why::Frozen, None, g).await?;
                    }
                }
                next = parent.high(parent.children.len() - 1);
            }
            let top = self.top.load(g).await?;
            if top.tag().level() == level {
                let at = top.shared().as_ptr();
                if N::header(at).load(g).await?.is_frozen() {
                    self.restructure(&[], level, at, Why::Frozen, None, g).await?;
                }
                return Ok(());
            }
            level += 1;
        }
    }

    /// Checks the invariants of a map that nobody changes. Returns the number of keys.
    pub(super) async fn check(&self, g: &Guard<'_>) -> Result<u64> {
        let top = self.top.load(g).await?;
        let (mut keys, mut last) = (0, None::<Vec<u8>>);
        let first = Visited { at: top.shared().as_ptr(), level: top.tag().level(), low: vec![], high: None };
        let mut rest = vec![first];
        while let Some(node) = rest.pop() {
            let fault = |what: String| {
                Error::other(format!("the node {:?} of level {}: {what}", node.at, node.level))
            };
            let header = N::header(node.at).load(g).await?;
            if header.is_frozen() || header.is_corrupt() {
                return Err(fault(format!("its header is {header:?}")));
            }
            let found = self.ordered_keys(&node, header, g).await?;
            let is_in_range =
                |key: &[u8]| *key >= *node.low && node.high.as_deref().is_none_or(|high| key < high);
            for (key, slot) in &found {
                if !is_in_range(key)
                    || N::key(node.at, *slot).load(g).await? != word_of(key, self.prefix(&node))
                {
                    return Err(fault(format!("slot {slot} has the key {key:?}, which it should not have")));
                }
            }
            if node.level > 0 {
                if found.first().is_none_or(|(key, _)| *key != node.low) {
                    return Err(fault(format!("it has no child for {:?}", node.low)));
                }
                for (index, (key, slot)) in found.iter().enumerate().rev() {
                    let link = N::child(node.at, *slot).load(g).await?;
                    if link.is_null() || link.tag().level() != node.level - 1 {
                        return Err(fault(format!("slot {slot} links to {link:?}")));
                    }
                    let high =
                        found.get(index + 1).map(|(high, _)| high.clone()).or_else(|| node.high.clone());
                    rest.push(Visited {
                        at: link.shared().as_ptr(),
                        level: node.level - 1,
                        low: key.clone(),
                        high,
                    });
                }
                continue;
            }
            for (key, _) in found {
                if last.as_ref().is_some_and(|last| *last >= key) {
                    return Err(fault(format!("the key {key:?} is there twice, or not in order")));
                }
                (keys, last) = (keys + 1, Some(key));
            }
        }
        Ok(keys)
    }

    fn prefix(&self, node: &Visited<N>) -> usize {
        if self.words { 0 } else { prefix_of(&node.low, node.high.as_deref()) }
    }

    /// Returns the keys or separators of a node, in order, and their slots.
    async fn ordered_keys(
        &self,
        node: &Visited<N>,
        header: Header,
        g: &Guard<'_>,
    ) -> Result<Vec<(Vec<u8>, usize)>> {
        let read = node.at.read(g).await?;
        let mut keys = Vec::new();
        for slot in header.live() {
            let (word, link) = (N::keys(&read)[slot], N::link(N::held(&read, slot)));
            let key = if self.words {
                word.to_be_bytes().to_vec()
            } else if node.level > 0 && link.is_null() {
                shortest(&node.low[..self.prefix(node)], word)
            } else {
                let bytes = link.shared().read_bytes(class(link)?, g).await?;
                if node.level > 0 {
                    bytes
                } else {
                    (self.entries.split)(&bytes).ok_or_else(crate::entry::not_an_entry)?.0.to_vec()
                }
            };
            keys.push((key, slot));
        }
        // The first child has all keys below the others.
        keys.sort_unstable();
        if let Some((first, _)) = keys.first_mut().filter(|_| node.level > 0 && node.low.is_empty()) {
            first.clear();
        }
        Ok(keys)
    }

    /// Frees all nodes and entries of a map that nobody uses any more. Three round trips for each node.
    pub(super) async fn destroy(&self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let top = self.top.load(g).await?;
        let mut rest = vec![(top.shared().as_ptr(), top.tag().level(), true)];
        while let Some((at, level, is_live)) = rest.pop() {
            let links = (level > 0).then(|| op::load_range(N::children(at), 0..SLOTS as u64));
            let (header, read, links) =
                g.chain((op::load(N::header(at)), op::read(at), links)).submit().await?;
            // What a dead slot links to is of no other node, and what is live in a dead node is in another one, too.
            for slot in (0..SLOTS).filter(|slot| is_live || !header.has(*slot)) {
                let entry = N::link(N::held(&read, slot));
                if !entry.is_null() {
                    ct.delete(entry.shared()).await?;
                }
                let child = links.as_ref().map_or(NodeLink::NULL, |links| links[slot]);
                if !child.is_null() {
                    rest.push((child.shared().as_ptr(), level - 1, is_live && header.has(slot)));
                }
            }
            ct.delete(at).await?;
        }
        Ok(())
    }
}
