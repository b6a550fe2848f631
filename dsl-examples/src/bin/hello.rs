//! Hello, far memory: four threads greet each other through one counter.

// ANCHOR: hello
use farfield::prelude::*;
use farfield_examples::Counter;

#[farfield::main(threads = 4)]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    // One thread makes the counter, the others find it by its name.
    let root = ct.root_or_init("greetings", async || Counter::create(ct).await).await?;
    let greetings = Counter::attach(root, ct).await?;

    greetings.add(1, ct).await?;
    ct.barrier("all have greeted").await?;

    if ct.index() == 0 {
        println!("{} threads say hello, far memory", greetings.get(ct).await?);
    }
    Ok(())
}
// ANCHOR_END: hello
