//! What every fabric does: one suite, run on each.
//!
//! A fabric passes if the memory model of the [crate](crate) holds: what a chain did can not be told from executing its operations one
//! after the other, chains of one thread to one memory node keep the order that the model promises, words are not torn, and what
//! is wrong with an address is reported and changes nothing.
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
//! | module | what it has |
//! |---|---|
//! | `suite` | the checks |
//! | `violations` | fabrics that break one rule each, to show that the suite finds it |
//! | `tests` | the fabrics of this crate, and the violations. A fabric that this build or machine does not have is skipped aloud |

mod suite;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod violations;

use std::cell::RefCell;
use std::task::Poll;

use crate::chain::Chain;
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

/// What the suite asks of an endpoint.
trait TestEndpoint: Send {
    fn post(&self, chain: Chain) -> Posted;

    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)>;

    /// No future waits for the chain any more. As a compute thread does it: where chains take time, they are polled later.
    fn detach(&self, ticket: Ticket);

    /// Polls once what was given up, as a compute thread does now and then.
    fn poll_detached(&self);
}

/// An endpoint, and what it has in flight that was given up.
struct RealEndpoint<E> {
    endpoint: E,
    detached: RefCell<Vec<Ticket>>,
}

impl<E: Endpoint + Send> TestEndpoint for RealEndpoint<E> {
    fn post(&self, chain: Chain) -> Posted {
        self.endpoint.post(chain, 0)
    }

    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
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

/// Makes endpoints of one fabric that share its memory.
pub struct Fabric(Box<dyn Fn() -> Box<dyn TestEndpoint>>);

impl Fabric {
    /// Each call of `endpoint` is another compute thread's.
    pub fn new<E: Endpoint + Send + 'static>(endpoint: impl Fn() -> E + 'static) -> Self {
        Self(Box::new(move || Box::new(RealEndpoint { endpoint: endpoint(), detached: RefCell::default() })))
    }

    fn endpoint(&self) -> Box<dyn TestEndpoint> {
        (self.0)()
    }
}

/// Runs every check on a fabric of its own.
///
/// # Panics
/// If the fabric breaks a rule.
pub fn check(fabric: impl Fn() -> Fabric) {
    for (name, check) in SUITE {
        eprintln!("{name}");
        check(&fabric());
    }
}
