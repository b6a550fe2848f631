//! Bugs of the hash set's own code. Its buckets are lazy lists, which have bugs of their own.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "hash_set_removes_by_another_hash",
        structure: Structure::HashSet,
        edits: &[(
            "self.list(key, ct).await?.remove(key, ct).await",
            "self.list(key.rotate_right(32), ct).await?.remove(key, ct).await",
        )],
        invariant: "all operations look for a key in the same bucket",
        why: "a removal searches another bucket, and the key stays in the set",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_set_destroys_half",
        structure: Structure::HashSet,
        edits: &[(
            "\
                for bucket in self.buckets() {
                    LazyList::attach(bucket, ct).await?.destroy(ct).await?;",
            "\
                for bucket in self.buckets().into_iter().take(BUCKETS / 2) {
                    LazyList::attach(bucket, ct).await?.destroy(ct).await?;",
        )],
        invariant: "destroying the set frees all of its lists",
        why: "the other half of the lists is never freed",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "hash_set_gets_before_it_inserts",
        structure: Structure::HashSet,
        edits: &[(
            "self.list(key, ct).await?.insert(key, ct).await",
            "\
                if self.get(key, ct).await? {
                    return Ok(false);
                }
                self.list(key, ct).await?.insert(key, ct).await?;
                Ok(true)",
        )],
        invariant: "an insertion returns the result of its list's insertion",
        why: "two threads find the key absent, and both return that they have inserted it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_set_shares_lists",
        structure: Structure::HashSet,
        edits: &[(
            "\
                for (number, bucket) in buckets.iter_mut().enumerate() {
                    *bucket = LazyList::create_at(ct.on_node(number as u16), ct).await?;
                }",
            "\
                for (number, pair) in buckets.chunks_mut(2).enumerate() {
                    pair.fill(LazyList::create_at(ct.on_node(number as u16), ct).await?);
                }",
        )],
        invariant: "each bucket has a list of its own",
        why: "two buckets have one list, which is freed twice",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "hash_set_recovers_half",
        structure: Structure::HashSet,
        edits: &[(
            "\
                for bucket in self.buckets() {
                    self.lists.get(bucket, ct).await?.recover(ct).await?;",
            "\
                for bucket in self.buckets().into_iter().take(BUCKETS / 2) {
                    self.lists.get(bucket, ct).await?.recover(ct).await?;",
        )],
        invariant: "all lists are recovered after a death",
        why: "in the other half of the lists nodes stay locked by dead threads",
        caught_by: Check::Error,
        needs_faults: true,
    },
];
