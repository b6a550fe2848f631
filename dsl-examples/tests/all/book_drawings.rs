//! The book's drawings of operations show a simulated run.
//!
//! An insertion into the naive list, one into the lazy list and a removal from the latter are run in the simulator. The trace, with
//! addresses replaced by the nodes' keys, is compared with the texts in `book/drawings`, from which `cargo xtask drawings` makes the
//! drawings. `FARFIELD_BLESS=1` writes the texts anew.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use farfield::prelude::*;
use farfield_examples::{LazyList, LazyListNaive};

/// An operation of a trace: its round trip, counted from 1, and its text.
type Step = (u128, String);

/// The value of a hexadecimal number within its segment: `0x6c20` of `0:0x6c20+0b1`.
fn offset(address: &str) -> Option<u64> {
    let digits = address.split_once(":0x")?.1.split('+').next()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Names a list's nodes by their keys.
#[derive(Default)]
struct Names(HashMap<u64, String>);

impl Names {
    /// Learns from all lines of a trace. The nodes at the ends have no key: the first that points to another is the head.
    fn learn(&mut self, trace: &str) {
        for line in trace.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, "WRITE", at, "Node", ":=", _, key, _, next, ..] = words[..] else { continue };
            let is_end = key == "0,";
            let name = match next {
                _ if !is_end => key.trim_matches(',').to_owned(),
                "0," => "tail".to_owned(),
                _ => "head".to_owned(),
            };
            self.0.insert(offset(at).unwrap(), name);
        }
    }

    /// A node or its field, at an offset: `node 2`, `head.next`.
    fn of(&self, at: u64, what: &str) -> String {
        let (field, within) = match what {
            "Node.next" => (".next", 8),
            "Node.lock" => (".lock", 16),
            "Node.key" => (".key", 0),
            _ => return format!("node {}", self.0[&at]),
        };
        format!("{}{field}", self.0[&(at - within)])
    }

    /// One line of a trace, if it is an operation on a node or retires one.
    fn step(&self, line: &str, began: Duration, rtt: Duration) -> Option<Step> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, "us", _, kind, address, what, ..] = words[..] else { return None };
        let at = Duration::from_secs_f64(at.parse::<f64>().ok()? / 1e6).checked_sub(began)?;
        if !what.starts_with("Node") || ["alloc", "free"].contains(&kind) {
            return None;
        }
        let mut text = format!("{kind} {}", self.of(offset(address)?, what));
        if kind == "WRITE" && what == "Node.next" {
            let value = words.last()?;
            let mark = if value.contains('+') { " deleted" } else { "" };
            write!(text, " := {}{mark}", self.0[&offset(value)?]).unwrap();
        }
        Some((at.as_nanos() / rtt.as_nanos() + 1, text))
    }
}

/// The operations between two times, a line for each, with its round trip.
fn recorded(names: &Names, trace: &str, from: Duration, to: Duration, rtt: Duration) -> String {
    let steps = trace.lines().filter_map(|line| names.step(line, from, rtt));
    let last = to.saturating_sub(from).as_nanos() / rtt.as_nanos();
    // A retirement after the last round trip is counted as the next step.
    steps.filter(|(trip, step)| *trip <= last || (*trip == last + 1 && step.starts_with("retire"))).fold(
        String::new(),
        |mut text, (trip, step)| {
            writeln!(text, "{trip} {step}").unwrap();
            text
        },
    )
}

/// Compares a drawing's text with the recorded one.
fn shown(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/drawings").join(name);
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, text,
        "book/drawings/{name}: FARFIELD_BLESS=1 writes it anew, then cargo xtask drawings"
    );
}

#[test]
fn the_drawings_show_a_simulated_run() {
    let url = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,compute=0,leaks=ignore";
    let cluster = Cluster::connect(url).unwrap();
    let simulation = cluster.simulation().unwrap();
    let rtt = simulation.rtt();
    let traces = cluster
        .run(1, async |ct| {
            // Each list and its times: before and after the insertion, and after the removal.
            let naive = LazyListNaive::<u64>::attach(LazyListNaive::<u64>::create(ct).await?, ct).await?;
            for key in [2, 4] {
                naive.insert(key, ct).await?;
            }
            ct.flush().await?;
            let mut times = vec![ct.now()];
            naive.insert(1, ct).await?;
            ct.flush().await?;
            times.push(ct.now());
            let naive_nodes = ct.cluster().simulation().unwrap().trace(1000);

            let list = LazyList::<u64>::attach(LazyList::<u64>::create(ct).await?, ct).await?;
            for key in [2, 4] {
                list.insert(key, ct).await?;
            }
            ct.flush().await?;
            times.push(ct.now());
            list.insert(1, ct).await?;
            ct.flush().await?;
            times.push(ct.now());
            list.remove(2, ct).await?;
            ct.flush().await?;
            times.push(ct.now());
            Ok((naive_nodes, times))
        })
        .unwrap();
    let (naive_trace, times) = &traces[0];
    let trace = simulation.trace(1000);
    let mut names = Names::default();
    names.learn(&trace);

    let naive = recorded(&names, naive_trace, times[0], times[1], rtt);
    let chains = recorded(&names, &trace, times[2], times[3], rtt);
    let removal = recorded(&names, &trace, times[3], times[4], rtt);
    let trips = |text: &str| text.lines().last().unwrap().split(' ').next().unwrap().parse::<u32>().unwrap();
    assert_eq!(
        (trips(&naive), trips(&chains)),
        (2 * 2 + 7, 2 + 2),
        "as the book's table says, for two nodes"
    );
    shown("chain.txt", &format!("naive\n{naive}\nchains\n{chains}"));
    shown("removal.txt", &format!("list head 1 2 4\n{removal}"));
}
