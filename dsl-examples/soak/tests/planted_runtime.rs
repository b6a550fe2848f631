//! The runtime's own planted bugs are found by small programs that use it, and by nothing else.

use farfield_soak::planted_runtime::{PLANTED_IN_RUNTIME, Program, aftermath};

/// How many seeds a bug may take to be found.
const SEEDS: u64 = 1000;

#[test]
fn the_programs_find_nothing_where_nothing_is_planted() {
    let seeds = if cfg!(debug_assertions) { 20 } else { 1000 };
    for program in Program::ALL {
        for seed in 0..seeds {
            if let Err(error) = program.run(seed, "none") {
                panic!("{program:?}, seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn each_planted_bug_of_the_runtime_is_found() {
    let mut missed = Vec::new();
    for planted in PLANTED_IN_RUNTIME {
        // Sweeps take a while; unoptimised, others stand for them.
        let is_slow = matches!(planted.program, Program::Shelves | Program::Moves | Program::Hoards);
        if cfg!(debug_assertions) && is_slow {
            continue;
        }
        match (0..SEEDS).find_map(|seed| planted.find(seed).map(|error| (seed, error))) {
            Some((seed, error)) => eprintln!("{}: seed {seed}: {error}", planted.plant),
            None => missed.push(planted.plant),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}

/// Four threads of eight die in each run. Memory that is neither reachable nor a survivor's after the last sweep would be an error of the run; which the
/// planted bug `sweep-but-one` shows.
#[test]
fn what_the_dead_have_left_comes_back_and_nothing_else() {
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
