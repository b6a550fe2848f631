//! Layouts as text, and the pointers that they find in objects.

use farfield::prelude::*;
use farfield_words::describe::describe;
use farfield_words::layouts::{Found, Layouts};

#[remote]
struct Leaf {
    word: u64,
}

#[remote]
struct Pair {
    first: Link<Leaf>,
    number: Atomic<u32>,
}

#[remote]
struct Root {
    number: u64,
    leaf: RemotePtr<Leaf>,
    pairs: [Pair; 2],
    stamped: StampedLink<Leaf>,
    atomic: Atomic<RemotePtr<Root>>,
    several: Versioned<[RemotePtr<Leaf>; 2]>,
    lock: Lock,
    rest: Tail<Link<Root>>,
}

fn pointers(words: &[u64]) -> Vec<(u64, Option<Box<str>>)> {
    let layouts = Layouts::parse(&describe::<Root>()).unwrap();
    let mut found = Vec::new();
    layouts.visit(Layouts::ROOT, words, &mut |what| {
        if let Found::Pointer(at, of) = what {
            let name = of.map(|of| layouts.types[of].name.rsplit("::").next().unwrap_or_default().into());
            found.push((at.bits(), name));
        }
    });
    found
}

#[test]
fn every_pointer_of_an_object_is_found() {
    // Bit 47 of a tagged word says that it holds a pointer that is followed.
    let words = [1, 16, 25, 0, 32, 0, 1 << 47 | 5, 40, 0, 0, 48, 56, 9, 2, 64, 72];
    let (leaf, root) = (Some("Leaf".into()), Some("Root".into()));
    let leaves = [16, 24, 32, 40].map(|at| (at, leaf.clone()));
    let found = pointers(&words);
    assert_eq!(found[..4], leaves, "marks are not part of an address");
    assert_eq!(found[4], (40, root.clone()));
    assert_eq!(found[5..7], [(48, leaf.clone()), (56, leaf)]);
    assert_eq!(found[7..], [(64, root.clone()), (72, root)]);
}

#[test]
fn values_and_hidden_pointers_are_not_found() {
    let link = 6;
    let mut words = [0; 7];
    let found = [5, 1 << 46 | 5, 1 << 47 | 5].map(|word| {
        words[link] = word;
        pointers(&words).into_iter().filter(|pointer| pointer.0 == 40).count()
    });
    assert_eq!(found, [0, 0, 1], "a hidden pointer, a value, a pointer");
}

#[test]
fn lengths_stored_in_an_object_are_bounded_by_its_words() {
    assert_eq!(pointers(&[0; 3]).len(), 1, "an element that is cut off is not visited");
    let found = pointers(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, u64::MAX, 8]);
    assert_eq!(
        found.len(),
        7,
        "a tail has no more elements than the object has words; a null tagged link is not found"
    );
}
