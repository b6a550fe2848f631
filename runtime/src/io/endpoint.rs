//! A compute thread's endpoint: an enum of the fabrics, so that the host fabric's operations are inlined.

#[cfg(target_os = "linux")]
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

#[cfg(any(target_os = "linux", feature = "_verbs"))]
use farfield_fabric::chain::SINGLE_WORDS;
use farfield_fabric::chain::{Op, RawChain};
use farfield_fabric::host::{Delayed, Host};
#[cfg(target_os = "linux")]
use farfield_fabric::tcp::{Peers, TcpEndpoint};
#[cfg(feature = "_verbs")]
use farfield_fabric::verbs::Verbs;
use farfield_fabric::{Endpoint as _, Posted, Ticket};
use farfield_sim::Sim;
use farfield_words::Address;

/// A compute thread's access to its cluster's fabric. Not shared: each thread has its own.
#[repr(u8)] // a tag of its own is told apart in fewer instructions than one in a niche of the endpoints
pub(crate) enum Endpoint {
    Host(Host),
    Delayed(Delayed),
    Sim(Sim),
    /// With the thread's lines to other compute threads.
    #[cfg(target_os = "linux")]
    Tcp(TcpEndpoint, Option<Rc<Peers>>),
    #[cfg(feature = "_verbs")]
    Verbs(Verbs),
}

/// Calls the fabric's own method.
macro_rules! of_fabric {
    ($self:ident, $endpoint:ident => $call:expr) => {
        match $self {
            Self::Host($endpoint) => $call,
            Self::Delayed($endpoint) => $call,
            Self::Sim($endpoint) => $call,
            #[cfg(target_os = "linux")]
            Self::Tcp($endpoint, _) => $call,
            #[cfg(feature = "_verbs")]
            Self::Verbs($endpoint) => $call,
        }
    };
}

impl Endpoint {
    /// Returns the host fabric, if this is it. Its operations need no chain, no ticket and no wait.
    #[inline]
    pub(crate) fn immediate(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            _ => None,
        }
    }

    /// Returns whether the words of a READ or WRITE are accessed in the order of their addresses. Real devices promise no order.
    pub(crate) fn has_ordered_words(&self) -> bool {
        match self {
            Self::Sim(sim) => sim.has_ordered_words(),
            #[cfg(feature = "_verbs")]
            Self::Verbs(_) => false,
            _ => true,
        }
    }

    /// Returns the memory of the host, if far memory is mapped, whether or not operations are delayed.
    #[inline]
    pub(crate) fn mapped(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Delayed(delayed) => Some(delayed.host()),
            _ => None,
        }
    }

    /// Returns the simulator, if this is it. There, waits are timers.
    #[inline]
    pub(crate) fn virtual_time(&self) -> Option<&Sim> {
        match self {
            Self::Sim(sim) => Some(sim),
            _ => None,
        }
    }

    /// Returns whether the fabric keeps a single operation of this many words in place. On the others it is a chain of one.
    #[inline]
    pub(crate) fn keeps_singles(&self, words: usize) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(..) => words <= SINGLE_WORDS,
            #[cfg(feature = "_verbs")]
            Self::Verbs(_) => words <= SINGLE_WORDS,
            _ => {
                let _ = words;
                false
            }
        }
    }

    /// Posts a single operation that the fabric [keeps in place](Self::keeps_singles). It is not done before the thread has polled all its tasks.
    #[allow(clippy::inline_always)] // or the operation is copied through memory
    #[inline(always)]
    pub(crate) fn post_single(
        &self,
        op: impl Fn() -> Op + Copy,
        written: &[u64],
        task: impl Fn() -> u32,
    ) -> farfield_fabric::Result<Ticket> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, _) => post_single_by_tcp(tcp, op, written, task),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.post_single(op, written, task),
            _ => unreachable!(
                "the fabric does not keep {} of {} words for task {}",
                op().name(),
                written.len(),
                task()
            ),
        }
    }

    /// As [`post_single`](Self::post_single), in the usual case: see `LaneEndpoint::try_post_single`.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    #[cfg_attr(not(feature = "_verbs"), allow(unused_variables))]
    pub(crate) fn try_post_single(&self, op: impl Fn() -> Op + Copy, written: &[u64]) -> Option<Ticket> {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.try_post_single(op, written),
            _ => None,
        }
    }

    /// As [`poll_single`](Self::poll_single), in the usual case: see `LaneEndpoint::try_poll_single`.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    #[cfg_attr(not(feature = "_verbs"), allow(unused_variables))]
    pub(crate) fn try_poll_single(&self, ticket: Ticket, into: &mut [u64]) -> Option<()> {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.try_poll_single(ticket, into),
            _ => None,
        }
    }

    /// Polls such an operation. If it is done, copies the first of its words, `into.len()` of them: what it has read.
    #[allow(clippy::inline_always)] // or the result is
    #[inline(always)]
    pub(crate) fn poll_single(&self, ticket: Ticket, into: &mut [u64]) -> Poll<farfield_fabric::Result<()>> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, _) => poll_single_by_tcp(tcp, ticket, into),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.poll_single(ticket, into),
            _ => unreachable!("the fabric does not keep {} words of {ticket:?}", into.len()),
        }
    }

    /// Watches words, under a number: see `LaneEndpoint::watch`. Returns `false` if the fabric can not: then they must be read again and again.
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    pub(crate) fn watch(&self, at: Address, words: usize, number: u64) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, _) => tcp.watch(at, words, number),
            _ => false,
        }
    }

    /// Watches words no more.
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    pub(crate) fn unwatch(&self, at: Address) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, _) => tcp.unwatch(at),
            _ => {}
        }
    }

    /// Returns whether words are watched.
    pub(crate) fn is_watching(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, _) => tcp.is_watching(),
            _ => false,
        }
    }

    /// Returns the thread's lines to other compute threads, if the fabric has some.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn peers(&self) -> Option<&Rc<Peers>> {
        match self {
            Self::Tcp(_, peers) => peers.as_ref(),
            _ => None,
        }
    }

    /// Passes the changes of watched words on: the number of the watch, the address, and the words. Returns whether there were some.
    #[inline]
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    pub(crate) fn take_changes(&self, each: impl FnMut(u64, Address, &[u64])) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, _) if tcp.has_changes() => {
                tcp.take_changes(each);
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn post(&self, chain: RawChain, task: u32) -> Posted {
        of_fabric!(self, endpoint => endpoint.post(chain, task))
    }

    pub(crate) fn poll(&self, ticket: Ticket) -> Poll<(RawChain, farfield_fabric::Result<()>)> {
        of_fabric!(self, endpoint => endpoint.poll(ticket))
    }

    pub(crate) fn forget(&self, ticket: Ticket) {
        of_fabric!(self, endpoint => endpoint.forget(ticket));
    }

    #[inline]
    pub(crate) fn is_asynchronous(&self) -> bool {
        of_fabric!(self, endpoint => endpoint.is_asynchronous())
    }

    pub(crate) fn detach(&self, ticket: Ticket) {
        of_fabric!(self, endpoint => endpoint.detach(ticket));
    }

    pub(crate) fn in_background(&self, ticket: Ticket) {
        of_fabric!(self, endpoint => endpoint.in_background(ticket));
    }

    pub(crate) fn is_underway(&self) -> bool {
        of_fabric!(self, endpoint => endpoint.is_underway())
    }

    pub(crate) fn doorbells(&self) -> u64 {
        of_fabric!(self, endpoint => endpoint.doorbells())
    }

    pub(crate) fn now(&self) -> Duration {
        of_fabric!(self, endpoint => endpoint.now())
    }

    pub(crate) fn round_trip(&self) -> Option<u64> {
        of_fabric!(self, endpoint => endpoint.round_trip())
    }

    pub(crate) fn idle(&self) {
        match self {
            Self::Host(host) => host.idle(),
            Self::Delayed(delayed) => delayed.idle(),
            Self::Sim(sim) => sim.idle(),
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, None) => tcp.idle(),
            #[cfg(target_os = "linux")]
            Self::Tcp(tcp, Some(peers)) => tcp.idle_with(peers),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.idle(),
        }
    }
}

// Calls, so that the code of RDMA is not in two copies.
#[cfg(target_os = "linux")]
#[inline(never)]
fn post_single_by_tcp(
    tcp: &TcpEndpoint,
    op: impl Fn() -> Op + Copy,
    written: &[u64],
    task: impl Fn() -> u32,
) -> farfield_fabric::Result<Ticket> {
    tcp.post_single(op, written, task)
}

#[cfg(target_os = "linux")]
#[inline(never)]
fn poll_single_by_tcp(
    tcp: &TcpEndpoint,
    ticket: Ticket,
    into: &mut [u64],
) -> Poll<farfield_fabric::Result<()>> {
    tcp.poll_single(ticket, into)
}
