//! The small programs of the book's chapter "More data than memory".

use std::time::Duration;

use farfield::prelude::*;
use farfield::{ClientOptions, Error};
use farfield_kv::{FarStore, Options, Store};

// ANCHOR: first
async fn visits(ct: &ComputeThread) -> Result<()> {
    let mut options = Options::default();
    options.local_bytes = 2 << 20; // the budget: index, pages and records in local memory
    options.far_bytes = 32 << 20; // at most so much far memory for pages
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
    let mut options = Options::default().with_key([7; 32]); // or with_key_file
    (options.local_bytes, options.far_bytes) = (2 << 20, 32 << 20);
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
    let without_key = FarStore::start(&cluster, "sessions", &options(), 1).await;
    let refused: Error = without_key.unwrap_err();
    assert!(refused.to_string().contains("it has a key, and none was given"), "{refused}");
    Ok(())
}

fn options() -> Options {
    let mut options = Options::default();
    (options.local_bytes, options.far_bytes) = (2 << 20, 32 << 20);
    options
}
