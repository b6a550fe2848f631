//! Where far memory is, and how threads get at it: the one place above the fabrics that tells them apart.

use std::sync::Arc;
use std::time::Duration;

use super::contents::ClusterContents;
use super::meaning::ClusterMeaning;
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
#[cfg(feature = "_verbs")]
use farfield_fabric::verbs::{Client, Verbs};
use farfield_sim::{self as sim, Sim, World};
use farfield_words::geometry::Geometry;

/// Where far memory is.
pub(crate) enum Backing {
    /// In this process.
    Here(Arc<Arena>),
    /// In several processes of this machine.
    #[cfg(target_os = "linux")]
    Shared(Arc<shm::Client>),
    /// Here too, behind a simulated network.
    Simulated(sim::SharedWorld),
    /// On other machines.
    #[cfg(feature = "_verbs")]
    Verbs(Arc<Client>),
}

impl Backing {
    /// Maps or connects to the memory that is asked for; if memory nodes say how much there is, `config` says so afterwards.
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
            #[cfg(feature = "_verbs")]
            Fabric::Verbs(options) => {
                let client = Client::connect(options, control::LAYOUT_VERSION)?;
                *geometry = client.geometry();
                Self::Verbs(Arc::new(client))
            }
        })
    }

    /// What tells this process from all others of the cluster, if there may be others.
    pub(crate) fn identity(&self) -> Option<u32> {
        match self {
            Self::Here(_) | Self::Simulated(_) => None,
            #[cfg(target_os = "linux")]
            Self::Shared(client) => Some(client.number()),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Some(client.number()),
        }
    }

    /// How long the process may go without a sign of life, where somebody gives it in the background.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => Some(client.lease()),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Some(client.lease()),
            Self::Here(_) | Self::Simulated(_) => None,
        }
    }

    /// Whether a process has gone and nothing of it takes effect any more; nothing where its memory node does not say.
    pub(crate) fn is_gone(&self, identity: u32) -> Option<bool> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => client.is_gone(identity),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => client.is_gone(identity),
            Self::Here(_) | Self::Simulated(_) => None,
        }
    }

    /// Whether the memory node is gone that lets processes in.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Shared(client) => client.is_lost(),
            _ => false,
        }
    }

    /// Where the network is simulated.
    pub(crate) fn world(&self) -> Option<&sim::SharedWorld> {
        match self {
            Self::Simulated(world) => Some(world),
            _ => None,
        }
    }

    /// Whether processes that this one knows nothing of may be at work in the cluster.
    pub(crate) fn has_strangers(&self) -> bool {
        self.identity().is_some()
    }

    /// Gets ready for a run of so many threads.
    #[cfg_attr(not(feature = "_verbs"), allow(unused_variables, clippy::unnecessary_wraps))]
    pub(crate) fn prepare(&self, threads: usize) -> Result<()> {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Ok(client.prepare(threads)?),
            _ => Ok(()),
        }
    }

    /// Whether a process that is silent can be shut out while it lives.
    pub(crate) fn shuts_out(&self) -> bool {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(_) => true,
            _ => false,
        }
    }

    /// Gets ready for what the process does in the background.
    #[cfg_attr(not(feature = "_verbs"), allow(clippy::unnecessary_wraps))]
    pub(crate) fn prepare_background(&self) -> Result<()> {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Ok(client.prepare_background()?),
            _ => Ok(()),
        }
    }

    /// The access of a thread of a run, or of one in the background.
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
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Endpoint::Verbs(Verbs::new(client, thread, stalls)),
        }
    }
}

/// Fresh memory with its control blocks.
fn formatted(geometry: Geometry) -> Result<Arc<Arena>> {
    let arena = Arena::new(geometry)?;
    arena.format(&ClusterContents { sweeps: false })?;
    Ok(Arc::new(arena))
}
