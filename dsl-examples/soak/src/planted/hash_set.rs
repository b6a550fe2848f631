//! Bugs of the hash set: of its own code, since its buckets are lazy lists.

use super::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "hash_set_removes_by_another_hash",
        structure: Structure::HashSet,
        bug: Bug::Edit {
            search: "self.list(key, ct).await?.remove(key, ct).await",
            replacement: "self.list(key.rotate_right(32), ct).await?.remove(key, ct).await",
        },
        invariant: "all operations look for a key in the same bucket",
        why: "a removal looks in a bucket that the key is not in, and leaves it in the set",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_set_destroys_half",
        structure: Structure::HashSet,
        bug: Bug::Edit {
            search: "\
                for bucket in self.buckets() {
                    LazyList::attach(bucket, ct).await?.destroy(ct).await?;",
            replacement: "\
                for bucket in self.buckets().into_iter().take(BUCKETS / 2) {
                    LazyList::attach(bucket, ct).await?.destroy(ct).await?;",
        },
        invariant: "destroying the set frees all of its lists",
        why: "the other half of the lists is never freed",
        caught_by: Check::Leak,
        needs_faults: false,
    },
];
