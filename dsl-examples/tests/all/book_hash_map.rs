//! The programs of the book's chapter about the hash map.

use std::time::Duration;

// ANCHOR: use
use farfield::prelude::*;
use farfield_collections::HashMap;

/// Counts the words of a text, which every thread reads a part of.
async fn count(text: &str, ct: &ComputeThread) -> Result<()> {
    let root = ct.root_or_init("words", async || HashMap::<String, u64>::create(ct).await).await?;
    let counts = HashMap::attach(root, ct).await?;
    for word in text.split_whitespace().skip(ct.index()).step_by(ct.threads()) {
        counts.modify(word, |count| Some(count.unwrap_or(0) + 1), ct).await?;
    }
    ct.barrier("counted").await?;

    assert_eq!(counts.get("far", ct).await?, Some(2));
    // Several keys at once take the round trips of one; a deadline is set for any operation.
    let several = counts.get_many(&["memory", "away"], ct);
    assert_eq!(ct.within(Duration::from_secs(5), several).await?, [Some(1), None]);
    let mut words = counts.iter(ct);
    while let Some((word, count)) = words.next().await? {
        assert!(count >= 1, "{word}");
    }
    Ok(())
}
// ANCHOR_END: use

#[farfield::test(threads = 3, cluster = "local:nodes=2")]
async fn words_are_counted(ct: &ComputeThread) -> Result<()> {
    count("far memory is far", ct).await
}
