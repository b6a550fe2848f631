//! The programs of the book's reference of the macros: a struct with every kind of field, a delegated type, and their use.

use std::cell::Cell;
use std::path::Path;

// ANCHOR: words
use farfield::prelude::*;

/// A newtype around a word is a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Word)]
struct Priority(u16);

/// So is an enum without fields whose size is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
#[repr(u8)]
enum State {
    Waiting,
    Running,
    Done,
}
// ANCHOR_END: words

// ANCHOR: nested
/// Part of a job.
#[remote]
struct Progress {
    total: u64,
    done: Atomic<u64>,
}
// ANCHOR_END: nested

// ANCHOR: job
/// A job of up to `N` steps, in a list of jobs.
#[remote]
pub struct Job<K: Word, const N: usize>
where
    K: Ord,
{
    /// Plain: frozen once the job is published.
    id: K,
    priority: Priority,
    /// An array of plain values.
    limits: [u32; 2],
    /// An atomic word, and an array of them.
    state: Atomic<State>,
    steps: [Atomic<u64>; N],
    /// A link with two named marks.
    #[marks(cancelled, urgent)]
    next: Link<Job<K, N>>,
    /// Mutual exclusion.
    lock: Lock,
    /// A struct in the struct.
    progress: Progress,
    /// Several words, read whole or not at all.
    window: Versioned<[u64; 3]>,
    /// In the handle only.
    #[local]
    looked_at: Cell<u64>,
    #[local(default = "job".to_owned())]
    label: String,
    /// Its length differs from job to job.
    arguments: Tail<u16>,
}
// ANCHOR_END: job

// ANCHOR: create
impl<K: Word + Ord, const N: usize> Job<K, N> {
    /// "New": allocates a job in far memory.
    pub async fn create(id: K, arguments: Vec<u16>, ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        // One argument for each field that has no default, in order…
        let init = Self::init(id, Priority(3), [10, 20], Progress::init(100), [0; 3], arguments);
        // …and setters for the others.
        let init = init.steps([7; N]).state(State::Waiting);
        Self::new_in(ct, init).await?.write(ct).await
    }

    /// Methods reach far memory through places, and the handle through `self`.
    pub async fn advance(&self, by: u64, ct: &ComputeThread) -> Result<u64> {
        self.looked_at.set(self.looked_at.get() + 1);
        let done = self.progress().done().fetch_add(ct, by).await? + by;
        if done >= self.progress().total() {
            self.state().store(ct, State::Done).await?;
        }
        Ok(done)
    }
}
// ANCHOR_END: create

// ANCHOR: use
#[farfield::test(threads = 2)]
async fn a_job_is_shared(ct: &ComputeThread) -> Result<()> {
    let root = ct.root_or_init("job", async || Job::<u64, 4>::create(42, vec![1, 2, 3], ct).await).await?;

    // "new": a handle of this thread's own. One READ of the frozen fields.
    let job = Job::attach(root, ct).await?;
    assert_eq!((job.id(), job.priority(), job.limits()), (42, Priority(3), [10, 20]));
    assert_eq!((job.label.as_str(), job.this()), ("job", root));

    // On a handle an array is an array, here of places; a nested struct is a handle; a tail knows its length.
    job.steps()[3].fetch_add(ct, 1).await?;
    assert_eq!(job.progress().total(), 100);
    assert_eq!(job.arguments().len(), 3);

    job.advance(50, ct).await?;
    ct.barrier("advanced").await?;
    assert_eq!(job.state().load(ct).await?, State::Done);
    assert_eq!(job.steps()[3].load(ct).await?, 9);
    assert_eq!(job.looked_at.get(), 1);
    Ok(())
}
// ANCHOR_END: use

// ANCHOR: places
#[farfield::test]
async fn every_kind_of_field(ct: &ComputeThread) -> Result<()> {
    let job = Job::<u64, 2>::create(1, vec![5, 6], ct).await?;
    let g = &ct.pin();

    // Atomics. `job` is a pointer here: an array's place gives those of its elements.
    assert_eq!(job.steps().at(1).fetch_add(ct, 1).await?, 7);
    let changed = job.state().compare_exchange(ct, State::Waiting, State::Running).await?;
    assert_eq!(changed, Ok(State::Waiting));

    // Links and their marks.
    let next =
        Job::new_in(ct.near(job), Job::init(2, Priority(0), [0, 0], Progress::init(1), [0; 3], vec![]))
            .await?;
    let next = job.next().store(g, next).await?;
    let marked = next.with_cancelled();
    job.next().compare_exchange(g, next, marked).await?.unwrap();
    let seen = job.next().load(g).await?;
    assert!(seen.is_cancelled() && !seen.is_urgent());
    assert_eq!(seen.without_marks(), next);

    // Locks.
    let guard = job.lock().acquire(ct).await?;
    assert!(job.lock().try_acquire(ct).await?.is_none());
    guard.release().await?;

    // Values of several words.
    job.window().write(ct, [1, 2, 3]).await?;
    assert_eq!(job.window().read(ct).await?, [1, 2, 3]);

    // Tails.
    assert_eq!(job.arguments().len(ct).await?, 2);
    assert_eq!(job.arguments().at(1).read(g).await?, 6);

    // All fields, by one READ.
    let seen = job.read(g).await?;
    assert_eq!((seen.id, seen.steps, seen.progress.total), (1, [7, 8], 100));
    assert_eq!(seen.arguments.read(g).await?, [5, 6]);
    Ok(())
}
// ANCHOR_END: places

// ANCHOR: message
/// A message: what a request and its result can contain.
#[derive(Clone, Debug, PartialEq, Message)]
struct Bid {
    bidder: String,
    cents: u64,
}

/// An enum is one, too.
#[derive(Debug, PartialEq, Message)]
enum Outcome {
    Highest,
    Below(Bid),
}
// ANCHOR_END: message

// ANCHOR: delegated
/// An ordinary type: the thread that has a value is the only one that touches it.
#[derive(Default)]
struct Auction {
    bids: Vec<Bid>,
}

#[delegated]
impl Auction {
    /// Each method of the block gets a method of `AuctionClient`, which other threads can call.
    pub(crate) fn bid(&mut self, bid: Bid) -> Outcome {
        match self.bids.last() {
            Some(highest) if highest.cents >= bid.cents => Outcome::Below(highest.clone()),
            _ => {
                self.bids.push(bid);
                Outcome::Highest
            }
        }
    }

    /// After `self`, a method may take a context, through which it makes requests of its own.
    pub(crate) fn close(&mut self, context: &Context<'_>, archive: ArchiveClient) -> Option<Bid> {
        let highest = self.bids.pop();
        if let Some(bid) = highest.clone() {
            context.post(&archive, bid, Archive::keep).ok()?;
        }
        highest
    }
}

struct Archive(Vec<Bid>);

#[delegated]
impl Archive {
    pub(crate) fn keep(&mut self, bid: Bid) {
        self.0.push(bid);
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}
// ANCHOR_END: delegated

// ANCHOR: client
#[farfield::test(threads = 2)]
async fn an_auction_is_held(ct: &ComputeThread) -> Result<()> {
    if ct.index() == 0 {
        // This thread is the trustee of the value: it executes requests while it waits.
        let auction = AuctionClient::entrust(ct, Auction::default()).await?;
        ct.publish("auction", Trust::from(auction).store(ct).await?).await?;
    }
    ct.barrier("open").await?;

    // A client is a handle of the value. Each of its methods costs one round trip.
    let auction = AuctionClient::open(ct.lookup("auction").await?, ct).await?;
    let bid = Bid { bidder: format!("thread {}", ct.index()), cents: 100 + ct.index() as u64 };
    let outcome = auction.bid(ct, bid).await?;
    assert!(ct.index() == 0 || outcome == Outcome::Highest);
    ct.barrier("bids are made").await?;

    if ct.index() == 1 {
        // Clients are messages.
        let archive = ArchiveClient::entrust(ct, Archive(vec![])).await?;
        let highest = auction.close(ct, archive.clone()).await?;
        assert_eq!(highest.map(|bid| bid.cents), Some(101));
        while archive.len(ct).await? == 0 {
            ct.yield_now().await;
        }
    }
    ct.barrier("closed").await
}
// ANCHOR_END: client

/// The book's drawing of a job's layout shows the macro's layout. `FARFIELD_BLESS=1` writes its text anew.
#[test]
fn the_drawing_of_a_job_shows_its_layout() {
    use std::fmt::Write;

    use farfield::Remote;

    type Drawn = Job<u64, 2>;
    let mut text = format!("struct Job {}\n", <Drawn as Remote>::SIZE);
    for field in <Drawn as Remote>::FIELDS {
        let kind = match (field.shape.tail_stride, field.shape.frozen) {
            (0, false) => "place".to_owned(),
            (0, true) => "frozen".to_owned(),
            (stride, _) => format!("tail {stride}"),
        };
        writeln!(text, "field {} {} {} {kind}", field.name, field.offset, field.shape.size).unwrap();
    }
    // The handle's own fields: the compiler checks that they exist.
    let locals = |job: &Drawn| (size_of_val(&job.looked_at), size_of_val(&job.label));
    let _ = locals;
    text.push_str("local looked_at\nlocal label\n");

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/drawings/layout.txt");
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, text, "book/drawings/layout.txt");
}
