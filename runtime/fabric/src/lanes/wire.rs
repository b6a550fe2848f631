//! `Wire`: a connection, as a lane uses it. Implemented by each network.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::pipeline::{Credits, Request, Ring};
use crate::error::Result;
use crate::handshake::Segment;

/// A connection, as a lane uses it.
pub(crate) trait Wire {
    type Ring: Ring;
    /// The polls for completions of an idle thread before it polls its tasks again.
    const LOOKS: u32;
    /// True if memory nodes forward what is written to words that are watched.
    const WATCHES: bool = false;
    fn credits(&self) -> Credits;
    fn ring(&self) -> &Self::Ring;
    /// Adds a request to those of the next doorbell. There is room for as many as there are credits.
    fn add(&mut self, request: Request);
    /// Signals the request that was added last.
    fn signal_last(&mut self);
    /// Posts the requests that were added, with one doorbell, if there are any. The last one is signalled.
    fn post(&mut self) -> Result<(), Refused>;
    /// Passes completions to `each`. Returns their number.
    fn completions(&mut self, each: impl FnMut(Completion)) -> usize;
    /// Returns whether the other side has ended the connection.
    fn has_ended(&mut self) -> bool;
    /// Describes its state, for reports of stalls: `, which …`.
    fn state(&mut self) -> &'static str;
    /// Stops it, so that outstanding requests are flushed. Once it is dropped, no buffer of it is touched.
    fn stop(&mut self);
    /// Returns the descriptor that becomes readable when a completion arrives, if a thread may sleep until then.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Watches words at an address of the memory node, under a number, before the next request. Returns `false` if it can not.
    fn watch(&mut self, _at: u64, _words: usize, _number: u64) -> bool {
        false
    }
    /// Watches the words that begin here no more.
    fn unwatch(&mut self, _at: u64) {}
    /// Watches no words any more, and drops what still arrives of them.
    fn unwatch_all(&mut self) {}
    /// Takes forwarded words: the number of the watch, the address, the number of words, and the words; of one change after the other.
    fn take_changes(&mut self) -> Vec<u64> {
        Vec::new()
    }
    /// Returns whether there are some.
    fn has_changes(&self) -> bool {
        false
    }
}

/// Makes connections for a lane.
pub(crate) trait Connect {
    type Wire: Wire;
    fn connect(&self) -> Result<Self::Wire>;
    /// Returns the memory node's segments and the number of the first.
    fn segments(&self) -> (u16, &[Segment]);
    fn node(&self) -> u16;
    fn timeout(&self) -> Duration;
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The number of its work request.
    pub(crate) number: u64,
    pub(crate) outcome: Outcome,
    /// The bytes of a received message.
    #[cfg_attr(not(feature = "_verbs"), allow(dead_code))]
    pub(crate) bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Not executed, because of an earlier failure or because the connection is being torn down.
    Flushed,
    /// The memory node's device never answered.
    NoAnswer,
    Failed(&'static str),
}

/// Not all requests were taken: the connection is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;
