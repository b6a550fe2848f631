//! Where far memory is, and how threads get at it: the one place above the fabrics that tells them apart.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::control;
use super::url::{Config, Fabric};
use crate::error::Result;
use crate::fabric::Endpoint;
use crate::fabric::delayed::Delayed;
use crate::fabric::host::{Arena, Geometry, Host};
use crate::fabric::sim::{self, Sim, World};
#[cfg(feature = "_verbs")]
use crate::fabric::verbs::{Client, Verbs};
use crate::memory::grid::Grid;
use crate::pointer::Address;
use crate::sim::books::Books;

/// Identities that a process has for its compute threads, as a power of two; the process's number stands above.
pub(super) const THREADS_PER_PROCESS_BITS: u32 = 24;

/// Where far memory is.
pub(super) enum Backing {
    /// In this process.
    Here(Arc<Arena>),
    /// Here too, behind a simulated network.
    Simulated(sim::Shared),
    /// On other machines.
    #[cfg(feature = "_verbs")]
    Verbs(Arc<Client>),
}

impl Backing {
    /// Maps or connects to the memory that is asked for; if memory nodes say how much there is, `config` says so afterwards.
    pub(super) fn connect(config: &mut Config) -> Result<Self> {
        let Config { geometry, fabric, seed, .. } = config;
        Ok(match fabric {
            Fabric::Host | Fabric::Delayed { .. } => Self::Here(formatted(*geometry)?),
            Fabric::Sim(options) => {
                let books = Books::new(*seed, true, Grid::new(*geometry));
                let world = World::new(options.clone(), *geometry, formatted(*geometry)?, *seed, books);
                Self::Simulated(sim::Shared::new(world))
            }
            #[cfg(feature = "_verbs")]
            Fabric::Verbs(options) => {
                let client = Client::connect(options)?;
                *geometry = client.geometry();
                Self::Verbs(Arc::new(client))
            }
        })
    }

    /// The identity of the process's first compute thread. No other process of the cluster has it, nor those that follow.
    pub(super) fn first_thread(&self) -> u64 {
        match self {
            Self::Here(_) | Self::Simulated(_) => 1,
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => 1 + (u64::from(client.number()) << THREADS_PER_PROCESS_BITS),
        }
    }

    /// Where the network is simulated.
    pub(super) fn world(&self) -> Option<&sim::Shared> {
        match self {
            Self::Simulated(world) => Some(world),
            Self::Here(_) => None,
            #[cfg(feature = "_verbs")]
            Self::Verbs(_) => None,
        }
    }

    /// Whether processes that this one knows nothing of may be at work in the cluster.
    pub(super) fn has_strangers(&self) -> bool {
        match self {
            Self::Here(_) | Self::Simulated(_) => false,
            #[cfg(feature = "_verbs")]
            Self::Verbs(_) => true,
        }
    }

    /// Gets ready for a run of so many threads.
    #[cfg_attr(not(feature = "_verbs"), allow(unused_variables, clippy::unnecessary_wraps))]
    pub(super) fn prepare(&self, threads: usize) -> Result<()> {
        match self {
            Self::Here(_) | Self::Simulated(_) => Ok(()),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => client.prepare(threads),
        }
    }

    /// A thread's access.
    pub(super) fn endpoint(&self, config: &Config, seed: u64, thread: usize) -> Endpoint {
        match self {
            Self::Here(arena) => {
                let host = Host::new(Arc::clone(arena));
                match config.fabric {
                    Fabric::Delayed { max_polls } => Endpoint::Delayed(Delayed::new(host, max_polls, seed)),
                    _ => Endpoint::Host(host),
                }
            }
            Self::Simulated(world) => Endpoint::Sim(Sim::new(world.clone(), thread as u32)),
            #[cfg(feature = "_verbs")]
            Self::Verbs(client) => Endpoint::Verbs(Verbs::new(client, thread)),
        }
    }
}

/// Fresh memory with its control blocks.
fn formatted(geometry: Geometry) -> Result<Arc<Arena>> {
    let arena = Arena::new(geometry)?;
    for segment in 0..geometry.segments() {
        for (offset, word) in control::initial_words(segment == 0) {
            if offset == 0 {
                arena.set_first_word(segment as u16, word);
            } else {
                arena.word(Address::new(segment as u16, offset))?.store(word, Ordering::Relaxed);
            }
        }
    }
    Ok(Arc::new(arena))
}
