//! The checks. Each gets a fabric whose memory is all zero.

use std::task::Poll;

use super::{Fabric, SEGMENT_BYTES, TestEndpoint};
use crate::chain::RawChain;
use crate::error::{Error, PointerFault, Result};
use crate::{Posted, Ticket};
use farfield_words::Address;

/// All checks, with their names.
macro_rules! suite {
    ($($check:ident,)*) => {
        pub(super) const SUITE: &[(&str, fn(&Fabric))] = &[$((stringify!($check), $check),)*];
    };
}

suite! {
    memory_begins_as_zero_and_keeps_what_is_written,
    segments_are_memory_of_their_own,
    an_operation_touches_its_own_words_only,
    a_long_transfer_arrives_whole,
    a_chain_takes_effect_in_program_order,
    others_see_a_chain_in_program_order,
    an_exchange_compares_and_says_what_was_there,
    an_addition_says_what_was_there,
    adding_wraps_around,
    a_read_is_not_older_than_what_was_completed,
    endpoints_see_each_others_writes,
    a_word_is_never_torn,
    an_invalid_address_is_named_and_stops_the_chain,
    detached_chains_take_effect_once,
    detached_chains_keep_their_order,
    what_is_undone_does_not_come_back,
    chains_in_flight_together_all_complete,
    of_two_exchanges_in_flight_one_succeeds,
    atomics_of_many_threads_lose_nothing,
    exchanges_of_many_threads_lose_nothing,
}

/// The repetitions of a check that depends on the interleaving of chains.
const ROUNDS: u64 = 50;

fn wait(endpoint: &dyn TestEndpoint, ticket: Ticket) -> (RawChain, Result<()>) {
    loop {
        if let Poll::Ready(done) = endpoint.poll(ticket) {
            return done;
        }
        // A memory node of this process may need the processor.
        std::thread::yield_now();
    }
}

fn complete(endpoint: &dyn TestEndpoint, chain: RawChain) -> (RawChain, Result<()>) {
    match endpoint.post(chain) {
        Posted::Done(chain, result) => (chain, result),
        Posted::InFlight(ticket) => wait(endpoint, ticket),
    }
}

fn succeed(endpoint: &dyn TestEndpoint, chain: RawChain) -> RawChain {
    let (chain, result) = complete(endpoint, chain);
    result.unwrap();
    chain
}

/// Posts a chain and detaches it.
fn detach(endpoint: &dyn TestEndpoint, chain: RawChain) {
    if let Posted::InFlight(ticket) = endpoint.post(chain) {
        endpoint.detach(ticket);
    }
}

fn write(endpoint: &dyn TestEndpoint, at: Address, words: &[u64]) {
    succeed(endpoint, writing(at, words));
}

fn writing(at: Address, words: &[u64]) -> RawChain {
    let mut chain = RawChain::default();
    chain.write(at, words);
    chain
}

fn adding(at: Address, addend: u64) -> RawChain {
    let mut chain = RawChain::default();
    chain.fetch_add(at, addend);
    chain
}

fn read(endpoint: &dyn TestEndpoint, at: Address, words: usize) -> Vec<u64> {
    let mut chain = RawChain::default();
    let slot = chain.read(at, words);
    succeed(endpoint, chain).words(slot).to_vec()
}

fn word(endpoint: &dyn TestEndpoint, at: Address) -> u64 {
    read(endpoint, at, 1)[0]
}

/// Compares and exchanges a word. Returns the previous value.
fn exchange(endpoint: &dyn TestEndpoint, at: Address, expected: u64, new: u64) -> u64 {
    let mut chain = RawChain::default();
    let found = chain.compare_exchange(at, expected, new);
    succeed(endpoint, chain).word(found)
}

fn memory_begins_as_zero_and_keeps_what_is_written(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    for segment in 0..4 {
        let at = Address::new(segment, SEGMENT_BYTES - 32);
        let mut chain = RawChain::default();
        let before = chain.read(at, 4);
        chain.write(at, &[1, 2, 3, u64::from(segment)]);
        let after = chain.read(at, 4);
        let done = succeed(endpoint, chain);
        assert_eq!(done.words(before), [0; 4]);
        assert_eq!(done.words(after), [1, 2, 3, u64::from(segment)]);
    }
}

fn segments_are_memory_of_their_own(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = |segment| Address::new(segment, 4096);
    (0..4).for_each(|segment| write(endpoint, at(segment), &[10 + u64::from(segment)]));
    let found: Vec<u64> = (0..4).map(|segment| word(endpoint, at(segment))).collect();
    assert_eq!(found, [10, 11, 12, 13]);
}

fn an_operation_touches_its_own_words_only(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    write(endpoint, Address::new(0, 64), &[1; 12]);
    write(endpoint, Address::new(0, 80), &[2; 3]);
    succeed(endpoint, adding(Address::new(0, 120), 4));
    assert_eq!(exchange(endpoint, Address::new(0, 136), 1, 9), 1);
    assert_eq!(read(endpoint, Address::new(0, 64), 12), [1, 1, 2, 2, 2, 1, 1, 5, 1, 9, 1, 1]);
}

fn a_long_transfer_arrives_whole(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(2, 8);
    let words: Vec<u64> =
        (1..SEGMENT_BYTES / 8).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    write(endpoint, at, &words);
    assert!(read(endpoint, at, words.len()) == words);
}

fn a_chain_takes_effect_in_program_order(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(1, 64);
    let mut chain = RawChain::default();
    chain.write(at, &[5]);
    let added_to = chain.fetch_add(at, 10);
    let exchanged = chain.compare_exchange(at, 15, 7);
    let refused = chain.compare_exchange(at, 15, 8);
    let last = chain.read(at, 1);
    let done = succeed(endpoint, chain);
    let found = [&added_to, &exchanged, &refused, &last].map(|slot| done.word(*slot));
    assert_eq!(found, [5, 15, 7, 7]);
    assert_eq!(done.failed_exchanges(), 1);
}

/// A reader that reads in the opposite order, at any moment, finds the word that was written first at least as new.
fn others_see_a_chain_in_program_order(fabric: &Fabric) {
    let (writer, reader) = (&*fabric.endpoint(), &*fabric.endpoint());
    let (first, second) = (Address::new(0, 64), Address::new(0, 32 * 1024));
    let look = || {
        let mut chain = RawChain::default();
        let slots = [chain.read(second, 1), chain.read(first, 1)];
        let done = succeed(reader, chain);
        let [second, first] = slots.map(|slot| done.word(slot));
        assert!(first >= second, "{first} and then {second} were written: {second} came first");
    };
    for round in 1..=ROUNDS {
        let mut chain = writing(first, &[round]);
        chain.write(second, &[round]);
        if let Posted::InFlight(ticket) = writer.post(chain) {
            while writer.poll(ticket).is_pending() {
                look();
            }
        }
        look();
    }
}

fn an_exchange_compares_and_says_what_was_there(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(0, 64);
    assert_eq!(exchange(endpoint, at, 0, 7), 0);
    assert_eq!(word(endpoint, at), 7);
    assert_eq!(exchange(endpoint, at, 6, 8), 7, "it is not 6");
    assert_eq!(word(endpoint, at), 7);
    // All of the word is compared.
    assert_eq!(exchange(endpoint, at, 7 | 1 << 63, 8), 7);
    assert_eq!(word(endpoint, at), 7);
}

fn an_addition_says_what_was_there(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(3, 64);
    for round in 0..ROUNDS {
        let mut chain = RawChain::default();
        let found = chain.fetch_add(at, 3);
        assert_eq!(succeed(endpoint, chain).word(found), 3 * round);
    }
}

fn adding_wraps_around(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(0, 64);
    let mut chain = writing(at, &[u64::MAX]);
    chain.fetch_add(at, 2);
    succeed(endpoint, chain);
    assert_eq!(word(endpoint, at), 1);
}

/// A READ that another endpoint posts sees every completed WRITE.
fn a_read_is_not_older_than_what_was_completed(fabric: &Fabric) {
    let (writer, reader) = (&*fabric.endpoint(), &*fabric.endpoint());
    let at = Address::new(0, 64);
    for round in 1..=ROUNDS {
        write(writer, at, &[round]);
        assert_eq!(word(reader, at), round);
    }
}

fn endpoints_see_each_others_writes(fabric: &Fabric) {
    let (one, other) = (&*fabric.endpoint(), &*fabric.endpoint());
    let at = Address::new(3, 4096);
    write(one, at, &[99]);
    assert_eq!(word(other, at), 99);
    write(other, at, &[100]);
    assert_eq!(word(one, at), 100);
}

/// Reads a word at every stage of WRITEs to it.
fn a_word_is_never_torn(fabric: &Fabric) {
    let (writer, reader) = (&*fabric.endpoint(), &*fabric.endpoint());
    let at = Address::new(0, 64);
    let look = || {
        let found = word(reader, at);
        assert!([0, u64::MAX].contains(&found), "{found:#x} was never written");
    };
    for round in 0..ROUNDS {
        if let Posted::InFlight(ticket) = writer.post(writing(at, &[(round % 2).wrapping_neg()])) {
            while writer.poll(ticket).is_pending() {
                look();
            }
        }
        look();
    }
}

fn an_invalid_address_is_named_and_stops_the_chain(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let after = Address::new(0, 128);
    let past = PointerFault::PastSegment { size_bytes: SEGMENT_BYTES };
    let cases = [
        (Address::NULL, 1, PointerFault::Null),
        (Address::new(0, 68), 1, PointerFault::Misaligned { align: 8 }),
        (Address::new(2, SEGMENT_BYTES - 8), 2, past),
        (Address::new(2, SEGMENT_BYTES), 1, past),
        (Address::new(4, 64), 1, PointerFault::NoSegment { segments: 4 }),
    ];
    for (at, words, expected) in cases {
        let mut chain = RawChain::default();
        chain.read(at, words);
        chain.write(after, &[1]);
        match complete(endpoint, chain).1 {
            Err(Error::InvalidPointer(found)) => assert_eq!((found.address, found.fault), (at, expected)),
            other => panic!("{at}: {other:?}"),
        }
    }
    assert_eq!(word(endpoint, after), 0, "no operation after the fault takes effect");
}

fn detached_chains_take_effect_once(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(0, 256);
    for round in 1..=ROUNDS {
        detach(endpoint, adding(at, 1));
        if round % 3 == 0 {
            endpoint.poll_detached();
        }
    }
    assert_eq!(word(endpoint, at), ROUNDS);
    endpoint.poll_detached();
    assert_eq!(word(endpoint, at), ROUNDS);
}

fn detached_chains_keep_their_order(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(0, 256);
    for round in 1..=ROUNDS {
        for step in 0..4 {
            detach(endpoint, writing(at, &[4 * round + step]));
        }
        assert_eq!(word(endpoint, at), 4 * round + 3);
        endpoint.poll_detached();
    }
    assert_eq!(word(endpoint, at), 4 * ROUNDS + 3);
}

/// A lock is taken by a detached chain, and released immediately: it stays free.
fn what_is_undone_does_not_come_back(fabric: &Fabric) {
    let (endpoint, other) = (&*fabric.endpoint(), &*fabric.endpoint());
    let at = Address::new(1, 256);
    for round in 1..=ROUNDS {
        let mut chain = RawChain::default();
        chain.compare_exchange(at, 0, round);
        detach(endpoint, chain);
        write(endpoint, at, &[0]);
        assert_eq!(word(other, at), 0);
        endpoint.poll_detached();
        assert_eq!(exchange(other, at, 0, 1 << 32), 0, "the lock is free");
        write(other, at, &[0]);
    }
}

/// Their results are the numbers from 0 on, each once.
fn chains_in_flight_together_all_complete(fabric: &Fabric) {
    let endpoint = &*fabric.endpoint();
    let at = Address::new(1, 512);
    let (mut in_flight, mut brought) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let mut chain = RawChain::default();
        let slot = chain.fetch_add(at, 1);
        match endpoint.post(chain) {
            Posted::Done(chain, result) => {
                result.unwrap();
                brought.push(chain.word(slot));
            }
            Posted::InFlight(ticket) => in_flight.push((ticket, slot)),
        }
    }
    while !in_flight.is_empty() {
        in_flight.retain(|(ticket, slot)| match endpoint.poll(*ticket) {
            Poll::Pending => true,
            Poll::Ready((chain, result)) => {
                result.unwrap();
                brought.push(chain.word(*slot));
                false
            }
        });
    }
    brought.sort_unstable();
    assert_eq!(brought, (0..100).collect::<Vec<u64>>());
    assert_eq!(word(endpoint, at), 100);
}

fn of_two_exchanges_in_flight_one_succeeds(fabric: &Fabric) {
    let (one, other) = (&*fabric.endpoint(), &*fabric.endpoint());
    let at = Address::new(1, 768);
    for round in 0..ROUNDS {
        let posted = [(one, 2 * round + 1), (other, 2 * round + 2)].map(|(endpoint, new)| {
            let mut chain = RawChain::default();
            let slot = chain.compare_exchange(at, 0, new);
            (endpoint, endpoint.post(chain), slot, new)
        });
        let winners = posted.into_iter().filter_map(|(endpoint, posted, slot, new)| {
            let (chain, result) = match posted {
                Posted::Done(chain, result) => (chain, result),
                Posted::InFlight(ticket) => wait(endpoint, ticket),
            };
            result.unwrap();
            (chain.word(slot) == 0).then_some(new)
        });
        let winners: Vec<u64> = winners.collect();
        assert_eq!(winners, [word(one, at)]);
        write(one, at, &[0]);
    }
}

/// Four endpoints, each in a system thread.
fn on_threads(fabric: &Fabric, work: impl Fn(&dyn TestEndpoint) + Sync) {
    let endpoints: Vec<_> = (0..4).map(|_| fabric.endpoint()).collect();
    std::thread::scope(|scope| {
        for endpoint in endpoints {
            let work = &work;
            scope.spawn(move || work(&*endpoint));
        }
    });
}

fn atomics_of_many_threads_lose_nothing(fabric: &Fabric) {
    let at = Address::new(0, 1024);
    on_threads(fabric, |endpoint| {
        for _ in 0..1000 {
            succeed(endpoint, adding(at, 1));
        }
    });
    assert_eq!(word(&*fabric.endpoint(), at), 4000);
}

fn exchanges_of_many_threads_lose_nothing(fabric: &Fabric) {
    let at = Address::new(0, 2048);
    on_threads(fabric, |endpoint| {
        for _ in 0..250 {
            let mut expected = 0;
            // An attempt fails only if an attempt of another thread has succeeded.
            let succeeds = (0..=1000).any(|_| {
                let found = exchange(endpoint, at, expected, expected + 1);
                let succeeds = found == expected;
                expected = found;
                succeeds
            });
            assert!(succeeds, "too many attempts failed");
        }
    });
    assert_eq!(word(&*fabric.endpoint(), at), 1000);
}
