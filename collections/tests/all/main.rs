//! Tests that need no program of their own: each program of tests compiles the library's generic code anew.

mod array;
mod clusters;
mod dropped;
mod hash_map;
mod inline_hash_map;
mod interlocked;
mod ordered_map;
mod polled;
mod priority_queue;
mod ring;
mod skip_list;
