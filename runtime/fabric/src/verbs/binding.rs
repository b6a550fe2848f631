//! The binding of rdma-core: the one module that names it.
//!
//! `verbs` links rdma-core through `rdma-sys`, `verbs-dlopen` loads it at run time through `rdma-mummy-sys`. The two have the
//! same names but for a few, which are made the same here.

#[cfg(all(feature = "verbs", feature = "verbs-dlopen"))]
compile_error!("the features `verbs` and `verbs-dlopen` bind the same library in two ways: choose one");

#[cfg(feature = "verbs-dlopen")]
pub(super) use rdma_mummy_sys as sys;
#[cfg(not(feature = "verbs-dlopen"))]
pub(super) use rdma_sys as sys;

#[cfg(not(feature = "verbs-dlopen"))]
pub(super) use sys::___ibv_query_port as query_port;
#[cfg(feature = "verbs-dlopen")]
pub(super) use sys::ibv_query_port as query_port;

/// Of `rdma_set_option`: the options of an identifier, and among them the time until a packet is sent again. They are
/// constants of an unnamed type, which neither binding has.
pub(super) const OPTION_ID: i32 = 0;
pub(super) const OPTION_ID_ACK_TIMEOUT: i32 = 3;
