//! Which record an operation takes: YCSB's request distributions.
//!
//! Records are numbered in the order of their insertion. A draw is below `present`, the number of records whose insertion has ended.

use clap::ValueEnum;
use rand::{Rng, RngExt};

use farfield_examples::zipf::Zipf;

/// The request distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// Each of the loaded records equally often
    Uniform,
    /// Zipf with exponent 0.99; the popular records are spread over all
    Zipfian,
    /// Zipf with exponent 0.99; the newest record is the most popular
    Latest,
}

impl Distribution {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
        }
    }
}

/// The number of ranks of the scrambled distribution, and their `zeta`: constants of YCSB, so that popularities do not depend on the number of records.
const RANKS: u64 = 10_000_000_001;
const ZETA_OF_RANKS: f64 = 26.469_028_201_783_02;

/// Draws record numbers.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    Uniform { loaded: u64 },
    Scrambled { ranks: Zipf, records: u64 },
    Latest { ages: Zipf },
}

impl Chooser {
    /// `loaded` records exist before the run, which inserts about `expected` more.
    pub(crate) fn new(distribution: Distribution, loaded: u64, expected: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform { loaded },
            // As YCSB: the popular records must not change while the number of records grows.
            Distribution::Zipfian => Self::Scrambled {
                ranks: Zipf::with_zeta(RANKS, ZETA_OF_RANKS),
                records: loaded.saturating_add(expected.saturating_mul(2)),
            },
            Distribution::Latest => Self::Latest { ages: Zipf::new(loaded) },
        }
    }

    /// Returns a number below `present`.
    pub(crate) fn choose(&mut self, present: u64, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Uniform { loaded } => rng.random_range(0..(*loaded).min(present).max(1)),
            Self::Scrambled { ranks, records } => loop {
                let record = fnv(ranks.sample(rng)) % *records;
                if record < present {
                    return record;
                }
            },
            Self::Latest { ages } => {
                ages.grow(present);
                present.saturating_sub(1).saturating_sub(ages.sample(rng))
            }
        }
    }
}

/// The 64-bit FNV hash of YCSB: that of the number's bytes, as the absolute value of a signed number.
pub(crate) fn fnv(number: u64) -> u64 {
    let hash = number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    hash.cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn counts(distribution: Distribution, loaded: u64, expected: u64, present: u64) -> Vec<u32> {
        let mut chooser = Chooser::new(distribution, loaded, expected);
        let (mut rng, mut counts) = (SmallRng::seed_from_u64(1), vec![0; present as usize]);
        for _ in 0..100_000 {
            counts[chooser.choose(present, &mut rng) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_draws_take_each_loaded_record_equally_often() {
        let counts = counts(Distribution::Uniform, 100, 0, 120);
        assert!(counts[..100].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(counts[100..].iter().sum::<u32>(), 0);
    }

    #[test]
    fn the_popular_records_of_the_scrambled_distribution_are_those_of_ycsb() {
        let counts = counts(Distribution::Zipfian, 1000, 0, 1000);
        let mut by_count: Vec<usize> = (0..1000).collect();
        by_count.sort_by_key(|record| std::cmp::Reverse(counts[*record]));
        // The records of ranks 0, 1 and 2. Their shares are 1, 0.5 and 0.34 of 1 / ZETA_OF_RANKS, and a little for other ranks with the same record. The
        // first is drawn 3778 times, with a standard deviation of 60.
        assert_eq!(by_count[..3], [0, 1, 2].map(|rank| (fnv(rank) % 1000) as usize));
        assert!((3600..4050).contains(&counts[by_count[0]]), "{}", counts[by_count[0]]);
    }

    #[test]
    fn the_scrambled_distribution_is_spread_over_all_records() {
        let counts = counts(Distribution::Zipfian, 1000, 0, 1000);
        assert!(counts.iter().all(|count| *count > 0), "every record is drawn");
        let tenths: Vec<u32> = counts.chunks(100).map(|tenth| tenth.iter().sum()).collect();
        assert!(tenths.iter().all(|tenth| (6_500..18_000).contains(tenth)), "{tenths:?}");
    }

    #[test]
    fn the_scrambled_distribution_draws_present_records_only_and_includes_new_ones() {
        let counts = counts(Distribution::Zipfian, 100, 50, 150);
        assert!(counts[100..].iter().all(|count| *count > 0), "{counts:?}");
    }

    #[test]
    fn the_latest_distribution_prefers_the_newest() {
        let counts = counts(Distribution::Latest, 1000, 10, 1010);
        let zeta: f64 = (1..=1010).map(|rank| f64::from(rank).powf(-farfield_examples::zipf::THETA)).sum();
        let expected = 100_000.0 / zeta;
        assert!((f64::from(counts[1009]) / expected - 1.0).abs() < 0.03, "{} of {expected}", counts[1009]);
        assert!(counts[1009] > counts[1008] && counts[1008] > counts[1000] && counts[1000] > counts[500]);
        let newest: u32 = counts[910..].iter().sum();
        assert!(newest > 65_000, "most draws are of the newest tenth: {newest}");
    }

    #[test]
    fn the_hash_is_that_of_ycsb() {
        // `Utils.fnvhash64(0)`: 8 zero bytes multiply the basis by the prime 8 times. Its sign bit is set.
        assert_eq!(fnv(0), 6_284_781_860_667_377_211);
        assert_ne!(fnv(1), fnv(2));
    }
}
