//! The conformance suite: one set of checks, run on every fabric.
//!
//! A fabric passes if the memory model of the [crate](crate) holds. A chain has the same effect as its operations one after the other. Chains of one
//! thread to one memory node keep the promised order. Words are not torn. An invalid address is reported and changes nothing.
//!
//! A test of a fabric is one call:
//!
//! ```
//! use farfield_fabric::conformance::{self, Fabric, GEOMETRY};
//! use farfield_fabric::host::{Arena, Host};
//! use std::sync::Arc;
//!
//! conformance::check(|| {
//!     let host = Host::new(Arc::new(Arena::new(GEOMETRY).unwrap()));
//!     Fabric::new(move || host.clone())
//! });
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `suite` | the checks |
//! | `violations` | fabrics that break one rule each, to show that the suite detects it |
//! | `tests` | the suite on the fabrics of this crate, and on the violations. An unavailable fabric is skipped with a message |

mod suite;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod violations;

use std::cell::RefCell;
use std::task::Poll;

use crate::chain::RawChain;
use crate::error::Result;
use crate::{Endpoint, Posted, Ticket};
use farfield_words::Geometry;
use suite::SUITE;

/// The size of a segment of [`GEOMETRY`].
pub const SEGMENT_BYTES: u64 = 64 * 1024;
/// The memory that a fabric under test has: all zero at first.
pub const GEOMETRY: Geometry = match Geometry::new(2, 2, SEGMENT_BYTES) {
    Ok(geometry) => geometry,
    Err(_) => panic!("small, and within the bounds"),
};

/// An endpoint under test.
trait TestEndpoint: Send {
    fn post(&self, chain: RawChain) -> Posted;

    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)>;

    /// Detaches a chain, as a compute thread does: on an asynchronous fabric it is polled later.
    fn detach(&self, ticket: Ticket);

    /// Polls the detached chains once, as a compute thread does occasionally.
    fn poll_detached(&self);
}

/// An endpoint and its detached chains in flight.
struct RealEndpoint<E> {
    endpoint: E,
    detached: RefCell<Vec<Ticket>>,
}

impl<E: Endpoint + Send> TestEndpoint for RealEndpoint<E> {
    fn post(&self, chain: RawChain) -> Posted {
        self.endpoint.post(chain, 0)
    }

    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        self.endpoint.poll(ticket)
    }

    fn detach(&self, ticket: Ticket) {
        if self.endpoint.is_asynchronous() {
            self.endpoint.detach(ticket);
            self.detached.borrow_mut().push(ticket);
        } else {
            self.endpoint.forget(ticket);
        }
    }

    fn poll_detached(&self) {
        self.detached.borrow_mut().retain(|ticket| self.endpoint.poll(*ticket).is_pending());
    }
}

/// A factory of endpoints of one fabric, which share its memory.
pub struct Fabric(Box<dyn Fn() -> Box<dyn TestEndpoint>>);

impl Fabric {
    /// Makes a factory. Each call of `endpoint` makes the endpoint of another compute thread.
    pub fn new<E: Endpoint + Send + 'static>(endpoint: impl Fn() -> E + 'static) -> Self {
        Self(Box::new(move || Box::new(RealEndpoint { endpoint: endpoint(), detached: RefCell::default() })))
    }

    fn endpoint(&self) -> Box<dyn TestEndpoint> {
        (self.0)()
    }
}

/// Runs each check on a new fabric.
///
/// # Panics
/// If the fabric violates the memory model.
pub fn check(fabric: impl Fn() -> Fabric) {
    for (name, check) in SUITE {
        eprintln!("{name}");
        check(&fabric());
    }
}
