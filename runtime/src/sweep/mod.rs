//! Sweeping: takes back the memory of dead processes while others live.
//!
//! Chosen when a cluster is made. No operation knows of it, but for one branch where words are written: see [`Thread`](crate::io::Thread).
//!
//! | module | what it does |
//! |---|---|
//! | [`sweeper`] | the sweep, with the argument for its safety |
//! | [`attend`] | what a process answers while another sweeps |
//! | [`list`] | the list of candidates in far memory |

mod attend;
mod list;
mod sweeper;

pub(crate) use sweeper::Swept;
