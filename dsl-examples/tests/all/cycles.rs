//! Every traversal of a list with a cycle ends, with an error that names the place.

use farfield::Error;
use farfield::prelude::*;
use farfield_examples::{HarrisList, LazyList, LazyListNaive, MsQueue, TreiberStack};

/// The beginning of a node of any of the lists.
#[remote]
struct Node {
    key: u64,
    #[marks(deleted)]
    next: Link<Node>,
}

/// The first fields of all sorted lists.
#[remote]
struct List {
    head: RemotePtr<Node>,
    tail: RemotePtr<Node>,
}

/// Links the node of the last key to that of the first.
async fn make_cycle<L>(list: RemotePtr<L>, ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let list = List::attach(RemotePtr::from_address(list.address()), ct).await?;
    let first = list.head().next().load(g).await?.without_marks();
    let mut node = first;
    loop {
        let next = node.next().load(g).await?.without_marks();
        if next == list.tail() {
            return node.next().store(g, first).await.map(drop);
        }
        node = next;
    }
}

fn run(body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    Cluster::connect("local:").unwrap().run(1, body).unwrap();
}

#[track_caller]
fn assert_is_cycle<T>(result: Result<T>) {
    let error = result.err().expect("the traversal finds the cycle");
    assert!(matches!(error, Error::Corrupted(_)), "{error}");
    assert!(error.to_string().contains("a traversal has come back"), "{error}");
}

/// Searches for a key larger than the three keys of the list.
macro_rules! sorted_list {
    ($test:ident, $list:ident, $iter_fails_by:literal) => {
        #[test]
        fn $test() {
            run(async |ct| {
                let root = $list::<u64>::create(ct).await?;
                let list = $list::attach(root, ct).await?;
                for key in [10, 20, 30] {
                    assert!(list.insert(key, ct).await?);
                }
                make_cycle(root, ct).await?;
                assert!(list.get(20, ct).await?, "keys before the cycle's end are found");
                assert_is_cycle(list.get(40, ct).await);
                assert_is_cycle(list.insert(40, ct).await);
                assert_is_cycle(list.remove(40, ct).await);
                let error = list.iter(ct).await.err().expect("the traversal finds the cycle").to_string();
                assert!(error.contains($iter_fails_by), "{error}");
                // Debug builds detect that a node is freed twice.
                assert!(list.destroy(ct).await.is_err());
                Ok(())
            });
        }
    };
}

sorted_list!(a_lazy_list_with_a_cycle, LazyList, "out of order");
sorted_list!(a_naive_lazy_list_with_a_cycle, LazyListNaive, "out of order");
sorted_list!(a_harris_list_with_a_cycle, HarrisList, "out of order");

#[test]
fn a_cycle_ends_a_recovery() {
    run(async |ct| {
        let root = LazyList::<u64>::create(ct).await?;
        let list = LazyList::attach(root, ct).await?;
        for key in [10, 20, 30] {
            assert!(list.insert(key, ct).await?);
        }
        make_cycle(root, ct).await?;
        assert_is_cycle(list.recover(ct).await);
        Ok(())
    });
}

/// The first word of a stack or a queue points to its first node.
#[remote]
struct Ends {
    first: Link<Node>,
}

#[test]
fn stacks_and_queues_with_a_cycle() {
    run(async |ct| {
        let g = &ct.pin();
        let root = TreiberStack::<u64>::create(ct).await?;
        let stack = TreiberStack::attach(root, ct).await?;
        stack.push(1, ct).await?;
        stack.push(2, ct).await?;
        let ends = RemotePtr::<Ends>::from_address(root.address());
        let top = ends.first().load(g).await?;
        top.next().load(g).await?.without_marks().next().store(g, top).await?;
        assert!(stack.destroy(ct).await.is_err());

        let root = MsQueue::<u64>::create(ct).await?;
        let queue = MsQueue::attach(root, ct).await?;
        queue.enqueue(1, ct).await?;
        let ends = RemotePtr::<Ends>::from_address(root.address());
        let dummy = ends.first().load(g).await?;
        dummy.next().load(g).await?.without_marks().next().store(g, dummy).await?;
        assert_is_cycle(queue.enqueue(2, ct).await);
        assert!(queue.destroy(ct).await.is_err());
        Ok(())
    });
}
