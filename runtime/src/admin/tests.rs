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
type Reader = fn(&ComputeThread) -> LocalBoxFuture<'_, Result<()>>;

fn status(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.status().await.map(drop) })
}

fn collects(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.collect(false).await.map(drop) })
}

fn answers(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
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
fn assert_reported(what: &str, at: fn(&Grid) -> Address, word: u64, readers: &[Reader]) {
    let served =
        Served::new(&format!("reported-{}", what.replace(|c: char| !c.is_ascii_alphanumeric(), "-")));
    let cluster = served.connect();
    let errors = cluster.run(1, async |ct| {
        let at = at(&ct.heap().grid);
        let was = ct.read_word(at).await?;
        ct.write_word(at, word).await?;
        let mut errors = Vec::new();
        for read in readers {
            errors.push(read(ct).await.map_err(|error| error.to_string()));
        }
        ct.write_word(at, was).await?;
        for read in readers {
            read(ct).await?;
        }
        Ok((at, errors))
    });
    let (at, errors) = errors.unwrap_or_else(|error| panic!("{what}: afterwards: {error}")).remove(0);
    let begins = format!("far memory is corrupted: the {what} at {at} is {word:#x}: ");
    for error in errors {
        let error = error.expect_err(what);
        assert!(error.starts_with(&begins), "{error}\n{begins}");
    }
    assert_eq!(cluster.keeper_failures().panics, 0);
}

/// Returns the address of a block of 48 bytes in a chunk that is not cut into such blocks.
fn nowhere() -> u64 {
    Address::new(0, 27_328 + 3).bits()
}

#[test]
fn corrupt_epochs_and_members_are_reported() {
    assert_reported("epoch", |_| control::epoch(), LAST_EPOCH + 1, &[status]);
    assert_reported("used epoch slots", |_| control::used_epoch_slots(), 1 << 40, &[status]);
    assert_reported("state of a member", |_| control::member(9), 1 << 25, &[status]);
    assert_reported("directory[3].state", |_| control::directory(3), 7, &[status]);
}

#[test]
fn corrupt_pages_of_slots_are_reported() {
    // Unaligned, past the end, and another segment's. Other readers need more than 126 processes.
    for word in [nowhere(), Address::new(0, 1 << 20).bits(), Address::new(7, 1 << 19).bits(), u64::MAX] {
        assert_reported("epoch page[5]", |_| control::epoch_page(5), word, &[collects]);
    }
}

#[test]
fn a_corrupt_chunk_table_is_reported() {
    for (word, chunk) in [(Use::Large(1 << 40).to_word(), 2), (0xdead_beef, 3)] {
        let what = format!("chunk table[{chunk}] of segment 0");
        // Only taken chunks are read.
        let served = Served::new(&format!("table-{chunk}"));
        let errors = served.connect().run(1, async |ct| {
            let at = ct.heap().grid.word(0, chunk);
            let taken = ct.read_word(control::taken_chunks(0)).await?;
            ct.write_word(control::taken_chunks(0), taken.max(chunk + 1)).await?;
            ct.write_word(at, word).await?;
            let errors = [ct.status().await.map(drop), ct.collect(false).await.map(drop)];
            let looked_up = ct.heap().look_up(ct, ct.heap().grid.start(0, chunk)).await.map(drop);
            ct.write_word(at, Use::Free.to_word()).await?;
            ct.status().await?;
            Ok((at, errors, looked_up))
        });
        let (at, errors, looked_up) = errors.unwrap().remove(0);
        for error in errors.into_iter().chain([looked_up]) {
            let error = error.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("far memory is corrupted: the {what} at {at} is {word:#x}: ")),
                "{error}"
            );
        }
    }
}

#[test]
fn a_corrupt_pool_is_reported() {
    let pool: fn(&Grid) -> Address = |_| control::pool(0, Class::of(48).unwrap());
    for word in [nowhere(), u64::MAX, Address::new(1, 1 << 19).bits(), 8] {
        assert_reported("pool of 48 bytes", pool, word, &[allocates, reads_pool]);
    }
}

/// Reads the pool, as a sweep does.
fn reads_pool(ct: &ComputeThread) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async { ct.read_pool(&Pace::default()).await.map(drop) })
}

/// A page that lists an invalid block, and one that links to itself.
#[test]
fn corrupt_pages_of_the_pool_are_reported() {
    let served = Served::new("pages");
    let errors = served.connect().run(1, async |ct| {
        let class = Class::of(48).unwrap();
        let block = ct.take_control_block(class.bytes()).await?;
        let (at, head) = (block.address, control::pool(0, class));
        let mut errors = Vec::new();
        for words in [[0, nowhere()], [0, u64::MAX], [at.bits() | 1, 0]] {
            ct.write_words(at, &words).await?;
            ct.write_word(head, at.bits() | 1).await?;
            errors.push(reads_pool(ct).await.unwrap_err().to_string());
        }
        ct.write_word(head, 0).await?;
        ct.put_control_page(block);
        Ok((at, errors))
    });
    let (at, errors) = errors.unwrap().remove(0);
    let begins =
        format!("far memory is corrupted: the page[0] of free blocks of 48 bytes at {} is ", at.add(8));
    assert!(errors[..2].iter().all(|error| error.starts_with(&begins)), "{errors:?}\n{begins}");
    assert!(errors[2].contains("a traversal has come back to this object"), "{}", errors[2]);
}

#[test]
fn corrupt_addresses_of_lists_are_reported() {
    for word in [nowhere(), u64::MAX, Address::new(3, 1 << 19).bits()] {
        assert_reported("own list of candidates", |_| control::own_list_of_candidates(), word, &[sweeps]);
    }
    assert_reported("list of candidates", |_| control::list_of_candidates(), u64::MAX, &[answers]);
    assert_reported(
        "options",
        |_| control::options(),
        2,
        &[|ct| Box::pin(async { options(ct.read_word(control::options()).await?).map(drop) })],
    );
}

/// A list with an excessive length, and one with invalid blocks.
#[test]
fn corrupt_lists_of_candidates_are_reported() {
    let served = Served::new("lists");
    let errors = served.connect().run(1, async |ct| {
        let block = ct.take_control_block(64).await?;
        let mut errors = Vec::new();
        for words in
            [[2, !(1 << 60), 0, 0], [2, !1, 0, 0], [2, !1, !block.address.bits(), !(1 << 47 | 3 << 48)]]
        {
            ct.write_words(block.address, &words).await?;
            ct.write_word(control::list_of_candidates(), block.address.bits()).await?;
            errors.push(ct.answer_sweep().await.unwrap_err().to_string());
        }
        ct.write_word(control::list_of_candidates(), 0).await?;
        ct.answer_sweep().await?;
        ct.put_control_page(block);
        Ok(errors)
    });
    for error in errors.unwrap().remove(0) {
        assert!(error.starts_with("far memory is corrupted: the list of candidates at "), "{error}");
    }
}
