//! What the benchmarks share: the peers that they compare Farfield with, and what rounds of a comparison come to.

pub mod native_lazy_list;
pub mod rounds;

pub use native_lazy_list::NativeLazyList;
