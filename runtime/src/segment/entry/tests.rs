//! The directory's words.

use super::*;
use std::num::NonZeroU64;

#[test]
fn states_survive_encoding() {
    let id = ThreadId::new(NonZeroU64::new(77).unwrap());
    for state in [State::Empty, State::Naming(id), State::Vacant, State::Initialising(id), State::Ready] {
        assert_eq!(State::from_word(state.to_word()), Some(state));
    }
    assert_eq!(State::from_word(7), None);
    assert_eq!(State::from_word(1), None, "the word names no claimant");
}

#[test]
fn long_type_names_are_cut_at_a_character() {
    let name = "é".repeat(40);
    assert_eq!(unpack(&pack(&name)), "é".repeat(23));
    assert_eq!(unpack(&pack("set")), "set");
}
