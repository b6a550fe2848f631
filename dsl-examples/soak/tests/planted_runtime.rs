//! The runtime's own planted bugs are found by small programs that use it, and by nothing else.

use farfield_soak::planted_runtime::{PLANTED_IN_RUNTIME, Program};

/// How many seeds a bug may take to be found.
const SEEDS: u64 = 1000;

#[test]
fn the_programs_find_nothing_where_nothing_is_planted() {
    let seeds = if cfg!(debug_assertions) { 20 } else { SEEDS };
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
        let is_slow = matches!(planted.program, Program::Shelves | Program::Moves);
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
