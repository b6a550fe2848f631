//! A short soak, as long as an unoptimised build has time for. The long one is `cargo xtask sim-soak`.

use farfield_soak::mutants::MUTANTS;
use farfield_soak::planted::{self, Check, Planted, Structure};
use farfield_soak::subject::Subject;
use farfield_testing::Faults;

fn find_nothing(structure: Structure, faults: Faults) {
    let subject = Subject::real(structure);
    for seed in 0..1000 {
        let outcome = subject.run_seed(seed, faults);
        let caught: Vec<String> = outcome.caught.iter().map(ToString::to_string).collect();
        assert!(caught.is_empty(), "{} seed {seed} {faults:?}: {}", subject.name(), caught.join("\n"));
        assert!(
            outcome.undecided.is_empty(),
            "{} seed {seed} {faults:?}: too hard a history",
            subject.name()
        );
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

#[test]
fn a_register_is_sound() {
    find_nothing(Structure::Register, Faults::None);
}

#[test]
fn a_register_survives_faults() {
    find_nothing(Structure::Register, Faults::Injected);
}

fn catch_all(structure: Structure, in_runtime: bool) {
    let is_hunted = |bug: &Planted| bug.structure == structure && bug.bug.is_in_runtime() == in_runtime;
    let mut hunted = 0;
    for subject in MUTANTS.iter().filter(|subject| subject.planted.is_some_and(is_hunted)) {
        assert!(subject.hunt(0..1000).is_some(), "{} is missed", subject.name());
        hunted += 1;
    }
    assert_eq!(hunted, planted::all().filter(|bug| is_hunted(bug)).count());
    assert!(hunted > 0 || in_runtime);
}

#[test]
fn the_bugs_planted_in_the_lazy_list_are_caught() {
    catch_all(Structure::LazyList, false);
}

#[test]
fn the_bugs_planted_in_the_naive_lazy_list_are_caught() {
    catch_all(Structure::LazyListNaive, false);
}

#[test]
fn the_bugs_planted_in_the_harris_list_are_caught() {
    catch_all(Structure::HarrisList, false);
}

#[test]
fn the_bugs_planted_in_the_hash_set_are_caught() {
    catch_all(Structure::HashSet, false);
}

#[test]
fn the_bugs_planted_in_the_treiber_stack_are_caught() {
    catch_all(Structure::TreiberStack, false);
}

#[test]
fn the_bugs_planted_in_the_ms_queue_are_caught() {
    catch_all(Structure::MsQueue, false);
}

#[test]
fn the_bugs_planted_in_the_runtime_are_caught() {
    for structure in Structure::ALL {
        catch_all(structure, true);
    }
}

/// The tags of retired objects bound the epoch from above, so the guard that is held until the object is unlinked protects it from all
/// that can still reach it. Only a death in between does harm, and then these are planted bugs. (And an older guard of the same thread,
/// that of its process's keeper for one: so plans with keepers do not count.)
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
            assert!(outcome.caught.is_empty(), "{} seed {seed}: {}", subject.name(), outcome.caught[0]);
        }
        tried += 1;
    }
    assert_eq!(tried, 3, "the lazy lists and the Harris list");
    assert!(plans > 1400, "half of all: {plans}");
}

/// The table has a bug of this kind once; it shows in every structure that retires memory.
#[test]
fn memory_that_is_used_again_one_epoch_early_is_caught_in_each_structure() {
    for structure in [Structure::LazyList, Structure::HarrisList, Structure::TreiberStack, Structure::MsQueue]
    {
        let caught = (0..1000).find(|seed| {
            let outcome = Subject::real(structure).run_with(*seed, Faults::None, "plant=early-reclamation");
            let caught = outcome.caught;
            caught.iter().any(|caught| caught.by == Check::Memory)
        });
        assert!(caught.is_some(), "{structure:?}: 1,000 seeds miss early reclamation");
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
