//! The core workloads of YCSB: the shares of the operations.

use clap::ValueEnum;
use rand::{Rng, RngExt};

use crate::distribution::Distribution;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An insertion before the run.
    Load,
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Load, Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }

    /// Returns whether operations of this kind belong to the measured run.
    pub(crate) fn is_of_run(self) -> bool {
        self != Self::Load
    }
}

/// The longest scan of YCSB, in records.
pub(crate) const LONGEST_SCAN: u64 = 100;

/// The core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// 50 % reads, 50 % updates; zipfian
    A,
    /// 95 % reads, 5 % updates; zipfian
    B,
    /// Reads; zipfian
    C,
    /// 95 % reads, 5 % insertions; the latest records
    D,
    /// 95 % scans of up to --scan-length records, 5 % insertions; zipfian
    E,
    /// 50 % reads, 50 % read-modify-writes; zipfian
    F,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }

    /// The frequent and the rare kind, and the percentage of the rare one.
    fn mix(self) -> (Kind, Kind, u64) {
        match self {
            Self::A => (Kind::Read, Kind::Update, 50),
            Self::B => (Kind::Read, Kind::Update, 5),
            Self::C => (Kind::Read, Kind::Read, 0),
            Self::D => (Kind::Read, Kind::Insert, 5),
            Self::E => (Kind::Scan, Kind::Insert, 5),
            Self::F => (Kind::Read, Kind::ReadModifyWrite, 50),
        }
    }

    pub(crate) fn distribution(self) -> Distribution {
        if self == Self::D { Distribution::Latest } else { Distribution::Zipfian }
    }

    /// The number of insertions among `operations`, on average.
    pub(crate) fn expected_insertions(self, operations: u64) -> u64 {
        let (_, rare, percent) = self.mix();
        if rare == Kind::Insert { operations.saturating_mul(percent) / 100 } else { 0 }
    }

    pub(crate) fn choose(self, rng: &mut impl Rng) -> Kind {
        let (frequent, rare, percent) = self.mix();
        if rng.random_range(0..100) < percent { rare } else { frequent }
    }
}

/// Draws the number of records of a scan.
pub(crate) fn scan_length(longest: u64, rng: &mut impl Rng) -> u64 {
    rng.random_range(1..=longest.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    #[test]
    fn each_mix_has_the_shares_of_ycsb() {
        use Kind::{Insert, Read, ReadModifyWrite, Scan, Update};
        for (workload, shares, distribution) in [
            (Workload::A, &[(Read, 50), (Update, 50)][..], Distribution::Zipfian),
            (Workload::B, &[(Read, 95), (Update, 5)], Distribution::Zipfian),
            (Workload::C, &[(Read, 100)], Distribution::Zipfian),
            (Workload::D, &[(Read, 95), (Insert, 5)], Distribution::Latest),
            (Workload::E, &[(Scan, 95), (Insert, 5)], Distribution::Zipfian),
            (Workload::F, &[(Read, 50), (ReadModifyWrite, 50)], Distribution::Zipfian),
        ] {
            let mut rng = SmallRng::seed_from_u64(1);
            let drawn: Vec<Kind> = (0..100_000).map(|_| workload.choose(&mut rng)).collect();
            let mut others = drawn.len();
            for (kind, percent) in shares {
                let count = drawn.iter().filter(|drawn| *drawn == kind).count();
                assert!(count.abs_diff(percent * 1000) < 500, "{workload:?}: {count} of {kind:?}");
                others -= count;
            }
            assert_eq!(others, 0, "{workload:?} has no other kind");
            assert_eq!(workload.distribution(), distribution);
        }
    }

    #[test]
    fn scans_have_each_length_up_to_a_hundred() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut counts = [0; LONGEST_SCAN as usize + 1];
        for _ in 0..100_000 {
            counts[scan_length(LONGEST_SCAN, &mut rng) as usize] += 1;
        }
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert!((0..100).all(|_| scan_length(1, &mut rng) == 1));
    }
}
