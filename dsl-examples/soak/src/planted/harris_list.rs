//! Bugs of the Harris list.

use super::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "harris_list_does_not_mark",
        structure: Structure::HarrisList,
        bug: Bug::Edit {
            search: "if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {",
            replacement: "if curr.next().compare_exchange(g, next, next).await?.is_ok() {",
        },
        invariant: "a key is removed by the one CAS that marks its node",
        why: "two threads remove one key, and keys are inserted behind a node that is out of the list",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_marks_blindly",
        structure: Structure::HarrisList,
        bug: Bug::Edit {
            search: "if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {",
            replacement: "curr.next().store(g, next.with_deleted()).await?; {",
        },
        invariant: "the link of a node is the expected one when it is marked",
        why: "a key inserted behind the node since its link was read is lost, and two threads remove one key",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_insert_keeps_old_link",
        structure: Structure::HarrisList,
        bug: Bug::Edit { search: "node.set(|node| node.next(), curr);", replacement: "" },
        invariant: "a new node links to the node that its CAS expects",
        why: "the new node skips what came between it and the node that it was made for",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_retires_twice",
        structure: Structure::HarrisList,
        bug: Bug::Edit {
            search: "\
                    } else {
                        self.find(key, g).await?;
                    }",
            replacement: "\
                    } else {
                        self.find(key, g).await?;
                        g.sched_reclaim(curr).await?;
                    }",
        },
        invariant: "a node is retired only by the thread whose CAS unlinked it",
        why: "whoever did unlink the node retires it too, so that it is freed twice",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_forgets_to_retire",
        structure: Structure::HarrisList,
        bug: Bug::Edit {
            search: "\
                        g.sched_reclaim(curr).await?;
                        curr = next;",
            replacement: "\
                        curr = next;",
        },
        invariant: "a node that a search unlinks is retired",
        why: "nobody frees a node that a search has unlinked",
        caught_by: Check::Leak,
        needs_faults: false,
    },
];
