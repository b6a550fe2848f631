//! The macros work in a program that depends on the crate under another name.

use renamed::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
#[word(crate = ::renamed)]
#[repr(u16)]
enum Colour {
    Red,
    Green,
}

#[remote(crate = ::renamed)]
struct Node {
    colour: Colour,
    counts: [Atomic<u64>; 2],
    #[marks(deleted)]
    next: Link<Node>,
}

#[derive(Message)]
#[message(crate = ::renamed)]
enum Change {
    Set(u64),
    Clear,
}

struct Counter(u64);

#[delegated(crate = ::renamed)]
impl Counter {
    fn change(&mut self, change: Change) -> u64 {
        self.0 = if let Change::Set(value) = change { value } else { 0 };
        self.0
    }
}

#[renamed::test(crate = ::renamed, threads = 2)]
async fn a_renamed_crate_is_found(ct: &ComputeThread) -> renamed::Result<()> {
    let g = &ct.pin();
    let node = Node::new_in(ct, Node::init(Colour::Green)).await?.write(ct).await?;
    let (colour, next) = fetch!(crate = ::renamed, g, node.{colour, next}).await?;
    assert_eq!(colour, Colour::Green);
    assert!(!next.is_deleted());
    assert_eq!(Colour::Red as u16, 0);
    let counter = CounterClient::entrust(ct, Counter(1)).await?;
    assert_eq!(counter.change(ct, Change::Set(7)).await?, 7);
    assert_eq!(counter.change(ct, Change::Clear).await?, 0);
    Ok(())
}
