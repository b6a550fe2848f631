//! Cases of the corruption test: which word is corrupted, and its new value.
//!
//! A case depends on the seed, its number and the contents of memory at that moment. Of four consecutive cases
//! - two take the next words at fixed addresses, in an order that the seed shuffles: each word is taken within twice as many cases;
//! - one takes a word in use: not 0, at a fixed address, or of a page, a list or a description;
//! - one takes a word of a chunk in use, not 0 if one is found in `ATTEMPTS` attempts.

use std::fmt;

use farfield::__private::Address;
use farfield::__private::metadata::Metadata;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::memory::Memory;

/// A word that is corrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The kind of word.
    pub kind: &'static str,
    /// The name of the word.
    pub name: String,
    /// Its address.
    pub at: Address,
    /// Its old value.
    pub old: u64,
    /// Its new value.
    pub new: u64,
    /// How the new value was derived.
    pub how: &'static str,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, at, old, new, how } = self;
        write!(f, "{kind}|{}+{:#x}|{old:#x}|{new:#x}|{how}|{name}", at.segment(), at.offset())
    }
}

/// Number of words of chunks that are tried to find one that is not 0.
const ATTEMPTS: u32 = 16;
/// The kind of words of chunks.
const HEAP: &str = "heap";

/// Draws the word of a case, and its new value.
pub fn case(memory: &Memory, seed: u64, number: u64) -> Case {
    let mut rng = SmallRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let fixed = memory.map().fixed();
    let look = |at: Address| memory.word(at);
    let chosen = match number % 4 {
        turn @ (0 | 2) => {
            let mut order: Vec<usize> = (0..fixed.len()).collect();
            order.shuffle(&mut SmallRng::seed_from_u64(seed));
            fixed[order[(number / 4 * 2 + turn / 2) as usize % order.len()]]
        }
        1 => in_use(memory, &fixed, &mut rng),
        _ => of_heap(memory, &mut rng).unwrap_or_else(|| in_use(memory, &fixed, &mut rng)),
    };
    let old = look(chosen.at);
    let (new, how) = corrupted(memory, chosen, old, &mut rng);
    let name = if chosen.kind == HEAP { String::new() } else { memory.map().describe(chosen.at) };
    Case { kind: chosen.kind, name, at: chosen.at, old, new, how }
}

/// As [`case`], for a word of a sweep's list of candidates. `None` while there is no list.
pub fn case_of_list(memory: &Memory, seed: u64, number: u64) -> Option<Case> {
    let mut rng = SmallRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let found = memory.map().found(&|at| memory.word(at));
    let list: Vec<Metadata> = found.into_iter().filter(Metadata::is_of_list).collect();
    // The head and the first block ranges, or any word.
    let most = if rng.random() { list.len().min(8) } else { list.len().min(256) };
    let chosen = *list[..most].choose(&mut rng)?;
    let old = memory.word(chosen.at);
    let (new, how) = corrupted(memory, chosen, old, &mut rng);
    Some(Case { kind: chosen.kind, name: String::new(), at: chosen.at, old, new, how })
}

/// Draws a word that is not 0. The kind is drawn first, since some kinds have few words.
fn in_use(memory: &Memory, fixed: &[Metadata], rng: &mut SmallRng) -> Metadata {
    let found = memory.map().found(&|at| memory.word(at));
    let used: Vec<Metadata> =
        fixed.iter().chain(&found).copied().filter(|word| memory.word(word.at) != 0).collect();
    let mut kinds: Vec<&str> = used.iter().map(|word| word.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = kinds.choose(rng).copied().unwrap_or_default();
    let of_kind: Vec<Metadata> = used.into_iter().filter(|word| word.kind == kind).collect();
    of_kind.choose(rng).copied().unwrap_or(fixed[0])
}

/// Draws a word of a chunk in use. `None` if no chunk is in use.
fn of_heap(memory: &Memory, rng: &mut SmallRng) -> Option<Metadata> {
    let chunks = memory.map().heap(&|at| memory.word(at));
    let mut at = Address::NULL;
    for _ in 0..ATTEMPTS {
        let chunk = chunks.choose(rng)?;
        let words = (chunk.end.bits() - chunk.start.bits()) / 8;
        at = chunk.start.add(rng.random_range(0..words) * 8);
        if memory.word(at) != 0 {
            break;
        }
    }
    Some(Metadata { kind: HEAP, at })
}

/// Draws a new value that differs from the old one.
fn corrupted(memory: &Memory, word: Metadata, old: u64, rng: &mut SmallRng) -> (u64, &'static str) {
    loop {
        let (new, how) = draw(memory, word, old, rng);
        if new != old {
            return (new, how);
        }
    }
}

fn draw(memory: &Memory, word: Metadata, old: u64, rng: &mut SmallRng) -> (u64, &'static str) {
    let bit = |rng: &mut SmallRng| 1_u64 << rng.random_range(0..64);
    match rng.random_range(0..16) {
        0 | 1 => (old ^ bit(rng), "a bit flipped"),
        2 => ((0..rng.random_range(2..12)).fold(old, |word, _| word ^ bit(rng)), "bits flipped"),
        3 => (0, "zeros"),
        4 => (u64::MAX, "ones"),
        5 => (old.wrapping_add(1), "plus 1"),
        6 => (old.wrapping_sub(1), "minus 1"),
        7 => (word.at.bits(), "its own address"),
        8 | 9 => (neighbour(memory, word, rng), "another word of its kind"),
        10 => (of_heap(memory, rng).map_or(1, |word| word.at.bits()), "an address in use"),
        11 => (of_heap(memory, rng).map_or(2, |word| memory.word(word.at)), "a word of the heap"),
        12 => {
            (Address::new(rng.random_range(0..8), rng.random_range(0..1 << 47)).bits(), "an address outside")
        }
        13 => (old.wrapping_add(rng.random_range(1..8)), "unaligned"),
        14 => (old & 0xff | rng.random::<u64>() << 8, "a huge count"),
        _ => (rng.random(), "random"),
    }
}

/// The value of another word of the same kind.
fn neighbour(memory: &Memory, word: Metadata, rng: &mut SmallRng) -> u64 {
    let mut kin: Vec<Metadata> = memory.map().fixed();
    kin.extend(memory.map().found(&|at| memory.word(at)));
    kin.retain(|other| other.kind == word.kind && other.at != word.at && memory.word(other.at) != 0);
    kin.choose(rng).map_or_else(
        || of_heap(memory, rng).map_or(3, |word| memory.word(word.at)),
        |kin| memory.word(kin.at),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use farfield::__private::metadata::Map;

    use super::*;

    fn memory() -> (Memory, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("farfield-cases-{}", std::process::id()));
        let map = Map::new(2, 1, 1 << 18).unwrap();
        std::fs::write(&path, vec![0; map.bytes() as usize]).unwrap();
        (Memory::in_file(&path, map).unwrap(), path)
    }

    #[test]
    fn cases_depend_on_their_seed_and_cover_every_fixed_word() {
        let (memory, path) = memory();
        let words = memory.map().fixed().len() as u64;
        let cases: Vec<Case> = (0..2 * words).map(|number| case(&memory, 3, number)).collect();
        assert_eq!(cases[17], case(&memory, 3, 17));
        assert_ne!(cases[17], case(&memory, 4, 17));
        assert!(cases.iter().all(|case| case.new != case.old));
        let taken: HashSet<u64> = cases.iter().map(|case| case.at.bits()).collect();
        assert!(memory.map().fixed().iter().all(|word| taken.contains(&word.at.bits())));
        std::fs::remove_file(path).unwrap();
    }
}
