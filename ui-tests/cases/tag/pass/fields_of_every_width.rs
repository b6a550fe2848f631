#![deny(warnings)]

use farfield::prelude::*;

/// Every kind of field.
#[tag(small: 1, flag, large: 9, r#type: 3)]
pub struct SlotTag;

mod inner {
    /// The tag of another module, of all bits.
    #[farfield::tag(crate = ::farfield, all: 16)]
    pub(crate) struct FullTag;
}

#[remote]
struct Bucket {
    slot: TaggedLink<Bucket, SlotTag>,
    full: [TaggedLink<Bucket, inner::FullTag>; 2],
}

const TAG: SlotTag = SlotTag::new(1, true, 511, 5).with_small(0);

#[farfield::main]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    let g = &ct.pin();
    let first = TaggedWord::new(RemotePtr::NULL, TAG)?;
    let bucket = Bucket::new_in(ct, Bucket::init().slot(first)).await?.write(ct).await?;
    let seen = bucket.slot().load(g).await?.tag();
    assert_eq!((seen.small(), seen.flag(), seen.large(), seen.r#type()), (0, true, 511, 5));
    assert_eq!(format!("{seen:?}"), "SlotTag { small: 0, flag: true, large: 511, type: 5 }");
    let full = bucket.full().at(1);
    full.store(g, bucket, inner::FullTag::new(0xffff)).await?;
    assert_eq!(bucket.read(g).await?.full[1].tag().all(), 0xffff);
    Ok(())
}
