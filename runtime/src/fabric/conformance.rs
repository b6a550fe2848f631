//! What every fabric does: one suite, run on each.
//!
//! A fabric passes if what a chain did can not be told from executing its operations one after the other, and if what
//! is wrong with an address is reported and changes nothing.

use std::sync::Arc;
#[cfg(feature = "_verbs")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use super::chain::Chain;
use super::delayed::Delayed;
use super::host::{Arena, Geometry, Host};
use super::sim::config::SimConfig;
use super::sim::{Shared, Sim, World};
use super::{Endpoint, Posted};
use crate::error::{Error, PointerFault, Result};
use crate::memory::grid::Grid;
use crate::pointer::Address;
use crate::sim::books::Books;

const SEGMENT_BYTES: u64 = 64 * 1024;

/// A name, and how to make endpoints of one fabric that share its memory.
struct Fabric {
    name: &'static str,
    endpoint: Box<dyn Fn() -> Endpoint>,
}

fn fabrics() -> Vec<Fabric> {
    let geometry = Geometry { nodes: 2, segments_per_node: 2, segment_bytes: SEGMENT_BYTES };
    let host = move || Host::new(Arc::new(Arena::new(geometry).unwrap()));
    let (direct, delayed) = (host(), host());
    // Without jitter: chains of one thread that nobody waits for arrive in order, as the suite's checks need.
    let mut options = SimConfig::default();
    assert_eq!(options.set("jitter", "0%"), Ok(true));
    let arena = Arc::new(Arena::new(geometry).unwrap());
    let world =
        Shared::new(World::new(options, geometry, arena, 42, Books::new(42, false, Grid::new(geometry))));
    let mut fabrics = vec![
        Fabric { name: "host", endpoint: Box::new(move || Endpoint::Host(direct.clone())) },
        Fabric {
            name: "delayed",
            endpoint: Box::new(move || Endpoint::Delayed(Delayed::new(delayed.clone(), 5, 42, None))),
        },
        Fabric { name: "sim", endpoint: Box::new(move || Endpoint::Sim(Sim::new(world.clone(), 0))) },
    ];
    fabrics.extend(verbs::fabric());
    fabrics
}

/// The verbs fabric, where there is a device for it.
#[cfg(feature = "_verbs")]
mod verbs {
    use super::*;
    use crate::fabric::verbs::config::Config;
    use crate::fabric::verbs::tests::{Nodes, address};
    use crate::fabric::verbs::{Client, Verbs};

    pub(super) fn fabric() -> Option<Fabric> {
        let nodes = Nodes::serve(&address()?, 2, 2, SEGMENT_BYTES, None);
        let client = Arc::new(Client::connect(&Config::new(&nodes.names()).unwrap()).unwrap());
        let next = AtomicUsize::new(0);
        let endpoint = move || {
            let _ = &nodes;
            let thread = next.fetch_add(1, Ordering::Relaxed);
            client.prepare(thread + 1).unwrap();
            Endpoint::Verbs(Verbs::new(&client, Some(thread), None))
        };
        Some(Fabric { name: "verbs", endpoint: Box::new(endpoint) })
    }
}

#[cfg(not(feature = "_verbs"))]
mod verbs {
    pub(super) fn fabric() -> Option<super::Fabric> {
        None
    }
}

fn for_each_fabric(test: impl Fn(&Fabric)) {
    for fabric in fabrics() {
        eprintln!("on the {} fabric", fabric.name);
        test(&fabric);
    }
}

fn complete(endpoint: &Endpoint, chain: Chain) -> (Chain, Result<()>) {
    match endpoint.post(chain, 0) {
        Posted::Done(chain, result) => (chain, result),
        Posted::InFlight(ticket) => loop {
            if let Poll::Ready(done) = endpoint.poll(ticket) {
                return done;
            }
        },
    }
}

fn succeed(endpoint: &Endpoint, chain: Chain) -> Chain {
    let (chain, result) = complete(endpoint, chain);
    result.unwrap();
    chain
}

fn word(endpoint: &Endpoint, at: Address) -> u64 {
    let mut chain = Chain::default();
    let slot = chain.read(at, 1);
    succeed(endpoint, chain).word(&slot)
}

#[test]
fn memory_begins_as_zero_and_keeps_what_is_written() {
    for_each_fabric(|fabric| {
        let endpoint = (fabric.endpoint)();
        for segment in 0..4 {
            let at = Address::new(segment, SEGMENT_BYTES - 32);
            let mut chain = Chain::default();
            let before = chain.read(at, 4);
            chain.write(at, &[1, 2, 3, u64::from(segment)]);
            let after = chain.read(at, 4);
            let done = succeed(&endpoint, chain);
            assert_eq!(done.words(&before), [0; 4]);
            assert_eq!(done.words(&after), [1, 2, 3, u64::from(segment)]);
        }
    });
}

#[test]
fn a_chain_takes_effect_in_program_order() {
    for_each_fabric(|fabric| {
        let endpoint = (fabric.endpoint)();
        let at = Address::new(1, 64);
        let mut chain = Chain::default();
        chain.write(at, &[5]);
        let added_to = chain.fetch_add(at, 10);
        let exchanged = chain.compare_exchange(at, 15, 7);
        let refused = chain.compare_exchange(at, 15, 8);
        let last = chain.read(at, 1);
        let done = succeed(&endpoint, chain);
        let found = [&added_to, &exchanged, &refused, &last].map(|slot| done.word(slot));
        assert_eq!(found, [5, 15, 7, 7]);
        assert_eq!(done.failed_exchanges(), 1);
    });
}

#[test]
fn adding_wraps_around() {
    for_each_fabric(|fabric| {
        let endpoint = (fabric.endpoint)();
        let at = Address::new(0, 64);
        let mut chain = Chain::default();
        chain.write(at, &[u64::MAX]);
        chain.fetch_add(at, 2);
        succeed(&endpoint, chain);
        assert_eq!(word(&endpoint, at), 1);
    });
}

#[test]
fn endpoints_see_each_others_writes() {
    for_each_fabric(|fabric| {
        let (one, other) = ((fabric.endpoint)(), (fabric.endpoint)());
        let at = Address::new(3, 4096);
        let mut chain = Chain::default();
        chain.write(at, &[99]);
        succeed(&one, chain);
        assert_eq!(word(&other, at), 99);
    });
}

#[test]
fn an_invalid_address_is_named_and_stops_the_chain() {
    for_each_fabric(|fabric| {
        let endpoint = (fabric.endpoint)();
        let after = Address::new(0, 128);
        let past = PointerFault::PastSegment { size_bytes: SEGMENT_BYTES };
        let cases = [
            (Address::NULL, 1, PointerFault::Null),
            (Address::new(0, 68), 1, PointerFault::Misaligned { align: 8 }),
            (Address::new(2, SEGMENT_BYTES - 8), 2, past),
            (Address::new(2, SEGMENT_BYTES), 1, past),
            (Address::new(4, 64), 1, PointerFault::NoSegment { segments: 4 }),
        ];
        for (at, words, expected) in cases {
            let mut chain = Chain::default();
            chain.read(at, words);
            chain.write(after, &[1]);
            match complete(&endpoint, chain).1 {
                Err(Error::InvalidPointer(found)) => assert_eq!((found.address, found.fault), (at, expected)),
                other => panic!("{at}: {other:?}"),
            }
        }
        assert_eq!(word(&endpoint, after), 0, "nothing after the fault takes effect");
    });
}

#[test]
fn chains_nobody_waits_for_take_effect() {
    for_each_fabric(|fabric| {
        let endpoint = (fabric.endpoint)();
        let at = Address::new(0, 256);
        let mut chain = Chain::default();
        chain.write(at, &[3]);
        if let Posted::InFlight(ticket) = endpoint.post(chain, 0) {
            endpoint.forget(ticket);
        }
        assert_eq!(word(&endpoint, at), 3);
    });
}

#[test]
fn chains_in_flight_together_all_complete() {
    for_each_fabric(|fabric| {
        let endpoint = (fabric.endpoint)();
        let at = Address::new(1, 512);
        let mut in_flight = Vec::new();
        for _ in 0..100 {
            let mut chain = Chain::default();
            chain.fetch_add(at, 1);
            if let Posted::InFlight(ticket) = endpoint.post(chain, 0) {
                in_flight.push(ticket);
            }
        }
        while !in_flight.is_empty() {
            in_flight.retain(|ticket| endpoint.poll(*ticket).is_pending());
        }
        assert_eq!(word(&endpoint, at), 100);
    });
}

#[test]
fn atomics_of_many_threads_lose_nothing() {
    for_each_fabric(|fabric| {
        let at = Address::new(0, 1024);
        let endpoints: Vec<_> = (0..4).map(|_| (fabric.endpoint)()).collect();
        std::thread::scope(|scope| {
            for endpoint in endpoints {
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let mut chain = Chain::default();
                        chain.fetch_add(at, 1);
                        succeed(&endpoint, chain);
                    }
                });
            }
        });
        assert_eq!(word(&(fabric.endpoint)(), at), 4000);
    });
}
