//! The small programs of the book's chapter "More data than memory".

use std::time::Duration;

use farfield::prelude::*;
use farfield::{ClientOptions, Error};
use farfield_kv::{FarStore, Options, Store};

// ANCHOR: first
async fn visits(ct: &ComputeThread) -> Result<()> {
    // 2 MiB of local memory, the budget of index, pages and records; at most 32 MiB of far memory for pages
    let options = Options::new(2 << 20, 32 << 20);
    let store = Store::open("visits", &options, ct).await?;

    store.write(b"/index.html     ", b"1", false, ct).await?;
    store.update(b"/index.html     ", b"2", false, ct).await?;
    assert_eq!(store.read(b"/index.html     ", ct).await?.as_deref(), Some(&b"2"[..]));
    assert!(store.delete(b"/index.html     ", ct).await?);
    assert_eq!(store.read(b"/index.html     ", ct).await?, None);
    Ok(())
}
// ANCHOR_END: first

#[test]
fn a_store_is_used_by_compute_threads() {
    Cluster::connect("local:size=64MiB").unwrap().run(1, visits).unwrap();
}

// ANCHOR: handle
async fn serve(cluster: &Cluster) -> Result<()> {
    let options = Options::new(2 << 20, 32 << 20).with_key([7; 32]); // or with_key_file
    let mut of_client = ClientOptions::new();
    (of_client.threads, of_client.deadline) = (2, Some(Duration::from_secs(1)));
    let store = FarStore::start_with(cluster, "sessions", &options, &of_client).await?;

    store.write(*b"session 00000001", "secret", true).await?; // encrypted
    let found = store.get_many(vec![*b"session 00000001", *b"session 00000002"]).await?;
    assert_eq!(found, [Some(b"secret".to_vec()), None]);
    store.stop().await
}
// ANCHOR_END: handle

#[tokio::test]
async fn a_store_is_used_by_any_executor() -> Result<()> {
    let cluster = Cluster::connect("local:size=64MiB")?;
    serve(&cluster).await?;
    let without_key = FarStore::start(&cluster, "sessions", &Options::new(2 << 20, 32 << 20), 1).await;
    let refused: Error = without_key.unwrap_err();
    assert!(refused.to_string().contains("it has a key, and none was given"), "{refused}");
    Ok(())
}
