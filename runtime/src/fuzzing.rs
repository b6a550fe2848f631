//! The entry points of fuzz targets: the parsers of all input from other processes. Only in builds with `--cfg fuzzing`.

use std::io::Write;

use crate::admin::checkpoint;
use crate::io::operations::*;
use crate::observer::{NodeMetrics, Observer};
use crate::segment::decode;
use crate::segment::grid;
use crate::session::{Cluster, url};
use farfield_fabric::files;
use farfield_words::Address;
use farfield_words::geometry;
use farfield_words::layouts::Layouts;

/// Parses a cluster URL.
pub fn url(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        drop(url::Config::parse(text));
    }
}

/// Parses each message of a handshake.
pub fn handshake(data: &[u8]) {
    farfield_fabric::fuzzing::handshake(data);
}

/// Parses what arrives over TCP.
pub fn tcp(data: &[u8]) {
    farfield_fabric::fuzzing::tcp(data);
}

/// Parses the welcome of a memory node, of either fabric, beside the number of the memory node and an address.
pub fn welcome(data: &[u8]) {
    let Some((head, message)) = data.split_first_chunk::<12>() else { return };
    let [a, b, c, d, at @ ..] = *head;
    let place = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    farfield_fabric::fuzzing::welcome(message, place, Address::from_bits(u64::from_le_bytes(at)));
}

/// Checks a geometry of memory nodes, segments of each and bytes of a segment, and an address in it.
pub fn geometry(data: &[u8]) {
    let words: [u64; 4] = std::array::from_fn(|index| {
        data.as_chunks().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
    });
    let [nodes, segments, bytes, at] = words;
    geometry::exercise(nodes, segments, bytes, Address::from_bits(at));
    if let Ok(geometry) = geometry::Geometry::new(nodes, segments, bytes) {
        grid::derive(geometry);
    }
}

/// Returns the observer of a memory node whose memory repeats these words.
pub fn observer(words: [u64; 4]) -> Observer {
    let geometry = geometry::Geometry::new(2, 2, 1 << 20).expect("it is small");
    let load = move |at: Address| words[at.offset() as usize / 8 % words.len()];
    Observer::new(move || NodeMetrics::of(geometry, 0..2, load, [words[0], words[1], words[2]]))
}

/// Decodes metadata words of far memory: member records, epochs, the chunk table, pages of the pool, lists of candidates.
pub fn words(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    decode::any(&words);
}

/// Parses a checkpoint file.
pub fn checkpoint(data: &[u8]) {
    checkpoint::parse(data);
    let path = std::env::temp_dir().join(format!("farfield-fuzz-{}", std::process::id()));
    let written = files::create_private(&path).and_then(|mut file| file.write_all(data));
    if written.is_ok() {
        drop(checkpoint::examine(&path));
    }
}

/// Uses a description and an object, separated by a zero byte, as a collection does and as a dump does.
pub fn description(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (text, object) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(layouts) = std::str::from_utf8(text).ok().and_then(Layouts::parse) else { return };
    let words: Vec<u64> = object.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    for of in 0..layouts.types.len().min(4) {
        layouts.visit(of, &words, &mut |_| ());
    }
    thread_local! {
        static CLUSTER: Cluster = Cluster::connect("local:size=1MiB").expect("a small cluster");
    }
    let dumped = CLUSTER.with(|cluster| {
        cluster.run(1, async |ct| {
            // In the chunks, so that its words may be addresses inside it.
            let at = ct.heap().grid.start(0, 0);
            ct.write_words(at, &words[..words.len().min(1024)]).await?;
            ct.dump_described(&layouts, at, 1000, 10_000).await
        })
    });
    drop(format!("{:?}", dumped.expect("each address is checked before it is read")));
}
