//! What fuzz targets call: the parsers of everything that comes from somebody else. Only in builds with `--cfg fuzzing`.

use std::io::Write;

use crate::cluster::{Cluster, checkpoint, decode, url};
use crate::fabric::handshake;
use crate::layout::described::Layouts;

/// A cluster URL.
pub fn url(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        drop(url::Config::parse(text));
    }
}

/// Any of the messages of a handshake.
pub fn handshake(data: &[u8]) {
    handshake::parse_any(data);
}

/// Words of the runtime's own in far memory: members' records, epochs, the chunk table, pages of the pool, lists of candidates.
pub fn words(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    decode::any(&words);
}

/// A file that somebody takes for a checkpoint.
pub fn checkpoint(data: &[u8]) {
    checkpoint::parse(data);
    let path = std::env::temp_dir().join(format!("farfield-fuzz-{}", std::process::id()));
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(data));
    if written.is_ok() {
        drop(checkpoint::examine(&path));
    }
}

/// A description, a zero byte, and an object: what a collection does with them, and what a dump does.
pub fn description(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (text, object) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(layouts) = std::str::from_utf8(text).ok().and_then(Layouts::parse) else { return };
    let words: Vec<u64> = object.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    for of in 0..layouts.types.len().min(4) {
        layouts.look(of, &words, &mut |_| ());
    }
    thread_local! {
        static CLUSTER: Cluster = Cluster::connect("local:size=1MiB").expect("a small cluster");
    }
    let dumped = CLUSTER.with(|cluster| {
        cluster.run(1, async |ct| {
            // Written to where objects are, so that its words may be addresses of what is in it.
            let at = ct.heap().grid.start(0, 0);
            ct.write_words(at, &words[..words.len().min(1024)]).await?;
            ct.dump_described(&layouts, at, 1000, 10_000).await
        })
    });
    drop(format!("{:?}", dumped.expect("a dump gives what it can")));
}
