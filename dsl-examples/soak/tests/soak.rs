//! A short soak, for an unoptimised build: CI runs a thousand seeds of each structure optimised, and hunts the mutants. The long one is `cargo xtask sim-soak`.

use farfield_sim::Plant;
use farfield_soak::Check;
use farfield_soak::mutants;
use farfield_soak::planted::Structure;
use farfield_soak::subject::{Bug, Subject};
use farfield_testing::Faults;

fn succeeds(structure: Structure, faults: Faults) {
    let subject = Subject::real(structure);
    // A run of a map takes several times as long as another.
    for seed in 0..if structure.is_map() { 10 } else { 40 } {
        let outcome = subject.run_seed(seed, faults);
        let found: Vec<String> = outcome.found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{} seed {seed} {faults:?}: {}", subject.name(), found.join("\n"));
        assert!(
            outcome.undecided.is_empty(),
            "{} seed {seed} {faults:?}: an undecided history",
            subject.name()
        );
    }
}

#[test]
fn a_lazy_list_is_sound() {
    succeeds(Structure::LazyList, Faults::None);
}

#[test]
fn a_harris_list_is_sound() {
    succeeds(Structure::HarrisList, Faults::None);
}

#[test]
fn a_naive_lazy_list_is_sound() {
    succeeds(Structure::LazyListNaive, Faults::None);
}

#[test]
fn a_hash_set_is_sound() {
    succeeds(Structure::HashSet, Faults::None);
}

#[test]
fn a_treiber_stack_is_sound() {
    succeeds(Structure::TreiberStack, Faults::None);
}

#[test]
fn an_ms_queue_is_sound() {
    succeeds(Structure::MsQueue, Faults::None);
}

#[test]
fn a_ring_is_sound() {
    succeeds(Structure::Ring, Faults::None);
    succeeds(Structure::MappedRing, Faults::None);
}

#[test]
fn a_lazy_list_survives_faults() {
    succeeds(Structure::LazyList, Faults::Injected);
}

#[test]
fn a_harris_list_survives_faults() {
    succeeds(Structure::HarrisList, Faults::Injected);
}

#[test]
fn a_naive_lazy_list_survives_faults() {
    succeeds(Structure::LazyListNaive, Faults::Injected);
}

#[test]
fn a_hash_set_survives_faults() {
    succeeds(Structure::HashSet, Faults::Injected);
}

#[test]
fn a_treiber_stack_survives_faults() {
    succeeds(Structure::TreiberStack, Faults::Injected);
}

#[test]
fn an_ms_queue_survives_faults() {
    succeeds(Structure::MsQueue, Faults::Injected);
}

#[test]
fn a_ring_survives_faults() {
    succeeds(Structure::Ring, Faults::Injected);
    succeeds(Structure::MappedRing, Faults::Injected);
}

#[test]
fn a_hash_map_is_sound() {
    succeeds(Structure::HashMap, Faults::None);
}

#[test]
fn a_hash_map_with_small_tables_is_sound() {
    succeeds(Structure::SmallHashMap, Faults::None);
}

#[test]
fn a_hash_map_of_byte_strings_is_sound() {
    succeeds(Structure::HashMapOfBytes, Faults::None);
}

#[test]
fn a_hash_map_survives_faults() {
    succeeds(Structure::HashMap, Faults::Injected);
}

#[test]
fn a_hash_map_with_small_tables_survives_faults() {
    succeeds(Structure::SmallHashMap, Faults::Injected);
}

#[test]
fn a_hash_map_of_byte_strings_survives_faults() {
    succeeds(Structure::HashMapOfBytes, Faults::Injected);
}

#[test]
fn an_inline_hash_map_is_sound() {
    succeeds(Structure::InlineHashMap, Faults::None);
}

#[test]
fn an_inline_hash_map_with_small_tables_is_sound() {
    succeeds(Structure::SmallInlineHashMap, Faults::None);
}

#[test]
fn an_inline_hash_map_survives_faults() {
    succeeds(Structure::InlineHashMap, Faults::Injected);
}

#[test]
fn an_inline_hash_map_with_small_tables_survives_faults() {
    succeeds(Structure::SmallInlineHashMap, Faults::Injected);
}

#[test]
fn a_skip_list_is_sound() {
    succeeds(Structure::SkipList, Faults::None);
}

#[test]
fn a_skip_list_with_tall_towers_is_sound() {
    succeeds(Structure::TallSkipList, Faults::None);
}

#[test]
fn a_skip_list_survives_faults() {
    succeeds(Structure::SkipList, Faults::Injected);
}

#[test]
fn a_skip_list_with_tall_towers_survives_faults() {
    succeeds(Structure::TallSkipList, Faults::Injected);
}

#[test]
fn an_ordered_map_is_sound() {
    succeeds(Structure::OrderedMap, Faults::None);
}

#[test]
fn an_ordered_map_with_small_nodes_is_sound() {
    succeeds(Structure::SmallOrderedMap, Faults::None);
}

#[test]
fn an_ordered_map_of_byte_strings_is_sound() {
    succeeds(Structure::OrderedMapOfBytes, Faults::None);
}

#[test]
fn an_ordered_map_survives_faults() {
    succeeds(Structure::OrderedMap, Faults::Injected);
}

#[test]
fn an_ordered_map_with_small_nodes_survives_faults() {
    succeeds(Structure::SmallOrderedMap, Faults::Injected);
}

#[test]
fn an_ordered_map_of_byte_strings_survives_faults() {
    succeeds(Structure::OrderedMapOfBytes, Faults::Injected);
}

#[test]
fn a_priority_queue_is_sound() {
    succeeds(Structure::PriorityQueue, Faults::None);
}

#[test]
fn a_priority_queue_survives_faults() {
    succeeds(Structure::PriorityQueue, Faults::Injected);
}

#[test]
fn an_interlocked_hash_table_is_sound() {
    succeeds(Structure::InterlockedHashTable, Faults::None);
}

#[test]
fn an_interlocked_hash_table_with_small_lists_is_sound() {
    succeeds(Structure::SmallInterlockedHashTable, Faults::None);
}

#[test]
fn an_interlocked_hash_table_survives_faults() {
    succeeds(Structure::InterlockedHashTable, Faults::Injected);
}

#[test]
fn an_interlocked_hash_table_with_small_lists_survives_faults() {
    succeeds(Structure::SmallInterlockedHashTable, Faults::Injected);
}

#[test]
fn a_register_is_sound() {
    succeeds(Structure::Register, Faults::None);
}

#[test]
fn a_register_survives_faults() {
    succeeds(Structure::Register, Faults::Injected);
}

#[test]
fn a_key_value_store_is_sound() {
    succeeds(Structure::KeyValueStore, Faults::None);
}

#[test]
fn a_key_value_store_with_small_pages_is_sound() {
    succeeds(Structure::SmallKeyValueStore, Faults::None);
}

#[test]
fn a_key_value_store_survives_faults() {
    succeeds(Structure::KeyValueStore, Faults::Injected);
}

#[test]
fn a_key_value_store_with_small_pages_survives_faults() {
    succeeds(Structure::SmallKeyValueStore, Faults::Injected);
}

#[test]
fn the_bugs_planted_in_the_runtime_are_detected() {
    let of_runtime = mutants::planted().filter(|subject| matches!(subject.bug, Bug::Runtime(..)));
    let hunted = of_runtime
        .inspect(|subject| assert!(subject.hunt(0..1000).is_some(), "{} is not detected", subject.name()))
        .count();
    assert_eq!(hunted, 3);
}

/// One structure must detect this bug in a hunt; every structure that retires memory can.
#[test]
fn reclamation_one_epoch_early_is_detected_in_each_structure() {
    for structure in [Structure::LazyList, Structure::HarrisList, Structure::TreiberStack, Structure::MsQueue]
    {
        let detected = (0..1000).any(|seed| {
            let outcome = Subject::real(structure).run_planted(seed, Faults::None, Plant::EarlyReclamation);
            outcome.found.iter().any(|found| found.by == Check::Memory)
        });
        assert!(detected, "{structure:?}: 1,000 seeds do not detect early reclamation");
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
