//! What a compute thread asks of its fabric.

mod endpoint;

pub(crate) use endpoint::{Endpoint, Posted};
