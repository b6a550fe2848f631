//! Cluster URLs: `local:nodes=2,size=16MiB`.

use crate::error::{self, Error, Result};
use crate::memory::placement::Policy;
#[cfg(target_os = "linux")]
use farfield_fabric::shm;
#[cfg(target_os = "linux")]
use farfield_fabric::tcp::config::TcpConfig;
#[cfg(feature = "_verbs")]
use farfield_fabric::verbs::config::VerbsConfig;
use farfield_sim::SimConfig;
use farfield_words::geometry::{Geometry, GeometryError};
use farfield_words::units;
use farfield_words::units::parse_size;

/// The default size of a segment. Only pages in use take memory.
const DEFAULT_SEGMENT_BYTES: u64 = 256 << 20;

/// The checked options of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) geometry: Geometry,
    pub(crate) fabric: Fabric,
    /// The seed of the threads' random generators.
    pub(crate) seed: u64,
    /// The placement of objects without a site of their own.
    pub(crate) policy: Policy,
    /// The option `max-retired`, in bytes.
    max_retired: Option<u64>,
}

/// The fabric between the threads and far memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    Host,
    /// Chains complete at a random poll up to this one.
    Delayed {
        max_polls: u32,
    },
    Sim(SimConfig),
    #[cfg(target_os = "linux")]
    Shared(shm::ShmConfig),
    #[cfg(target_os = "linux")]
    Tcp(TcpConfig),
    #[cfg(feature = "_verbs")]
    Verbs(VerbsConfig),
}

/// The shortest timeout of operations on a real network.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
const SHORTEST_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(1);

/// The schemes of this build.
const SCHEMES: &str = if cfg!(feature = "_verbs") {
    "this build has `local`, `shm`, `sim`, `tcp` and `rdma`"
} else if cfg!(target_os = "linux") {
    "this build has `local`, `shm`, `sim` and `tcp`; `rdma` needs one with `--features verbs`"
} else {
    "this build has `local` and `sim`; `shm`, `tcp` and `rdma` need Linux"
};

/// The default of `max-retired`, as a divisor of the size of far memory.
const RETIRED_SHARE: u64 = 2;

impl Config {
    /// Returns how many retired bytes of a thread may be unfreed.
    pub(crate) fn max_retired(&self) -> u64 {
        self.max_retired.unwrap_or(self.geometry.bytes() / RETIRED_SHARE)
    }

    /// Parses a cluster URL.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] naming the invalid part.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        parse(url).map_err(|reason| Error::from(error::InvalidUrl { url: url.into(), reason: reason.into() }))
    }
}

fn parse(url: &str) -> Result<Config, String> {
    #[cfg_attr(not(target_os = "linux"), allow(unused_mut))]
    let (scheme, mut options) = url.split_once(':').ok_or("it has no `:`; write `local:` or `sim:`")?;
    let mut fabric = match scheme {
        "local" => Fabric::Host,
        "sim" => Fabric::Sim(SimConfig::default()),
        #[cfg(target_os = "linux")]
        "shm" => {
            let (name, after) = options.split_once('?').unwrap_or((options, ""));
            options = after;
            Fabric::Shared(shm::ShmConfig::new(name)?)
        }
        #[cfg(target_os = "linux")]
        "tcp" => {
            let nodes = options.strip_prefix("//").ok_or("write tcp://HOST:PORT,HOST:PORT")?;
            let (nodes, after) = nodes.split_once('?').unwrap_or((nodes, ""));
            options = after;
            Fabric::Tcp(TcpConfig::new(nodes)?)
        }
        #[cfg(feature = "_verbs")]
        "rdma" => {
            let nodes = options.strip_prefix("//").ok_or("write rdma://HOST:PORT,HOST:PORT")?;
            let (nodes, after) = nodes.split_once('?').unwrap_or((nodes, ""));
            options = after;
            Fabric::Verbs(VerbsConfig::new(nodes)?)
        }
        _ => return Err(format!("unknown fabric `{scheme}`; {SCHEMES}")),
    };
    let has_own_memory = matches!(fabric, Fabric::Host | Fabric::Sim(_));
    let (mut nodes, mut segments, mut size, mut seed) = (1, 1, DEFAULT_SEGMENT_BYTES, 0);
    let mut policy = Policy::default();
    let mut max_retired = None;
    let mut given = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (name, value) =
            option.split_once('=').ok_or_else(|| format!("option `{option}` has no value"))?;
        if given.contains(&name) {
            return Err(format!("option `{name}` is given twice"));
        }
        given.push(name);
        match (name, &mut fabric) {
            ("nodes", _) if has_own_memory => nodes = number(name, value, 1, u64::from(u16::MAX))?,
            ("segments", _) if has_own_memory => segments = number(name, value, 1, u64::from(u16::MAX))?,
            ("size", _) if has_own_memory => {
                size = parse_size(value).map_err(|reason| format!("size={reason}"))?;
            }
            ("placement", _) => policy = Policy::named(value)?,
            ("max-retired", _) => {
                max_retired = Some(parse_size(value).map_err(|reason| format!("max-retired={reason}"))?);
            }
            ("seed", _) => seed = number(name, value, 0, u64::MAX)?,
            ("delay", Fabric::Host | Fabric::Delayed { .. }) => {
                let max_polls = number(name, value, 0, 1 << 16)? as u32;
                fabric = if max_polls == 0 { Fabric::Host } else { Fabric::Delayed { max_polls } };
            }
            (_, fabric) => {
                let limited = |least, most| number(name, value, least, most);
                let duration = || {
                    units::parse_duration(name, value, units::picos(SHORTEST_TIMEOUT)).map(units::duration)
                };
                let (known, own) = match fabric {
                    Fabric::Sim(sim) => (sim.set(name, value)?, SimConfig::OPTIONS),
                    Fabric::Host | Fabric::Delayed { .. } => (false, "`delay`"),
                    #[cfg(target_os = "linux")]
                    Fabric::Shared(shared) => (shared.set(name, value), shm::ShmConfig::OPTIONS),
                    #[cfg(target_os = "linux")]
                    Fabric::Tcp(tcp) => (tcp.set(name, value, limited, duration)?, TcpConfig::OPTIONS),
                    #[cfg(feature = "_verbs")]
                    Fabric::Verbs(verbs) => {
                        (verbs.set(name, value, limited, duration)?, VerbsConfig::OPTIONS)
                    }
                };
                if !known {
                    let memory = if has_own_memory { "`nodes`, `segments`, `size`, " } else { "" };
                    return Err(format!(
                        "unknown option `{name}`; `{scheme}:` takes {memory}`seed`, `placement`, `max-retired`, {own}"
                    ));
                }
            }
        }
    }
    match &mut fabric {
        #[cfg(target_os = "linux")]
        Fabric::Tcp(tcp) => tcp.nodes.seed = seed,
        #[cfg(feature = "_verbs")]
        Fabric::Verbs(verbs) => verbs.nodes.seed = seed,
        _ => {}
    }
    let geometry = Geometry::rounded(nodes, segments, size).map_err(GeometryError::of_options)?;
    Ok(Config { geometry, fabric, seed, policy, max_retired })
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{name}={value} is not a number from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(url: &str) -> String {
        match Config::parse(url) {
            Err(Error::InvalidUrl(invalid)) => invalid.reason.into(),
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn the_bare_fabric_has_defaults() {
        let config = Config::parse("local:").unwrap();
        assert_eq!(config.geometry.segments(), 1);
        assert_eq!(config.geometry.segment_bytes(), DEFAULT_SEGMENT_BYTES);
        assert_eq!(config.fabric, Fabric::Host);
        assert_eq!(Config::parse("local:delay=7").unwrap().fabric, Fabric::Delayed { max_polls: 7 });
        assert_eq!(Config::parse("sim:").unwrap().fabric, Fabric::Sim(SimConfig::default()));
    }

    #[test]
    fn options_are_read_with_their_units() {
        let geometry = Config::parse("local:nodes=3,segments=2,size=64KiB").unwrap().geometry;
        assert_eq!(Ok(geometry), Geometry::new(3, 2, 65536));
        assert_eq!(Config::parse("local:nodes=3,segments=2,size=64KiB").unwrap().max_retired(), 192 << 10);
        assert_eq!(Config::parse("sim:max-retired=3KiB").unwrap().max_retired(), 3 << 10);
    }

    #[test]
    fn each_mistake_is_named() {
        assert!(reason("local").contains('`'));
        assert!(reason("shm:").contains("not a valid cluster name"));
        assert!(reason("shm:../x").contains("`../x` is not a valid cluster name"));
        assert!(reason("shm:x?size=1MiB").contains("unknown option `size`"));
        assert!(reason("udp:x").contains("unknown fabric `udp`"));
        assert!(reason("local:colour=red").contains("unknown option `colour`"));
        assert!(reason("local:nodes").contains("option `nodes` has no value"));
        assert!(reason("local:max-retired=much").contains("max-retired=much"));
        assert!(reason("local:nodes=0").contains("nodes=0"));
        assert!(reason("local:nodes=-1").contains("nodes=-1"));
        assert!(reason("local:size=0").contains("size=0: a segment has 27336 bytes"));
        assert!(reason("sim:size=16KiB").contains("size=16384: "));
        assert!(reason("local:size=27335").contains("size=27335: "));
        assert!(reason("local:size=3parsecs").contains("unknown unit `parsecs`"));
        assert!(reason("local:size=99999999999TiB").contains("not a size"));
        assert!(reason("local:size=512TiB").contains("size=562949953421312: "));
        assert!(reason("local:nodes=60000,segments=2").contains("nodes=60000,segments=2: "));
        assert!(reason("sim:nodes=65535,segments=65535").contains("nodes=65535,segments=65535: "));
        assert!(
            reason("local:nodes=2,segments=32768,size=128TiB")
                .contains("size=140737488355328 for 65536 segments")
        );
        assert!(reason("local:nodes=1,nodes=2").contains("`nodes` is given twice"));
        assert!(reason("local:rtt=2us").contains("unknown option `rtt`"));
        assert!(reason("sim:colour=red").contains("unknown option `colour`"));
        assert!(reason("sim:delay=3").contains("unknown option `delay`"));
        assert!(reason("sim:nodes=70000").contains("nodes=70000"));
        assert!(reason("sim:rate=0").contains("rate=0"));
        assert!(reason("sim:rtt=-2us").contains("rtt=-2us"));
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(url in "((local|sim|shm):)?[a-z0-9=,:?Ki]{0,40}") {
            drop(Config::parse(&url));
        }
    }
}
