//! What holds of planted bugs beside that `soak --planted` detects them. With the feature `mutants`, which CI has in its optimised builds.

use farfield_soak::mutants::MUTANTS;
use farfield_soak::planted;
use farfield_testing::Faults;

#[test]
fn each_planted_bug_has_a_mutant() {
    let mutants = MUTANTS.iter().map(|subject| (subject.name(), subject.structure));
    assert!(mutants.eq(planted::all().map(|bug| (bug.name, bug.structure))));
}

/// The tag of a retired object bounds the epoch from above. So a guard that is held until the object is unlinked protects all threads that
/// can still reach it. Harm needs a death in between: these bugs are detected with faults. (An older guard of the same thread, such as that
/// of its process's keeper, also allows harm, so plans with keepers are skipped.)
#[test]
fn retiring_before_unlinking_under_one_guard_does_no_harm_while_its_thread_lives() {
    let (mut tried, mut plans) = (0, 0);
    for subject in MUTANTS {
        if !subject.name().ends_with("_retires_before_it_unlinks") {
            continue;
        }
        for seed in 0..1000 {
            let outcome = subject.run_seed(seed, Faults::None);
            if ["dead=marked", "sweep=yes"].iter().any(|option| outcome.plan.contains(option)) {
                continue;
            }
            plans += 1;
            assert!(outcome.found.is_empty(), "{} seed {seed}: {}", subject.name(), outcome.found[0]);
        }
        tried += 1;
    }
    assert_eq!(tried, 3, "the lazy lists and the Harris list");
    assert!(plans > 1400, "half of all: {plans}");
}
