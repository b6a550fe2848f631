//! Clients: compute threads that execute calls from other executors.
//!
//! | module | contents |
//! |---|---|
//! | [`calls`] | [`Client`]: calls and their answers |
//! | [`queue`] | the calls that no thread has begun |
//! | [`serve`] | a compute thread of a client |
//! | [`work`] | the work of a call, and the channel of its answer |

mod calls;
mod queue;
mod serve;
mod work;

pub use calls::{Call, Client, ClientOptions};
