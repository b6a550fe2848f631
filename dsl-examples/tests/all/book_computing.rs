//! The tables of the book's section "The cost of computing": speed-ups and hit rates with and without the model of computing.
//!
//! Both tables are made in the simulator and compared with `book/src/simulator/computing.md`; with `FARFIELD_BLESS=1` it is written anew.

#![allow(clippy::cast_precision_loss)] // far below 2^52

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Cached, RemotePtr};

const NETWORK: &str = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,leaks=ignore";

// ANCHOR: program
#[remote]
struct Page {
    number: u64,
    hits: Atomic<u64>,
}

/// Reads `looks` pages, a cached page without a READ, and computes for each.
async fn look(pages: &[RemotePtr<Page>], looks: usize, ct: &ComputeThread) -> Result<()> {
    let cache = Cached::<Page, 64>::default();
    for number in 0..looks {
        let page = cache.get(pages[number % pages.len()], ct).await?;
        assert!(page.number() < pages.len() as u64);
        ct.compute(Duration::from_nanos(200)); // the program's work on a page
    }
    Ok(())
}
// ANCHOR_END: program

async fn pages(count: u64, ct: &ComputeThread) -> Result<Vec<RemotePtr<Page>>> {
    let mut pages = Vec::new();
    for number in 0..count {
        pages.push(Page::new_in(ct, Page::init(number)).await?.write(ct).await?);
    }
    Ok(pages)
}

const LOOKS: usize = 640;

/// Pages a microsecond by one thread with `tasks` tasks. The pages repeat after `distinct`, so the others are in the cache.
fn speed(tasks: usize, distinct: usize, compute: &str) -> f64 {
    let cluster = Cluster::connect(&format!("{NETWORK}{compute}")).unwrap();
    let took = cluster.run(1, async |ct| {
        let pages = pages(distinct as u64, ct).await?;
        let began = ct.now();
        ct.tasks(tasks, async |_| look(&pages, LOOKS / tasks, ct).await).await?;
        Ok(ct.now().saturating_sub(began))
    });
    LOOKS as f64 / took.unwrap()[0].as_nanos() as f64 * 1000.0
}

const FREE: &str = ",compute=0";

#[test]
fn the_book_s_tables_are_measured_in_the_simulator() {
    let mut text =
        String::from("| tasks of the thread | looks a microsecond | with `compute=0` |\n|---:|---:|---:|\n");
    // More pages than the cache has room for, so each is a READ.
    let speeds: Vec<[f64; 2]> =
        [1, 4, 16, 64].map(|tasks| [speed(tasks, LOOKS, ""), speed(tasks, LOOKS, FREE)]).into();
    for (tasks, [costly, free]) in [1, 4, 16, 64].into_iter().zip(&speeds) {
        writeln!(text, "| {tasks} | {costly:.2} | {free:.2} |").unwrap();
    }
    assert!(
        speeds[3][0] < 1.1 * speeds[2][0],
        "a thread that computes all the time gets no faster: {speeds:?}"
    );
    assert!(
        (speeds[3][1] / speeds[0][1] - 64.0).abs() < 0.1,
        "without costs of computing it does: {speeds:?}"
    );
    text.push_str("\n| looks that find their page cached | looks a microsecond | with `compute=0` |\n|---:|---:|---:|\n");
    for (percent, distinct) in [(0, LOOKS), (90, 64), (98, 12)] {
        let [costly, free] = ["", FREE].map(|compute| speed(1, distinct, compute));
        writeln!(text, "| {percent} % | {costly:.2} | {free:.2} |").unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/simulator/computing.md");
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{}", file.display());
}
