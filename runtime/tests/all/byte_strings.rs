//! Byte strings, and the tagged links that say how long they are.

use crate::round_trips::{round_trips, takes};
use farfield::prelude::*;
use farfield::{Error, PointerFault, Result};

const EXACT: &str = "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,compute=0,nodes=2,size=32MiB";

/// What a link says of its byte string.
#[tag(class: 8, color: 3, is_last)]
struct TextTag;

/// A tag without a spare bit.
#[tag(all: 16)]
struct Full;

#[remote]
struct Shelf {
    text: TaggedLink<Blob, TextTag>,
    others: [TaggedLink<Blob, TextTag>; 2],
    full: TaggedLink<Shelf, Full>,
    count: Atomic<u64>,
}

/// Runs `body` where operations are ready immediately, where they are not, and where they are counted. Nothing may be lost.
fn everywhere(body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    for url in ["local:nodes=2,size=32MiB", "local:nodes=2,size=32MiB,delay=7", EXACT] {
        let cluster = Cluster::connect(url).unwrap();
        cluster.run(1, &body).unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}");
    }
}

async fn shelf(ct: &ComputeThread) -> Result<RemotePtr<Shelf>> {
    Shelf::new_in(ct.on_node(1), Shelf::init()).await?.write(ct).await
}

fn tag(text: &Owned<Blob>) -> TextTag {
    TextTag::new(Blob::class(text).number(), 5, true)
}

fn class(link: Tagged<'_, Blob, TextTag>) -> SizeClass {
    SizeClass::from_number(link.tag().class()).expect("it was stored with a class")
}

/// Bytes that differ from their neighbours.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + length) as u8).collect()
}

#[test]
fn strings_of_every_class_are_published_and_read_in_one_round_trip_each() {
    everywhere(async |ct| {
        let shelf = shelf(ct).await?;
        let capacities = (1..=SizeClass::COUNT).filter_map(SizeClass::from_number).map(SizeClass::capacity);
        let lengths = capacities.flat_map(|most| [most - 1, most]).map(|length| length.min(Blob::MAX_BYTES));
        for length in [0, 1, 7, 8].into_iter().chain(lengths) {
            let g = &ct.pin();
            let text = Blob::new_in(ct.near(shelf), bytes(length)).await?;
            let label = tag(&text);
            takes(round_trips(ct, async || shelf.text().store(g, text, label).await).await?, 1);
            let link = shelf.text().load(g).await?;
            assert_eq!((link.tag().color(), link.tag().is_last()), (5, true));
            let mut read = Vec::new();
            let took = round_trips(ct, async || {
                read = link.shared().read_bytes(class(link), g).await?;
                Ok(())
            });
            takes(took.await?, 1);
            assert_eq!(read, bytes(length));
            let (shared, class) = (link.shared(), class(link));
            let both = (op::read_bytes(shared, class), op::peek_bytes(shared.as_ptr(), class));
            let (read, guess) = g.chain(both).submit().await?;
            assert!(read == bytes(length) && guess? == read);
            // Without a class: the length, and then the bytes.
            let seen = link.shared().read(g).await?;
            assert_eq!((seen.len(), seen.is_empty()), (length as u64, length == 0));
            shelf.text().store(g, RemotePtr::NULL, TextTag::default()).await?;
            g.sched_reclaim(link.shared()).await?;
        }
        ct.delete(shelf).await
    });
}

#[test]
fn one_exchange_moves_the_pointer_and_the_tag() {
    everywhere(async |ct| {
        let shelf = shelf(ct).await?;
        let g = &ct.pin();
        let empty = shelf.text().load(g).await?;
        assert!(empty.is_null() && empty.tag() == TextTag::default());
        let one = Blob::new_in(ct.near(shelf), b"one".as_slice()).await?;
        let label = tag(&one).with_color(1);
        let stored = shelf.text().compare_exchange(g, empty, one, label).await?.expect("it was empty");
        assert_eq!(stored, shelf.text().load(g).await?);

        // The same pointer with another tag is another value, and the new object comes back.
        let two = Blob::new_in(ct.near(shelf), b"two".as_slice()).await?;
        let other = TaggedWord::new(stored.shared().as_ptr(), label.with_color(2))?;
        let refused = shelf.text().compare_exchange(g, other, two, label).await?.unwrap_err();
        assert_eq!(refused.current, stored);
        let label = tag(&refused.new).with_color(7);
        let second =
            shelf.text().compare_exchange(g, stored, refused.new, label).await?.expect("as expected");
        assert_eq!(
            (second.tag().color(), second.shared().read_bytes(class(second), g).await?),
            (7, b"two".to_vec())
        );
        g.sched_reclaim(stored.shared()).await?;

        shelf.text().store(g, RemotePtr::NULL, TextTag::default()).await?;
        g.sched_reclaim(second.shared()).await?;
        ct.delete(shelf).await
    });
}

#[test]
fn a_chain_writes_a_string_links_it_and_reads_it() {
    everywhere(async |ct| {
        let shelf = shelf(ct).await?;
        let g = &ct.pin();
        let text = Blob::new_in(ct.near(shelf), b"in a chain".as_slice()).await?;
        let (class, word) = (Blob::class(&text), TaggedWord::new(text.as_ptr(), tag(&text))?);
        let (at, slot) = (text.as_ptr(), shelf.others().at(1));
        let took = round_trips(ct, async || {
            let link = op::compare_exchange_link(slot, TaggedWord::default(), word);
            let (written, linked, seen, text, guess) = g
                .chain((
                    op::write(text),
                    link,
                    op::load(slot),
                    op::read_bytes(at.shared(g), class),
                    op::peek_bytes(at, class),
                ))
                .submit()
                .await?;
            assert!(linked.is_ok() && TaggedWord::from(seen) == word && seen.shared() == at);
            assert_eq!((&text[..], &guess?[..]), (&b"in a chain"[..], &b"in a chain"[..]));
            drop(written);
            Ok(())
        });
        takes(took.await?, 1);

        let refused = op::compare_exchange_link(slot, TaggedWord::default(), word);
        let (refused, ()) = g.chain((refused, op::store(shelf.text(), word))).submit().await?;
        assert_eq!(refused.unwrap_err().current, shelf.text().load(g).await?);
        g.chain([op::store(slot, TaggedWord::default()), op::store(shelf.text(), TaggedWord::default())])
            .submit()
            .await?;
        g.sched_reclaim(at.shared(g)).await?;
        ct.delete(shelf).await
    });
}

/// Polls a future so often, and drops it. Returns whether it was done.
fn polled<R>(polls: usize, work: impl Future<Output = Result<R>>) -> Result<bool> {
    let mut work = Box::pin(work);
    for _ in 0..polls {
        if let Some(done) = futures_util::FutureExt::now_or_never(&mut work) {
            return done.map(|_| true);
        }
    }
    Ok(false)
}

#[test]
fn a_replaced_string_is_retired_and_a_refused_one_comes_back() {
    everywhere(async |ct| {
        let shelf = shelf(ct).await?;
        let g = &ct.pin();
        let null = shelf.text().load(g).await?;
        let one = Blob::new_in(ct.near(shelf), bytes(100)).await?;
        let label = tag(&one);
        let one = op::Replacement::of(one, label)?;
        let word = one.word();
        let took = round_trips(ct, async || {
            let replaced = g.chain(op::replace(shelf.text(), null, 0, one)).submit().await?;
            replaced.unwrap_or_else(|_| panic!("it was null")).retire(g).await
        });
        takes(took.await?, 1);
        let stored = shelf.text().load(g).await?;
        assert_eq!(TaggedWord::from(stored), word);

        // A staged string that is refused is staged still.
        let two = Blob::new_in(ct.near(shelf), bytes(200)).await?;
        let label = tag(&two);
        let two = g.chain(op::stage(two)).submit().await?.tagged(label)?;
        let refused = g.chain(op::replace(shelf.text(), null, 0, two)).submit().await?;
        let Err(refused) = refused else { panic!("it was not null") };
        assert_eq!(refused.current, stored);
        let two = refused.new.into_staged().expect("it has one").tagged(label)?;
        let tail = class(stored).capacity() as u64;
        let replaced = g.chain(op::replace(shelf.text(), stored, tail, two)).submit().await?;
        replaced.unwrap_or_else(|_| panic!("it was stored")).retire(g).await?;
        let second = shelf.text().load(g).await?;
        assert_eq!(second.shared().read_bytes(class(second), g).await?, bytes(200));

        let tail = class(second).capacity() as u64;
        // Posted: nobody waits, and the string is retired all the same.
        g.chain(op::replace(shelf.text(), second, tail, op::Replacement::NULL)).post()?;
        ct.flush().await?;
        assert!(shelf.text().load(g).await?.is_null());
        ct.delete(shelf).await
    });
}

#[test]
fn nothing_is_lost_if_a_replacement_is_dropped_in_flight() {
    everywhere(async |ct| {
        let shelf = shelf(ct).await?;
        for polls in 0..8 {
            let g = &ct.pin();
            // A string that is staged only.
            let staged = Blob::new_in(ct.near(shelf), bytes(3000)).await?;
            polled(polls, async { g.chain(op::stage(staged)).submit().await.map(drop) })?;
            // One that is exchanged, and one that is refused.
            for is_stale in [false, true] {
                let current = shelf.text().load(g).await?;
                let tail = if current.is_null() { 0 } else { class(current).capacity() as u64 };
                let text = Blob::new_in(ct.near(shelf), bytes(500)).await?;
                let label = tag(&text);
                let new = op::Replacement::of(text, label)?;
                if is_stale {
                    let other = Blob::new_in(ct.near(shelf), bytes(7)).await?;
                    let label = tag(&other);
                    let other = op::Replacement::of(other, label)?;
                    let replaced = g.chain(op::replace(shelf.text(), current, tail, other)).submit().await?;
                    replaced.unwrap_or_else(|_| panic!("nobody else stores")).retire(g).await?;
                }
                polled(polls, g.chain(op::replace(shelf.text(), current, tail, new)).submit())?;
            }
        }
        let g = &ct.pin();
        let last = shelf.text().load(g).await?;
        let tail = class(last).capacity() as u64;
        let replaced = g.chain(op::replace(shelf.text(), last, tail, op::Replacement::NULL)).submit().await?;
        replaced.unwrap_or_else(|_| panic!("nobody else stores")).retire(g).await?;
        ct.delete(shelf).await
    });
}

#[test]
fn a_dropped_store_frees_its_string_or_publishes_it() {
    everywhere(async |ct| {
        let shelf = shelf(ct).await?;
        drop(Blob::new_in(ct, bytes(300)).await?);
        let text = Blob::new_in(ct.near(shelf), bytes(3000)).await?;
        let label = tag(&text);
        let g = &ct.pin();
        drop(shelf.text().store(g, text, label));
        let link = shelf.text().load(g).await?;
        assert!(link.is_null(), "a future that was not polled does nothing");
        ct.delete(shelf).await
    });
}

#[farfield::test]
async fn what_a_link_can_not_hold_is_refused(ct: &ComputeThread) -> Result<()> {
    let (shelf, g) = (shelf(ct).await?, &ct.pin());
    let too_long = Blob::new_in(ct, vec![0; Blob::MAX_BYTES + 1]).await.unwrap_err().to_string();
    assert!(too_long.contains("1114105 bytes") && too_long.contains("1 MiB"), "{too_long}");
    for all in [0, 9, u16::MAX] {
        let stored = shelf.full().store(g, shelf, Full::new(all)).await?;
        assert_eq!((stored.tag().all(), stored.shared().address()), (all, shelf.address()));
    }
    // A class that is smaller than the string: an error, not half a string.
    let text = Blob::new_in(ct, bytes(100)).await?.write(ct).await?;
    let small = SizeClass::of(50).expect("it is short");
    assert!(matches!(text.read_bytes(small, g).await, Err(Error::InvalidValue { .. })));
    assert_eq!(text.read_bytes(SizeClass::of(120).expect("it is short"), g).await?, bytes(100));
    ct.delete(text).await
}

#[test]
fn a_cluster_whose_addresses_can_not_be_compressed_is_refused() {
    let check =
        |url: &str| Cluster::connect(url).unwrap().run(1, async |ct| ct.check_compressible()).map(drop);
    check("local:segments=2048,size=64KiB").unwrap();
    let Err(Error::InvalidPointer(refused)) = check("local:segments=2049,size=64KiB") else {
        panic!("it was not refused")
    };
    assert_eq!((refused.address.segment(), refused.fault), (2048, PointerFault::NotCompressible));
}

#[test]
#[should_panic(expected = "`color` has 3 bits")]
fn a_value_beyond_its_bits_panics() {
    let _ = TextTag::default().with_color(8);
}
