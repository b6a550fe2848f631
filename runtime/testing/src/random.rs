//! `Random`: a deterministic generator of random numbers.
//!
//! The generator is `SplitMix64` (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): eight bytes of state, and
//! the same numbers on every machine. It is not cryptographic.

use std::ops::Range;

/// Random numbers for the operations of one plan. The same seed produces the same numbers.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    state: u64,
    fresh: u64,
}

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: mix(seed), fresh: 0 }
    }

    /// A number from a range, uniformly distributed. The start of an empty range.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        within(mix(self.state), &range)
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.range(0..100) < percent
    }

    /// One of several values, uniformly distributed.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.range(0..choices.len() as u64) as usize].clone()
    }

    /// Returns 1, 2, 3 and so on: a different number for each call. For values that must be distinct.
    pub fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }

    /// A number from a range that is fixed for the whole plan, for each name `what`: the number of keys, or the share of reads. Plans that
    /// differ in such parameters find more bugs than similar plans.
    ///
    /// ```
    /// # use farfield_testing::Random;
    /// let mut random = Random::new(7);
    /// let keys = random.once("keys", 1..4);
    /// assert!((1..4).contains(&keys));
    /// random.range(0..100);
    /// assert_eq!(random.once("keys", 1..4), keys);
    /// ```
    pub fn once(&self, what: &str, range: Range<u64>) -> u64 {
        let named = what.bytes().fold(mix(!self.seed), |hash, byte| mix(hash ^ u64::from(byte)));
        within(named, &range)
    }
}

/// The generator's increment: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// `SplitMix64`'s output function: each bit of the result depends on all bits of the argument.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(STEP);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Maps a random word to a range.
fn within(word: u64, range: &Range<u64>) -> u64 {
    let width = range.end.saturating_sub(range.start);
    range.start + ((u128::from(word) * u128::from(width)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_of_the_range_are_drawn_and_no_others() {
        let (mut random, mut seen) = (Random::new(3), [0; 4]);
        for _ in 0..1000 {
            seen[random.range(0..4) as usize] += 1;
            assert_eq!(random.range(7..8), 7);
            assert_eq!(random.range(7..7), 7);
            assert!(random.range(u64::MAX - 1..u64::MAX) == u64::MAX - 1);
            assert!(random.percent(100) && !random.percent(0));
        }
        assert!(seen.iter().all(|count| (200..300).contains(count)), "{seen:?}");
        assert_eq!([random.fresh(), random.fresh()], [1, 2]);
    }

    #[test]
    fn a_seed_always_produces_the_same_numbers() {
        let drawn = |seed| {
            let mut random = Random::new(seed);
            [random.range(0..1 << 40), random.range(0..1 << 40), random.once("keys", 0..1 << 40)]
        };
        assert_eq!(drawn(5), drawn(5));
        assert!(drawn(5).iter().zip(drawn(6)).all(|(five, six)| *five != six));
    }

    #[test]
    fn numbers_fixed_for_a_plan_differ_by_name_and_seed() {
        let keys: Vec<u64> = (0..100).map(|seed| Random::new(seed).once("keys", 0..3)).collect();
        let gets: Vec<u64> = (0..100).map(|seed| Random::new(seed).once("gets", 0..3)).collect();
        assert!((0..3).all(|value| keys.contains(&value) && gets.contains(&value)) && keys != gets);
    }
}
