//! Words that are accessed without futures, where far memory is memory of this process.

use farfield::prelude::*;
use farfield::{Error, RemotePtr};

#[remote]
struct Cells {
    count: Atomic<u64>,
    is_open: Atomic<bool>,
}

#[farfield::test(cluster = "local:")]
async fn its_operations_are_those_of_the_place(ct: &ComputeThread) -> Result<()> {
    let cells = Cells::new_in(ct, Cells::init().count(3)).await?.write(ct).await?;
    let before = ct.metrics();
    let count = cells.count().immediate(ct).expect("memory of this process");
    assert_eq!(count.load()?, 3);
    assert_eq!(count.compare_exchange(3, 4)?, Ok(3));
    assert_eq!(count.compare_exchange(3, 5)?, Err(4));
    // A hint is no operation.
    count.prefetch(1);
    let made = ct.metrics() - before;
    assert_eq!((made.reads, made.cas, made.cas_failed), (1, 2, 1), "they are counted");
    assert_eq!(cells.count().load(ct).await?, 4);
    Ok(())
}

#[farfield::test(cluster = "local:size=1MiB")]
async fn a_value_that_is_none_of_its_type_is_refused(ct: &ComputeThread) -> Result<()> {
    let cells = Cells::new_in(ct, Cells::init()).await?.write(ct).await?;
    let is_open = cells.is_open().immediate(ct).expect("memory of this process");
    assert_eq!(is_open.compare_exchange(false, true)?, Ok(false));
    // The same word, as another type.
    let word = Place::<Atomic<u64>>::from_address(cells.is_open().address());
    word.store(ct, 7).await?;
    assert!(matches!(is_open.load(), Err(Error::InvalidValue(_))));
    assert!(matches!(is_open.compare_exchange(true, false), Err(Error::InvalidValue(_))));
    Ok(())
}

#[farfield::test(cluster = "local:nodes=2,size=1MiB")]
async fn each_word_of_a_segment_is_found_and_no_other(ct: &ComputeThread) -> Result<()> {
    for node in 0..2 {
        for offset in [(1 << 20) - 8, (1 << 20) - 128, 1 << 19] {
            let place = Place::<Atomic<u64>>::from_address(farfield::Address::new(node, offset));
            let word = place.immediate(ct).expect("a word of the segment");
            let found = word.load()?;
            assert_eq!(word.compare_exchange(found, found)?, Ok(found));
            assert_eq!(place.load(ct).await?, found);
        }
        let end = Place::<Atomic<u64>>::from_address(farfield::Address::new(node, 1 << 20));
        assert!(end.immediate(ct).is_none());
    }
    assert!(RemotePtr::<Cells>::NULL.count().immediate(ct).is_none(), "null");
    Ok(())
}

#[test]
fn there_are_none_where_operations_take_time() -> Result<()> {
    for url in ["local:delay=3", "sim:"] {
        Cluster::connect(url)?.run(1, async |ct| {
            let cells = Cells::new_in(ct, Cells::init()).await?.write(ct).await?;
            assert!(cells.count().immediate(ct).is_none(), "{url}");
            ct.delete(cells).await
        })?;
    }
    Ok(())
}
