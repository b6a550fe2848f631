//! The book's listings of tags and byte strings.

use farfield::prelude::*;

// ANCHOR: tag
/// What a bucket knows of an entry without reading it.
#[tag(fingerprint: 7, size: 8, moved)]
pub struct SlotTag;

/// Some slots.
#[remote]
pub struct Bucket {
    slots: [TaggedLink<Blob, SlotTag>; 7],
}
// ANCHOR_END: tag

/// Makes the entry of a slot, if the slot is free. Returns whether it was.
async fn insert(slot: Place<'_, TaggedLink<Blob, SlotTag>>, name: &str, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    let fingerprint = name.bytes().fold(0, u8::wrapping_add) & 0x7f;
    // ANCHOR: blob
    let entry = Blob::new_in(ct, name).await?;
    let tag = SlotTag::new(fingerprint, Blob::class(&entry).number(), false);
    let stored = slot.compare_exchange(g, TaggedWord::default(), entry, tag).await?; // one round trip

    let seen = slot.load(g).await?;
    if let Some(class) = SizeClass::from_number(seen.tag().size()) {
        let bytes = seen.shared().read_bytes(class, g).await?; // one READ, of at most a fifth more than its bytes
        assert!(!bytes.is_empty());
    }
    // ANCHOR_END: blob
    Ok(stored.is_ok())
}

/// Marks the entry of a slot as moved, unless it has changed since. Returns whether it has.
async fn mark_moved(slot: Place<'_, TaggedLink<Blob, SlotTag>>, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    // ANCHOR: exchange
    let seen = slot.load(g).await?;
    let moved = TaggedWord::new(seen.shared().as_ptr(), seen.tag().with_moved(true))?;
    let (exchanged, now) =
        g.chain((op::compare_exchange_link(slot, seen, moved), op::load(slot))).submit().await?;
    assert!(exchanged.is_err() || TaggedWord::from(now) == moved);
    // ANCHOR_END: exchange
    Ok(exchanged.is_ok())
}

#[farfield::test]
async fn an_entry_is_inserted_once_and_marked(ct: &ComputeThread) -> Result<()> {
    ct.check_compressible()?;
    let bucket = Bucket::new_in(ct, Bucket::init()).await?.write(ct).await?;
    let slot = bucket.slots().at(3);
    assert!(insert(slot, "Ada", ct).await? && !insert(slot, "Grace", ct).await?);
    assert!(mark_moved(slot, ct).await?);
    let g = &ct.pin();
    let seen = slot.load(g).await?;
    assert!(seen.tag().moved() && !seen.is_null());
    slot.store(g, RemotePtr::NULL, SlotTag::default()).await?;
    g.sched_reclaim(seen.shared()).await?;
    ct.delete(bucket).await
}
