//! Clients: compute threads that wait for work from other executors.
//!
//! | module | what it has |
//! |---|---|
//! | [`calls`] | [`Client`]: calls and their answers |
//! | [`queue`] | what is handed over |
//! | [`serve`], [`life`] | a thread that does the work, and its end |
//! | [`work`] | a call's work |

mod calls;
mod life;
mod queue;
mod serve;
mod work;

pub use calls::{Call, Client, ClientOptions};
