//! `#[remote]` from a user's side: the behaviour of the generated items.

use std::cell::Cell;

use farfield::prelude::*;
use farfield::{Address, Remote, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Word)]
struct Celsius(i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
#[repr(u8)]
enum Colour {
    Red = 3,
    Green = 1,
}

/// A point.
#[remote]
struct Point {
    x: u32,
    y: u32,
    visits: Atomic<u64>,
}

/// A node with a field of each kind.
#[remote]
pub struct Node<K: Word, const N: usize>
where
    K: Ord,
{
    key: K,
    small: u8,
    flag: bool,
    history: [u16; 3],
    counts: [Atomic<u32>; N],
    #[marks(deleted, frozen)]
    next: Link<Node<K, N>>,
    lock: Lock,
    at: Point,
    span: Versioned<[u64; 4]>,
    #[local]
    seen: Cell<u64>,
    #[local(default = 7)]
    lives: u32,
    names: Tail<u16>,
}

async fn node(ct: &ComputeThread) -> Result<RemotePtr<Node<i64, 2>>> {
    let init = Node::init(-5, 200, true, [1, 2, 3], Point::init(10, 20), [4; 4], vec![100, 200, 300]);
    Node::new_in(ct, init.counts([8, 9])).await?.write(ct).await
}

#[farfield::test]
async fn a_snapshot_shows_what_was_initialised(ct: &ComputeThread) -> Result<()> {
    let ptr = node(ct).await?;
    let g = &ct.pin();
    let before = ct.metrics();
    let seen = ptr.read(g).await?;
    assert_eq!((ct.metrics() - before).reads, 1);
    assert_eq!((seen.key, seen.small, seen.flag, seen.history), (-5, 200, true, [1, 2, 3]));
    assert_eq!(seen.counts, [8, 9]);
    assert_eq!((seen.at.x, seen.at.y, seen.at.visits), (10, 20, 0));
    assert!(seen.next.is_null() && !seen.lock.is_held() && !seen.span.is_being_written());
    assert_eq!(seen.names.len(), 3);
    assert_eq!(seen.names.read(g).await?, [100, 200, 300]);
    assert_eq!(seen.names.get(1).unwrap().read(g).await?, 200);
    assert!(seen.names.get(3).is_none());
    assert!(
        format!("{seen:?}").starts_with("NodeSnapshot { key: -5, small: 200, flag: true, history: [1, 2, 3]")
    );
    Ok(())
}

#[farfield::test]
async fn a_handle_reads_its_frozen_fields_once(ct: &ComputeThread) -> Result<()> {
    let ptr = node(ct).await?;
    let before = ct.metrics();
    let handle = Node::attach(ptr, ct).await?;
    assert_eq!((ct.metrics() - before).chains, 1);
    assert_eq!((handle.key(), handle.small(), handle.flag(), handle.history()), (-5, 200, true, [1, 2, 3]));
    assert_eq!((handle.at().x(), handle.at().y()), (10, 20));
    assert_eq!((handle.seen.get(), handle.lives), (0, 7));
    assert_eq!(handle.names().len(), 3);
    assert_eq!(handle.this(), ptr);
    assert_eq!((ct.metrics() - before).chains, 1, "accessors cost nothing");
    handle.at().visits().fetch_add(ct, 2).await?;
    assert_eq!(ptr.at().visits().load(ct).await?, 2);
    Ok(())
}

#[farfield::test]
async fn a_handle_without_frozen_fields_reads_nothing(ct: &ComputeThread) -> Result<()> {
    #[remote]
    struct Cells {
        a: Atomic<u64>,
        b: Lock,
    }
    let ptr = Cells::new_in(ct, Cells::init()).await?.write(ct).await?;
    let before = ct.metrics();
    Cells::attach(ptr, ct).await?;
    assert_eq!(ct.metrics() - before, farfield::Metrics::default());
    Ok(())
}

#[farfield::test(cluster = "local:delay=4")]
async fn every_kind_of_field_has_its_operations(ct: &ComputeThread) -> Result<()> {
    let ptr = node(ct).await?;
    let g = &ct.pin();
    ptr.counts().at(1).store(ct, u32::MAX).await?;
    assert_eq!(ptr.counts().at(1).fetch_add(ct, 2).await?, u32::MAX);
    assert_eq!(ptr.counts().at(1).load(ct).await?, 1, "narrow atomics wrap around in their own width");
    assert!(ptr.counts().get(2).is_none());
    let guard = ptr.lock().acquire(ct).await?;
    assert_eq!(ptr.lock().state(ct).await?.owner(), Some(ct.id()));
    assert!(ptr.lock().try_acquire(ct).await?.is_none());
    guard.release().await?;
    assert!(!ptr.lock().state(ct).await?.is_held());
    ptr.span().write(ct, [1, 2, 3, u64::MAX]).await?;
    assert_eq!(ptr.span().read(ct).await?, [1, 2, 3, u64::MAX]);
    let next = node(ct).await?;
    assert_eq!(ptr.next().store(g, next).await?, next);
    let seen = ptr.next().load(g).await?;
    let marked = seen.with_frozen().with_deleted();
    assert!(marked.is_deleted() && marked.is_frozen() && marked != seen && marked.without_marks() == next);
    assert!(!marked.without_deleted().is_deleted() && marked.without_deleted().is_frozen());
    ptr.next().compare_exchange(g, seen, marked).await?.unwrap();
    let failed = ptr.next().compare_exchange(g, seen, Shared::NULL).await?.unwrap_err();
    assert_eq!(failed.current, marked);
    assert_eq!(ptr.small().read(g).await?, 200);
    assert_eq!(ptr.history().at(2).read(g).await?, 3);
    assert_eq!(ptr.at().read(g).await?.y, 20);
    assert_eq!(ptr.names().len(ct).await?, 3);
    assert_eq!(fetch!(g, ptr.{key, history, next}).await?, (-5, [1, 2, 3], marked));
    Ok(())
}

#[farfield::test]
async fn a_field_group_is_one_read_of_the_span(ct: &ComputeThread) -> Result<()> {
    let ptr = node(ct).await?;
    let g = &ct.pin();
    let before = ct.metrics();
    let (small, flag) = fetch!(g, ptr.{small, flag}).await?;
    assert_eq!((small, flag), (200, true));
    let used = ct.metrics() - before;
    assert_eq!((used.reads, used.read_bytes), (1, 8));
    fetch!(g, (Node::attach(ptr, ct).await?.this()).{key, small}).await?;
    Ok(())
}

#[remote(align = 64)]
struct Wide {
    #[marks(a, b, c, d, e, f)]
    next: Link<Wide>,
    colour: Atomic<Colour>,
    warmth: Celsius,
}

#[remote]
struct Plain {
    next: Link<Plain>,
}

#[farfield::test]
async fn a_pointer_without_declared_marks_is_its_address(ct: &ComputeThread) -> Result<()> {
    assert_eq!((size_of::<Shared<'_, Plain>>(), size_of::<Shared<'_, Wide, WideMarked>>()), (8, 16));
    let g = &ct.pin();
    let ptr = Plain::new_in(ct, Plain::init()).await?.write(ct).await?;
    let wrong = RemotePtr::from_address(Address::from_bits(ptr.address().bits() | 1));
    ptr.next().store(g, wrong).await?;
    let seen = ptr.next().load(g).await?;
    assert_eq!((seen.address(), seen.marks()), (wrong.address(), 0));
    assert!(matches!(seen.read(g).await, Err(farfield::Error::InvalidPointer(_))));
    Ok(())
}

#[farfield::test]
async fn stricter_alignment_gives_more_marks(ct: &ComputeThread) -> Result<()> {
    assert_eq!((Wide::ALIGN, Wide::SIZE), (64, 64));
    let g = &ct.pin();
    let ptr = Wide::new_in(ct, Wide::init(Celsius(-3))).await?.write(ct).await?;
    assert_eq!(ptr.address().offset() % 64, 0);
    let marked = ptr.next().load(g).await?.with_f().with_a();
    assert_eq!(marked.marks(), 0b10_0001);
    ptr.next().store(g, marked).await?;
    let seen = ptr.read(g).await?;
    assert!(seen.next.is_f() && seen.next.is_a() && !seen.next.is_b());
    assert_eq!(
        (seen.colour, seen.warmth),
        (Colour::Red, Celsius(-3)),
        "the first variant, since none is zero"
    );
    let off = RemotePtr::<Wide>::from_address(ptr.address().add(8));
    let error = off.read(g).await.unwrap_err();
    assert!(error.to_string().contains("not a multiple of 64"), "{error}");
    Ok(())
}

#[farfield::test]
async fn impossible_bits_are_an_error(ct: &ComputeThread) -> Result<()> {
    let ptr = Wide::new_in(ct, Wide::init(Celsius(0))).await?.write(ct).await?;
    let colour = ptr.colour();
    Place::<Atomic<u64>>::from_address(colour.address()).store(ct, 9).await?;
    assert!(colour.load(ct).await.unwrap_err().to_string().contains("Colour"));
    colour.store(ct, Colour::Green).await?;
    assert_eq!(colour.load(ct).await?, Colour::Green);
    Ok(())
}

mod fingerprints {
    use super::*;

    mod same {
        use super::*;
        #[remote]
        pub(super) struct Pair {
            a: u32,
            b: Atomic<u64>,
        }
    }
    mod renamed {
        use super::*;
        #[remote]
        pub(super) struct Pair {
            a: u32,
            c: Atomic<u64>,
        }
    }
    mod retyped {
        use super::*;
        #[remote]
        pub(super) struct Pair {
            a: i32,
            b: Atomic<u64>,
        }
    }
    mod moved {
        use super::*;
        #[remote]
        pub(super) struct Pair {
            b: Atomic<u64>,
            a: u32,
        }
    }
    #[remote]
    struct Pair {
        a: u32,
        b: Atomic<u64>,
    }

    #[test]
    fn only_the_same_layout_has_the_same_fingerprint() {
        use farfield::layout::Field;
        assert_eq!(Pair::FINGERPRINT, same::Pair::FINGERPRINT);
        let all = [
            Pair::FINGERPRINT,
            renamed::Pair::FINGERPRINT,
            retyped::Pair::FINGERPRINT,
            moved::Pair::FINGERPRINT,
            Node::<u64, 2>::FINGERPRINT,
            Node::<i64, 2>::FINGERPRINT,
            Node::<u64, 3>::FINGERPRINT,
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }
}

#[farfield::test]
async fn an_unpublished_object_is_edited_for_free(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let before = ct.metrics();
    let mut owned = Wide::new_in(ct, Wide::init(Celsius(1))).await?;
    let chunk = ct.metrics() - before;
    assert_eq!(
        (chunk.chains, chunk.faa, chunk.writes),
        (3, 1, 1),
        "a first allocation reads the table, takes a chunk and marks it"
    );
    let before = ct.metrics();
    owned.set(|wide| wide.warmth(), Celsius(2));
    owned.set(|wide| wide.colour(), Colour::Green);
    assert_eq!((ct.metrics() - before).chains, 0);
    let ptr = owned.write(ct).await?;
    let seen = ptr.read(g).await?;
    assert_eq!((seen.warmth, seen.colour), (Celsius(2), Colour::Green));
    Ok(())
}

#[farfield::test(threads = 3, cluster = "local:nodes=2")]
async fn tests_run_on_as_many_threads_as_asked(ct: &ComputeThread) {
    assert_eq!((ct.threads(), ct.nodes()), (3, 2));
}

#[farfield::test]
#[should_panic(expected = "no root is named `nothing`")]
async fn a_failing_test_says_why(ct: &ComputeThread) -> Result<()> {
    ct.lookup::<Point>("nothing").await.map(drop)
}
