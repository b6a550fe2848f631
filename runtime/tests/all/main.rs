//! Tests that need no program of their own: each program of tests compiles the library's generic code anew.

mod allocator;
mod byte_strings;
mod cached;
mod chain;
mod cluster;
mod delegated;
mod delegation;
mod fabrics;
mod immediate;
mod layouts;
mod local_epoch;
mod locks;
mod macro_remote;
mod macro_shapes;
mod macro_word;
mod memory;
mod prelude;
mod round_trips;
mod runs;
mod sim;
mod sim_compute;
mod sim_faults;
mod sim_limits;
mod sim_reclaim;
mod tokens;
mod versioned;
