//! A short soak, as long as an unoptimised build has time for. The long one is `cargo xtask sim-soak`.

use farfield_soak::plan::{Faults, Plan};
use farfield_soak::planted::{Check, PLANTED, Structure};
use farfield_soak::soak::hunt;
use farfield_soak::subject::Subject;

fn find_nothing(structure: Structure, faults: Faults) {
    let subject = Subject::real(structure);
    for seed in 0..1000 {
        let outcome = subject.run_seed(seed, faults);
        let caught: Vec<String> = outcome.caught.iter().map(ToString::to_string).collect();
        assert!(caught.is_empty(), "{} seed {seed} {faults:?}: {}", subject.name(), caught.join("\n"));
        assert!(!outcome.undecided, "{} seed {seed} {faults:?}: too hard a history", subject.name());
    }
}

#[test]
fn a_lazy_list_is_sound() {
    find_nothing(Structure::LazyList, Faults::None);
}

#[test]
fn a_harris_list_is_sound() {
    find_nothing(Structure::HarrisList, Faults::None);
}

#[test]
fn a_naive_lazy_list_is_sound() {
    find_nothing(Structure::LazyListNaive, Faults::None);
}

#[test]
fn a_hash_set_is_sound() {
    find_nothing(Structure::HashSet, Faults::None);
}

#[test]
fn a_treiber_stack_is_sound() {
    find_nothing(Structure::TreiberStack, Faults::None);
}

#[test]
fn an_ms_queue_is_sound() {
    find_nothing(Structure::MsQueue, Faults::None);
}

#[test]
fn a_lazy_list_survives_faults() {
    find_nothing(Structure::LazyList, Faults::Injected);
}

#[test]
fn a_harris_list_survives_faults() {
    find_nothing(Structure::HarrisList, Faults::Injected);
}

#[test]
fn a_naive_lazy_list_survives_faults() {
    find_nothing(Structure::LazyListNaive, Faults::Injected);
}

#[test]
fn a_hash_set_survives_faults() {
    find_nothing(Structure::HashSet, Faults::Injected);
}

#[test]
fn a_treiber_stack_survives_faults() {
    find_nothing(Structure::TreiberStack, Faults::Injected);
}

#[test]
fn an_ms_queue_survives_faults() {
    find_nothing(Structure::MsQueue, Faults::Injected);
}

fn catch_all(structure: Structure) {
    let mut hunted = 0;
    for subject in Subject::mutants().iter().filter(|subject| subject.structure == structure) {
        assert!(hunt(subject, 0..1000).is_some(), "{} is missed", subject.name());
        hunted += 1;
    }
    assert_eq!(hunted, PLANTED.iter().filter(|bug| bug.structure == structure).count());
    assert!(hunted > 0);
}

#[test]
fn the_bugs_planted_in_the_lazy_list_are_caught() {
    catch_all(Structure::LazyList);
}

#[test]
fn the_bugs_planted_in_the_naive_lazy_list_are_caught() {
    catch_all(Structure::LazyListNaive);
}

#[test]
fn the_bugs_planted_in_the_harris_list_are_caught() {
    catch_all(Structure::HarrisList);
}

#[test]
fn the_bugs_planted_in_the_treiber_stack_are_caught() {
    catch_all(Structure::TreiberStack);
}

#[test]
fn the_bugs_planted_in_the_ms_queue_are_caught() {
    catch_all(Structure::MsQueue);
}

/// The runtime's own planted bug: memory is used again one epoch too early.
fn catches_early_reclamation(structure: Structure) {
    let caught = (0..10_000).find(|seed| {
        let plan = Plan { early_reclamation: true, ..Plan::new(structure, *seed, Faults::None) };
        let caught = Subject::real(structure).run(&plan).caught;
        caught.iter().any(|caught| caught.by == Check::Memory)
    });
    let Some(seed) = caught else { panic!("{structure:?}: 10,000 seeds miss early reclamation") };
    println!("{structure:?}: early reclamation is caught at seed {seed}");
}

#[test]
fn memory_that_is_used_again_one_epoch_early_is_caught() {
    for structure in [Structure::LazyList, Structure::HarrisList, Structure::TreiberStack, Structure::MsQueue]
    {
        catches_early_reclamation(structure);
    }
}

#[test]
fn a_seed_is_replayed_bit_for_bit() {
    for structure in Structure::ALL {
        let hash = |seed| {
            let outcome = Subject::real(structure).run_seed(seed, Faults::Injected);
            outcome.simulation.expect("the plan's URL is valid").trace_hash()
        };
        assert_eq!(hash(5), hash(5), "{structure:?}");
        assert_ne!(hash(5), hash(6), "{structure:?}");
    }
}
