//! The ordered map: what it returns, how it grows and shrinks, what its scans promise, what it costs, and what clients that end anywhere leave.

mod clusters;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::ops::Bound;
use std::pin::pin;
use std::task::Poll;

use farfield::prelude::*;
use farfield_collections::{Key, OrderedMap, OrderedMapRoot, Value};

use clusters::{EXACT, affordable, everywhere};

/// A type of keys or values for which tests make some from numbers.
trait Made: Key + Value + Clone + Ord + Debug {
    fn made(number: u64) -> Self;
}

impl Made for u64 {
    fn made(number: u64) -> Self {
        number
    }
}

impl Made for i32 {
    fn made(number: u64) -> Self {
        number as i32 - 300
    }
}

/// Strings of which some are prefixes of others, many begin alike, and few are long.
impl Made for String {
    fn made(number: u64) -> Self {
        let begin = ["", "a", "user-of-the-system-", "user-of-the-system-with-a-long-name-"][number as usize % 4];
        let end = if number.is_multiple_of(50) { "x".repeat(100) } else { String::new() };
        format!("{begin}{}{end}", number / 4)
    }
}

impl Made for Vec<u8> {
    fn made(number: u64) -> Self {
        // Ends with zeros, too.
        let mut bytes = number.to_be_bytes()[6..].to_vec();
        bytes.resize(bytes.len() + number as usize % 3, 0);
        bytes
    }
}

async fn is_equal_to_the_standard_librarys<K, V>(ct: &ComputeThread) -> Result<()>
where
    K: Made,
    V: Made + std::borrow::Borrow<V::Borrowed>,
{
    let root = OrderedMap::<K, V>::create(ct).await?;
    let map = OrderedMap::attach(root, ct).await?;
    let mut model = BTreeMap::<K, V>::new();
    for step in 0..affordable(5000, ct) {
        let key = K::made(ct.random_range(0..700_u64));
        let borrowed = key.as_borrowed();
        let value = V::made(step);
        match ct.random_range(0..10) {
            0 => assert_eq!(map.get(borrowed, ct).await?, model.get(&key).cloned()),
            1 | 2 => {
                let is_new = map.insert(borrowed, value.as_borrowed(), ct).await?;
                assert_eq!(is_new, !model.contains_key(&key), "{key:?}");
                model.entry(key).or_insert(value);
            }
            3 => {
                map.upsert(borrowed, value.as_borrowed(), ct).await?;
                model.insert(key, value);
            }
            4 => {
                assert_eq!(map.update(borrowed, value.as_borrowed(), ct).await?, model.contains_key(&key));
                model.entry(key).and_modify(|old| *old = value);
            }
            5 => {
                let expected = V::made(ct.random_range(step.saturating_sub(500)..=step));
                let expected = model.get(&key).cloned().filter(|_| ct.random()).unwrap_or(expected);
                let changed = map.compare_and_update(borrowed, expected.as_borrowed(), value.as_borrowed(), ct).await?;
                assert_eq!(changed, model.get(&key) == Some(&expected));
                if changed {
                    model.insert(key, value);
                }
            }
            6 => assert_eq!(map.remove(borrowed, ct).await?, model.remove(&key).is_some()),
            7 => assert_eq!(map.take(borrowed, ct).await?, model.remove(&key)),
            8 => {
                let f = |old: Option<V>| old.is_none().then(|| value.clone());
                assert_eq!(map.modify(borrowed, f, ct).await?, model.get(&key).cloned());
                match f(model.get(&key).cloned()) {
                    Some(new) => drop(model.insert(key, new)),
                    None => drop(model.remove(&key)),
                }
            }
            _ => {
                let other = K::made(ct.random_range(0..700_u64));
                let (low, high) = if key < other { (key, other) } else { (other, key) };
                let bound = |key| match ct.random_range(0..3) {
                    0 => Bound::Included(key),
                    1 => Bound::Excluded(key),
                    _ => Bound::Unbounded,
                };
                let range = (bound(low), bound(high));
                if let (Bound::Excluded(low), Bound::Excluded(high)) = &range
                    && low == high
                {
                    continue;
                }
                let wanted = model.range(range.clone()).map(|(key, value)| (key.clone(), value.clone()));
                let (mut scan, mut found) = (map.range(range.clone(), ct)?, vec![]);
                while let Some(pair) = scan.next().await? {
                    found.push(pair);
                }
                assert_eq!(found, wanted.collect::<Vec<_>>());
                let mut scan = map.range_back(range, ct)?.in_pages_of(100);
                while let Some(pair) = scan.next().await? {
                    assert_eq!(Some(pair), found.pop());
                }
                assert_eq!(found, []);
            }
        }
    }
    let pair = |pair: Option<(&K, &V)>| pair.map(|(key, value)| (key.clone(), value.clone()));
    assert_eq!(map.first(ct).await?, pair(model.first_key_value()));
    assert_eq!(map.last(ct).await?, pair(model.last_key_value()));
    assert_eq!(map.len(ct).await?, model.len() as u64);
    assert_eq!(map.check(ct).await?, model.len() as u64);
    map.destroy(ct).await
}

#[test]
fn words_are_as_in_a_map_of_the_standard_library() {
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<u64, u64>(ct).await);
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<i32, u64>(ct).await);
}

#[test]
fn byte_strings_are_as_in_a_map_of_the_standard_library() {
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<String, u64>(ct).await);
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<u64, String>(ct).await);
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<Vec<u8>, Vec<u8>>(ct).await);
}

#[test]
fn it_grows_from_empty_and_shrinks_again() {
    everywhere(1, async |ct| {
        let keys = affordable(20_000, ct);
        let root = OrderedMap::<u64, u64>::create(ct).await?;
        let map = OrderedMap::attach(root, ct).await?;
        let other = OrderedMap::attach(root, ct).await?;
        // Not in order.
        let key = |number: u64| number * 7919 % keys;
        for number in 0..keys {
            assert!(map.insert(&key(number), &number, ct).await?);
        }
        assert_eq!((map.check(ct).await?, map.len(ct).await?), (keys, keys));
        for number in 0..keys {
            assert_eq!(other.get(&key(number), ct).await?, Some(number));
        }
        let (mut scan, mut next) = (other.iter(ct), 0);
        while let Some((key, _)) = scan.next().await? {
            assert_eq!(key, next);
            next += 1;
        }
        assert_eq!(next, keys);
        for number in 0..keys {
            assert!(other.remove(&key(number), ct).await?);
        }
        assert_eq!((map.check(ct).await?, map.first(ct).await?), (0, None));
        map.destroy(ct).await
    });
}
