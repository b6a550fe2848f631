//! Zipf-distributed ranks, by the method of YCSB.
//!
//! Rank `i` has a probability proportional to `1 / (i + 1)^THETA`. A rank is drawn in constant time, by the approximation of Gray et al., "Quickly
//! Generating Billion-Record Synthetic Databases" (SIGMOD 1994): ranks 0 and 1 have exactly their probabilities, the others approximately.

use rand::{Rng, RngExt};

/// The exponent that YCSB uses.
pub const THETA: f64 = 0.99;

/// Draws ranks from 0 to the number of items less 1.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    /// The sum of `1 / i^THETA` for `i` from 1 to `items`.
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Draws from `items` items. Takes time proportional to their number.
    pub fn new(items: u64) -> Self {
        let mut zipf = Self { items: 0, zeta: 0.0, eta: 0.0 };
        zipf.grow(items.max(1));
        zipf
    }

    /// Draws from `items` items, whose `zeta` is known.
    pub fn with_zeta(items: u64, zeta: f64) -> Self {
        Self { items, zeta, eta: eta(items, zeta) }
    }

    /// Draws from `items` items from now on, if they are more than before. Takes time proportional to the number of new ones.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta += (self.items + 1..=items).map(weight).sum::<f64>();
            self.items = items;
            self.eta = eta(items, self.zeta);
        }
    }

    /// Draws a rank.
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        let drawn: f64 = rng.random();
        let scaled = drawn * self.zeta;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < 1.0 + weight(2) || self.items == 2 {
            return 1;
        }
        let base = self.eta.mul_add(drawn - 1.0, 1.0);
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // positive, and below 2^53
        let rank = (self.items as f64 * base.powf(1.0 / (1.0 - THETA))) as u64;
        rank.min(self.items - 1)
    }
}

/// The weight of the `i`-th item, from 1.
#[allow(clippy::cast_precision_loss)] // the number of items is below 2^53
fn weight(i: u64) -> f64 {
    (i as f64).powf(-THETA)
}

#[allow(clippy::cast_precision_loss)] // as above
fn eta(items: u64, zeta: f64) -> f64 {
    (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - (1.0 + weight(2)) / zeta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    const DRAWS: u32 = 1_000_000;

    fn frequencies(zipf: &Zipf, items: usize) -> Vec<f64> {
        let (mut rng, mut counts) = (SmallRng::seed_from_u64(1), vec![0_u32; items]);
        for _ in 0..DRAWS {
            counts[zipf.sample(&mut rng) as usize] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / f64::from(DRAWS)).collect()
    }

    #[test]
    fn frequencies_are_those_of_the_theory() {
        for items in [1, 2, 3, 10, 100] {
            let zeta: f64 = (1..=items).map(weight).sum();
            let drawn = frequencies(&Zipf::new(items), items as usize);
            for (rank, drawn) in drawn.iter().enumerate() {
                let expected = weight(rank as u64 + 1) / zeta;
                // Gray's approximation is exact for the first two ranks, and coarse for the next ones.
                let tolerance = if rank < 2 { 0.01 } else { 0.25 };
                let error = (drawn / expected - 1.0).abs();
                assert!(error < tolerance, "{items} items, rank {rank}: {drawn} instead of {expected}");
            }
        }
    }

    #[test]
    fn a_grown_generator_is_that_of_the_larger_number() {
        let (mut grown, whole) = (Zipf::new(10), Zipf::new(1000));
        grown.grow(400);
        grown.grow(1000);
        grown.grow(5);
        assert_eq!(grown.items, 1000);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9 && (grown.eta - whole.eta).abs() < 1e-9);
    }
}
