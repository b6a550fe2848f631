//! `#[delegated]` and `#[derive(Message)]` from a user's side: clients of other threads' values, on mapped memory and in the simulator.

use crate::fabrics::on_all;
use farfield::prelude::*;
use farfield::{Error, Message, Reaction, StoredTrust};

/// Sends a value through words, as far as that needs no thread.
fn kept<T: Message + Clone + PartialEq + std::fmt::Debug>(value: T) {
    use farfield::__private::delegation::{Reader, Writer};
    let mut words = Vec::new();
    value.clone().write(&mut Writer::new(&mut words, &()));
    let mut reader = Reader::new(&words, &());
    assert_eq!(T::read(&mut reader).as_ref(), Some(&value));
    assert!(reader.is_empty());
    for length in 0..words.len() {
        assert_eq!(T::read(&mut Reader::new(&words[..length], &())), None, "{value:?} in {length} words");
    }
}

// ---- messages --------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Message)]
struct Line {
    author: String,
    /// A raw name.
    r#type: u8,
    marks: Vec<(u64, bool)>,
}

#[derive(Clone, Debug, PartialEq, Message)]
struct Pair<A, B = u64>(A, Option<B>);

#[derive(Clone, Debug, PartialEq, Message)]
struct Nothing;

#[derive(Clone, Debug, PartialEq, Message)]
enum Change<T: Clone> {
    Clear,
    Push(T, u16),
    Replace { at: u64, to: Pair<T>, r#in: [u8; 3] },
    Nothing(Nothing),
}

/// A parameter of handles need not be a message.
#[derive(Message)]
struct Both<T: 'static, U: 'static> {
    trust: Trust<T>,
    others: Vec<Trust<U>>,
    origin: RemotePtr<StoredTrust<U>>,
}

#[test]
fn structs_and_enums_survive_as_words() {
    kept(Line { author: "Ada".into(), r#type: 1, marks: vec![(1, true), (2, false)] });
    kept(Pair("a".to_owned(), Some(Nothing)));
    kept(Nothing);
    for change in [
        Change::Clear,
        Change::Push(0.5_f32, 7),
        Change::Replace { at: 1, to: Pair(1.5, None), r#in: [1, 2, 3] },
        Change::Nothing(Nothing),
    ] {
        kept(change);
    }
}

#[test]
fn no_variant_has_another_number() {
    use farfield::__private::delegation::Reader;
    assert_eq!(<Change<u64> as Message>::read(&mut Reader::new(&[0], &())), Some(Change::Clear));
    assert_eq!(<Change<u64> as Message>::read(&mut Reader::new(&[4, 0, 0], &())), None);
}

#[test]
fn fingerprints_differ_where_words_differ() {
    mod other {
        use farfield::Message;

        #[derive(Message)]
        pub(crate) struct Nothing {}
        #[derive(Message)]
        pub(crate) struct Pair<A, B>(B, Option<A>);
        #[derive(Message)]
        #[allow(dead_code)]
        pub(crate) enum Change<T> {
            Push(T, u16),
            Clear,
        }
    }
    assert_eq!(Nothing::FINGERPRINT, other::Nothing::FINGERPRINT, "another build's");
    let all = [
        Nothing::FINGERPRINT,
        Line::FINGERPRINT,
        Pair::<u64>::FINGERPRINT,
        Pair::<u64, u32>::FINGERPRINT,
        Pair::<u32>::FINGERPRINT,
        Change::<u64>::FINGERPRINT,
        Change::<u32>::FINGERPRINT,
        other::Change::<u64>::FINGERPRINT,
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{index}");
    }
    assert_eq!(Pair::<u64, u64>::FINGERPRINT, other::Pair::<u64, u64>::FINGERPRINT);
    assert_ne!(Pair::<u64, u32>::FINGERPRINT, other::Pair::<u64, u32>::FINGERPRINT);
}

// ---- clients ---------------------------------------------------------------------------------------------------

/// Lines that were sent to a thread.
#[derive(Default)]
struct Log {
    lines: Vec<Line>,
}

#[delegated(client = LogHandle)]
impl Log {
    fn change(&mut self, change: Change<Line>) -> Option<Line> {
        match change {
            Change::Clear => self.lines.clear(),
            Change::Push(line, _) => self.lines.push(line),
            Change::Replace { at, to: Pair(line, _), .. } => {
                return Some(std::mem::replace(&mut self.lines[at as usize], line));
            }
            Change::Nothing(Nothing) => {}
        }
        None
    }

    fn authors(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.author.clone()).collect()
    }
}

struct Counter(u64);

#[delegated]
impl Counter {
    const STEPS: usize = 2;

    /// Not requested: there is no value.
    fn new(start: u64) -> Self {
        Self(start)
    }

    /// Adds.
    fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }

    fn get(&self) -> u64 {
        self.0
    }

    /// Names that generated code uses, and patterns.
    fn names(&mut self, ct: u64, (value, context): (u64, u64), mut args: u64, _: u8) -> [u64; 4] {
        args += 1;
        [ct, value, context, args + self.0]
    }

    #[cfg(not(test))]
    fn gone(&self, _: Missing) {}

    fn steps(&mut self, steps: [u64; Self::STEPS]) {
        self.0 += steps.iter().sum::<u64>();
    }

    #[deprecated]
    #[allow(dead_code)]
    fn r#type(&self) -> bool {
        self.0 > 0
    }

    /// Reports to a log, and takes its answer.
    fn report(&mut self, context: &Context<'_>, log: LogHandle, me: Trust<Counter>) -> bool {
        let line = Line { author: context.caller().to_string(), r#type: 0, marks: vec![(self.0, true)] };
        let asked = context.apply_then(
            &log,
            Change::Push(line, 0),
            |log: &mut Log, change| {
                log.change(change);
                log.lines.len() as u64
            },
            move |lines, reaction| {
                reaction.with(&me, |counter| counter.0 = 1000 * lines.unwrap_or(0));
            },
        );
        asked.is_ok()
    }
}

/// The roots of a counter and a log of thread 0, as clients of each thread.
async fn shared(ct: &ComputeThread) -> Result<(CounterClient, LogHandle)> {
    if ct.index() == 0 {
        let counter = CounterClient::entrust(ct, Counter::new(5)).await?;
        ct.publish("counter", Trust::from(counter).store(ct).await?).await?;
        let log: Trust<Log> = LogHandle::entrust(ct, Log::default()).await?.into();
        ct.publish("log", log.store(ct).await?).await?;
    }
    ct.barrier("published").await?;
    let counter = CounterClient::open(ct.lookup("counter").await?, ct).await?;
    Ok((counter, LogHandle::open(ct.lookup("log").await?, ct).await?))
}

#[test]
fn methods_are_called_where_the_value_is() {
    on_all(3, async |ct| {
        let (counter, log) = shared(ct).await?;
        let reached = counter.add(ct, 10).await?;
        assert!([15, 25, 35].contains(&reached), "{reached}");
        ct.barrier("added").await?;
        assert_eq!(counter.get(ct).await?, 35);
        assert_eq!(counter.names(ct, 1, (2, 3), 4, 5).await?, [1, 2, 3, 40]);
        let author = format!("thread {}", ct.index());
        let line = Line { author, r#type: 3, marks: vec![(7, true); 100] };
        assert_eq!(log.change(ct, Change::Push(line, 1)).await?, None);
        ct.barrier("sent").await?;
        let mut authors = log.authors(ct).await?;
        authors.sort();
        assert_eq!(authors, ["thread 0", "thread 1", "thread 2"]);
        ct.barrier("read").await?;
        if ct.index() == 1 {
            let line = Line { author: String::new(), r#type: 0, marks: vec![] };
            let old = log.change(ct, Change::Replace { at: 0, to: Pair(line, None), r#in: [0; 3] }).await?;
            assert_eq!(old.unwrap().marks.len(), 100);
            counter.steps(ct, [3, 4]).await?;
            assert_eq!(counter.get(ct).await?, 42);
        }
        ct.barrier("done").await
    });
}

#[test]
fn a_client_is_its_handle_and_travels() {
    on_all(2, async |ct| {
        let (counter, log) = shared(ct).await?;
        assert_eq!(counter.trustee(), log.trustee());
        assert!(format!("{counter:?}").starts_with("CounterClient(Trust<"), "{counter:?}");
        assert_eq!(counter.apply(ct, (), |counter, ()| counter.0).await?, 5);
        let mine = CounterClient::entrust(ct, Counter::new(ct.index() as u64)).await?;
        let list =
            ct.root_or_init("list", async || ct.entrust(Vec::<CounterClient>::new()).await?.store(ct).await);
        let list = Trust::open(list.await?, ct).await?;
        list.apply(ct, mine.clone(), |list, client| list.push(client)).await?;
        ct.barrier("in the list").await?;
        let mut sum = 0;
        for client in list.apply(ct, (), |list, ()| list.clone()).await? {
            sum += CounterClient::from(Trust::from(client)).get(ct).await?;
        }
        assert_eq!(sum, 1);
        ct.barrier("read").await
    });
}

#[test]
fn a_method_with_a_context_requests_of_others() {
    on_all(2, async |ct| {
        let (counter, log) = shared(ct).await?;
        let other = CounterClient::entrust(ct, Counter::new(1)).await?;
        for client in [&counter, &other] {
            assert!(client.report(ct, log.clone(), Trust::clone(client)).await?);
            while client.get(ct).await? < 1000 {
                ct.yield_now().await;
            }
        }
        ct.barrier("reported").await?;
        assert_eq!(log.authors(ct).await?.len(), 4);
        let me = ct.id().to_string();
        assert_eq!(log.authors(ct).await?.iter().filter(|author| **author == me).count(), 2);
        ct.barrier("read").await
    });
}

/// Requests methods on behalf of others, and keeps the answers.
#[derive(Default)]
struct Relay {
    asked: u64,
    answers: Vec<String>,
}

#[delegated]
impl Relay {
    /// Adds to a counter twice: one answer is dropped, the other one kept.
    fn add(&mut self, context: &Context<'_>, to: CounterClient, me: Trust<Self>, n: u64) -> bool {
        self.asked += 2;
        let requests = to.via(context);
        let keep = move |sum: Result<u64>, reaction: &Reaction<'_>| {
            let answer = sum.map_or_else(|error| error.to_string(), |sum| sum.to_string());
            reaction.with(&me, |relay| relay.answers.push(answer)).unwrap();
        };
        requests.add(n).post().is_ok() && requests.add(n).apply_then(keep).is_ok()
    }

    /// Sends a change to a log. Returns the error that is known at once.
    fn change(&mut self, context: &Context<'_>, log: LogHandle, length: u64) -> String {
        self.asked += 1;
        let line = Line {
            author: "relay".into(),
            r#type: self.asked as u8,
            marks: vec![(1, true); length as usize],
        };
        let request = log.via(context).change(Change::Push(line, 0));
        assert!(format!("{request:?}").starts_with("Request { method: \"Log::change\", of: Trust<"));
        request.post().err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn answers(&self) -> Vec<String> {
        self.answers.clone()
    }
}

#[test]
fn delegated_code_requests_methods_by_name() {
    on_all(3, async |ct| {
        let (counter, log) = shared(ct).await?;
        let made = async || Trust::from(RelayClient::entrust(ct, Relay::default()).await?).store(ct).await;
        let relay = RelayClient::open(ct.root_or_init("relay", made).await?, ct).await?;
        ct.barrier("opened").await?;
        // The counter's trustee is the relay's, or another thread.
        assert!(relay.add(ct, counter.clone(), relay.clone().into(), 1).await?);
        while relay.answers(ct).await?.len() < 3 {
            ct.yield_now().await;
        }
        ct.barrier("added").await?;
        assert_eq!(counter.get(ct).await?, 11);
        let mut answers: Vec<u64> = Vec::new();
        for answer in relay.answers(ct).await? {
            answers.push(answer.parse().unwrap());
        }
        answers.sort_unstable();
        assert!(answers.iter().all(|sum| (7..=11).contains(sum)) && answers[2] == 11, "{answers:?}");
        if ct.index() == 2 {
            assert_eq!(relay.change(ct, log.clone(), 1).await?, "");
            if relay.trustee() != log.trustee() {
                let refused = relay.change(ct, log.clone(), 100).await?;
                assert!(refused.contains("of delegated code 320 bytes"), "{refused}");
            }
            while log.authors(ct).await? != ["relay"] {
                ct.yield_now().await;
            }
        }
        ct.barrier("done").await
    });
}

#[test]
fn delegated_code_is_told_that_a_plain_trustee_has_no_methods() {
    on_all(2, async |ct| {
        let relay = RelayClient::entrust(ct, Relay::default()).await?;
        let root = ct.root_or_init("plain", async || ct.entrust(Counter(3)).await?.store(ct).await).await?;
        let plain = CounterClient::from(Trust::open(root, ct).await?);
        relay.add(ct, plain.clone(), relay.clone().into(), 1).await?;
        while relay.answers(ct).await?.is_empty() {
            ct.yield_now().await;
        }
        let answers = relay.answers(ct).await?;
        if plain.trustee() == ct.id() {
            assert_eq!(answers, ["5"]);
        } else {
            let [refused] = &answers[..] else { panic!("{answers:?}") };
            assert!(refused.contains("Counter::add") && refused.contains("no such method"), "{refused}");
        }
        ct.barrier("asked").await
    });
}

#[test]
fn a_plain_trustee_has_no_methods() {
    on_all(2, async |ct| {
        let root = ct.root_or_init("plain", async || ct.entrust(Counter(3)).await?.store(ct).await).await?;
        let plain = Trust::open(root, ct).await?;
        let is_own = plain.trustee() == ct.id();
        let client = CounterClient::from(plain.clone());
        match client.get(ct).await {
            Ok(count) => assert!(is_own && count == 3),
            Err(Error::DelegationRefused(refused)) => {
                assert!(!is_own && refused.reason.contains("no such method"), "{}", refused.reason);
                assert_eq!(&*refused.function, "Counter::get");
            }
            Err(error) => return Err(error),
        }
        assert_eq!(plain.apply(ct, (), |counter, ()| counter.0).await?, 3);
        ct.barrier("asked").await
    });
}

// ---- generic types ---------------------------------------------------------------------------------------------

pub(crate) struct Stack<T, const N: usize>(Vec<T>);

#[delegated]
impl<T: Message + Clone, const N: usize> Stack<T, N>
where
    T: PartialEq,
{
    pub(crate) fn push(&mut self, value: T) -> std::result::Result<u64, T> {
        if self.0.len() == N {
            return Err(value);
        }
        self.0.push(value);
        Ok(self.0.len() as u64)
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn contains(&self, value: T) -> bool {
        self.0.contains(&value)
    }
}

#[test]
fn types_with_parameters_have_clients() {
    on_all(2, async |ct| {
        if ct.index() == 0 {
            let words = StackClient::entrust(ct, Stack::<String, 2>(vec![])).await?;
            ct.publish("words", Trust::from(words).store(ct).await?).await?;
            let numbers = StackClient::entrust(ct, Stack::<u64, 1>(vec![])).await?;
            ct.publish("numbers", Trust::from(numbers).store(ct).await?).await?;
        }
        ct.barrier("published").await?;
        if ct.index() == 1 {
            let words = StackClient::<String, 2>::open(ct.lookup("words").await?, ct).await?;
            let numbers = StackClient::<u64, 1>::open(ct.lookup("numbers").await?, ct).await?;
            assert_eq!(words.push(ct, "one".into()).await?, Ok(1));
            assert_eq!(words.push(ct, "two".into()).await?, Ok(2));
            assert_eq!(words.push(ct, "three".into()).await?, Err("three".into()));
            assert_eq!(numbers.push(ct, 1).await?, Ok(1));
            assert_eq!(numbers.push(ct, 2).await?, Err(2));
            assert!(words.contains(ct, "one".into()).await?);
            assert_eq!(words.clone().pop(ct).await?, Some("two".into()));
        }
        ct.barrier("done").await
    });
}

#[test]
fn handles_in_a_message_stay_handles() {
    on_all(2, async |ct| {
        let (counter, log) = shared(ct).await?;
        let origin = ct.lookup::<StoredTrust<Log>>("log").await?;
        let keeper =
            ct.root_or_init("keeper", async || ct.entrust(None::<Both<Counter, Log>>).await?.store(ct).await);
        let keeper = Trust::open(keeper.await?, ct).await?;
        let both = Both { trust: counter.into(), others: vec![log.clone().into(), log.into()], origin };
        keeper.apply(ct, both, |keeper, both| *keeper = Some(both)).await?;
        ct.barrier("kept").await?;
        let both = keeper.apply(ct, (), |keeper, ()| keeper.take()).await?;
        if let Some(Both { trust, others, origin }) = both {
            assert_eq!(CounterClient::from(trust).get(ct).await?, 5);
            assert_eq!(LogHandle::from(others[1].clone()).authors(ct).await?, [""; 0]);
            LogHandle::open(origin, ct).await?;
        }
        ct.barrier("taken").await
    });
}

#[cfg(feature = "serde")]
mod by_serde {
    use std::collections::BTreeMap;

    use farfield::prelude::*;
    use farfield::{Error, Serde};
    use serde::{Deserialize, Serialize, Serializer};

    use super::on_all;

    #[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
    enum Order {
        Buy { of: String, at: BTreeMap<u8, f64> },
        Cancel(Option<u32>),
    }

    #[derive(Default)]
    struct Book(Vec<Order>);

    #[delegated]
    impl Book {
        fn add(&mut self, order: Serde<Order>) -> Serde<Vec<Order>> {
            self.0.push(order.0);
            Serde(self.0.clone())
        }
    }

    #[test]
    fn what_serde_carries_travels() {
        on_all(2, async |ct| {
            let book = BookClient::entrust(ct, Book::default()).await?;
            let orders = [
                Order::Buy {
                    of: "hats".repeat(40 * (1 + ct.index())),
                    at: BTreeMap::from([(3, 0.5), (1, 1e9)]),
                },
                Order::Cancel(Some(7)),
            ];
            book.add(ct, Serde(orders[0].clone())).await?;
            assert_eq!(book.add(ct, Serde(orders[1].clone())).await?.0, orders);
            ct.barrier("added").await
        });
    }

    /// Is serialised at times.
    #[derive(Deserialize)]
    struct Moody(bool);

    impl Serialize for Moody {
        fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            if self.0 { serializer.serialize_bool(true) } else { Err(serde::ser::Error::custom("not now")) }
        }
    }

    #[test]
    fn what_can_not_be_serialised_is_refused() {
        on_all(2, async |ct| {
            let stored = ct.entrust(0_u32).await?.store(ct).await?;
            ct.publish(&format!("count of {}", ct.index()), stored).await?;
            ct.barrier("published").await?;
            let other: Trust<u32> =
                Trust::open(ct.lookup(&format!("count of {}", 1 - ct.index())).await?, ct).await?;
            for (moody, bytes) in [(true, true), (false, true), (true, false)] {
                let count = |count: &mut u32, (_, result): (Serde<Moody>, bool)| {
                    *count += 1;
                    Serde(Moody(result))
                };
                let counted = other.apply(ct, (Serde(Moody(moody)), bytes), count).await;
                match counted {
                    Ok(_) => assert!(moody && bytes),
                    Err(Error::DelegationRefused(_)) => assert!(!moody || !bytes),
                    Err(error) => return Err(error),
                }
            }
            ct.barrier("refused").await?;
            assert_eq!(other.apply(ct, (), |count, ()| *count).await?, 2);
            ct.barrier("counted").await
        });
    }
}

// ---- stored handles --------------------------------------------------------------------------------------------

/// Counts the events of a thread that speak of stored handles.
struct Events(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(bool);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 |=
                    field.name() == "message" && format!("{value:?}").starts_with("a stored handle is freed");
            }
        }
        let mut message = Message(false);
        event.record(&mut message);
        self.0.fetch_add(usize::from(message.0), std::sync::atomic::Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_stored_handle_that_is_freed_without_being_taken_out_is_reported() {
    use std::sync::atomic::Ordering::Relaxed;
    let count = std::sync::Arc::default();
    let events = Events(std::sync::Arc::clone(&count));
    // The simulator runs all threads on this one.
    tracing::subscriber::with_default(events, || {
        Cluster::connect("sim:leaks=ignore").unwrap().run(1, async |ct| {
            let trust = ct.entrust(5_u64).await?;
            drop(Trust::take(trust.clone().store(ct).await?, ct).await?);
            assert_eq!(count.load(Relaxed), 0, "it was taken out");
            ct.delete(trust.clone().store(ct).await?).await?;
            assert_eq!(count.load(Relaxed), 1);
            let g = ct.pin();
            let stored = trust.store(ct).await?;
            g.sched_reclaim(stored.shared(&g)).await?;
            assert_eq!(count.load(Relaxed), 2);
            Ok(())
        })
    })
    .unwrap();
}
