//! Maps as subjects, ordered ones too: their workloads, and maps of numbers or byte strings.

use std::collections::BTreeSet;

use farfield_testing::{Plan, Random};

use crate::model::map::{Keys, Map, MapOperation, MapReply, OrderedMap};
use crate::subject::Workload;

/// The first key of batches. Smaller keys are accessed one at a time, and often.
const FIRST_OF_BATCHES: u64 = 100;
/// The value of the final updates. No client writes it.
const LAST_VALUE: u64 = 5;
/// The distance of two fresh values: more than a batch inserts.
const BETWEEN_VALUES: u64 = 1000;
/// The most values of a plan whose values are few, so that they come back.
const FEW_VALUES: u64 = 4;

/// Frequencies of operations on one key, in percent: gets, insertions, upserts, updates, compare-and-updates, exchanges, removals, takes;
/// the remaining ones modify. Each plan has one of these rows.
const MIXES: [[u64; 8]; 4] = [
    [25, 15, 10, 10, 8, 7, 8, 7],
    // Blind updates, and their readers.
    [28, 6, 24, 24, 0, 0, 4, 14],
    // Keys come and go.
    [25, 35, 0, 5, 0, 0, 20, 15],
    // Each update depends on the value.
    [15, 5, 0, 5, 10, 20, 5, 10],
];

impl Workload for Map {
    /// Half of the plans have few keys, and half of these only one. In the others the map also grows, by batches whose ranges overlap: its
    /// tables are replaced while clients compete for the few keys.
    fn draw(random: &mut Random) -> MapOperation {
        let hot = [1, 1, 2, 3][random.once("keys", 0..4) as usize];
        let batches_percent = [0, 0, 25, 50, 70][random.once("batches", 0..5) as usize];
        let iterations_percent = [0, 5, 12][random.once("iterations", 0..3) as usize];
        if random.percent(iterations_percent) {
            return MapOperation::Iterate;
        }
        if random.percent(batches_percent) {
            return batch(random);
        }
        // With batches, some operations are on their keys.
        let is_hot = batches_percent == 0 || random.percent(60);
        let key = if is_hot { random.range(0..hot) } else { FIRST_OF_BATCHES + random.range(0..100) };
        let mix = MIXES[random.once("mix", 0..MIXES.len() as u64) as usize];
        let mut below = random.range(0..100);
        let number = mix.iter().position(|percent| {
            let is_it = below < *percent;
            below = below.saturating_sub(*percent);
            is_it
        });
        match number {
            Some(0) => MapOperation::Get(key),
            Some(1) => MapOperation::Insert(key, value(random)),
            Some(2) => MapOperation::Upsert(key, value(random)),
            Some(3) => MapOperation::Update(key, value(random)),
            Some(4) => MapOperation::CompareAndUpdate(key, random.range(1..FEW_VALUES), value(random)),
            Some(5) => MapOperation::Exchange(key, value(random)),
            Some(6) => MapOperation::Remove(key),
            Some(7) => MapOperation::Take(key),
            _ => MapOperation::Modify(key, value(random)),
        }
    }

    /// All keys are read, overwritten and removed, and the map iterated before and after.
    fn look(plan: &Plan<MapOperation>, looked: usize, _: Option<&MapReply>) -> Option<MapOperation> {
        let keys: BTreeSet<(u64, u64)> = plan
            .operations()
            .map(|operation| operation.keys())
            .map(|keys| (keys.first, keys.count))
            .collect();
        let drains = keys.into_iter().flat_map(|(first, count)| match count {
            0 => vec![],
            1 => vec![
                MapOperation::Get(first),
                MapOperation::Upsert(first, LAST_VALUE),
                MapOperation::Take(first),
            ],
            _ => vec![MapOperation::Drain(Keys { first, count })],
        });
        let iterates = || std::iter::once(MapOperation::Iterate);
        iterates().chain(drains).chain(iterates()).nth(looked)
    }

    fn simpler(operation: &MapOperation) -> Vec<MapOperation> {
        let Keys { first, count } = operation.keys();
        let fewer =
            [count / 2, count.saturating_sub(1)].into_iter().filter(|fewer| (1..count).contains(fewer));
        let fewer = fewer.map(|count| Keys { first, count });
        let lower = if first < FIRST_OF_BATCHES {
            0..first
        } else {
            FIRST_OF_BATCHES..first.min(FIRST_OF_BATCHES + 1)
        };
        let lower = lower.map(|first| Keys { first, count });
        fewer.chain(lower).map(|keys| operation.with_keys(keys)).collect()
    }
}

impl Workload for OrderedMap {
    /// In most plans, some operations are scans: of all keys, of those that clients compete for, or of some.
    fn draw(random: &mut Random) -> MapOperation {
        let scans_percent = [0, 8, 15, 30][random.once("scans", 0..4) as usize];
        if !random.percent(scans_percent) {
            return Map::draw(random);
        }
        let (from, to) = match random.range(0..4) {
            0 => (0, MOST_KEY),
            1 => (0, 2),
            2 => (random.range(0..3), FIRST_OF_BATCHES + random.range(0..100)),
            _ => {
                let from = FIRST_OF_BATCHES + random.range(0..100);
                (from, from + random.range(0..40))
            }
        };
        match random.range(0..6) {
            0 => MapOperation::First,
            1 => MapOperation::Last,
            2 | 3 => MapOperation::Range(from, to),
            _ => MapOperation::RangeBack(from, to),
        }
    }

    /// Before all keys are drained, they are scanned in both directions.
    fn look(plan: &Plan<MapOperation>, looked: usize, last: Option<&MapReply>) -> Option<MapOperation> {
        let scans = [
            MapOperation::Range(0, MOST_KEY),
            MapOperation::RangeBack(0, MOST_KEY),
            MapOperation::First,
            MapOperation::Last,
        ];
        match scans.get(looked) {
            Some(scan) => Some(*scan),
            None => Map::look(plan, looked - scans.len(), last),
        }
    }

    fn simpler(operation: &MapOperation) -> Vec<MapOperation> {
        let narrower = |from: u64, to: u64| {
            [(from, from), (to, to), (from, from + (to - from) / 2)]
                .into_iter()
                .filter(move |narrower| *narrower != (from, to))
        };
        match *operation {
            MapOperation::Range(from, to) => {
                narrower(from, to).map(|(from, to)| MapOperation::Range(from, to)).collect()
            }
            MapOperation::RangeBack(from, to) => {
                narrower(from, to).map(|(from, to)| MapOperation::RangeBack(from, to)).collect()
            }
            _ => Map::simpler(operation),
        }
    }
}

/// A key that is larger than all others.
const MOST_KEY: u64 = 1 << 20;

/// Draws an operation on consecutive keys: most insert.
fn batch(random: &mut Random) -> MapOperation {
    // In few plans the map grows far.
    let most = [8, 16, 24, 64][random.once("batch", 0..16).min(3) as usize];
    let first = FIRST_OF_BATCHES + 4 * random.range(0..if most > 24 { 64 } else { 20 });
    let keys = Keys { first, count: random.range(2..most + 1) };
    match random.range(0..10) {
        0 => MapOperation::GetMany(keys),
        1 => MapOperation::Drain(keys),
        _ => MapOperation::Fill(keys, value(random)),
    }
}

/// Draws a value: in most plans one that no other operation writes, so that a wrong one is seen.
fn value(random: &mut Random) -> u64 {
    let fresh = BETWEEN_VALUES * random.fresh();
    if random.once("values", 0..4) == 0 { random.range(1..FEW_VALUES) } else { fresh }
}

/// Flipped in all keys and values: a small number, shifted by some bytes, could look like an address and prevent a block from being swept.
const FLIPPED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A key or a value of a map, made from a number.
pub trait Encoded: Sized {
    /// Encodes a number.
    fn encode(number: u64) -> Self;
    /// The number that was encoded; [`INVALID`] if there is none.
    fn decode(self) -> u64;
}

/// A key of an ordered map, made from a number: encoded numbers are in the order of the numbers.
pub trait EncodedKey: Sized {
    /// Encodes a number.
    fn encode_key(number: u64) -> Self;
    /// The number that was encoded; [`INVALID`] if there is none.
    fn decode_key(self) -> u64;
}

impl EncodedKey for u64 {
    fn encode_key(number: u64) -> Self {
        number + FLIPPED
    }

    fn decode_key(self) -> u64 {
        self.checked_sub(FLIPPED).unwrap_or(INVALID)
    }
}

/// Byte strings of several lengths: their order is that of their first 8 bytes.
impl EncodedKey for Vec<u8> {
    fn encode_key(number: u64) -> Self {
        let bytes = [8, 9, 16, 33, 65, 200, 700][(number % 7) as usize];
        (number + FLIPPED).to_be_bytes().into_iter().cycle().take(bytes).collect()
    }

    fn decode_key(self) -> u64 {
        let number = self.first_chunk().and_then(|bytes| u64::from_be_bytes(*bytes).checked_sub(FLIPPED));
        number.filter(|number| Self::encode_key(*number) == self).unwrap_or(INVALID)
    }
}

/// What a key or value is decoded to that encodes no number.
pub const INVALID: u64 = u64::MAX;

impl Encoded for u64 {
    fn encode(number: u64) -> Self {
        number ^ FLIPPED
    }

    fn decode(self) -> u64 {
        self ^ FLIPPED
    }
}

/// Byte strings of several lengths, and so of several size classes: the number, repeated.
impl Encoded for Vec<u8> {
    fn encode(number: u64) -> Self {
        let bytes = [8, 9, 16, 33, 65, 200, 700][(number % 7) as usize];
        (number ^ FLIPPED).to_le_bytes().into_iter().cycle().take(bytes).collect()
    }

    fn decode(self) -> u64 {
        let number = self.first_chunk().map(|bytes| u64::from_le_bytes(*bytes) ^ FLIPPED);
        number.filter(|number| Self::encode(*number) == self).unwrap_or(INVALID)
    }
}

/// Bytes of a handle's cache: smaller ones are made faster, and keys share their places.
pub(crate) fn cache_bytes(thread: usize) -> usize {
    [16 << 10, 512, 4 << 10, 0][thread % 4]
}

/// A map whose keys and values are of a type.
macro_rules! map {
    ($map:ty, $encoded:ty) => {
        $crate::map::any_map!($map, $encoded, true, unordered);
    };
}
pub(crate) use map;

/// A map whose changes take locks.
macro_rules! locking_map {
    ($map:ty, $encoded:ty) => {
        $crate::map::any_map!($map, $encoded, false, unordered);
    };
}
pub(crate) use locking_map;

/// A map with `first`, `last` and `range`; with `range_back` too, unless it is said to be one that goes `forwards` only.
macro_rules! ordered_map {
    ($map:ty, $encoded:ty) => {
        $crate::map::any_map!($map, $encoded, true, ordered);
    };
    ($map:ty, $encoded:ty, forwards) => {
        $crate::map::any_map!($map, $encoded, true, forwards);
    };
}
pub(crate) use ordered_map;

/// What differs between maps that have an order and others: the model, the encoding of keys, and scans.
macro_rules! by_order {
    // Its leaves are read by one READ, whose words have no order on real devices.
    (options ordered) => { "words=any" };
    (options $other:ident) => { "" };
    (model unordered) => { $crate::model::map::Map };
    (model $ordered:ident) => { $crate::model::map::OrderedMap };
    (encode unordered $encoded:ty) => { <$encoded as $crate::map::Encoded>::encode };
    (encode $ordered:ident $encoded:ty) => { <$encoded as $crate::map::EncodedKey>::encode_key };
    (decode unordered $encoded:ty) => { <$encoded as $crate::map::Encoded>::decode };
    (decode $ordered:ident $encoded:ty) => { <$encoded as $crate::map::EncodedKey>::decode_key };
    (scan unordered $map:ident $operation:ident $encoded:ty, $ct:ident) => {
        return Err(farfield::Error::other(format!("{:?} of a map without an order", $operation)))
    };
    (scan $ordered:ident $map:ident $operation:ident $encoded:ty, $ct:ident) => {{
        use $crate::map::{Encoded, EncodedKey};
        let of = <$encoded as EncodedKey>::encode_key;
        let pair = |(key, value): ($encoded, $encoded)| (EncodedKey::decode_key(key), Encoded::decode(value));
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        match *$operation {
            MapOperation::First => pairs.extend($map.first($ct).await?.map(pair)),
            MapOperation::Last => pairs.extend($map.last($ct).await?.map(pair)),
            MapOperation::RangeBack(from, to) => {
                $crate::map::by_order!(back $ordered $map, of(from)..=of(to), $ct, pair, pairs);
            }
            MapOperation::Range(from, to) => {
                let mut scan = $map.range(of(from)..=of(to), $ct)?;
                while let Some(found) = scan.next().await? {
                    pairs.push(pair(found));
                }
            }
            _ => unreachable!("it is no scan"),
        }
        MapReply::Pairs(pairs)
    }};
    (back ordered $map:ident, $range:expr, $ct:ident, $pair:ident, $pairs:ident) => {
        let mut scan = $map.range_back($range, $ct)?;
        while let Some(found) = scan.next().await? {
            $pairs.push($pair(found));
        }
    };
    (back forwards $map:ident, $range:expr, $ct:ident, $pair:ident, $pairs:ident) => {
        let mut scan = $map.range($range, $ct)?;
        while let Some(found) = scan.next().await? {
            $pairs.push($pair(found));
        }
        $pairs.reverse();
    };
}
pub(crate) use by_order;

/// Implements `Tested` for a map.
macro_rules! any_map {
    ($map:ty, $encoded:ty, $lock_free:literal, $order:ident) => {
        impl<const BUG: usize> farfield_testing::Tested for $crate::subject::Soak<$map, BUG> {
            $crate::subject::common_items!($map, $crate::map::by_order!(model $order), $lock_free);
            async fn open(ct: &farfield::ComputeThread) -> farfield::Result<$map> {
                $crate::mutants::activate(BUG);
                let root = ct.root_or_init($crate::subject::ROOT, async || <$map>::create(ct).await);
                let map = <$map>::attach(root.await?, ct).await?;
                Ok(map.with_cache($crate::map::cache_bytes(ct.index())))
            }
            fn plan(
                seed: u64,
                faults: farfield_testing::Faults,
            ) -> farfield_testing::Plan<farfield_testing::OperationOf<Self>> {
                let plan = farfield_testing::Plan::draw(seed, faults, Self::operation);
                farfield_testing::Plan {
                    size_kib: $crate::map::SIZE_KIB,
                    limit_ms: $crate::map::LIMIT_MS,
                    options: $crate::map::by_order!(options $order).to_owned(),
                    ..plan
                }
            }
            async fn perform(
                map: &$map,
                operation: &$crate::model::map::MapOperation,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::map::MapReply> {
                use $crate::map::Encoded;
                use $crate::model::map::{MapOperation, MapReply};
                let of = $crate::map::by_order!(encode $order $encoded);
                let of_value = <$encoded as Encoded>::encode;
                let decoded = |value: Option<$encoded>| value.map(Encoded::decode);
                Ok(match *operation {
                    MapOperation::Get(key) | MapOperation::Visit(key) | MapOperation::Misplaced(key) => {
                        MapReply::Value(decoded(map.get(&of(key), ct).await?))
                    }
                    MapOperation::Insert(key, value) => {
                        MapReply::Flag(map.insert(&of(key), &of_value(value), ct).await?)
                    }
                    MapOperation::Upsert(key, value) => {
                        map.upsert(&of(key), &of_value(value), ct).await?;
                        MapReply::Done
                    }
                    MapOperation::Update(key, value) => {
                        MapReply::Flag(map.update(&of(key), &of_value(value), ct).await?)
                    }
                    MapOperation::CompareAndUpdate(key, old, new) => {
                        MapReply::Flag(map.compare_and_update(&of(key), &of_value(old), &of_value(new), ct).await?)
                    }
                    MapOperation::Remove(key) => MapReply::Flag(map.remove(&of(key), ct).await?),
                    MapOperation::Take(key) => MapReply::Value(decoded(map.take(&of(key), ct).await?)),
                    MapOperation::Modify(key, by) => {
                        let change = |value| $crate::model::map::modified(decoded(value), by).map(of_value);
                        MapReply::Value(decoded(map.modify(&of(key), change, ct).await?))
                    }
                    MapOperation::Exchange(key, new) => {
                        let seen = decoded(map.get(&of(key), ct).await?);
                        let done = match seen {
                            None => false,
                            Some(old) => map.compare_and_update(&of(key), &of_value(old), &of_value(new), ct).await?,
                        };
                        MapReply::Exchanged(seen, done)
                    }
                    MapOperation::GetMany(keys) => {
                        let keys: Vec<$encoded> = keys.all().map(of).collect();
                        let keys: Vec<&<$encoded as farfield::Bytes>::Borrowed> =
                            keys.iter().map(std::borrow::Borrow::borrow).collect();
                        let values = map.get_many(&keys, ct).await?;
                        MapReply::Values(values.into_iter().map(decoded).collect())
                    }
                    MapOperation::Fill(keys, from) => {
                        let mut flags = Vec::new();
                        for (key, value) in keys.all().zip(from..) {
                            flags.push(map.insert(&of(key), &of_value(value), ct).await?);
                        }
                        MapReply::Flags(flags)
                    }
                    MapOperation::Drain(keys) => {
                        let mut values = Vec::new();
                        for key in keys.all() {
                            values.push(decoded(map.take(&of(key), ct).await?));
                        }
                        MapReply::Values(values)
                    }
                    MapOperation::Iterate => {
                        let decode_key = $crate::map::by_order!(decode $order $encoded);
                        let (mut pairs, mut iter) = (Vec::new(), map.iter(ct));
                        while let Some((key, value)) = iter.next().await? {
                            pairs.push((decode_key(key), value.decode()));
                        }
                        MapReply::Pairs(pairs)
                    }
                    MapOperation::First
                    | MapOperation::Last
                    | MapOperation::Range(..)
                    | MapOperation::RangeBack(..) => {
                        $crate::map::by_order!(scan $order map operation $encoded, ct)
                    }
                })
            }
            async fn recover(map: &$map, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                map.recover(ct).await
            }
            async fn verify(map: &$map, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                let (keys, counted) = (map.check(ct).await?, map.len(ct).await?);
                let (mut iterated, mut iter) = (0, map.iter(ct));
                while iter.next().await?.is_some() {
                    iterated += 1;
                }
                if [counted, iterated] == [keys; 2] {
                    return Ok(());
                }
                Err(farfield::Error::other(format!(
                    "the map has {keys} keys, but its length is {counted}, and {iterated} were iterated"
                )))
            }
        }
    };
}
pub(crate) use any_map;

/// Far memory of each memory node, for a large map and the objects that it has retired.
pub(crate) const SIZE_KIB: u64 = 2048;
/// Virtual time of a run: a sweep of so much memory by threads that stall takes long.
pub(crate) const LIMIT_MS: u64 = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_numbers_are_decoded() {
        for number in (0..20).chain([1 << 40, INVALID - 1]) {
            assert_eq!(u64::encode(number).decode(), number);
            let bytes = Vec::encode(number);
            assert_eq!(bytes.clone().decode(), number);
            assert_eq!(bytes[..7].to_vec().decode(), INVALID);
        }
        let mut torn = Vec::encode(12);
        torn[20] += 1;
        assert_eq!(torn.decode(), INVALID);
    }

    #[test]
    fn encoded_keys_are_decoded_and_in_order() {
        let numbers = || (0..20).chain([100, 255, 256, 1 << 40]);
        for number in numbers() {
            assert_eq!(u64::encode_key(number).decode_key(), number);
            let bytes = Vec::encode_key(number);
            assert_eq!(bytes.clone().decode_key(), number);
            assert_eq!(bytes[..7].to_vec().decode_key(), INVALID);
        }
        assert!(numbers().map(u64::encode_key).is_sorted());
        assert!(numbers().map(Vec::encode_key).is_sorted());
    }

    #[test]
    fn values_are_written_once_in_most_plans() {
        let is_once = |seed| {
            let mut random = Random::new(seed);
            let mut values = BTreeSet::new();
            (0..50).all(|_| values.insert(value(&mut random)))
        };
        assert!((60..90).contains(&(0..100).filter(|seed| is_once(*seed)).count()));
    }
}
