use farfield::prelude::*;

#[tag(size: 8)]
struct SlotTag;

#[tag(size: 8)]
struct OtherTag;

#[remote]
struct Bucket {
    slot: TaggedLink<Bucket, SlotTag>,
}

async fn store(bucket: Shared<'_, Bucket>, g: &Guard<'_>) -> farfield::Result<()> {
    bucket.slot().store(g, bucket, OtherTag::new(1)).await?;
    Ok(())
}

fn main() {}
