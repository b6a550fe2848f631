//! Sweeping: reclaims the memory of dead processes while others live.
//!
//! Chosen when a cluster is made. Its only cost for operations is one predictable branch at each write of words: see [`Thread`](crate::io::Thread).
//!
//! | module | contents |
//! |---|---|
//! | [`sweeper`] | the sweep, with the proof of its safety |
//! | [`answer`] | the answers of a process to another's sweep |
//! | [`list`] | the list of candidates in far memory |

mod answer;
mod list;
mod sweeper;

pub(crate) use sweeper::SweepOutcome;
