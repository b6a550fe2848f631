//! `farfield devices`: the RDMA devices of this machine.

use clap::Args;
use farfield::Result;
use farfield::rdma::{Atomics, DeviceInfo, PortInfo, devices};
use serde_json::json;

use crate::format::Format;

/// Options of `farfield devices`.
#[derive(Args)]
pub(crate) struct Options {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let devices = devices()?;
    match options.format {
        Format::Text => devices.iter().for_each(show),
        Format::Json => print_line!("{}", devices.iter().map(to_json).collect::<serde_json::Value>()),
    }
    Ok(())
}

fn atomics(device: &DeviceInfo) -> &'static str {
    match device.atomics {
        Atomics::None => "none",
        Atomics::Device => "atomic among operations through this device",
        Atomics::Global => "atomic also with respect to processors",
        _ => "unknown",
    }
}

/// The port that a connection would use, and the index of its identifier: the first port that is up, and its RoCE version 2 address if it has
/// one.
fn used(device: &DeviceInfo) -> Option<(&PortInfo, Option<u32>)> {
    let port = device.ports.iter().find(|port| port.is_up).filter(|_| device.unusable.is_none())?;
    let best =
        port.identifiers.iter().rfind(|(_, address, kind)| kind.contains("v2") && !address.contains(':'));
    Some((port, best.or(port.identifiers.first()).map(|(index, _, _)| *index)))
}

fn show(device: &DeviceInfo) {
    let kind = if device.is_software { "software" } else { "hardware" };
    print_line!("{} ({kind})", device.name);
    print_line!("  atomics: {}", atomics(device));
    print_line!(
        "  a queue pair holds {} requests, {} READs or atomics",
        device.max_requests,
        device.max_reads
    );
    let used = used(device);
    for port in &device.ports {
        let state = if port.is_up { "up" } else { "down" };
        print_line!("  port {}: {state}, packets of {} bytes", port.number, port.mtu);
        for (index, address, kind) in &port.identifiers {
            let is_used = used.is_some_and(|(of, used)| of.number == port.number && used == Some(*index));
            print_line!("    {index}: {address} ({kind}){}", if is_used { ", used" } else { "" });
        }
    }
    match (&device.unusable, used) {
        (Some(reason), _) => print_line!("  not used: {reason}"),
        (None, None) => print_line!("  not used: no port is up"),
        (None, Some(_)) => {}
    }
}

fn to_json(device: &DeviceInfo) -> serde_json::Value {
    let used = used(device);
    let ports = device.ports.iter().map(|port| {
        let identifiers = port.identifiers.iter().map(|(index, address, kind)| json!([index, address, kind]));
        json!({
            "number": port.number,
            "up": port.is_up,
            "mtu": port.mtu,
            "identifiers": identifiers.collect::<Vec<_>>(),
        })
    });
    json!({
        "name": device.name,
        "software": device.is_software,
        "atomics": atomics(device),
        "max_requests": device.max_requests,
        "max_reads": device.max_reads,
        "ports": ports.collect::<Vec<_>>(),
        "used_port": used.map(|(port, _)| port.number),
        "used_identifier": used.and_then(|(_, index)| index),
        "unusable": device.unusable,
    })
}
