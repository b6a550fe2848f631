//! Two network namespaces with a cable between them: to TCP they are two machines.
//!
//! The namespaces are removed when they are dropped. A process that was killed leaves its own behind, which the next one removes. The programs in them
//! run under `setpriv --pdeathsig`, so they end with this process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder in which `ip` keeps namespaces.
const FOLDER: &str = "/run/netns";
/// The beginning of the namespaces' names; a process number and the end's name follow.
const PREFIX: &str = "farfield-";
/// The network device of each end.
const CABLE: &str = "cable";

/// One end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The machine with the memory nodes.
    Nodes,
    /// The machine with the programs.
    Clients,
}

impl End {
    pub(super) const BOTH: [Self; 2] = [Self::Nodes, Self::Clients];

    fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Clients => "clients",
        }
    }

    /// Its address. Other namespaces may have the same one.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Nodes => "10.77.0.1",
            Self::Clients => "10.77.0.2",
        }
    }
}

/// The two namespaces of this process.
pub(super) struct Namespaces {
    process: u32,
}

impl Namespaces {
    /// Makes them. Needs root's rights.
    pub(super) fn new() -> Result<Self, String> {
        remove_stale()?;
        // Dropped on failure, so that no part of them is left.
        let made = Self { process: std::process::id() };
        let [nodes, clients] = End::BOTH.map(|end| made.name(end));
        for name in [&nodes, &clients] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let pair = ["type", "veth", "peer", "name", CABLE, "netns", &clients];
        ip(&[&["-n", &nodes, "link", "add", "name", CABLE], &pair[..]].concat())?;
        for end in End::BOTH {
            let address = format!("{}/24", end.address());
            ip(&["-n", &made.name(end), "address", "add", &address, "dev", CABLE])?;
            made.switch(end, true)?;
        }
        Ok(made)
    }

    fn name(&self, end: End) -> String {
        format!("{PREFIX}{}-{}", self.process, end.name())
    }

    /// Returns the file that names a namespace.
    pub(super) fn path(&self, end: End) -> PathBuf {
        Path::new(FOLDER).join(self.name(end))
    }

    /// Plugs an end of the cable in, or pulls it out.
    pub(super) fn switch(&self, end: End, is_on: bool) -> Result<(), String> {
        ip(&["-n", &self.name(end), "link", "set", CABLE, if is_on { "up" } else { "down" }])
    }

    /// Returns a command that runs a program at an end. Its process becomes the program's.
    pub(super) fn command(&self, end: End, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.name(end)]).arg(program);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for end in End::BOTH {
            if self.path(end).exists() {
                let _ = ip(&["netns", "delete", &self.name(end)]);
            }
        }
    }
}

/// Removes the namespaces of processes that have ended.
fn remove_stale() -> Result<(), String> {
    for entry in std::fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let is_stale = process.is_some_and(|(process, _)| {
            process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists()
        });
        if is_stale {
            ip(&["netns", "delete", &name])?;
        }
    }
    Ok(())
}

/// Runs `ip`, of the package `iproute2`.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("`ip {}`: {why}", arguments.join(" "));
    let ran = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| failed(&error))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    Err(failed(&said.lines().next().unwrap_or("it failed")))
}
