//! Arrays on all fabrics: ranges, single elements, shares, what they cost, and what is refused.

use farfield::prelude::*;
use farfield::{Error, Word};
use farfield_collections::Array;

use crate::clusters::{EXACT, everywhere};

#[test]
fn an_array_has_what_was_written() {
    everywhere(1, async |ct| {
        for (length, per_block) in [(0, 1), (1, 1), (10, 3), (1000, 7), (1000, 63), (5000, 1023), (300, 1000)]
        {
            let array =
                Array::attach(Array::<u64>::create_in_blocks(length, per_block, ct).await?, ct).await?;
            let mut model = vec![0; length as usize];
            assert_eq!((array.len(), array.is_empty(), array.per_block()), (length, length == 0, per_block));
            assert_eq!(array.read(0..length, ct).await?, model);
            for _ in 0..60 {
                let (one, other) = (ct.random_range(0..=length), ct.random_range(0..=length));
                let range = one.min(other)..one.max(other);
                let within = range.start as usize..range.end as usize;
                let values: Vec<u64> = range.clone().map(|_| ct.random()).collect();
                array.write(range.start, &values, ct).await?;
                model[within].copy_from_slice(&values);
                let (one, other) = (ct.random_range(0..=length), ct.random_range(0..=length));
                let range = one.min(other)..one.max(other);
                let within = range.start as usize..range.end as usize;
                assert_eq!(array.read(range, ct).await?, model[within]);
                if length > 0 {
                    let index = ct.random_range(0..length);
                    let old = &mut model[index as usize];
                    assert_eq!(array.load(index, ct).await?, *old);
                    assert_eq!(array.fetch_add(index, 5, ct).await?, *old);
                    *old = old.wrapping_add(5);
                    assert_eq!(array.compare_exchange(index, *old, 7, ct).await?, Ok(*old));
                    assert_eq!(array.compare_exchange(index, 8, 9, ct).await?, Err(7));
                    array.store(index, 11, ct).await?;
                    *old = 11;
                }
            }
            assert_eq!(array.read(0..length, ct).await?, model);
            array.destroy(ct).await?;
        }
        Ok(())
    });
}

#[test]
fn all_threads_together_have_each_element_once() {
    everywhere(5, async |ct| {
        let root =
            ct.root_or_init("elements", async || Array::<u64>::create_in_blocks(1000, 9, ct).await).await?;
        let array = Array::attach(root, ct).await?;
        for range in array.share(ct) {
            for index in range {
                array.fetch_add(index, 1 + ct.index() as u64, ct).await?;
                array.fetch_add(index, 1 << 32, ct).await?;
            }
        }
        ct.barrier("shared").await?;
        let all = array.read(0..1000, ct).await?;
        assert!(all.iter().all(|element| element >> 32 == 1), "{all:?}");
        // A block's elements have one owner.
        assert!(all.chunks(9).all(|block| block.iter().all(|element| *element == block[0])));
        let range = 100..900;
        array.fetch_add(100, 0, ct).await?;
        ct.barrier("read").await?;
        // Concurrent additions are not lost.
        ct.tasks(4, async |_| {
            for index in range.clone().step_by(37) {
                array.fetch_add(index, 1 << 48, ct).await?;
            }
            Ok(())
        })
        .await?;
        ct.barrier("added").await?;
        assert!(array.read(range, ct).await?.iter().step_by(37).all(|element| element >> 48 == 20));
        ct.barrier("compared").await?;
        if ct.index() == 0 {
            ct.unpublish::<farfield_collections::ArrayRoot<u64>>("elements").await?;
            array.destroy(ct).await?;
        }
        Ok(())
    });
}

/// Elements of other types, each a word.
#[test]
fn elements_are_words_of_any_type() {
    everywhere(1, async |ct| {
        async fn keeps<T: Word + PartialEq + std::fmt::Debug>(
            values: &[T],
            ct: &ComputeThread,
        ) -> Result<()> {
            let array = Array::attach(Array::<T>::create(40, ct).await?, ct).await?;
            assert!(array.read(0..40, ct).await?.iter().all(|value| *value == T::initial()));
            array.write(3, values, ct).await?;
            assert_eq!(array.read(3..3 + values.len() as u64, ct).await?, values);
            array.destroy(ct).await
        }
        keeps(&[-1_i32, i32::MIN, 7], ct).await?;
        keeps(&[true, false], ct).await?;
        keeps(&[u8::MAX; 37], ct).await
    });
}

#[test]
fn a_range_takes_one_round_trip_over_all_memory_nodes() {
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let root = Array::<u64>::create(100_000, ct).await?;
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt();
        let array = took(1, 2, rtt, ct, async || Array::attach(root, ct).await).await?;
        let values = took(1, 1, rtt, ct, async || array.read(0..100_000, ct).await).await?;
        took(1, 1, rtt, ct, async || array.write(0, &values, ct).await).await?;
        took(1, 1, rtt, ct, async || array.read(17..18, ct).await).await?;
        took(1, 1, rtt, ct, async || array.load(17, ct).await).await?;
        took(1, 1, rtt, ct, async || array.store(17, 1, ct).await).await?;
        took(1, 1, rtt, ct, async || array.fetch_add(17, 1, ct).await).await?;
        took(0, 0, rtt, ct, async || array.read(5..5, ct).await).await?;
        array.destroy(ct).await
    });
    done.unwrap();
}

/// Checks how many round trips some work takes.
async fn took<T>(
    least: u32,
    most: u32,
    rtt: std::time::Duration,
    ct: &ComputeThread,
    work: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    let began = ct.now();
    let result = work().await?;
    let took = ct.now().saturating_sub(began);
    assert!(took >= least * rtt && took < most * rtt + rtt / 2, "{took:?}, not {least} to {most} of {rtt:?}");
    Ok(result)
}

#[test]
fn what_an_array_can_not_do_is_refused() {
    everywhere(1, async |ct| {
        let root = Array::<u64>::create_in_blocks(100, 9, ct).await?;
        let array = Array::attach(root, ct).await?;
        let named = |refused: Error, names: &[&str]| {
            let said = refused.to_string();
            assert!(names.iter().all(|name| said.contains(name)), "{said}");
        };
        #[allow(clippy::reversed_empty_ranges)] // which is refused
        let reversed = 7..5;
        named(array.read(reversed, ct).await.unwrap_err(), &["range", "7..5 of 100"]);
        named(array.read(90..101, ct).await.unwrap_err(), &["range", "90..101 of 100"]);
        named(array.write(99, &[1, 2], ct).await.unwrap_err(), &["range", "99..101 of 100"]);
        named(array.write(u64::MAX, &[1, 2], ct).await.unwrap_err(), &["range"]);
        named(array.load(100, ct).await.unwrap_err(), &["index", "100 of 100"]);
        named(array.store(u64::MAX, 1, ct).await.unwrap_err(), &["index"]);
        assert!(array.read(0..100, ct).await?.iter().all(|element| *element == 0), "nothing was written");
        named(Array::<u64>::create_in_blocks(5, 0, ct).await.unwrap_err(), &["per_block"]);
        let other = RemotePtr::from_address(root.address());
        named(Array::<i64>::attach(other, ct).await.unwrap_err(), &["root", "another type"]);
        array.destroy(ct).await
    });
}

#[test]
fn an_array_without_room_leaves_nothing() {
    for url in ["local:nodes=2,size=2MiB", "sim:nodes=2,size=2MiB"] {
        let done = Cluster::connect(url).unwrap().run(1, async |ct| {
            for _ in 0..20 {
                assert!(matches!(Array::<u64>::create(1 << 20, ct).await, Err(Error::OutOfMemory(_))));
            }
            let array = Array::attach(Array::<u64>::create(1 << 17, ct).await?, ct).await?;
            assert_eq!(array.load((1 << 17) - 1, ct).await?, 0);
            array.destroy(ct).await
        });
        done.unwrap();
    }
}
