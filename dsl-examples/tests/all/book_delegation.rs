//! The programs of the book's chapter "Delegation".

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farfield::prelude::*;
use farfield::{Error, Reaction, StoredTrust};

const CLUSTERS: [&str; 2] = ["local:", "sim:"];

fn on_all<R: Send>(threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync) -> Vec<R> {
    let run = |url| Cluster::connect(url).unwrap().run(threads, &body).unwrap();
    CLUSTERS.map(run).into_iter().flatten().collect()
}

// ANCHOR: first
/// Stock by article: a map of the standard library, which belongs to one thread.
type Stock = BTreeMap<String, u64>;

async fn stock(ct: &ComputeThread) -> Result<Trust<Stock>> {
    let made = async || ct.entrust(Stock::new()).await?.store(ct).await;
    let root = ct.root_or_init("stock", made).await?;
    Trust::open(root, ct).await
}

/// Adds to an article, and returns how many there are.
async fn deliver(stock: &Trust<Stock>, article: &str, count: u64, ct: &ComputeThread) -> Result<u64> {
    stock
        .apply(ct, (article.to_owned(), count), |stock, (article, count)| {
            let all = stock.entry(article).or_default();
            *all += count;
            *all
        })
        .await
}
// ANCHOR_END: first

#[test]
fn threads_share_a_map_of_the_standard_library() {
    let counts = on_all(3, async |ct| {
        let stock = stock(ct).await?;
        deliver(&stock, "apples", 1 + ct.index() as u64, ct).await?;
        ct.barrier("delivered").await?;
        let count = deliver(&stock, "apples", 0, ct).await?;
        ct.barrier("read").await?;
        Ok(count)
    });
    assert_eq!(counts, [6; 6]);
}

#[test]
fn requests_made_together_share_a_message() {
    let counts = on_all(2, async |ct| {
        let stock = stock(ct).await?;
        // ANCHOR: tasks
        // Sixteen requests at a time, in one batch: about one round trip for all.
        let counts = ct.tasks(16, async |_| deliver(&stock, "pears", 1, ct).await).await?;
        // ANCHOR_END: tasks
        ct.barrier("delivered").await?;
        Ok(counts.len() as u64)
    });
    assert_eq!(counts, [16; 4]);
}

#[test]
fn results_may_be_dropped_or_passed_to_a_closure() {
    let seen = on_all(2, async |ct| {
        let stock = stock(ct).await?;
        let total = Rc::new(Cell::new(0));
        // ANCHOR: post
        // Waits for nothing, and is told nothing.
        stock.post(ct, (), |stock, ()| stock.clear()).await?;

        // Waits for nothing, and is told later, on this thread.
        let (kept, kinds) = (Rc::clone(&total), |stock: &mut Stock, ()| stock.len() as u64);
        let then = move |kinds: Result<u64>| {
            if let Ok(kinds) = kinds {
                kept.set(kinds + 1);
            }
        };
        stock.apply_then(ct, (), kinds, then).await?;
        // ANCHOR_END: post
        while total.get() == 0 {
            ct.sleep(std::time::Duration::from_micros(5)).await;
        }
        ct.barrier("seen").await?;
        Ok(total.get())
    });
    assert_eq!(seen, [1; 4]);
}

// ANCHOR: handles
/// A room's members. Each is a value of another thread.
#[derive(Default)]
struct Room {
    members: Vec<Trust<Inbox>>,
}

#[derive(Default)]
struct Inbox {
    messages: Vec<String>,
}

/// Joins: a handle of this thread's inbox goes to the room's trustee.
async fn join(room: &Trust<Room>, ct: &ComputeThread) -> Result<Trust<Inbox>> {
    let inbox = ct.entrust(Inbox::default()).await?;
    room.apply(ct, inbox.clone(), |room, member: Trust<Inbox>| room.members.push(member)).await?;
    Ok(inbox)
}

/// Runs at the room's trustee: passes a message on to all members, and waits for none.
fn say(room: &mut Room, context: &Context<'_>, message: String) -> u64 {
    for member in &room.members {
        let receive = |inbox: &mut Inbox, message: String| inbox.messages.push(message);
        // A member whose thread has ended misses it.
        let _ = context.post(member, message.clone(), receive);
    }
    room.members.len() as u64
}
// ANCHOR_END: handles

#[test]
fn delegated_code_requests_from_others() {
    let heard = on_all(3, async |ct| {
        let made = async || ct.entrust(Room::default()).await?.store(ct).await;
        let stored: RemotePtr<StoredTrust<Room>> = ct.root_or_init("room", made).await?;
        let room = Trust::open(stored, ct).await?;
        let inbox = join(&room, ct).await?;
        ct.barrier("joined").await?;
        // ANCHOR: say
        let members = room.apply_with(ct, format!("hello from {}", ct.index()), say).await?;
        // ANCHOR_END: say
        assert_eq!(members, 3);
        let count = |inbox: &mut Inbox, ()| inbox.messages.len() as u64;
        while inbox.apply(ct, (), count).await? < 3 {
            ct.sleep(std::time::Duration::from_micros(5)).await;
        }
        ct.barrier("heard").await?;
        if ct.index() == 0 {
            room.apply(ct, (), |room, ()| room.members.clear()).await?;
        }
        ct.barrier("cleared").await?;
        inbox.apply(ct, (), count).await
    });
    assert_eq!(heard, [3; 6]);
}

// ANCHOR: methods
/// Goods on a shelf.
pub struct Shelf(u64);

#[delegated]
impl Shelf {
    /// Takes as many of the wanted goods off the shelf as there are, and returns their number.
    pub fn take(&mut self, wanted: u64) -> u64 {
        let taken = wanted.min(self.0);
        self.0 -= taken;
        taken
    }
}

/// The till of a shop.
#[derive(Default)]
pub struct Till {
    wanted: u64,
    sold: u64,
}

#[delegated]
impl Till {
    /// Runs at the till's trustee: requests goods from the shelf's, and counts those that it gets.
    pub fn sell(&mut self, context: &Context<'_>, from: ShelfClient, me: TillClient, wanted: u64) -> bool {
        self.wanted += wanted;
        let count = move |taken: Result<u64>, reaction: &Reaction<'_>| {
            // There are no goods on a shelf whose thread has ended.
            reaction.with(&me, |till| till.sold += taken.unwrap_or(0));
        };
        from.via(context).take(wanted).apply_then(count).is_ok()
    }

    /// Returns the numbers of goods that were wanted and sold.
    pub fn count(&self) -> (u64, u64) {
        (self.wanted, self.sold)
    }
}
// ANCHOR_END: methods

#[test]
fn delegated_code_requests_methods_of_others() {
    let sold = on_all(3, async |ct| {
        // ANCHOR: sell
        let made = async || Trust::from(ShelfClient::entrust(ct, Shelf(8)).await?).store(ct).await;
        let shelf = ShelfClient::open(ct.root_or_init("shelf", made).await?, ct).await?;
        let till = TillClient::entrust(ct, Till::default()).await?;
        till.sell(ct, shelf, till.clone(), 3).await?;
        // ANCHOR_END: sell
        while till.count(ct).await?.1 == 0 {
            ct.sleep(std::time::Duration::from_micros(5)).await;
        }
        let (3, sold) = till.count(ct).await? else { panic!("three were wanted") };
        ct.barrier("sold").await?;
        Ok(sold)
    });
    assert!(sold.chunks(3).all(|shop| shop.iter().sum::<u64>() == 8), "{sold:?}");
}

// ANCHOR: errors
/// What became of a delivery.
#[derive(Debug, PartialEq, Eq)]
enum Delivery {
    Counted(u64),
    /// Nothing was delivered: it can be repeated, elsewhere.
    NotMade,
    /// It was made, or was not.
    Unknown,
}

async fn try_to_deliver(stock: &Trust<Stock>, ct: &ComputeThread) -> Result<Delivery> {
    match deliver(stock, "plums", 1, ct).await {
        Ok(count) => Ok(Delivery::Counted(count)),
        Err(Error::TrusteeGone(gone)) if gone.may_have_run => Ok(Delivery::Unknown),
        Err(Error::TrusteeGone(_)) => Ok(Delivery::NotMade),
        Err(error) => Err(error),
    }
}
// ANCHOR_END: errors

#[test]
fn a_client_knows_whether_its_request_was_executed() {
    on_all(2, async |ct| {
        if ct.index() == 0 {
            stock(ct).await?;
        }
        ct.barrier("made").await?;
        let stock = stock(ct).await?;
        ct.barrier("opened").await?;
        if ct.index() == 1 {
            // Thread 0 ends meanwhile, in order.
            loop {
                match try_to_deliver(&stock, ct).await? {
                    Delivery::Counted(_) => ct.yield_now().await,
                    other => {
                        assert_eq!(other, Delivery::NotMade);
                        break;
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_panic_is_the_caller_s_error() {
    let said = on_all(2, async |ct| {
        let stock = stock(ct).await?;
        let taken = stock.apply(ct, "figs".to_owned(), |stock, article: String| -> u64 { stock[&article] });
        let error = taken.await.unwrap_err();
        ct.barrier("panicked").await?;
        // The trustee lives on.
        deliver(&stock, "figs", 1, ct).await?;
        ct.barrier("delivered").await?;
        Ok(error.to_string())
    });
    assert!(said.iter().all(|said| said.contains("panicked")), "{said:?}");
}
