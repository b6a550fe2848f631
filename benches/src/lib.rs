//! The peers that the benchmarks compare Farfield with.

pub mod native_lazy_list;

pub use native_lazy_list::NativeLazyList;
