//! The far memory of a map over the bytes of its keys and values: the blocks that the allocator has handed out, rounded to its classes.
//!
//! A map needs least when its tables are full, and most when they have just been split. So it is measured while it grows from one million records to two,
//! and the figure is the largest.

use farfield::Result;
use farfield::prelude::*;
use farfield_collections::HashMap;

use crate::records::{KEY_BYTES, RECORDS, VALUE_BYTES, key, value};

const CLUSTER: &str = "local:size=1GiB";
/// The records between two measurements.
const STEP: u64 = RECORDS / 20;

/// Measures and prints.
pub(crate) fn measure() -> Result<()> {
    let all = Cluster::connect(CLUSTER)?.run(1, async |ct| {
        let map = HashMap::<Vec<u8>, Vec<u8>>::attach(HashMap::create(ct).await?, ct).await?;
        let mut ratios = Vec::new();
        for record in 0..2 * RECORDS {
            assert!(map.insert(&key(record), &value(record, 0), ct).await?);
            let records = record + 1;
            if records >= RECORDS && records.is_multiple_of(STEP) {
                // Replaced tables that wait for their grace periods are garbage.
                ct.try_reclaim().await;
                let used: u64 = ct.heap_use().await?.iter().map(|node| node.live_bytes).sum();
                let bytes = records * (KEY_BYTES + VALUE_BYTES) as u64;
                ratios.push(used as f64 / bytes as f64);
            }
        }
        Ok(ratios)
    })?;
    let ratios = &all[0];
    eprintln!("bytes over those of keys and values, from {RECORDS} records on, every {STEP}: {ratios:.3?}");
    println!("hash-map.bytes_per_record.ratio {:.3}", ratios.iter().copied().fold(0.0, f64::max));
    Ok(())
}
