//! A virtual machine: one `qemu`, its console, and its end.
//!
//! A machine ends when it is dropped, as a real one does when its plug is pulled. Should this process be killed, the kernel
//! ends the machine: it runs under `setpriv --pdeathsig`.

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

/// What the host needs for machines, with the packages that have it.
pub(super) const TOOLS: &[(&str, &str)] = &[(QEMU, "qemu-system-x86"), ("setpriv", "util-linux")];

const QEMU: &str = "qemu-system-x86_64";

/// Fits test programs of tens of megabytes, twice: the archive and the file system that the kernel makes of it.
const MEMORY_MIB: &str = "1024";

/// All that there is, but for the feature that makes the kernel copy byte by byte: its RDMA device copies by processor, and an
/// emulated processor shows others the words of such a copy half-written, which no hardware does.
const CPU: &str = "max,-erms,-fsrm";

/// How a machine's processors come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Acceleration {
    /// The host's processors, by KVM
    Kvm,
    /// Emulation
    Tcg,
}

impl Acceleration {
    /// KVM if this process may use it. Whether it works shows only when a machine boots.
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

/// What all machines of a run have in common.
pub(super) struct Plan<'a> {
    pub(super) kernel: &'a Path,
    pub(super) archive: &'a Path,
    /// Where the ends of the wire are.
    pub(super) folder: &'a Path,
    pub(super) acceleration: Acceleration,
    /// The word of this run's marks.
    pub(super) mark: &'a str,
    /// Whether the kernel tells what it does while it boots.
    pub(super) talkative: bool,
}

/// A running machine.
pub(super) struct Machine {
    _process: Process,
}

impl Machine {
    /// Powers a machine on; what its console says goes to `events` with `number`, last of all that it has closed.
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
            // Datagrams between two sockets: either end may come and go without the other noticing, as on a real wire.
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
                    // Nobody listens any more when the run is over.
                    let _ = events.send((number, event));
                }
                line.clear();
            }
            let _ = events.send((number, Event::Closed));
        });
        Ok(Self { _process: process })
    }
}

/// The kernel's command line. The kernel makes variables of its first process of those that it does not know.
fn kernel_line(plan: &Plan<'_>, guest: &Guest) -> String {
    format!(
        // An emulated processor's time stamp counter is good, but the kernel does not trust it.
        "console=ttyS0 tsc=reliable clocksource=tsc panic=-1 loglevel={} \
         FARFIELD_MARK={} FARFIELD_GUEST={} FARFIELD_ADDRESS={} FARFIELD_WIRE={}",
        if plan.talkative { 7 } else { 1 },
        plan.mark,
        guest.name,
        guest.address,
        u8::from(guest.network == Network::Wire),
    )
}
