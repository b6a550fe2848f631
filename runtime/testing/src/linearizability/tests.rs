//! Verdicts of the checker on known histories.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use farfield::sim::{Client, Event, Happened};

use super::*;
use crate::random::Random;
use crate::{Components, Contradiction, Fates};

/// A set of keys, each of them a part.
#[derive(Debug)]
struct Set;

#[derive(Clone, Copy, Debug, PartialEq)]
enum SetOperation {
    Get(u64),
    Insert(u64),
    Remove(u64),
}

impl Model for Set {
    type Operation = SetOperation;
    type Returned = bool;
    type State = bool;

    fn step(present: &mut bool, operation: &SetOperation) -> bool {
        match operation {
            Get(_) => *present,
            Insert(_) => !std::mem::replace(present, true),
            Remove(_) => std::mem::replace(present, false),
        }
    }

    fn part(operation: &SetOperation) -> u64 {
        let (Get(key) | Insert(key) | Remove(key)) = *operation;
        key
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Exchange {
    Put(u64),
    Take,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    Done,
    Value(u64),
    Empty,
}

/// A stack or a queue.
#[derive(Debug)]
struct Values<const LAST_FIRST: bool>;

type Stack = Values<true>;
type Queue = Values<false>;

impl<const LAST_FIRST: bool> Model for Values<LAST_FIRST> {
    type Operation = Exchange;
    type Returned = Reply;
    type State = VecDeque<u64>;

    fn step(values: &mut VecDeque<u64>, operation: &Exchange) -> Reply {
        match *operation {
            Put(value) => {
                values.push_back(value);
                Reply::Done
            }
            Take if LAST_FIRST => values.pop_back().map_or(Reply::Empty, Reply::Value),
            Take => values.pop_front().map_or(Reply::Empty, Reply::Value),
        }
    }

    fn puts(operation: &Exchange) -> Option<u64> {
        match *operation {
            Put(value) => Some(value),
            Take => None,
        }
    }

    fn takes(operation: &Exchange) -> bool {
        *operation == Take
    }

    fn taken(returned: &Reply) -> Option<u64> {
        match *returned {
            Reply::Value(value) => Some(value),
            Reply::Done | Reply::Empty => None,
        }
    }

    fn is_hopeless(values: &VecDeque<u64>, fates: &Fates) -> bool {
        let fate = |value: &u64| fates.of(*value);
        let new = values.back().map(fate).expect("one was put in");
        let mut there = values.iter().map(fate).take(values.len() - 1);
        there.any(|there| if LAST_FIRST { there.is_before(new) } else { new.is_before(there) })
    }
}

type HappenedTo<M> = (usize, Happened<<M as Model>::Operation, <M as Model>::Returned>);

/// A history from `(client, what happened)`.
fn events<M: Model>(happened: Vec<HappenedTo<M>>) -> Vec<EventOf<M>> {
    let event = |(position, (thread, happened))| Event {
        client: Client { thread, task: 0 },
        at: Duration::from_micros(position),
        happened,
    };
    (0..).zip(happened).map(event).collect()
}

use Exchange::{Put, Take};
use Happened::{Invoked, Returned};
use SetOperation::{Get, Insert, Remove};

fn check_set(happened: Vec<(usize, Happened<SetOperation, bool>)>) -> Verdict<Set> {
    check::<Set>(&events::<Set>(happened))
}

fn is_explained<M: Model>(verdict: &Verdict<M>) -> bool {
    matches!(verdict, Verdict::Explained)
}

#[test]
fn nothing_is_explained() {
    assert!(is_explained(&check_set(vec![])));
}

#[test]
fn a_get_may_take_effect_before_an_insert_that_overlaps_it() {
    let overlapping =
        vec![(0, Invoked(Insert(1))), (1, Invoked(Get(1))), (0, Returned(true)), (1, Returned(false))];
    assert!(is_explained(&check_set(overlapping)));
}

#[test]
fn a_get_sees_an_insert_that_returned_before() {
    let after =
        vec![(0, Invoked(Insert(1))), (0, Returned(true)), (1, Invoked(Get(1))), (1, Returned(false))];
    assert!(matches!(check_set(after), Verdict::Refuted(_)));
}

#[test]
fn a_key_is_removed_once() {
    let mut twice = vec![(0, Invoked(Insert(1))), (0, Returned(true))];
    twice.extend([(0, Invoked(Remove(1))), (1, Invoked(Remove(1)))]);
    twice.extend([(0, Returned(true)), (1, Returned(true))]);
    assert!(matches!(check_set(twice), Verdict::Refuted(_)));
}

#[test]
fn the_contradiction_is_drawn() {
    let mut wrong = vec![(0, Invoked(Insert(7))), (0, Returned(true))];
    wrong.extend([(2, Invoked(Remove(8)))]);
    wrong.extend([(0, Invoked(Insert(8))), (1, Invoked(Get(8))), (1, Returned(true)), (0, Returned(false))]);
    // Later events are not part of the contradiction.
    wrong.extend([(1, Invoked(Get(8))), (1, Returned(false))]);
    let Verdict::Refuted(contradiction) = check_set(wrong) else { panic!("it is wrong") };
    assert_eq!(
        contradiction.to_string(),
        "\
no order of these operations explains their results:
                  thread 0       thread 1   thread 2
       2.000 us                             ┌ Remove(8) (no return)
       3.000 us   ┌ Insert(8)               │
       4.000 us   │              ┌ Get(8)   │
       5.000 us   │              └ true     │
       6.000 us   └ false  <--              │
The history up to 6.000 us is linearizable; the state is then false or true.
`Insert(8)` of thread 0 then returned false, where only true is possible."
    );
    assert_eq!(contradiction.operation(), &Insert(8));
    assert_eq!((contradiction.returned(), contradiction.possible()), (Some(&false), &[true][..]));
    assert_eq!(contradiction.states(), [false, true]);
    assert_eq!(contradiction.events().len(), 5);
}

#[test]
fn an_operation_that_never_returned_may_have_taken_effect_or_not() {
    for seen in [true, false] {
        let pending = vec![(0, Invoked(Insert(1))), (1, Invoked(Get(1))), (1, Returned(seen))];
        assert!(is_explained(&check_set(pending)), "{seen}");
    }
}

#[test]
fn an_operation_that_never_returned_does_not_take_effect_before_its_invocation() {
    let early = vec![(1, Invoked(Get(1))), (1, Returned(true)), (0, Invoked(Insert(1)))];
    assert!(matches!(check_set(early), Verdict::Refuted(_)));
}

#[test]
fn an_operation_that_never_returned_takes_effect_once() {
    let mut flickering = vec![(0, Invoked(Insert(1)))];
    for seen in [false, true, false] {
        flickering.extend([(1, Invoked(Get(1))), (1, Returned(seen))]);
    }
    assert!(matches!(check_set(flickering), Verdict::Refuted(_)));
}

#[test]
fn a_client_may_continue_after_an_error() {
    let mut failed = vec![(0, Invoked(Insert(1))), (0, Invoked(Get(1))), (0, Returned(false))];
    failed.extend([(0, Invoked(Get(1))), (0, Returned(true))]);
    assert!(is_explained(&check_set(failed)));
}

fn sequential<O: Copy, R: Copy>(performed: &[(O, R)]) -> Vec<(usize, Happened<O, R>)> {
    performed
        .iter()
        .flat_map(|(operation, reply)| [(0, Invoked(*operation)), (0, Returned(*reply))])
        .collect()
}

#[test]
fn a_stack_pops_in_reverse_order() {
    let put = [(Put(1), Reply::Done), (Put(2), Reply::Done)];
    let [reverse, order] = [[2, 1], [1, 2]].map(|taken| {
        let taken = taken.map(|value| (Take, Reply::Value(value)));
        let performed: Vec<_> = put.into_iter().chain(taken).chain([(Take, Reply::Empty)]).collect();
        check::<Stack>(&events::<Stack>(sequential(&performed)))
    });
    assert!(is_explained(&reverse) && matches!(order, Verdict::Refuted(_)));
}

#[test]
fn a_queue_dequeues_in_order() {
    let put = [(Put(1), Reply::Done), (Put(2), Reply::Done)];
    let [reverse, order] = [[2, 1], [1, 2]].map(|taken| {
        let taken = taken.map(|value| (Take, Reply::Value(value)));
        let performed: Vec<_> = put.into_iter().chain(taken).chain([(Take, Reply::Empty)]).collect();
        check::<Queue>(&events::<Queue>(sequential(&performed)))
    });
    assert!(is_explained(&order) && matches!(reverse, Verdict::Refuted(_)));
}

#[test]
fn concurrent_pushes_may_be_popped_in_either_order() {
    for taken in [[1, 2], [2, 1]] {
        let mut both = vec![(0, Invoked(Put(1))), (1, Invoked(Put(2)))];
        both.extend([(1, Returned(Reply::Done)), (0, Returned(Reply::Done))]);
        for value in taken {
            both.extend([(0, Invoked(Take)), (0, Returned(Reply::Value(value)))]);
        }
        assert!(is_explained(&check::<Stack>(&events::<Stack>(both))));
    }
}

#[test]
fn a_value_is_not_lost() {
    let lost = [(Put(1), Reply::Done), (Take, Reply::Empty)];
    assert!(matches!(check::<Queue>(&events::<Queue>(sequential(&lost))), Verdict::Refuted(_)));
    let lost = [(Put(1), Reply::Done), (Take, Reply::Empty)];
    assert!(matches!(check::<Stack>(&events::<Stack>(sequential(&lost))), Verdict::Refuted(_)));
}

/// A random history without any structure: clients invoke random operations and get random results.
fn made_up<M: Model<Operation = Exchange, Returned = Reply>>(random: &mut Random) -> Vec<EventOf<M>> {
    let (mut happened, mut open, mut values) = (Vec::new(), [None; 3], 0);
    for _ in 0..random.range(6..16) {
        let client = random.range(0..3) as usize;
        let event = match open[client].take() {
            None => {
                let operation = if random.percent(50) { Put(values) } else { Take };
                values += u64::from(operation != Take);
                open[client] = Some(operation);
                Invoked(operation)
            }
            // The operation fails, and the client continues.
            Some(_) if random.range(0..8) == 0 => continue,
            Some(Put(_)) => Returned(Reply::Done),
            Some(Take) => {
                let drawn = random.range(0..values + 1);
                Returned(if drawn < values { Reply::Value(drawn) } else { Reply::Empty })
            }
        };
        happened.push((client, event));
    }
    events::<M>(happened)
}

/// A reference search: all orders, without memoisation and without fates.
fn is_explained_naively<M: Model>(state: &M::State, calls: &[Call<M>]) -> bool {
    let first_return = calls.iter().filter_map(|call| Some(call.returned.as_ref()?.0)).min();
    // An operation that never returned need not have taken effect.
    let Some(first_return) = first_return else { return true };
    (0..calls.len()).filter(|number| calls[*number].invoked < first_return).any(|number| {
        let (mut after, mut others) = (state.clone(), calls.to_vec());
        let call = others.remove(number);
        let answer = M::step(&mut after, &call.operation);
        call.returned.is_none_or(|(_, returned)| returned == answer) && is_explained_naively(&after, &others)
    })
}

fn fates_change_nothing<M: Model<Operation = Exchange, Returned = Reply>>() {
    let mut explained = 0;
    for seed in 0..4000 {
        let events = made_up::<M>(&mut Random::new(seed));
        let verdict = check::<M>(&events);
        let expected = is_explained_naively(&M::initial(), &calls::<M>(&events));
        assert_eq!(is_explained(&verdict), expected, "{seed}: {verdict:?}");
        explained += i32::from(expected);
        if let Verdict::Refuted(contradiction) = &verdict {
            is_shortest(&events, contradiction);
        }
    }
    assert!((400..3600).contains(&explained), "{explained} of 4000 are explained");
}

/// A contradiction ends with the first return that no order explains, and lists the results that the operation could have returned.
fn is_shortest<M: Model<Operation = Exchange, Returned = Reply>>(
    events: &[EventOf<M>],
    contradiction: &Contradiction<M>,
) {
    let explains = |events: &[EventOf<M>]| is_explained_naively(&M::initial(), &calls::<M>(events));
    let length = (1..=events.len()).find(|length| !explains(&events[..*length])).expect("it is refuted");
    assert_eq!(contradiction.events(), events[..length], "{contradiction}");
    let possible = |reply: &Reply| {
        let mut changed = events[..length].to_vec();
        changed[length - 1].happened = Returned(*reply);
        explains(&changed)
    };
    let replies = || [Reply::Done, Reply::Empty].into_iter().chain((0..16).map(Reply::Value));
    let expected = replies().filter(possible).count();
    assert!(contradiction.possible().iter().all(possible), "{contradiction}");
    assert_eq!(contradiction.possible().len(), expected.min(4), "{contradiction}");
}

#[test]
fn fates_change_no_verdict_on_stacks() {
    fates_change_nothing::<Stack>();
}

#[test]
fn fates_change_no_verdict_on_queues() {
    fates_change_nothing::<Queue>();
}

#[test]
fn a_search_has_a_limit() {
    // Nine values in any order, and all orders fail: the queue is not empty.
    let each = |happened: fn(u64) -> Happened<Exchange, Reply>| {
        (0..9).map(move |value| (value as usize, happened(value)))
    };
    let mut hard: Vec<_> = each(|value| Invoked(Put(value))).chain(each(|_| Returned(Reply::Done))).collect();
    hard.extend([(0, Invoked(Take)), (0, Returned(Reply::Empty))]);
    hard.extend(each(|_| Invoked(Take)).chain(each(|value| Returned(Reply::Value(value)))));
    let Verdict::Undecided(parts) = check::<Queue>(&events::<Queue>(hard)) else { panic!("it is too hard") };
    let [Undecided { part: 0, operations: 19, steps: SEARCH_LIMIT }] = parts[..] else { panic!("{parts:?}") };
}

#[test]
fn an_undecided_part_hides_no_refuted_one() {
    /// Two queues, of even and of odd values.
    #[derive(Debug)]
    struct Two;
    impl Model for Two {
        type Operation = (u64, Exchange);
        type Returned = Reply;
        type State = VecDeque<u64>;
        fn step(values: &mut VecDeque<u64>, (_, operation): &(u64, Exchange)) -> Reply {
            Queue::step(values, operation)
        }
        fn part((part, _): &(u64, Exchange)) -> u64 {
            *part
        }
    }
    let mut both: Vec<_> = (0..9).map(|value| (value as usize, Invoked((0, Put(value))))).collect();
    both.extend((0..9).map(|client| (client, Returned(Reply::Done))));
    both.extend([(0, Invoked((0, Take))), (0, Returned(Reply::Empty))]);
    let Verdict::Undecided(parts) = check_within::<Two>(&events::<Two>(both.clone()), 1000) else {
        panic!("it is too hard")
    };
    assert_eq!((parts[0].part, parts[0].steps), (0, 1000));
    both.extend([(0, Invoked((1, Take))), (0, Returned(Reply::Value(3)))]);
    let Verdict::Refuted(contradiction) = check_within::<Two>(&events::<Two>(both), 1000) else {
        panic!("no operation inserted 3")
    };
    assert_eq!(contradiction.events().len(), 2);
}

/// A map with a full scan, and a limited number of pairs.
#[derive(Debug)]
struct Map;

#[derive(Clone, Debug, PartialEq)]
enum MapOperation {
    Put(u64, u64),
    Scan,
}

/// A map of at most two keys.
impl Model for Map {
    type Operation = MapOperation;
    type Returned = Result<Vec<(u64, u64)>, &'static str>;
    type State = BTreeMap<u64, u64>;

    fn step(map: &mut Self::State, operation: &MapOperation) -> Self::Returned {
        match operation {
            MapOperation::Put(key, _) if map.len() == 2 && !map.contains_key(key) => Err("full"),
            MapOperation::Put(key, value) => {
                Ok(map.insert(*key, *value).map(|old| (*key, old)).into_iter().collect())
            }
            MapOperation::Scan => Ok(map.clone().into_iter().collect()),
        }
    }
}

#[test]
fn ranges_and_errors_are_results() {
    let scans = |seen: &[(u64, u64)], refused| {
        let history = vec![
            (0, Invoked(MapOperation::Put(1, 10))),
            (0, Returned(Ok(vec![]))),
            (1, Invoked(MapOperation::Scan)),
            (0, Invoked(MapOperation::Put(2, 20))),
            (0, Returned(Ok(vec![]))),
            (1, Returned(Ok(seen.to_vec()))),
            (0, Invoked(MapOperation::Put(3, 30))),
            (0, Returned(refused)),
        ];
        check::<Map>(&events::<Map>(history))
    };
    assert!(is_explained(&scans(&[(1, 10)], Err("full"))));
    assert!(is_explained(&scans(&[(1, 10), (2, 20)], Err("full"))));
    // A scan that contains the later pair without the earlier one matches no state of the map.
    assert!(matches!(scans(&[(2, 20)], Err("full")), Verdict::Refuted(_)));
    // A full map refuses further pairs.
    let Verdict::Refuted(contradiction) = scans(&[(1, 10)], Ok(vec![])) else { panic!("it was full") };
    assert_eq!(contradiction.possible(), [Err("full")]);
}

#[test]
fn a_model_may_allow_several_results() {
    /// A bag: any value may be taken.
    #[derive(Debug)]
    struct Bag;
    impl Model for Bag {
        type Operation = Exchange;
        type Returned = Reply;
        type State = VecDeque<u64>;
        fn step(values: &mut VecDeque<u64>, operation: &Exchange) -> Reply {
            Queue::step(values, operation)
        }
        fn accepts(values: &mut VecDeque<u64>, operation: &Exchange, returned: &Reply) -> bool {
            let Reply::Value(value) = returned else { return Self::step(values, operation) == *returned };
            let found = values.iter().position(|there| there == value);
            found.is_some_and(|index| values.remove(index).is_some())
        }
    }
    let taken = |values: [u64; 2]| {
        let put = [(Put(1), Reply::Done), (Put(2), Reply::Done)];
        let taken = values.map(|value| (Take, Reply::Value(value)));
        check::<Bag>(&events::<Bag>(sequential(&[put, taken].concat())))
    };
    assert!(is_explained(&taken([1, 2])) && is_explained(&taken([2, 1])));
    assert!(matches!(taken([2, 2]), Verdict::Refuted(_)));
}

/// A set of keys with an iteration that is not atomic.
#[derive(Debug)]
struct Iterated;

#[derive(Clone, Debug, PartialEq)]
enum Keys {
    Toggle(u64),
    Visit(u64),
    Iterate,
}

#[derive(Clone, Debug, PartialEq)]
enum Visited {
    Done,
    Seen(bool),
    Keys(Vec<u64>),
}

impl Model for Iterated {
    type Operation = Keys;
    type Returned = Visited;
    type State = bool;

    fn step(present: &mut bool, operation: &Keys) -> Visited {
        match operation {
            Keys::Toggle(_) => {
                *present = !*present;
                Visited::Done
            }
            Keys::Visit(_) | Keys::Iterate => Visited::Seen(*present),
        }
    }

    fn part(operation: &Keys) -> u64 {
        match *operation {
            Keys::Toggle(key) | Keys::Visit(key) => key,
            Keys::Iterate => unreachable!("it has components"),
        }
    }

    fn components(operation: &Keys, returned: Option<&Visited>, parts: &[u64]) -> Option<Components<Self>> {
        let (Keys::Iterate, Some(Visited::Keys(keys))) = (operation, returned) else {
            return (*operation == Keys::Iterate).then(Vec::new);
        };
        let absent = parts.iter().filter(|part| !keys.contains(part)).map(|part| (*part, false));
        let all = absent.chain(keys.iter().map(|key| (*key, true)));
        Some(all.map(|(key, present)| (Keys::Visit(key), Some(Visited::Seen(present)))).collect())
    }
}

fn iterates(happened: Vec<(usize, Happened<Keys, Visited>)>) -> Verdict<Iterated> {
    check::<Iterated>(&events::<Iterated>(happened))
}

#[test]
fn an_iteration_sees_each_key_at_a_moment_of_its_own() {
    let moves = |seen: Vec<u64>| {
        vec![
            (0, Invoked(Keys::Toggle(1))),
            (0, Returned(Visited::Done)),
            (1, Invoked(Keys::Iterate)),
            (0, Invoked(Keys::Toggle(1))),
            (0, Returned(Visited::Done)),
            (0, Invoked(Keys::Toggle(2))),
            (0, Returned(Visited::Done)),
            (1, Returned(Visited::Keys(seen))),
        ]
    };
    // The keys 1 and 2 are never present at the same time.
    for seen in [vec![], vec![1], vec![2], vec![1, 2]] {
        assert!(is_explained(&iterates(moves(seen.clone()))), "{seen:?}");
    }
    assert!(matches!(iterates(moves(vec![3])), Verdict::Refuted(_)), "no operation has inserted it");
}

#[test]
fn an_iteration_misses_no_key_that_is_always_present() {
    let missed = |keys| {
        vec![
            (0, Invoked(Keys::Toggle(1))),
            (0, Returned(Visited::Done)),
            (1, Invoked(Keys::Iterate)),
            (1, Returned(Visited::Keys(keys))),
            (2, Invoked(Keys::Iterate)),
        ]
    };
    assert!(is_explained(&iterates(missed(vec![1]))));
    assert!(matches!(iterates(missed(vec![])), Verdict::Refuted(_)));
}
