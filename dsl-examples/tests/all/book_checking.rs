//! The program of the book's chapter "Checking a structure of your own", and its output on the page.
//!
//! `FARFIELD_BLESS=1 cargo test -p farfield-examples --test all book_checking` writes the output anew.

use std::path::Path;

// ANCHOR: structure
use farfield::Result;
use farfield::prelude::*;
use farfield_testing::{Checker, Model, Random, Tested};

const SEATS: u64 = 2;

#[remote]
struct Hall {
    sold: Atomic<u64>,
}

impl Hall {
    async fn reserve(&self, ct: &ComputeThread) -> Result<bool> {
        let sold = self.sold().load(ct).await?;
        if sold < SEATS {
            self.sold().store(ct, sold + 1).await?;
        }
        Ok(sold < SEATS)
    }
}
// ANCHOR_END: structure

// ANCHOR: model
struct BoxOffice;
#[derive(Clone, Debug, PartialEq)]
struct Reserve;

impl Model for BoxOffice {
    type Operation = Reserve;
    type Returned = bool;
    type State = u64;

    fn step(sold: &mut u64, _: &Reserve) -> bool {
        let any = *sold < SEATS;
        *sold += u64::from(any);
        any
    }
}
// ANCHOR_END: model

// ANCHOR: tested
impl Tested for BoxOffice {
    type Model = Self;
    type Structure = Hall;

    async fn open(ct: &ComputeThread) -> Result<Hall> {
        let hall = async || Hall::new_in(ct, Hall::init()).await?.write(ct).await;
        Hall::attach(ct.root_or_init("hall", hall).await?, ct).await
    }

    async fn perform(hall: &Hall, _: &Reserve, ct: &ComputeThread) -> Result<bool> {
        hall.reserve(ct).await
    }

    fn operation(_: &mut Random) -> Reserve {
        Reserve
    }
}
// ANCHOR_END: tested

#[should_panic(expected = "1 failing, 0 undecided")]
// ANCHOR: test
#[test]
fn no_seat_is_sold_twice() {
    Checker::new().assert_sound::<BoxOffice>();
}
// ANCHOR_END: test

// ANCHOR: mended
impl Hall {
    async fn reserve_atomically(&self, ct: &ComputeThread) -> Result<bool> {
        let sold = self.sold().fetch_update(ct, |sold| (sold < SEATS).then_some(sold + 1)).await?;
        Ok(sold.is_ok())
    }
}
// ANCHOR_END: mended

struct Mended;

impl Tested for Mended {
    type Model = BoxOffice;
    type Structure = Hall;

    async fn open(ct: &ComputeThread) -> Result<Hall> {
        BoxOffice::open(ct).await
    }

    async fn perform(hall: &Hall, _: &Reserve, ct: &ComputeThread) -> Result<bool> {
        hall.reserve_atomically(ct).await
    }

    fn operation(random: &mut Random) -> Reserve {
        BoxOffice::operation(random)
    }
}

// ANCHOR: sound
#[test]
fn the_mended_hall_sells_each_seat_once() {
    Checker::new().assert_sound::<Mended>();
    Checker::new().faults(farfield_testing::Faults::Injected).assert_sound::<Mended>();
}
// ANCHOR_END: sound

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The page says so, and includes these parts.
#[test]
fn the_whole_check_has_fewer_than_60_lines() {
    let source = std::fs::read_to_string(root().join("dsl-examples/tests/all/book_checking.rs")).unwrap();
    let page = std::fs::read_to_string(root().join("book/src/checking.md")).unwrap();
    let lines = ["structure", "model", "tested", "test"].map(|part| {
        assert!(page.contains(&format!("tests/all/book_checking.rs:{part}}}")), "the page includes `{part}`");
        let after = source.split(&format!("// ANCHOR: {part}\n")).nth(1).unwrap();
        after.split(&format!("// ANCHOR_END: {part}\n")).next().unwrap().lines().count()
    });
    // A blank line between each two.
    let lines = lines.iter().sum::<usize>() + 3;
    assert!(lines < 60, "{lines} lines");
}

/// Compares a text of the book with the actual output.
fn shown(page: &str, text: &str) {
    let page = root().join("book/src/checking").join(page);
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::create_dir_all(page.parent().unwrap()).unwrap();
        std::fs::write(&page, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap_or_default(), text, "{}", page.display());
}

#[test]
fn the_book_shows_how_the_check_fails() {
    let summary = Checker::new().run::<BoxOffice>();
    let text = summary.to_string();
    shown(
        "failure.txt",
        &text.replace("book_checking::the_book_shows_how_the_check_fails", "no_seat_is_sold_twice"),
    );
    // Three reservations of two seats.
    let shrunk = summary.shrunk.expect("it fails");
    assert!(shrunk.is_smallest && shrunk.plan.operations().count() == 3, "{text}");
}

#[test]
fn the_book_shows_how_the_mended_check_passes() {
    shown("success.txt", &Checker::new().run::<Mended>().to_string());
}
