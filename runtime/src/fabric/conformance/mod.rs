//! What every fabric does: one suite, run on each.
//!
//! A fabric passes if the memory model of [`super`] holds: what a chain did can not be told from executing its operations one
//! after the other, chains of one thread to one memory node keep the order that the model promises, words are not torn, and what
//! is wrong with an address is reported and changes nothing.
//!
//! | module | what it has |
//! |---|---|
//! | [`suite`] | the checks |
//! | [`violations`] | fabrics that break one rule each, to show that the suite finds it |
//!
//! Each fabric is a test here. A fabric that this build or machine does not have is [skipped](crate::skip) aloud.

mod suite;
mod violations;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use super::chain::Chain;
use super::delayed::Delayed;
use super::host::{Arena, Host};
use super::sim::config::SimConfig;
use super::sim::{Shared, Sim, World};
use super::{Endpoint, Posted, Ticket};
use crate::error::Result;
use crate::memory::grid::Grid;
use crate::sim::books::Books;
use farfield_words::Geometry;
use suite::SUITE;
use violations::{Faulty, Violation};

const SEGMENT_BYTES: u64 = 64 * 1024;
const GEOMETRY: Geometry = match Geometry::new(2, 2, SEGMENT_BYTES) {
    Ok(geometry) => geometry,
    Err(_) => panic!("small, and within the bounds"),
};

/// What the suite asks of an endpoint.
trait Subject: Send {
    fn post(&self, chain: Chain) -> Posted;

    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)>;

    /// Nobody waits for the chain any more. As a compute thread does it: where chains take time, they are polled later.
    fn give_up(&self, ticket: Ticket);

    /// Polls once what was given up, as a compute thread does now and then.
    fn tend(&self);
}

/// An endpoint, and what it has in flight that was given up.
struct Real {
    endpoint: Endpoint,
    given_up: RefCell<Vec<Ticket>>,
}

impl Subject for Real {
    fn post(&self, chain: Chain) -> Posted {
        self.endpoint.post(chain, 0)
    }

    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        self.endpoint.poll(ticket)
    }

    fn give_up(&self, ticket: Ticket) {
        if self.endpoint.takes_time() {
            self.endpoint.leave(ticket);
            self.given_up.borrow_mut().push(ticket);
        } else {
            self.endpoint.forget(ticket);
        }
    }

    fn tend(&self) {
        self.given_up.borrow_mut().retain(|ticket| self.endpoint.poll(*ticket).is_pending());
    }
}

/// Makes endpoints of one fabric that share its memory.
struct Fabric(Box<dyn Fn() -> Box<dyn Subject>>);

impl Fabric {
    fn new(endpoint: impl Fn() -> Endpoint + 'static) -> Self {
        Self(Box::new(move || Box::new(Real { endpoint: endpoint(), given_up: RefCell::default() })))
    }

    fn endpoint(&self) -> Box<dyn Subject> {
        (self.0)()
    }
}

/// Runs every check on a fabric of its own.
fn conforms(fabric: impl Fn() -> Fabric) {
    for (name, check) in SUITE {
        eprintln!("{name}");
        check(&fabric());
    }
}

fn host() -> Host {
    Host::new(Arc::new(Arena::new(GEOMETRY).unwrap()))
}

#[test]
fn the_host_fabric_conforms() {
    conforms(|| {
        let host = host();
        Fabric::new(move || Endpoint::Host(host.clone()))
    });
}

#[test]
fn the_delayed_fabric_conforms() {
    conforms(|| {
        let (host, seed) = (host(), Cell::new(0));
        Fabric::new(move || {
            seed.set(seed.get() + 1);
            Endpoint::Delayed(Delayed::new(host.clone(), 5, seed.get(), None))
        })
    });
}

/// With as much jitter as there can be: what is in order is so by the fabric's doing.
#[test]
fn the_simulator_conforms() {
    for seed in 0..20 {
        conforms(|| {
            let mut options = SimConfig::default();
            assert_eq!(options.set("jitter", "100%"), Ok(true));
            let arena = Arc::new(Arena::new(GEOMETRY).unwrap());
            let books = Books::new(seed, false, Grid::new(GEOMETRY));
            let mut world = World::new(options, GEOMETRY, arena, seed, books);
            world.admit(64);
            let (world, next) = (Shared::new(world), Cell::new(0));
            Fabric::new(move || Endpoint::Sim(Sim::new(world.clone(), next.replace(next.get() + 1))))
        });
    }
}

/// Each endpoint has a mapping of its own, as each process has.
#[cfg(target_os = "linux")]
#[test]
fn shared_memory_conforms() {
    use super::handshake::Secret;
    use super::shm::{Client, Config, Options, Server};
    use crate::stopper::Stopper;

    struct Node {
        name: String,
        stopper: Option<Stopper>,
        serving: Option<std::thread::JoinHandle<()>>,
    }

    impl Drop for Node {
        fn drop(&mut self) {
            self.stopper.take().unwrap().stop();
            self.serving.take().unwrap().join().unwrap();
        }
    }

    let number = Cell::new(0);
    conforms(|| {
        number.set(number.get() + 1);
        let name = format!("conformance-{}-{}", std::process::id(), number.get());
        let options = Options { name: name.as_str().into(), geometry: GEOMETRY, layout: 1, lease_ms: 60_000 };
        let server = Server::listen(options, Secret::new(b""), |_| Ok(())).unwrap();
        let stopper = Some(Stopper(server.stopper().unwrap()));
        let node = Node { name, stopper, serving: Some(std::thread::spawn(move || server.serve(|_| ()))) };
        let clients = RefCell::new(Vec::new());
        Fabric::new(move || {
            let client = Client::connect(&Config::new(&node.name).unwrap(), 1).unwrap();
            let host = Host::new(Arc::clone(client.arena()));
            clients.borrow_mut().push(client);
            Endpoint::Host(host)
        })
    });
}

#[cfg(not(target_os = "linux"))]
#[test]
fn shared_memory_conforms() {
    crate::skip::skip("shm", "`shm:` is for Linux");
}

#[cfg(feature = "_verbs")]
#[test]
fn rdma_conforms() {
    use super::verbs::config::Config;
    use super::verbs::tests::{Nodes, address};
    use super::verbs::{Client, Verbs};

    let Some(address) = address() else { return };
    conforms(|| {
        let nodes = Nodes::serve(&address, 2, 2, SEGMENT_BYTES, None);
        let client = Arc::new(Client::connect(&Config::new(&nodes.names()).unwrap()).unwrap());
        let next = Cell::new(0);
        Fabric::new(move || {
            let _ = &nodes;
            let thread = next.replace(next.get() + 1);
            client.prepare(thread + 1).unwrap();
            Endpoint::Verbs(Verbs::new(&client, Some(thread), None))
        })
    });
}

#[cfg(not(feature = "_verbs"))]
#[test]
fn rdma_conforms() {
    crate::skip::skip("rdma", "this build is without the feature `verbs`");
}

/// Each violation fails the checks that are named beside it, and the fabric that they are planted in fails none.
#[test]
fn the_suite_finds_every_violation() {
    let mut found_by: Vec<&str> = Vec::new();
    for (violation, expected) in Violation::ALL {
        let failed = |check: &fn(&Fabric)| {
            let memory = Arc::new(Arena::new(GEOMETRY).unwrap());
            let fabric = Fabric(Box::new(move || Box::new(Faulty::new(&memory, *violation))));
            catch_unwind(AssertUnwindSafe(|| check(&fabric))).is_err()
        };
        let found: Vec<&str> =
            SUITE.iter().filter(|(_, check)| failed(check)).map(|(name, _)| *name).collect();
        for expected in *expected {
            assert!(found.contains(expected), "{violation:?}: `{expected}` passes; what fails is {found:?}");
        }
        assert_eq!(found.is_empty(), expected.is_empty(), "{violation:?}: {found:?}");
        found_by.extend(found);
    }
    for (check, _) in SUITE {
        assert!(found_by.contains(check), "`{check}` finds no violation");
    }
}
