//! Corrupt metadata in a cluster that is in use: each reader returns an error that names the word, without further damage.

use futures_util::future::LocalBoxFuture;

use super::pace::Pace;
use crate::cluster::served::Served;
use crate::error::Result;
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::control;
use crate::segment::decode::{LAST_EPOCH, options};
use crate::segment::grid::{Grid, Use};
use crate::session::ComputeThread;
use farfield_words::Address;

/// A reader of the corrupt word.
type Meets = fn(&ComputeThread) -> LocalBoxFuture<'_, Result<()>>;

fn status(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.status().await.map(drop) })
}

fn collects(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.collect(false).await.map(drop) })
}

fn attends(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.answer_sweep().await.map(drop) })
}

fn sweeps(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.free_abandoned_list(&Pace::default()).await })
}

fn allocates(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    // Of 48 bytes, a size that no other object has.
    Box::pin(async {
        let block = ct.take_control_block(48).await?;
        ct.put_control_page(block);
        Ok(())
    })
}

/// Writes `word` at `at`, and checks the errors of all that read it.
fn assert_told(what: &str, at: fn(&Grid) -> Address, word: u64, meets: &[Meets]) {
    let served = Served::new(&format!("told-{}", what.replace(|c: char| !c.is_ascii_alphanumeric(), "-")));
    let cluster = served.connect();
    let told = cluster.run(1, async |ct| {
        let at = at(&ct.heap().grid);
        let was = ct.read_word(at).await?;
        ct.write_word(at, word).await?;
        let mut told = Vec::new();
        for meets in meets {
            told.push(meets(ct).await.map_err(|error| error.to_string()));
        }
        ct.write_word(at, was).await?;
        for meets in meets {
            meets(ct).await?;
        }
        Ok((at, told))
    });
    let (at, told) = told.unwrap_or_else(|error| panic!("{what}: afterwards: {error}")).remove(0);
    let begins = format!("far memory is corrupted: the {what} at {at} is {word:#x}: ");
    for told in told {
        let told = told.expect_err(what);
        assert!(told.starts_with(&begins), "{told}\n{begins}");
    }
    assert_eq!(cluster.keeper_failures().panics, 0);
}

/// Returns the address of a block of 48 bytes in a chunk that is not cut into such blocks.
fn nowhere() -> u64 {
    Address::new(0, 27_328 + 3).bits()
}

#[test]
fn of_epochs_and_members() {
    assert_told("epoch", |_| control::epoch(), LAST_EPOCH + 1, &[status]);
    assert_told("used epoch slots", |_| control::used_epoch_slots(), 1 << 40, &[status]);
    assert_told("state of a member", |_| control::member(9), 1 << 25, &[status]);
    assert_told("directory[3].state", |_| control::directory(3), 7, &[status]);
}

#[test]
fn of_pages_of_slots() {
    // Unaligned, past the end, and another segment's. Other readers need more than 126 processes.
    for word in [nowhere(), Address::new(0, 1 << 20).bits(), Address::new(7, 1 << 19).bits(), u64::MAX] {
        assert_told("epoch page[5]", |_| control::epoch_page(5), word, &[collects]);
    }
}

#[test]
fn of_the_chunk_table() {
    for (word, chunk) in [(Use::Large(1 << 40).to_word(), 2), (0xdead_beef, 3)] {
        let what = format!("chunk table[{chunk}] of segment 0");
        // Only taken chunks are read.
        let served = Served::new(&format!("table-{chunk}"));
        let told = served.connect().run(1, async |ct| {
            let at = ct.heap().grid.word(0, chunk);
            let taken = ct.read_word(control::taken_chunks(0)).await?;
            ct.write_word(control::taken_chunks(0), taken.max(chunk + 1)).await?;
            ct.write_word(at, word).await?;
            let told = [ct.status().await.map(drop), ct.collect(false).await.map(drop)];
            let looked_up = ct.heap().look_up(ct, ct.heap().grid.start(0, chunk)).await.map(drop);
            ct.write_word(at, Use::Free.to_word()).await?;
            ct.status().await?;
            Ok((at, told, looked_up))
        });
        let (at, told, looked_up) = told.unwrap().remove(0);
        for told in told.into_iter().chain([looked_up]) {
            let told = told.unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("far memory is corrupted: the {what} at {at} is {word:#x}: ")),
                "{told}"
            );
        }
    }
}

#[test]
fn of_the_pool() {
    let pool: fn(&Grid) -> Address = |_| control::pool(0, Class::of(48).unwrap());
    for word in [nowhere(), u64::MAX, Address::new(1, 1 << 19).bits(), 8] {
        assert_told("pool of 48 bytes", pool, word, &[allocates, reads_pool]);
    }
}

/// Reads the pool, as a sweep does.
fn reads_pool(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.read_pool(&Pace::default()).await.map(drop) })
}

/// A page that lists an invalid block, and one that links to itself.
#[test]
fn of_pages_of_the_pool() {
    let served = Served::new("pages");
    let told = served.connect().run(1, async |ct| {
        let class = Class::of(48).unwrap();
        let block = ct.take_control_block(class.bytes()).await?;
        let (at, head) = (block.address, control::pool(0, class));
        let mut told = Vec::new();
        for words in [[0, nowhere()], [0, u64::MAX], [at.bits() | 1, 0]] {
            ct.write_words(at, &words).await?;
            ct.write_word(head, at.bits() | 1).await?;
            told.push(reads_pool(ct).await.unwrap_err().to_string());
        }
        ct.write_word(head, 0).await?;
        ct.put_control_page(block);
        Ok((at, told))
    });
    let (at, told) = told.unwrap().remove(0);
    let begins =
        format!("far memory is corrupted: the page[0] of free blocks of 48 bytes at {} is ", at.add(8));
    assert!(told[..2].iter().all(|told| told.starts_with(&begins)), "{told:?}\n{begins}");
    assert!(told[2].contains("a traversal has come back to this object"), "{}", told[2]);
}

#[test]
fn of_lists_of_candidates() {
    for word in [nowhere(), u64::MAX, Address::new(3, 1 << 19).bits()] {
        assert_told("own list of candidates", |_| control::own_list_of_candidates(), word, &[sweeps]);
    }
    assert_told("list of candidates", |_| control::list_of_candidates(), u64::MAX, &[attends]);
    assert_told(
        "options",
        |_| control::options(),
        2,
        &[|ct| Box::pin(async { options(ct.read_word(control::options()).await?).map(drop) })],
    );
}

/// A list with an excessive length, and one with invalid blocks.
#[test]
fn of_what_lists_say() {
    let served = Served::new("lists");
    let told = served.connect().run(1, async |ct| {
        let block = ct.take_control_block(64).await?;
        let mut told = Vec::new();
        for words in
            [[2, !(1 << 60), 0, 0], [2, !1, 0, 0], [2, !1, !block.address.bits(), !(1 << 47 | 3 << 48)]]
        {
            ct.write_words(block.address, &words).await?;
            ct.write_word(control::list_of_candidates(), block.address.bits()).await?;
            told.push(ct.answer_sweep().await.unwrap_err().to_string());
        }
        ct.write_word(control::list_of_candidates(), 0).await?;
        ct.answer_sweep().await?;
        ct.put_control_page(block);
        Ok(told)
    });
    for told in told.unwrap().remove(0) {
        assert!(told.starts_with("far memory is corrupted: the list of candidates at "), "{told}");
    }
}
