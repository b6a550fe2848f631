//! Random numbers, drawn from the thread's own generator, so that runs are repeatable.
//!
//! The generator is small and fast. Its seed is made of the cluster's seed and the thread's identity. Its algorithm and crate are not part of the
//! interface; the sequence of a seed may change with a release. Drawing takes no round trip and no allocation. Not for cryptographic secrets.

use std::ops::{Bound, RangeBounds};

use super::ComputeThread;
use crate::io::operations::*;

/// Types with random values: integers and `bool`.
pub trait Random: sealed::Draw {}

mod sealed {
    use rand::RngExt;
    use rand::rngs::SmallRng;

    /// Drawing of values.
    pub trait Draw: Copy + PartialOrd {
        const LEAST: Self;
        const MOST: Self;
        /// The successor and the predecessor of a value.
        fn next(self) -> Option<Self>;
        fn previous(self) -> Option<Self>;
        /// Draws any value.
        fn draw(rng: &mut SmallRng) -> Self;
        /// Draws a value of a range that is not empty.
        fn draw_between(rng: &mut SmallRng, least: Self, most: Self) -> Self;
    }

    macro_rules! integers {
        ($($ty:ident)*) => {
            $(
                impl super::Random for $ty {}
                impl Draw for $ty {
                    const LEAST: Self = Self::MIN;
                    const MOST: Self = Self::MAX;
                    fn next(self) -> Option<Self> {
                        self.checked_add(1)
                    }
                    fn previous(self) -> Option<Self> {
                        self.checked_sub(1)
                    }
                    fn draw(rng: &mut SmallRng) -> Self {
                        Self::draw_between(rng, Self::MIN, Self::MAX)
                    }
                    fn draw_between(rng: &mut SmallRng, least: Self, most: Self) -> Self {
                        rng.random_range(least..=most)
                    }
                }
            )*
        };
    }

    integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 }

    impl super::Random for bool {}
    impl Draw for bool {
        const LEAST: Self = false;
        const MOST: Self = true;
        fn next(self) -> Option<Self> {
            (!self).then_some(true)
        }
        fn previous(self) -> Option<Self> {
            self.then_some(false)
        }
        fn draw(rng: &mut SmallRng) -> Self {
            rng.random()
        }
        fn draw_between(rng: &mut SmallRng, least: Self, most: Self) -> Self {
            if least == most { least } else { rng.random() }
        }
    }
}

impl ComputeThread {
    /// Returns a random value of a type, uniformly distributed.
    ///
    /// ```
    /// # farfield::Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
    /// let (coin, word) = (ct.random::<bool>(), ct.random::<u64>());
    /// let die = ct.random_range(1..=6);
    /// assert!((1..=6).contains(&die));
    /// # let _ = (coin, word);
    /// # Ok(()) })?;
    /// # Ok::<(), farfield::Error>(())
    /// ```
    pub fn random<T: Random>(&self) -> T {
        T::draw(&mut self.rng())
    }

    /// Returns a random value of a range such as `0..n`, `1..=6` or `..`, uniformly distributed.
    ///
    /// # Panics
    /// If the range is empty.
    #[track_caller]
    pub fn random_range<T: Random>(&self, range: impl RangeBounds<T>) -> T {
        let least = match range.start_bound() {
            Bound::Included(least) => Some(*least),
            Bound::Excluded(before) => before.next(),
            Bound::Unbounded => Some(T::LEAST),
        };
        let most = match range.end_bound() {
            Bound::Included(most) => Some(*most),
            Bound::Excluded(end) => end.previous(),
            Bound::Unbounded => Some(T::MOST),
        };
        let bounds = least.zip(most).filter(|(least, most)| least <= most);
        let (least, most) = bounds.expect("a value was asked for of an empty range");
        T::draw_between(&mut self.rng(), least, most)
    }

    /// Returns true with the given probability: `ct.random_chance(0.1)` once in ten times. Probabilities below 0 count as 0, those above 1 as 1. The
    /// resolution is 2^-32.
    pub fn random_chance(&self, probability: f64) -> bool {
        f64::from(self.random::<u32>()) < probability * (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use crate::Cluster;

    #[test]
    fn values_are_of_their_range_and_all_of_them_are_drawn() {
        let drawn = Cluster::connect("local:size=64KiB").unwrap().run(1, async |ct| {
            let mut seen = [false; 4];
            for _ in 0..1000 {
                seen[ct.random_range(0..4_usize)] = true;
                assert_eq!(ct.random_range(7..=7), 7);
                assert_eq!(ct.random_range((Bound::Excluded(6_u8), Bound::Excluded(8))), 7);
                assert!(ct.random_range(-3..3) < 3 && ct.random_range(250_u8..) >= 250);
                assert!(!ct.random_range(..true));
                assert!(ct.random_chance(1.0) && !ct.random_chance(0.0) && !ct.random_chance(f64::NAN));
            }
            let heads = (0..1000).filter(|_| ct.random::<bool>()).count();
            let tenths = (0..1000).filter(|_| ct.random_chance(0.1)).count();
            Ok((seen, heads, tenths))
        });
        let (seen, heads, tenths) = drawn.unwrap()[0];
        assert_eq!(seen, [true; 4]);
        // The seed is fixed, so these figures are too.
        assert!((400..600).contains(&heads) && (50..150).contains(&tenths), "{heads} {tenths}");
    }

    #[test]
    #[should_panic(expected = "of an empty range")]
    fn an_empty_range_has_no_value() {
        let _ = Cluster::connect("local:size=64KiB").unwrap().run(1, async |ct| Ok(ct.random_range(3..3)));
    }
}
