//! The suite on the fabrics of this crate, and on those that break a rule.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::suite::SUITE;
use super::violations::{Faulty, Violation};
use super::*;
use crate::host::{Arena, Delayed, Host};

fn host() -> Host {
    Host::new(Arc::new(Arena::new(GEOMETRY).unwrap()))
}

#[test]
fn the_host_fabric_conforms() {
    check(|| {
        let host = host();
        Fabric::new(move || host.clone())
    });
}

#[test]
fn the_delayed_fabric_conforms() {
    check(|| {
        let (host, seed) = (host(), Cell::new(0));
        Fabric::new(move || {
            seed.set(seed.get() + 1);
            Delayed::new(host.clone(), 5, seed.get(), None)
        })
    });
}

/// Each endpoint has a mapping of its own, like a process.
#[cfg(target_os = "linux")]
#[test]
fn shared_memory_conforms() {
    use crate::handshake::Secret;
    use crate::memory_node::{MemoryNode, NodeOptions};
    use crate::shm::{Client, ShmConfig};
    use crate::{Stopper, contents::tests::Empty};

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
    check(|| {
        number.set(number.get() + 1);
        let name = format!("conformance-{}-{}", std::process::id(), number.get());
        let options = NodeOptions {
            shm: Some(name.as_str().into()),
            tcp: None,
            nodes: GEOMETRY.nodes(),
            segments: GEOMETRY.segments_per_node(),
            segment_bytes: GEOMETRY.segment_bytes(),
            lease_ms: 60_000,
        };
        let node = MemoryNode::listen(&options, Secret::new(b""), Box::new(Empty)).unwrap();
        let stopper = Some(node.stopper().unwrap());
        let serving = std::thread::spawn(move || node.serve().unwrap());
        let node = Node { name, stopper, serving: Some(serving) };
        let clients = RefCell::new(Vec::new());
        Fabric::new(move || {
            let client = Client::connect(&ShmConfig::new(&node.name).unwrap(), Empty::VERSION).unwrap();
            let host = Host::new(Arc::clone(client.arena()));
            clients.borrow_mut().push(client);
            host
        })
    });
}

#[cfg(not(target_os = "linux"))]
#[test]
fn shared_memory_conforms() {
    crate::skip::skip("shm", "`shm:` is for Linux");
}

/// Encrypted, plain, and on one memory node whose memory is divided as that of two.
#[cfg(target_os = "linux")]
#[test]
fn tcp_conforms() {
    use crate::tcp::TcpEndpoint;
    use crate::tcp::tests::Nodes;

    for (is_sealed, is_divided) in [(true, false), (false, false), (false, true)] {
        check(|| {
            let nodes = if is_divided {
                Nodes::serve_divided(2, SEGMENT_BYTES)
            } else {
                Nodes::serve(2, 2, SEGMENT_BYTES, b"open sesame")
            };
            let client = nodes.client(is_sealed);
            let next = Cell::new(0);
            Fabric::new(move || {
                let _ = &nodes;
                let thread = next.replace(next.get() + 1);
                client.prepare(thread + 1).unwrap();
                TcpEndpoint::new(&client, Some(thread), None)
            })
        });
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn tcp_conforms() {
    crate::skip::skip("tcp", "`tcp:` is for Linux");
}

#[cfg(feature = "_verbs")]
#[test]
fn rdma_conforms() {
    use crate::contents::tests::Empty;
    use crate::verbs::config::VerbsConfig;
    use crate::verbs::tests::{Nodes, address};
    use crate::verbs::{Client, Verbs};

    let Some(address) = address() else { return };
    check(|| {
        let nodes = Nodes::serve(&address, 2, 2, SEGMENT_BYTES, None);
        let client =
            Arc::new(Client::connect(&VerbsConfig::new(&nodes.names()).unwrap(), Empty::VERSION).unwrap());
        let next = Cell::new(0);
        Fabric::new(move || {
            let _ = &nodes;
            let thread = next.replace(next.get() + 1);
            client.prepare(thread + 1).unwrap();
            Verbs::new(&client, Some(thread), None)
        })
    });
}

#[cfg(not(feature = "_verbs"))]
#[test]
fn rdma_conforms() {
    crate::skip::skip("rdma", "this build is without the feature `verbs`");
}

/// Each violation fails the checks listed for it; the fabric without a violation fails none.
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
