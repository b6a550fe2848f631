//! The location of far memory and the endpoints of threads: the only module above the fabrics that distinguishes them.

use std::sync::Arc;
use std::time::Duration;

use super::contents::ClusterContents;
use super::simulated::ClusterMeaning;
use super::url::{Config, Fabric};
use crate::error::Result;
use crate::io::Endpoint;
use crate::segment::control;
use crate::segment::grid::Grid;
use farfield_fabric::host::Delayed;
use farfield_fabric::host::{Arena, Host};
#[cfg(target_os = "linux")]
use farfield_fabric::shm;
use farfield_fabric::stall::Waits;
#[cfg(target_os = "linux")]
use farfield_fabric::tcp::{self, TcpEndpoint};
#[cfg(feature = "_verbs")]
use farfield_fabric::verbs::{Client, Verbs};
use farfield_sim::{self as sim, Sim, World};
use farfield_words::geometry::Geometry;

/// The location of far memory.
pub(crate) enum Backing {
    /// In this process.
    Here(Arc<Arena>),
    /// Shared by processes of this machine.
    #[cfg(target_os = "linux")]
    Shared(Arc<shm::Client>),
    /// In this process, behind a simulated network.
    Simulated(sim::SharedWorld),
    /// On memory nodes, accessed by TCP.
    #[cfg(target_os = "linux")]
    Tcp(Arc<tcp::Client>),
    /// On memory nodes, accessed by RDMA.
    #[cfg(feature = "_verbs")]
    Verbs(Arc<Client>),
}

impl Backing {
    /// Maps the memory or connects to it. If memory nodes determine its geometry, stores it in `config`.
    pub(crate) fn connect(config: &mut Config) -> Result<Self> {
        let Config { geometry, fabric, seed, .. } = config;
        Ok(match fabric {
            #[cfg(target_os = "linux")]
            Fabric::Shared(options) => {
                let client = shm::Client::connect(options, control::LAYOUT_VERSION)?;
                *geometry = client.arena().geometry();
                Self::Shared(Arc::new(client))
            }
            Fabric::Host | Fabric::Delayed { .. } => Self::Here(formatted(*geometry)?),
            Fabric::Sim(options) => {
                let meaning = Box::new(ClusterMeaning(Grid::new(*geometry)));
                let world =
                    World::new(options.clone(), *geometry, formatted(*geometry)?, *seed, Some(meaning));
                Self::Simulated(sim::SharedWorld::new(world))
            }
            #[cfg(target_os = "linux")]
            Fabric::Tcp(options) => {
                let client = tcp::Client::connect(options, control::LAYOUT_VERSION)?;
                *geometry = client.geometry();
                Self::Tcp(Arc::new(client))
            }
            #[cfg(feature = "_verbs")]
            Fabric::Verbs(options) => {
                let client = Client::connect(options, control::LAYOUT_VERSION)?;
                *geometry = client.geometry();
                Self::Verbs(Arc::new(client))
            }
        })
    }

    /// Returns the number of this process, if other processes can be members of the cluster.
    pub(crate) fn identity(&self) -> Option<u32> {
        match self {
            Self::Here(_) | Self::Simulated(_) => None,
            #[cfg(target_os = "linux")]
            Self::Shared(client) => Some(client.number()),
            #[cfg(target_os = "linux")]
            Self::Tcp(client) => Some(client.number()),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Some(client.number()),
        }
    }

    /// Returns the lease of the process, if it has a keeper that sends heartbeats.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => Some(client.lease()),
            #[cfg(target_os = "linux")]
            Self::Tcp(client) => Some(client.lease()),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Some(client.lease()),
            Self::Here(_) | Self::Simulated(_) => None,
        }
    }

    /// Returns whether a process has ended and none of its operations is in flight; `None` if its memory node is unreachable.
    pub(crate) fn is_gone(&self, identity: u32) -> Option<bool> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => client.is_gone(identity),
            #[cfg(target_os = "linux")]
            Self::Tcp(client) => client.is_gone(identity),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => client.is_gone(identity),
            Self::Here(_) | Self::Simulated(_) => None,
        }
    }

    /// Returns whether the memory node that admits processes has ended.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => client.is_lost(),
            _ => false,
        }
    }

    /// Returns the simulated world, on `sim:`.
    pub(crate) fn world(&self) -> Option<&sim::SharedWorld> {
        match self {
            Self::Simulated(world) => Some(world),
            _ => None,
        }
    }

    /// Returns whether independent processes may use the cluster concurrently.
    pub(crate) fn is_shared(&self) -> bool {
        self.identity().is_some()
    }

    /// Prepares for a run of so many threads.
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables, clippy::unnecessary_wraps))]
    pub(crate) fn prepare(&self, threads: usize) -> Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(client) => Ok(client.prepare(threads)?),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Ok(client.prepare(threads)?),
            _ => Ok(()),
        }
    }

    /// Returns whether a process whose lease has expired can be disconnected while it is alive; on `shm:`, if some processes are on a network.
    pub(crate) fn disconnects_silent(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => client.disconnects(),
            _ => self.is_remote(),
        }
    }

    /// Returns whether far memory is on memory nodes that are accessed by a network.
    pub(crate) fn is_remote(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(_) => true,
            #[cfg(feature = "_verbs")]
            Self::Verbs(_) => true,
            _ => false,
        }
    }

    /// Prepares for the background work of the process.
    #[cfg_attr(not(target_os = "linux"), allow(clippy::unnecessary_wraps))]
    pub(crate) fn prepare_background(&self) -> Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tcp(client) => Ok(client.prepare_background()?),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Ok(client.prepare_background()?),
            _ => Ok(()),
        }
    }

    /// Makes the endpoint of a thread of a run, or of a background thread.
    pub(crate) fn endpoint(
        &self,
        config: &Config,
        seed: u64,
        thread: Option<usize>,
        stalls: Option<Arc<Waits>>,
    ) -> Endpoint {
        match self {
            Self::Here(arena) => {
                let host = Host::new(Arc::clone(arena));
                match config.fabric {
                    Fabric::Delayed { max_polls } => {
                        Endpoint::Delayed(Delayed::new(host, max_polls, seed, stalls))
                    }
                    _ => Endpoint::Host(host),
                }
            }
            #[cfg(target_os = "linux")]
            Self::Shared(client) => Endpoint::Host(Host::new(Arc::clone(client.arena()))),
            Self::Simulated(world) => {
                Endpoint::Sim(Sim::new(world.clone(), thread.unwrap_or_default() as u32))
            }
            #[cfg(target_os = "linux")]
            Self::Tcp(client) => {
                let endpoint = TcpEndpoint::new(client, thread, stalls);
                let peers = endpoint.peers();
                Endpoint::Tcp(endpoint, peers)
            }
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Endpoint::Verbs(Verbs::new(client, thread, stalls)),
        }
    }
}

/// Makes memory with formatted control blocks.
fn formatted(geometry: Geometry) -> Result<Arc<Arena>> {
    let arena = Arena::new(geometry)?;
    arena.format(&ClusterContents { sweeps: false }, true)?;
    Ok(Arc::new(arena))
}
