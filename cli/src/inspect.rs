//! `farfield status`, `roots` and `dump`: the state of a cluster.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use farfield::error::Printable;
use farfield::{
    Cluster, ComputeThread, Dumped, DumpedTarget, DumpedValue, Error, MemberStatus, Result, RootStatus,
    Status,
};
use serde_json::{Value, json};

use crate::format::{Format, print};

/// Options of `farfield status`.
#[derive(Args)]
pub(crate) struct StatusOptions {
    /// URL of the cluster, such as shm:NAME
    cluster: String,
    /// Repeat the output at this interval, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Options of `farfield roots`.
#[derive(Args)]
pub(crate) struct RootsOptions {
    /// URL of the cluster, such as shm:NAME
    cluster: String,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Options of `farfield dump`.
#[derive(Args)]
pub(crate) struct DumpOptions {
    /// URL of the cluster, such as shm:NAME
    cluster: String,
    /// Name of the root
    root: String,
    /// Number of links to follow
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(..=1000))]
    depth: u16,
    /// Most fields, elements and objects to print; of each object only the first MiB is read
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    limit: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs `body` on one compute thread of a cluster.
pub(crate) fn on_one_thread<R: Send>(
    cluster: &Cluster,
    body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
) -> Result<R> {
    cluster.run(1, body)?.pop().ok_or_else(|| Error::other("the thread returned no result"))
}

pub(crate) fn status(options: &StatusOptions) -> Result<()> {
    let cluster = Cluster::connect(&options.cluster)?;
    let mut before = Vec::new();
    loop {
        let status = on_one_thread(&cluster, async |ct| ct.status().await)?;
        let is_read = match options.format {
            Format::Text => {
                let clear = if options.watch.is_some() { "\x1b[2J\x1b[H" } else { "" };
                print(format_args!("{clear}{}", status_text(&status, &before)))
            }
            Format::Json => print(format_args!("{}\n", status_json(&status))),
        };
        before = status.members;
        match options.watch {
            Some(seconds) if is_read => std::thread::sleep(Duration::from_secs(seconds)),
            _ => return Ok(()),
        }
    }
}

pub(crate) fn roots(options: &RootsOptions) -> Result<()> {
    let cluster = Cluster::connect(&options.cluster)?;
    let status = on_one_thread(&cluster, async |ct| ct.status().await)?;
    match options.format {
        Format::Text => {
            let _ = print(format_args!("{}", roots_text(&status.roots)));
        }
        Format::Json => print_line!("{}", status.roots.iter().map(root_json).collect::<Value>()),
    }
    Ok(())
}

pub(crate) fn dump(options: &DumpOptions) -> Result<()> {
    let cluster = Cluster::connect(&options.cluster)?;
    let (depth, limit) = (options.depth.into(), options.limit as usize);
    let dumped = on_one_thread(&cluster, async |ct| ct.dump(&options.root, depth, limit).await)?;
    match options.format {
        Format::Text => {
            let mut text = String::new();
            show(&dumped, 0, &mut text);
            let _ = print(format_args!("{text}"));
        }
        Format::Json => print_line!("{}", object_json(&dumped)),
    }
    Ok(())
}

/// Formats a status. `before` are the processes of the previous one: a process without a new heartbeat is marked.
fn status_text(status: &Status, before: &[MemberStatus]) -> String {
    let mut text = format!("epoch {}, {} evictions", status.epoch, status.evictions);
    let bytes = status.swept_bytes + status.collected_bytes;
    if bytes > 0 {
        let _ = write!(text, ", {bytes} bytes reclaimed from dead processes");
    }
    if status.uncollected > 0 {
        let (bytes, deaths) = (status.uncollected_bytes, status.uncollected);
        let how = if status.sweeps { "being swept" } else { "to be collected" };
        let _ = write!(text, ", about {bytes} bytes of {deaths} deaths {how}");
    }
    text.push_str("\n\n");
    let _ = writeln!(text, "process        pid  heartbeats       epoch");
    for member in &status.members {
        let is_silent = before.contains(member);
        let remark = match (member.is_this, member.is_gone) {
            (true, _) => "  this one",
            (_, true) => "  ended, not yet evicted",
            _ if is_silent => "  no new heartbeat",
            _ => "",
        };
        let _ = writeln!(
            text,
            "{:>7} {:>10} {:>11} {:>11}{remark}",
            member.number, member.pid, member.heartbeats, member.epoch
        );
    }
    for (usage, classes) in status.heap.iter().zip(&status.classes) {
        let _ = writeln!(
            text,
            "\nmemory node {}: {} bytes, {} live, {} free in blocks",
            usage.node, usage.size_bytes, usage.live_bytes, usage.cached_bytes
        );
        for (size, bytes) in classes {
            let class = if *size == 0 { "large objects".to_owned() } else { format!("blocks of {size}") };
            let _ = writeln!(text, "  {class:<16} {bytes:>12} bytes of chunks");
        }
    }
    text.push('\n');
    text + &roots_text(&status.roots)
}

fn roots_text(roots: &[RootStatus]) -> String {
    let name = |root: &RootStatus| Printable(&root.name).to_string();
    let width = roots.iter().map(|root| name(root).chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}  {:<18}  {:<16}  type\n", "root", "address", "layout");
    for root in roots {
        let address = root.address.to_string();
        let _ = writeln!(
            text,
            "{:width$}  {address:<18}  {:016x}  {}{}",
            name(root),
            root.fingerprint,
            Printable(&root.type_name),
            if root.is_described { "" } else { " (not described)" }
        );
    }
    text
}

fn root_json(root: &RootStatus) -> Value {
    json!({
        "name": root.name,
        "address": root.address.to_string(),
        "type": root.type_name,
        "fingerprint": format!("{:016x}", root.fingerprint),
        "described": root.is_described,
    })
}

fn status_json(status: &Status) -> Value {
    let member = |member: &MemberStatus| {
        json!({
            "number": member.number,
            "pid": member.pid,
            "heartbeats": member.heartbeats,
            "epoch": member.epoch,
            "gone": member.is_gone,
            "this": member.is_this,
        })
    };
    let node = |(usage, classes): (&farfield::HeapUse, &Vec<(u64, u64)>)| {
        let classes = classes.iter().map(|(size, bytes)| json!({"block_bytes": size, "chunk_bytes": bytes}));
        json!({
            "node": usage.node,
            "size_bytes": usage.size_bytes,
            "live_bytes": usage.live_bytes,
            "cached_bytes": usage.cached_bytes,
            "classes": classes.collect::<Vec<_>>(),
        })
    };
    json!({
        "epoch": status.epoch,
        "evictions": status.evictions,
        "sweeps": status.sweeps,
        "uncollected": status.uncollected,
        "uncollected_bytes": status.uncollected_bytes,
        "swept_bytes": status.swept_bytes,
        "collected_bytes": status.collected_bytes,
        "members": status.members.iter().map(member).collect::<Vec<_>>(),
        "nodes": status.heap.iter().zip(&status.classes).map(node).collect::<Vec<_>>(),
        "roots": status.roots.iter().map(root_json).collect::<Vec<_>>(),
    })
}

/// The largest indentation of nested values, in columns: a thousand may be nested.
const MOST_INDENT: usize = 100;

fn show(object: &Dumped, indent: usize, text: &mut String) {
    let _ = writeln!(text, "{} at {}", Printable(short(&object.type_name)), object.address);
    show_fields(&object.fields, indent, text);
}

fn show_fields(fields: &[(String, DumpedValue)], indent: usize, text: &mut String) {
    let indent = indent.min(MOST_INDENT);
    for (name, value) in fields {
        let _ = write!(text, "{:indent$}  {}: ", "", Printable(name));
        show_value(value, indent + 2, text);
    }
}

fn show_value(value: &DumpedValue, indent: usize, text: &mut String) {
    let indent = indent.min(MOST_INDENT);
    let _ = match value {
        DumpedValue::Plain(value) => writeln!(text, "{}", Printable(value)),
        DumpedValue::Text(value) => writeln!(text, "{value:?}"),
        DumpedValue::Lock(0) => writeln!(text, "free"),
        DumpedValue::Lock(1) => writeln!(text, "free, its owner died"),
        DumpedValue::Lock(word) => writeln!(text, "held by thread {:#x}", word >> 16),
        DumpedValue::Pointer { address, marks, target, .. } => {
            let marks = if *marks == 0 { String::new() } else { format!(" (marks or stamp {marks:#x})") };
            match target {
                DumpedTarget::Object(target) => {
                    let _ = write!(text, "->{marks} ");
                    return show(target, indent, text);
                }
                DumpedTarget::Cut => writeln!(text, "-> {address}{marks} (not followed: --limit)"),
                _ => writeln!(text, "-> {address}{marks}"),
            }
        }
        DumpedValue::List { values, omitted, .. } => {
            let _ = writeln!(text, "{} elements", (values.len() as u64).saturating_add(*omitted));
            for (index, value) in values.iter().enumerate() {
                let _ = write!(text, "{:indent$}  [{index}] ", "");
                show_value(value, indent + 2, text);
            }
            if *omitted > 0 {
                let _ = writeln!(text, "{:indent$}  … and {omitted} more (--limit)", "");
            }
            return;
        }
        DumpedValue::Struct(fields) => {
            text.push('\n');
            return show_fields(fields, indent, text);
        }
        DumpedValue::Omitted => writeln!(text, "not shown (--limit)"),
        _ => writeln!(text, "?"),
    };
}

/// A type's name without paths.
fn short(name: &str) -> String {
    let mut short = String::new();
    let mut word = String::new();
    for c in name.chars() {
        match c {
            ':' => word.clear(),
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            c => {
                short.push_str(&std::mem::take(&mut word));
                short.push(c);
            }
        }
    }
    short + &word
}

fn object_json(object: &Dumped) -> Value {
    let fields = object.fields.iter().map(|(name, value)| (name.clone(), value_json(value)));
    let fields = Value::Object(fields.collect());
    map([
        ("address", json!(object.address.to_string())),
        ("type", json!(object.type_name)),
        ("fields", fields),
    ])
}

/// A JSON object of these values. `json!` would copy each value and all values in it.
fn map<const N: usize>(values: [(&str, Value); N]) -> Value {
    Value::Object(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn value_json(value: &DumpedValue) -> Value {
    match value {
        DumpedValue::Plain(text) => serde_json::from_str::<serde_json::Number>(text).map_or_else(
            |_| match text.as_str() {
                "true" | "false" => json!(text == "true"),
                _ => json!(text),
            },
            Value::Number,
        ),
        DumpedValue::Text(text) => json!(text),
        DumpedValue::Lock(word) => json!({"lock": word}),
        DumpedValue::Pointer { address, marks, target, .. } => match target {
            DumpedTarget::Object(target) => map([("marks", json!(marks)), ("target", object_json(target))]),
            DumpedTarget::Cut => json!({"marks": marks, "address": address.to_string(), "cut": true}),
            _ => json!({"marks": marks, "address": address.to_string()}),
        },
        DumpedValue::List { values, omitted: 0, .. } => values.iter().map(value_json).collect(),
        DumpedValue::List { values, omitted, .. } => {
            json!({"first": values.iter().map(value_json).collect::<Vec<_>>(), "omitted": omitted})
        }
        DumpedValue::Omitted => json!({"omitted": true}),
        DumpedValue::Struct(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), value_json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        _ => Value::Null,
    }
}
