//! A virtual machine: one `qemu` process and its console.
//!
//! A machine is powered off when it is dropped. If this process is killed, the kernel ends the machine: it runs under `setpriv
//! --pdeathsig`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use clap::ValueEnum;

use super::console::{Event, Reader};
use super::guest::{Guest, Network};
use crate::workspace::process::Process;

/// Tools that machines need on the host, with their packages.
pub(super) const TOOLS: &[(&str, &str)] = &[(QEMU, "qemu-system-x86"), ("setpriv", "util-linux")];

const QEMU: &str = "qemu-system-x86_64";

/// A machine's memory. Test programs take tens of megabytes, twice: in the archive, and in the kernel's file system.
const MEMORY_MIB: &str = "1024";

/// The processor: all features except those with which the kernel copies byte by byte. The software RDMA device copies with the processor,
/// and an emulated one would expose half-written words, which no hardware does.
const CPU: &str = "max,-erms,-fsrm";

/// How a machine's processors are implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Acceleration {
    /// The host's processors, by KVM
    Kvm,
    /// Emulation
    Tcg,
}

impl Acceleration {
    /// KVM if this process may use it. Whether it works shows only at boot.
    pub(super) fn best() -> Self {
        let kvm = File::options().read(true).write(true).open("/dev/kvm");
        if kvm.is_ok() { Self::Kvm } else { Self::Tcg }
    }

    fn flag(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }
}

/// Settings of all machines of a run.
pub(super) struct Plan<'a> {
    pub(super) kernel: &'a Path,
    pub(super) archive: &'a Path,
    /// The folder of the wire's sockets.
    pub(super) folder: &'a Path,
    pub(super) acceleration: Acceleration,
    /// The random word of this run's marks.
    pub(super) mark: &'a str,
    /// True if the kernel prints its messages at boot.
    pub(super) verbose: bool,
}

/// A running machine.
pub(super) struct Machine {
    _process: Process,
}

impl Machine {
    /// Powers a machine on. The events of its console go to `events` with `number`; the last one is that the console has closed.
    ///
    /// `peer` is the guest at the other end of the wire, if there is one.
    pub(super) fn start(
        plan: &Plan<'_>,
        guest: &Guest,
        peer: Option<&Guest>,
        number: usize,
        events: Sender<(usize, Event)>,
    ) -> Result<Self, String> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU, "-accel", plan.acceleration.flag()]);
        command.args([
            "-cpu",
            CPU,
            "-smp",
            "2",
            "-m",
            MEMORY_MIB,
            "-nographic",
            "-no-reboot",
            "-nic",
            "none",
        ]);
        command.arg("-kernel").arg(plan.kernel).arg("-initrd").arg(plan.archive);
        command.args(["-append", &kernel_line(plan, guest)]);
        if let Some(peer) = peer {
            // Datagrams between two sockets: either end may disappear unnoticed, as on a real wire.
            let end = |guest: &Guest| plan.folder.join(format!("wire-{}", guest.name)).display().to_string();
            let wire = format!(
                "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                end(guest),
                end(peer)
            );
            command.args(["-netdev", &wire]);
            command.args([
                "-device",
                &format!("virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:00:00:{number:02x}"),
            ]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = Process(child.map_err(|error| format!("{QEMU}: {error}"))?);
        let console = process.0.stdout.take().ok_or("the machine has no console")?;
        let reader = Reader::new(plan.mark);
        thread::spawn(move || {
            let mut console = BufReader::new(console);
            let mut line = Vec::new();
            while console.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                for event in reader.read(&String::from_utf8_lossy(&line)) {
                    // The receiver is dropped when the run ends.
                    let _ = events.send((number, event));
                }
                line.clear();
            }
            let _ = events.send((number, Event::Closed));
        });
        Ok(Self { _process: process })
    }
}

/// The kernel's command line. The kernel passes unknown words as variables to its first process.
fn kernel_line(plan: &Plan<'_>, guest: &Guest) -> String {
    format!(
        // An emulated processor's time stamp counter is reliable, but the kernel does not assume it.
        "console=ttyS0 tsc=reliable clocksource=tsc panic=-1 loglevel={} \
         FARFIELD_MARK={} FARFIELD_GUEST={} FARFIELD_ADDRESS={} FARFIELD_WIRE={}",
        if plan.verbose { 7 } else { 1 },
        plan.mark,
        guest.name,
        guest.address,
        u8::from(guest.network == Network::Wire),
    )
}
