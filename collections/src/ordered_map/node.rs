//! Nodes in far memory.

use farfield::op::Operations;
use farfield::prelude::*;
use farfield::{Bytes, InStrings, InWords, Remote, Site};

use super::entries::{Entries, EntryLink, EntryTag, NewEntry, Sought, capacity};

/// The slots of a node: a leaf has 1 KiB.
pub(super) const SLOTS: usize = 60;

/// What a slot's words are until they are written. A key or a value may be the same by chance: it is read a second time, then. No segment has such an address, so a sweep does not take it for one.
pub(super) const UNWRITTEN: u64 = 0x6c8e_5cf5_70a2_4b31;

/// The tag of a link to a node. In a null link, `dead` says that the slot held a node, or that no node may be put there any more.
#[tag(level: 8, dead)]
pub struct NodeTag;

/// Which slots of a node are live, and whether that is final. A slot that ceases to be live never becomes live again, so the values of a header do not recur.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Word)]
pub struct Header(u64);

/// The words of a node that say whether what is known of it is current, as a READ of them alone finds them.
#[remote]
pub(super) struct Head {
    pub(super) header: Atomic<Header>,
    pub(super) claims: Atomic<u64>,
    pub(super) id: u64,
}

/// The header and the keys of a node, as a READ of them alone finds them.
#[remote]
pub(super) struct Front {
    pub(super) header: Atomic<Header>,
    pub(super) claims: Atomic<u64>,
    pub(super) id: u64,
    pub(super) home: u64,
    pub(super) keys: [Atomic<u64>; SLOTS],
}

/// A node of a map of words: a leaf if it has no children.
#[remote]
pub struct WordNode {
    pub(super) header: Atomic<Header>,
    /// The number of slots that were claimed. Above `SLOTS` if some were in vain.
    pub(super) claims: Atomic<u64>,
    /// Differs from that of every other node.
    pub(super) id: u64,
    /// The memory node of its leaves.
    pub(super) home: u64,
    pub(super) keys: [Atomic<u64>; SLOTS],
    pub(super) values: [Atomic<u64>; SLOTS],
    pub(super) children: Tail<TaggedLink<WordNode, NodeTag>>,
}

/// A node of a map of byte strings. Its links are to entries in a leaf, and to long separators in another node.
#[remote]
pub struct EntryNode {
    pub(super) header: Atomic<Header>,
    pub(super) claims: Atomic<u64>,
    pub(super) id: u64,
    pub(super) home: u64,
    pub(super) keys: [Atomic<u64>; SLOTS],
    pub(super) values: [TaggedLink<Blob, EntryTag>; SLOTS],
    pub(super) children: Tail<TaggedLink<EntryNode, NodeTag>>,
}

pub(super) type NodeLink<'g, N> = Tagged<'g, N, NodeTag>;
pub(super) type NodeWord<N> = TaggedWord<N, NodeTag>;

/// A value of an ordered map: a word, or a byte string.
pub trait Value: Bytes {
    /// The nodes of a map with such values and word keys.
    #[doc(hidden)]
    type Node: Node;
    /// The nodes of a map with such keys, if those of one with word keys are `N`.
    #[doc(hidden)]
    type Under<N: Node>: Node;
}

impl<T: Bytes<Form: Form>> Value for T {
    type Node = <T::Form as Form>::Node;
    type Under<N: Node> = <T::Form as Form>::Under<N>;
}

/// What the form of values decides.
#[doc(hidden)]
pub trait Form {
    type Node: Node;
    type Under<N: Node>: Node;
}

impl Form for InWords {
    type Node = WordNode;
    type Under<N: Node> = N;
}

impl Form for InStrings {
    type Node = EntryNode;
    type Under<N: Node> = EntryNode;
}

/// The nodes of a map.
pub(super) type NodeOf<K, V> = <K as Value>::Under<<V as Value>::Node>;

/// A kind of nodes: its leaves have values, or links to entries.
#[doc(hidden)]
pub trait Node: Remote {
    /// A value, as a slot holds it: a word, or the link to an entry.
    type Held<'g>: Copy;
    /// A value for a slot.
    type New;
    /// True if a slot has the value itself.
    const INLINE: bool;

    fn header(at: RemotePtr<Self>) -> Place<'static, Atomic<Header>>;
    fn claims(at: RemotePtr<Self>) -> Place<'static, Atomic<u64>>;
    fn key(at: RemotePtr<Self>, slot: usize) -> Place<'static, Atomic<u64>>;
    fn child(at: RemotePtr<Self>, slot: usize) -> Place<'static, TaggedLink<Self, NodeTag>>;
    fn children(at: RemotePtr<Self>) -> Place<'static, Tail<TaggedLink<Self, NodeTag>>>;
    /// The word of a slot, if it has the value itself.
    fn value(at: RemotePtr<Self>, slot: usize) -> Option<Place<'static, Atomic<u64>>>;
    /// The link of a slot to an entry, or to a long separator, if such nodes have them.
    fn entry(at: RemotePtr<Self>, slot: usize) -> Option<Place<'static, TaggedLink<Blob, EntryTag>>>;

    /// Returns the header, as a READ has found it.
    fn header_of(read: &Self::Value<'_>) -> Header;
    /// Returns whether a READ of a leaf, whose words have no order, has found what the live slots have.
    fn is_whole(read: &Self::Value<'_>) -> bool;
    /// Returns the number of claims, the identity and the home, as a READ has found them.
    fn claims_id_home(read: &Self::Value<'_>) -> (u64, u64, u64);
    fn keys<'a>(read: &'a Self::Value<'_>) -> &'a [u64; SLOTS];
    fn held<'g>(read: &Self::Value<'g>, slot: usize) -> Self::Held<'g>;
    /// Returns the word that a slot holds, if it is no link.
    fn word(held: Self::Held<'_>) -> u64;
    /// Returns the link that a slot holds; null for a word.
    fn link(held: Self::Held<'_>) -> EntryLink<'_>;

    /// Returns what a slot holds for a value, if it has that itself.
    fn inline<'g>(value: &[u8]) -> Option<Self::Held<'g>>;
    /// Makes of a value what a slot near `near` is to hold.
    fn make(
        entries: Entries,
        key: Sought<'_>,
        value: &[u8],
        near: RemotePtr<Self>,
        g: &Guard<'_>,
    ) -> impl Future<Output = Result<Self::New>>;
    /// An operation that makes a claimed slot hold a value. `old` is what it holds already, if this is not the first attempt.
    fn put(
        at: RemotePtr<Self>,
        slot: usize,
        old: Option<Self::Held<'_>>,
        new: Self::New,
    ) -> impl Operations<'_>;

    /// Allocates a node without keys, with room for so many children.
    fn allocate<'a>(
        site: impl Into<Site<'a>>,
        id: u64,
        children: u64,
    ) -> impl Future<Output = Result<Owned<Self>>>;
    /// Gives a new node its live slots, the first ones.
    fn fill(new: &mut Owned<Self>, contents: &Contents<'_, Self>);
}

/// The live slots of a new node.
pub struct Contents<'g, N: Node> {
    pub(super) home: u64,
    pub(super) keys: Vec<u64>,
    pub(super) held: Vec<N::Held<'g>>,
    pub(super) children: Vec<NodeWord<N>>,
}

/// What both kinds have.
macro_rules! common {
    ($($unwritten:expr)?) => {
        fn header(at: RemotePtr<Self>) -> Place<'static, Atomic<Header>> {
            at.header()
        }
        fn claims(at: RemotePtr<Self>) -> Place<'static, Atomic<u64>> {
            at.claims()
        }
        fn key(at: RemotePtr<Self>, slot: usize) -> Place<'static, Atomic<u64>> {
            at.keys().at(slot)
        }
        fn child(at: RemotePtr<Self>, slot: usize) -> Place<'static, TaggedLink<Self, NodeTag>> {
            at.children().at(slot as u64)
        }
        fn children(at: RemotePtr<Self>) -> Place<'static, Tail<TaggedLink<Self, NodeTag>>> {
            at.children()
        }
        fn header_of(read: &Self::Value<'_>) -> Header {
            read.header
        }
        fn claims_id_home(read: &Self::Value<'_>) -> (u64, u64, u64) {
            (read.claims, read.id, read.home)
        }
        fn keys<'a>(read: &'a Self::Value<'_>) -> &'a [u64; SLOTS] {
            &read.keys
        }
        fn held<'g>(read: &Self::Value<'g>, slot: usize) -> Self::Held<'g> {
            read.values[slot]
        }
        fn allocate<'a>(
            site: impl Into<Site<'a>>,
            id: u64,
            children: u64,
        ) -> impl Future<Output = Result<Owned<Self>>> {
            let init = Self::init(id, 0, vec![NodeWord::NULL; children as usize]);
            let init = init.header(Header::of_first(0)).keys([UNWRITTEN; SLOTS]);
            Self::new_in(site, init$(.values([$unwritten; SLOTS]))?)
        }
        fn fill(new: &mut Owned<Self>, contents: &Contents<'_, Self>) {
            let live = contents.keys.len();
            new.set(|node| node.header(), Header::of_first(live));
            new.set(|node| node.claims(), live as u64);
            new.set(|node| node.home(), contents.home);
            for (slot, key) in contents.keys.iter().enumerate() {
                new.set(|node| node.keys().at(slot), *key);
            }
            for (slot, held) in contents.held.iter().enumerate() {
                new.set(|node| node.values().at(slot), *held);
            }
            for (slot, child) in contents.children.iter().enumerate() {
                new.set(|node| node.children().at(slot as u64), *child);
            }
        }
    };
}

impl Node for WordNode {
    type Held<'g> = u64;
    type New = u64;
    const INLINE: bool = true;
    common!(UNWRITTEN);

    fn is_whole(read: &Self::Value<'_>) -> bool {
        let header = read.header;
        let lacks = |words| header.live_with(words, UNWRITTEN).is_some();
        !header.is_rewritten() && !lacks(&read.keys) && !lacks(&read.values)
    }

    fn inline<'g>(value: &[u8]) -> Option<Self::Held<'g>> {
        value.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
    async fn make(_: Entries, _: Sought<'_>, value: &[u8], _: RemotePtr<Self>, _: &Guard<'_>) -> Result<u64> {
        Ok(Self::inline(value).unwrap_or_default())
    }

    fn value(at: RemotePtr<Self>, slot: usize) -> Option<Place<'static, Atomic<u64>>> {
        Some(at.values().at(slot))
    }
    fn entry(_: RemotePtr<Self>, _: usize) -> Option<Place<'static, TaggedLink<Blob, EntryTag>>> {
        None
    }
    fn word(held: u64) -> u64 {
        held
    }
    fn link(_: Self::Held<'_>) -> EntryLink<'_> {
        EntryLink::NULL
    }
    fn put(at: RemotePtr<Self>, slot: usize, _: Option<Self::Held<'_>>, new: u64) -> impl Operations<'_> {
        op::store(at.values().at(slot), new)
    }
}

impl Node for EntryNode {
    type Held<'g> = EntryLink<'g>;
    type New = NewEntry;
    const INLINE: bool = false;
    common!();

    fn is_whole(read: &Self::Value<'_>) -> bool {
        let header = read.header;
        let has_links = header.live().all(|slot| !read.values[slot].is_null());
        !header.is_rewritten() && header.live_with(&read.keys, UNWRITTEN).is_none() && has_links
    }

    fn inline<'g>(_: &[u8]) -> Option<Self::Held<'g>> {
        None
    }
    async fn make(
        entries: Entries,
        key: Sought<'_>,
        value: &[u8],
        near: RemotePtr<Self>,
        g: &Guard<'_>,
    ) -> Result<NewEntry> {
        entries.make(key, value, g.near(near)).await
    }

    fn value(_: RemotePtr<Self>, _: usize) -> Option<Place<'static, Atomic<u64>>> {
        None
    }
    fn entry(at: RemotePtr<Self>, slot: usize) -> Option<Place<'static, TaggedLink<Blob, EntryTag>>> {
        Some(at.values().at(slot))
    }
    fn word(_: EntryLink<'_>) -> u64 {
        0
    }
    fn link(held: Self::Held<'_>) -> EntryLink<'_> {
        held
    }
    fn put(
        at: RemotePtr<Self>,
        slot: usize,
        old: Option<Self::Held<'_>>,
        new: NewEntry,
    ) -> impl Operations<'_> {
        // Of a slot that was given up meanwhile it has the dead link, and puts nothing there: nobody would take it away any more.
        let old = old.filter(|old| !old.is_null()).unwrap_or(EntryLink::NULL);
        op::replace(at.values().at(slot), old, capacity(old), new)
    }
}

impl Header {
    const FROZEN: u64 = 1 << 63;
    /// Set for good by who makes a slot live that he has written more than once.
    const REWRITTEN: u64 = 1 << 61;
    /// Set in all headers: no address has it, so a sweep does not take a header for one.
    const NO_ADDRESS: u64 = 1 << 62;
    const LIVE: u64 = (1 << SLOTS) - 1;

    /// A header whose first slots are live.
    pub(super) const fn of_first(live: usize) -> Self {
        Self(Self::NO_ADDRESS | ((1 << live) - 1))
    }

    /// Returns whether a live slot may have had other words before it became live.
    pub(super) fn is_rewritten(self) -> bool {
        self.0 & Self::REWRITTEN != 0
    }

    pub(super) fn rewritten(self) -> Self {
        Self(self.0 | Self::REWRITTEN)
    }

    /// Returns whether the live slots are final.
    pub(super) fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    pub(super) fn frozen(self) -> Self {
        Self(self.0 | Self::FROZEN)
    }

    pub(super) fn has(self, slot: usize) -> bool {
        self.0 >> slot & 1 == 1
    }

    pub(super) fn with(self, slot: usize) -> Self {
        Self(self.0 | 1 << slot)
    }

    pub(super) fn without(self, slot: usize) -> Self {
        Self(self.0 & !(1 << slot))
    }

    /// Returns the number of live slots.
    pub(super) fn count(self) -> usize {
        (self.0 & Self::LIVE).count_ones() as usize
    }

    /// Returns the live slots.
    pub(super) fn live(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0 & Self::LIVE;
        std::iter::from_fn(move || {
            let slot = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(slot)
        })
    }

    /// Returns the live slot with a word, the first one.
    #[inline]
    pub(super) fn live_with(self, keys: &[u64; SLOTS], word: u64) -> Option<usize> {
        let mut found = 0;
        for (slot, key) in keys.iter().enumerate() {
            found |= u64::from(*key == word) << slot;
        }
        found &= self.0 & Self::LIVE;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    /// Returns whether bits without a meaning are set.
    pub(super) fn is_corrupt(self) -> bool {
        self.0 & !Self::FROZEN & !Self::REWRITTEN & !Self::LIVE != Self::NO_ADDRESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OrderedMap;
    use crate::ordered_map::entries::DEAD_ENTRY;
    use crate::ordered_map::tree::Target;

    /// A client has read the header of a leaf, another one freezes the leaf and gives up its slots, and the first one reads the slots.
    #[test]
    fn nothing_is_put_into_a_slot_that_was_given_up() {
        let cluster = Cluster::connect("local:size=16MiB").unwrap();
        let run = cluster.run(1, async |ct| {
            let before = ct.metrics();
            let map = OrderedMap::<u64, String>::attach(OrderedMap::create(ct).await?, ct).await?;
            let g = ct.pin();
            let found = map.tree.find_leaf(Target::Last, 1, &g).await?;
            let (at, sought) = (found.at(), Sought { ordered: b"12345678", stored: b"12345678" });
            let place = at.values().at(0);
            let make = |value| EntryNode::make(map.tree.entries, sought, value, at, &g);

            g.chain(EntryNode::put(at, 0, None, make(b"first").await?)).submit().await?;
            let put = place.load(&g).await?;
            assert!(!put.is_null());
            let dead = op::replace(place, put, capacity(put), NewEntry::null(DEAD_ENTRY));
            g.chain(dead).submit().await?.expect("nobody else changes it").retire(&g).await?;
            for old in [None, Some(put), Some(place.load(&g).await?)] {
                g.chain(EntryNode::put(at, 0, old, make(b"second").await?)).submit().await?;
                assert_eq!(place.load(&g).await?, EntryLink::null(DEAD_ENTRY), "old is {old:?}");
            }
            drop(g);
            map.destroy(ct).await?;
            ct.reclaim_deferred().await?;
            let now = ct.metrics() - before;
            assert_eq!(now.allocated, now.freed, "nothing is lost");
            Ok(())
        });
        run.unwrap();
    }

    /// Clients that change one key at the same time write other values into their slots before these become live: the header says so.
    #[test]
    fn a_header_says_that_a_slot_was_written_more_than_once() {
        let (mut said, mut before) = (0, 0);
        for seed in 0..20 {
            let cluster = Cluster::connect(&format!("sim:seed={seed},jitter=50%,words=any")).unwrap();
            let headers = cluster.run(4, async |ct| {
                let root = ct.root_or_init("map", async || OrderedMap::<u64, u64>::create(ct).await).await?;
                let map = OrderedMap::attach(root, ct).await?;
                let header = async || {
                    let g = ct.pin();
                    let found = map.tree.find_leaf(Target::Last, 1, &g).await?;
                    found.at().header().load(&g).await
                };
                // All want the same, and need not write it twice.
                map.upsert(&1, &0, ct).await?;
                ct.barrier("first").await?;
                let first = header().await?;
                ct.barrier("looked").await?;
                for _ in 0..5 {
                    map.modify(&1, |old| old.map(|old| old + 1), ct).await?;
                }
                ct.barrier("last").await?;
                assert_eq!(map.get(&1, ct).await?, Some(20));
                Ok([first, header().await?])
            });
            let [first, last] = headers.unwrap()[0];
            before += u32::from(first.is_rewritten());
            said += u32::from(last.is_rewritten());
        }
        assert_eq!((before, said), (0, 20));
    }
}
