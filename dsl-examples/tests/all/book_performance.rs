//! The programs of the book's chapter "Fewer round trips", and the table of their costs.
//!
//! The naive list's operations are changed step by step until they are the lazy list's. Each step is run in the simulator for
//! every key of a list. Its cost must be a linear function of the number of nodes visited; these functions are the table in
//! `book/src/performance/steps.md`. `FARFIELD_BLESS=1` writes it anew.

use std::fmt::Write;
use std::path::Path;

use farfield::prelude::*;
use farfield_examples::lazy_list_naive::{Node, NodeMarks};
use farfield_examples::{LazyList, LazyListNaive};

type List = LazyListNaive<u64>;

// ANCHOR: find
/// Finds the neighbours between which `key` belongs, and whether the second one has it.
async fn find<'g>(
    list: &List,
    key: u64,
    g: &'g Guard<'_>,
) -> Result<(Shared<'g, Node<u64>>, Shared<'g, Node<u64>>, bool)> {
    let mut pred = list.head().shared(g);
    let mut curr = pred.next().load(g).await?.without_marks();
    loop {
        let node = curr.read(g).await?; // the key, the link and its mark
        if curr == list.tail() || node.key >= key {
            let found = curr != list.tail() && node.key == key && !node.next.is_deleted();
            return Ok((pred, curr, found));
        }
        pred = curr;
        curr = node.next.without_marks();
    }
}

async fn get(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    Ok(find(list, key, g).await?.2)
}
// ANCHOR_END: find

async fn insert_with_snapshots(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if found {
            return Ok(false);
        }
        let pred_lock = pred.lock().acquire(g).await?;
        let curr_lock = curr.lock().acquire(g).await?;
        let valid = List::are_neighbours(pred, curr, g).await?;
        if valid {
            let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
            let node = node.write(g).await?;
            pred.next().store(g, node).await?;
        }
        curr_lock.release().await?;
        pred_lock.release().await?;
        if valid {
            return Ok(true);
        }
    }
}

async fn remove_with_snapshots(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if !found {
            return Ok(false);
        }
        let pred_lock = pred.lock().acquire(g).await?;
        let curr_lock = curr.lock().acquire(g).await?;
        let valid = List::are_neighbours(pred, curr, g).await?;
        if valid {
            let next = curr.next().load(g).await?;
            curr.next().store(g, next.with_deleted()).await?;
            pred.next().store(g, next).await?;
        }
        curr_lock.release().await?;
        pred_lock.release().await?;
        if valid {
            g.sched_reclaim(curr).await?;
            return Ok(true);
        }
    }
}

async fn insert_with_lock_and_read(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if found {
            return Ok(false);
        }
        // ANCHOR: lock
        let both = [(pred.lock(), pred), (curr.lock(), curr)];
        let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
        let valid = pred_seen.next == curr && !curr_seen.next.is_deleted();
        // ANCHOR_END: lock
        if valid {
            let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
            let node = node.write(g).await?;
            pred.next().store(g, node).await?;
        }
        curr_lock.release().await?;
        pred_lock.release().await?;
        if valid {
            return Ok(true);
        }
    }
}

async fn remove_with_lock_and_read(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if !found {
            return Ok(false);
        }
        let both = [(pred.lock(), pred), (curr.lock(), curr)];
        let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
        let valid = pred_seen.next == curr && !curr_seen.next.is_deleted();
        if valid {
            let next = curr_seen.next;
            curr.next().store(g, next.with_deleted()).await?;
            pred.next().store(g, next).await?;
        }
        curr_lock.release().await?;
        pred_lock.release().await?;
        if valid {
            g.sched_reclaim(curr).await?;
            return Ok(true);
        }
    }
}

async fn insert_with_publication(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if found {
            return Ok(false);
        }
        let both = [(pred.lock(), pred), (curr.lock(), curr)];
        let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
        let valid = pred_seen.next == curr && !curr_seen.next.is_deleted();
        if valid {
            // ANCHOR: publish
            let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
            pred.next().store(g, node).await?;
            // ANCHOR_END: publish
        }
        curr_lock.release().await?;
        pred_lock.release().await?;
        if valid {
            return Ok(true);
        }
    }
}

async fn insert_in_one_chain(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if found {
            return Ok(false);
        }
        let both = [(pred.lock(), pred), (curr.lock(), curr)];
        let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
        let valid = pred_seen.next == curr && !curr_seen.next.is_deleted();
        // ANCHOR: chain
        let link = if valid {
            let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
            Some(op::store(pred.next(), node))
        } else {
            None
        };
        g.chain((link, op::release(curr_lock), op::release(pred_lock))).submit().await?;
        // ANCHOR_END: chain
        if valid {
            return Ok(true);
        }
    }
}

async fn remove_in_one_chain(list: &List, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    loop {
        let (pred, curr, found) = find(list, key, g).await?;
        if !found {
            return Ok(false);
        }
        let both = [(pred.lock(), pred), (curr.lock(), curr)];
        let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
        let valid = pred_seen.next == curr && !curr_seen.next.is_deleted();
        let next = curr_seen.next;
        let unlink =
            valid.then(|| (op::store(curr.next(), next.with_deleted()), op::store(pred.next(), next)));
        g.chain((unlink, op::release(curr_lock), op::release(pred_lock))).submit().await?;
        if valid {
            g.sched_reclaim(curr).await?;
            return Ok(true);
        }
    }
}

// ---- counting --------------------------------------------------------------------------------------------------

/// The round trips as a function of the nodes visited: `slope * h + constant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    slope: i64,
    constant: i64,
}

impl Line {
    /// The line through all points.
    fn through(points: &[(i64, i64)]) -> Self {
        let [(h0, y0), (h1, y1)] = [points[0], points[1]];
        let slope = (y1 - y0) / (h1 - h0);
        let line = Self { slope, constant: y0 - slope * h0 };
        for (h, y) in points {
            assert_eq!(line.slope * h + line.constant, *y, "{points:?} are not on a line");
        }
        line
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slope = if self.slope == 1 { String::new() } else { self.slope.to_string() };
        match self.constant {
            0 => write!(f, "{slope}h"),
            constant if constant < 0 => write!(f, "{slope}h - {}", -constant),
            constant => write!(f, "{slope}h + {constant}"),
        }
    }
}

/// The round trips of `operation` as a function of the nodes it visits, from all keys of the list. A search visits the head and all
/// nodes up to the key or its successor.
async fn line(
    ct: &ComputeThread,
    first_key: u64,
    before: impl AsyncFn(u64) -> Result<bool>,
    operation: impl AsyncFn(u64) -> Result<bool>,
    after: impl AsyncFn(u64) -> Result<bool>,
) -> Result<Line> {
    let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
    let mut points = Vec::new();
    for key in (first_key..2 * KEYS - 2).step_by(2) {
        before(key).await?;
        ct.flush().await?;
        let began = ct.now();
        assert!(operation(key).await?, "{key}");
        let took = ct.now().saturating_sub(began).as_nanos();
        assert!(took.is_multiple_of(rtt), "{took} ns are no whole number of round trips");
        points.push((key.div_ceil(2).cast_signed() + 2, (took / rtt) as i64));
        after(key).await?;
    }
    Ok(Line::through(&points))
}

/// The keys in the list are the even ones below `2 * KEYS`.
const KEYS: u64 = 12;

/// The costs of `get`, `insert` and `remove`.
async fn lines(
    ct: &ComputeThread,
    get: impl AsyncFn(u64) -> Result<bool>,
    insert: impl AsyncFn(u64) -> Result<bool>,
    remove: impl AsyncFn(u64) -> Result<bool>,
) -> Result<[Line; 3]> {
    let nothing = async |_| Ok(true);
    for key in 0..KEYS {
        assert!(insert(2 * key).await?);
    }
    Ok([
        line(ct, 0, nothing, &get, nothing).await?,
        line(ct, 1, nothing, &insert, &remove).await?,
        line(ct, 1, &insert, &remove, nothing).await?,
    ])
}

/// Each step with its costs.
async fn steps(ct: &ComputeThread) -> Result<Vec<(&'static str, [Line; 3])>> {
    let mut steps = Vec::new();
    macro_rules! step {
        ($name:literal, $get:path, $insert:path, $remove:path) => {
            let list = &List::attach(List::create(ct).await?, ct).await?;
            let lines = lines(
                ct,
                async |key| $get(list, key, ct).await,
                async |key| $insert(list, key, ct).await,
                async |key| $remove(list, key, ct).await,
            );
            steps.push(($name, lines.await?));
        };
    }
    step!("the naive list", List::get, List::insert, List::remove);
    step!("whole nodes", get, insert_with_snapshots, remove_with_snapshots);
    step!("lock and read", get, insert_with_lock_and_read, remove_with_lock_and_read);
    step!("publication", get, insert_with_publication, remove_with_lock_and_read);
    step!("one last chain", get, insert_in_one_chain, remove_in_one_chain);
    let list = &LazyList::attach(LazyList::create(ct).await?, ct).await?;
    let frugal = lines(
        ct,
        async |key| list.get(key, ct).await,
        async |key| list.insert(key, ct).await,
        async |key| list.remove(key, ct).await,
    );
    steps.push(("`LazyList`", frugal.await?));
    Ok(steps)
}

#[test]
fn each_step_costs_what_the_book_says() {
    let url = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,compute=0,leaks=ignore";
    let steps = Cluster::connect(url).unwrap().run(1, steps).unwrap().remove(0);
    let mut table = "| | `get` | `insert` | `remove` |\n|---|---|---|---|\n".to_owned();
    for (name, [get, insert, remove]) in &steps {
        writeln!(table, "| {name} | {get} | {insert} | {remove} |").unwrap();
    }
    assert_eq!(steps[4].1, steps[5].1, "the last step is the lazy list");
    for pair in steps.windows(2) {
        for (before, after) in pair[0].1.iter().zip(pair[1].1) {
            let cost = |line: &Line| (line.slope, line.constant);
            assert!(cost(&after) <= cost(before), "{} to {}", pair[0].0, pair[1].0);
        }
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/performance/steps.md");
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &table).unwrap();
    }
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, table, "book/src/performance/steps.md; FARFIELD_BLESS=1 writes it anew");
}
