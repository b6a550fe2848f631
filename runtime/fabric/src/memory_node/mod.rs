//! Memory nodes: the memory of a cluster, or a part of it, and who may reach it by which ways.
//!
//! Operations on a word are atomic only with each other's kind: those of processors, or those of an RDMA device. So memory that processes map, or that
//! a memory node's processor accesses for clients of TCP, is never registered with a device, and the other way round.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::admission::own_geometry;
use crate::error::Result;
use crate::handshake::Secret;
use crate::host::Arena;
use crate::server::{self, Listener, Node};
use crate::shm::ShmEntrance;
use crate::status::NodeStatus;
use crate::tcp::{TcpEntrance, TcpListen};
#[cfg(feature = "_verbs")]
use crate::verbs;
use crate::{Contents, Stopper};

/// The options of a memory node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name of its cluster in shared memory, if processes of its machine map the memory.
    pub shm: Option<Box<str>>,
    /// Where it listens for TCP connections.
    pub tcp: Option<TcpListen>,
    /// The number of memory nodes that its segments are divided among; more than one only with `shm`.
    pub nodes: u16,
    /// The number of segments of each.
    pub segments: u16,
    /// The size of each segment.
    pub segment_bytes: u64,
    /// The lease of a client: the longest time between two heartbeats.
    pub lease_ms: u32,
}

/// A listening memory node.
pub struct MemoryNode(Kind);

enum Kind {
    /// Its memory is accessed by processors.
    Host { server: server::Server, tcp: Option<SocketAddr> },
    /// Its memory is accessed by a device.
    #[cfg(feature = "_verbs")]
    Verbs(verbs::Server),
}

impl MemoryNode {
    /// Makes the memory, and listens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an option out of its bounds, or an address that can not be listened on;
    /// [`Error::CannotServe`](crate::Error::CannotServe) for a name that can not be used, or too little memory; [`Error::System`](crate::Error::System).
    pub fn listen(options: &NodeOptions, secret: Secret, contents: Box<dyn Contents>) -> Result<Self> {
        let is_alone = options.shm.is_some();
        let geometry = own_geometry(options.nodes, options.segments, options.segment_bytes, is_alone)?;
        let mut listeners: Vec<Box<dyn Listener>> = Vec::new();
        let tcp = options.tcp.as_ref().map(|listen| TcpEntrance::listen(listen, &secret)).transpose()?;
        let address = tcp.as_ref().map(TcpEntrance::address).transpose()?;
        listeners.extend(tcp.map(|entrance| Box::new(entrance) as Box<dyn Listener>));
        let arena = match &options.shm {
            Some(name) => {
                let (entrance, arena) = ShmEntrance::listen(name, geometry)?;
                listeners.push(Box::new(entrance));
                arena
            }
            None => Arc::new(Arena::new(geometry)?),
        };
        let node = Node::new(
            arena,
            server::NodeOptions {
                lease_ms: options.lease_ms,
                secret,
                contents,
                disconnects: options.tcp.is_some(),
                is_alone,
            },
        )?;
        Ok(Self(Kind::Host { server: server::Server::new(node, listeners)?, tcp: address }))
    }

    /// Registers the memory with an RDMA device, and listens at an address of it.
    ///
    /// # Errors
    /// As above; [`Error::System`](crate::Error::System) also if there is no device, or it may not be used.
    #[cfg(feature = "_verbs")]
    pub fn listen_verbs(
        options: &verbs::VerbsNodeOptions,
        secret: Secret,
        contents: Box<dyn Contents>,
    ) -> Result<Self> {
        verbs::Server::listen(options, secret, contents).map(|server| Self(Kind::Verbs(server)))
    }

    /// Returns the address on which it listens on a network.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Host { tcp, .. } => *tcp,
            #[cfg(feature = "_verbs")]
            Kind::Verbs(server) => Some(server.address()),
        }
    }

    /// Returns the name of its RDMA device, if it has one.
    pub fn device(&self) -> Option<String> {
        match &self.0 {
            Kind::Host { .. } => None,
            #[cfg(feature = "_verbs")]
            Kind::Verbs(server) => Some(server.device_name()),
        }
    }

    /// Returns its status, which other threads may read.
    pub fn status(&self) -> Arc<NodeStatus> {
        match &self.0 {
            Kind::Host { server, .. } => server.status(),
            #[cfg(feature = "_verbs")]
            Kind::Verbs(server) => server.status(),
        }
    }

    /// Returns the handle that stops it.
    pub fn stopper(&self) -> Result<Stopper> {
        match &self.0 {
            Kind::Host { server, .. } => server.stopper(),
            #[cfg(feature = "_verbs")]
            Kind::Verbs(server) => server.stopper(),
        }
    }

    /// Serves until its stopper stops it; then closes all connections, and removes the files of its cluster in shared memory.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if it can not wait for its sockets; also if its device is removed.
    pub fn serve(self) -> Result<()> {
        match self.0 {
            Kind::Host { server, .. } => server.serve(),
            #[cfg(feature = "_verbs")]
            Kind::Verbs(mut server) => server.serve(),
        }
    }
}
