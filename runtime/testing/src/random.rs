//! `Random`: numbers that a seed stands for.
//!
//! The generator is `SplitMix64` (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): eight bytes of state, and
//! the same numbers on every machine. Not for secrets.

use std::ops::Range;

/// A source of random numbers for the operations of one plan. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    state: u64,
    fresh: u64,
}

impl Random {
    /// The numbers that `seed` stands for.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: mix(seed), fresh: 0 }
    }

    /// A number of a range; each is equally likely. The start of an empty range.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        within(mix(self.state), &range)
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.range(0..100) < percent
    }

    /// One of several; each is equally likely.
    ///
    /// # Panics
    /// If there are none, as indexing does.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.range(0..choices.len() as u64) as usize].clone()
    }

    /// A number that no other call has returned: 1, 2, 3 and so on. For values by which operations are told apart.
    pub fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }

    /// A number of a range that stays the same for the whole plan, under the name of `what`: how many keys there are, how many of the
    /// operations read. Plans that differ in such things meet more bugs than plans that are all alike.
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

/// A random word as a number of a range.
fn within(word: u64, range: &Range<u64>) -> u64 {
    let width = range.end.saturating_sub(range.start);
    range.start + ((u128::from(word) * u128::from(width)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_their_range_and_all_of_them_are_drawn() {
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
    fn a_seed_always_stands_for_the_same() {
        let drawn = |seed| {
            let mut random = Random::new(seed);
            [random.range(0..1 << 40), random.range(0..1 << 40), random.once("keys", 0..1 << 40)]
        };
        assert_eq!(drawn(5), drawn(5));
        assert!(drawn(5).iter().zip(drawn(6)).all(|(five, six)| *five != six));
    }

    #[test]
    fn what_is_drawn_once_differs_by_name_and_from_plan_to_plan() {
        let keys: Vec<u64> = (0..100).map(|seed| Random::new(seed).once("keys", 0..3)).collect();
        let gets: Vec<u64> = (0..100).map(|seed| Random::new(seed).once("gets", 0..3)).collect();
        assert!((0..3).all(|value| keys.contains(&value) && gets.contains(&value)) && keys != gets);
    }
}
