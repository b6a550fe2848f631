//! Small programs detect the planted bugs of the runtime, and succeed without them.

use farfield_sim::Plant;
use farfield_soak::planted_runtime::{PLANTED_IN_RUNTIME, Program, aftermath};

/// Number of seeds within which a bug must be detected.
const SEEDS: u64 = 1000;

#[test]
fn programs_succeed_without_a_planted_bug() {
    let seeds = if cfg!(debug_assertions) { 20 } else { 500 };
    for program in Program::ALL {
        for seed in 0..seeds {
            if let Err(error) = program.run(seed, Plant::None) {
                panic!("{program:?}, seed {seed}: {error}");
            }
        }
    }
}

/// Links were cut in these runs while pairs were opened, batches written again, desks out of reach, and names claimed.
#[test]
fn seeds_that_once_failed_succeed() {
    for seed in [11749, 14716, 23928, 24685, 44079, 55754, 60309, 62001] {
        if let Err(error) = Program::CutTrustees.run(seed, Plant::None) {
            panic!("seed {seed}: {error}");
        }
    }
}

#[test]
fn each_planted_bug_of_the_runtime_is_detected() {
    let mut missed = Vec::new();
    for planted in PLANTED_IN_RUNTIME {
        // These programs sweep, which takes long without optimisation.
        let sweeps = matches!(planted.program, Program::Shelves | Program::Moves | Program::Hoards);
        if cfg!(debug_assertions) && sweeps {
            continue;
        }
        match (0..SEEDS).find_map(|seed| planted.find(seed).map(|error| (seed, error))) {
            Some((seed, error)) => eprintln!("{}: seed {seed}: {error}", planted.plant.name()),
            None => missed.push(planted.plant.name()),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}

/// Four threads of eight die in each run. A run fails if memory is lost after the last sweep, as the planted bug `sweep-but-one` shows.
#[test]
fn exactly_the_memory_of_dead_processes_is_swept() {
    // Optimised they take some 30 ms each.
    let seeds = if cfg!(debug_assertions) { 20 } else { 500 };
    for options in ["reclaim=eager", "reclaim=lazy"] {
        let (mut died, mut unswept, mut swept_bytes) = (0, 0, 0);
        for seed in 0..seeds {
            let aftermath =
                aftermath(seed, options).unwrap_or_else(|error| panic!("{options}, seed {seed}: {error}"));
            died += aftermath.died as u64;
            unswept += u64::from(aftermath.uncollected > 0);
            swept_bytes += aftermath.swept_bytes;
        }
        assert!(10 * unswept < seeds, "{options}: {unswept} of {seeds} runs have ended before a sweep");
        assert!(died > 2 * seeds && swept_bytes > 0, "{options}: {died} died, {swept_bytes} bytes");
    }
}
