//! `farfield dump`: it prints all values, or the number that it omits.

#![cfg(target_os = "linux")]
#![allow(clippy::large_futures)] // they contain an object of a thousand words

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use farfield::Remote;
use farfield::prelude::*;
use serde_json::json;

const FARFIELD: &str = env!("CARGO_BIN_EXE_farfield");

/// `farfield memnode` with a cluster of its own, until it is dropped.
struct Node(Child, String);

impl Node {
    fn start(name: &str) -> Self {
        let url = format!("shm:dump-{name}-{}", std::process::id());
        let start = ["memnode", "--cluster", &url, "--segment-size", "8MiB"];
        let mut child = Command::new(FARFIELD).args(start).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&url), "{line}");
        Self(child, url)
    }

    /// Runs `farfield dump`; returns its output.
    fn dump(&self, words: &str) -> String {
        let arguments = ["dump", &self.1].into_iter().chain(words.split_whitespace());
        let output = Command::new(FARFIELD).args(arguments).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Publishes an object.
    fn publish<T: Remote>(
        &self,
        name: &str,
        create: impl AsyncFn(&ComputeThread) -> Result<RemotePtr<T>> + Sync,
    ) {
        let cluster = Cluster::connect(&self.1).unwrap();
        cluster.run(1, async |ct| ct.publish(name, create(ct).await?).await).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let ended = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(ended.unwrap().success() && self.0.wait().unwrap().success());
    }
}

#[remote]
struct Numbers {
    array: [Atomic<u64>; 1000],
    tail: Tail<u64>,
}

/// Creates an object whose numbers equal their indices.
async fn numbers(count: u64, ct: &ComputeThread) -> Result<RemotePtr<Numbers>> {
    let init = Numbers::init((0..count).collect::<Vec<_>>()).array(std::array::from_fn(|index| index as u64));
    Numbers::new_in(ct, init).await?.write(ct).await
}

#[test]
fn a_thousand_elements_are_all_printed() {
    let node = Node::start("thousand");
    node.publish("numbers", async |ct| numbers(1000, ct).await);
    let text = node.dump("numbers");
    assert_eq!(text.matches(": 1000 elements\n").count(), 2, "{text}");
    let all: Vec<String> = (0..1000).map(|index| format!("    [{index}] {index}\n")).collect();
    assert_eq!(text.matches(&all.concat()).count(), 2);
    assert!(!text.contains("more") && text.lines().count() == 2003, "no line is missing or added");
    let shown: serde_json::Value = serde_json::from_str(&node.dump("numbers --format json")).unwrap();
    assert_eq!(shown["fields"]["tail"], json!((0..1000).collect::<Vec<_>>()));
}

#[test]
fn a_dump_at_its_limit_counts_the_omitted_values() {
    let node = Node::start("stops");
    node.publish("numbers", async |ct| numbers(20_000, ct).await);
    // The object, the array and the tail count as values.
    let text = node.dump("numbers");
    assert!(text.contains("  tail: 20000 elements\n") && text.contains("    [8996] 8996\n"), "{text}");
    assert!(text.ends_with("    … and 11003 more (--limit)\n"), "{}", &text[text.len() - 100..]);
    let text = node.dump("numbers --limit 502");
    assert!(
        text.ends_with("    [499] 499\n    … and 500 more (--limit)\n  …: not shown (--limit)\n"),
        "{text}"
    );
    assert!(node.dump("numbers --limit 30000").ends_with("    [19999] 19999\n"));
    let shown: serde_json::Value = serde_json::from_str(&node.dump("numbers --format json")).unwrap();
    assert_eq!(shown["fields"]["tail"]["omitted"], 11003);

    // Only the first MiB of an object is read.
    node.publish("many", async |ct| numbers(300_000, ct).await);
    let text = node.dump("many --limit 1000000");
    assert!(
        text.contains("300000 elements\n") && text.ends_with("    … and 168928 more (--limit)\n"),
        "{}",
        text.len()
    );
}

#[remote]
struct Named {
    name: [u8; 16],
    raw: [u8; 3],
    control: [u8; 4],
    none: [u8; 2],
    path: Tail<u8>,
}

#[test]
fn bytes_that_are_text_are_shown_as_text() {
    let node = Node::start("text");
    node.publish("named", async |ct| {
        let mut name = [0; 16];
        name[..8].copy_from_slice("größe!".as_bytes());
        let path = "a \"quoted\"\n\u{202e}path".as_bytes().to_vec();
        Named::new_in(ct, Named::init(name, [1, 255, 0], *b"a\x1b[m", [0, 0], path)).await?.write(ct).await
    });
    let text = node.dump("named");
    assert!(text.contains("  name: \"größe!\"\n"), "{text}");
    assert!(text.contains("  path: \"a \\\"quoted\\\"\\n\\u{202e}path\"\n"), "{text}");
    for numbers in [&[1, 255, 0][..], &[97, 27, 91, 109], &[0, 0]] {
        let lines = numbers.iter().enumerate().map(|(index, number)| format!("    [{index}] {number}\n"));
        assert!(text.contains(&lines.collect::<String>()), "{text}");
    }
    let shown: serde_json::Value = serde_json::from_str(&node.dump("named --format json")).unwrap();
    assert_eq!(shown["fields"]["name"], "größe!");
    assert_eq!(shown["fields"]["raw"], json!([1, 255, 0]));
}

#[remote]
struct Chained {
    number: u64,
    next: Link<Chained>,
}

#[test]
fn links_are_followed_up_to_the_depth() {
    let node = Node::start("links");
    node.publish("chain", async |ct| {
        let mut first = RemotePtr::NULL;
        for number in (0..2000).rev() {
            let init = Chained::init(number).next(first);
            first = Chained::new_in(ct, init).await?.write(ct).await?;
        }
        Ok(first)
    });
    for depth in [0, 3, 200] {
        let text = node.dump(&format!("chain --depth {depth}"));
        assert!(text.matches("number: ").count() == depth + 1 && !text.contains("--limit"));
    }
    // The indentation of a thousand nested nodes would take megabytes.
    for depth in [3, 1000] {
        let as_json = node.dump(&format!("chain --depth {depth} --format json"));
        assert_eq!(as_json.matches("\"number\":").count(), depth + 1);
    }
    let text = node.dump("chain --depth 1000 --limit 30");
    assert_eq!(
        (text.matches("number: ").count(), text.matches("(not followed: --limit)").count()),
        (10, 1),
        "{text}"
    );
}
