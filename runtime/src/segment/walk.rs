//! `Walk`: detection of cycles, so that each traversal ends.

use farfield_words::Address;

use super::decode::corrupted_as;
use crate::error::Result;

/// Detects that a traversal along links has come back to an object.
///
/// A sound list has an end. One flipped bit in a link may turn it into a cycle, and a traversal that never ends is worse
/// than an error: it blocks its thread, and its guard holds back the reclamation of the whole cluster. So a loop that follows links shows each
/// object to a `Walk`. It is Brent's algorithm: it keeps one address, and replaces it after 1, 2, 4, 8 … steps. So a cycle of `n` objects behind
/// `m` others is found after `3 * max(m, n)` steps at most. A step costs a comparison and a count, no round trip.
///
/// Use one for each traversal from the beginning of a list, under one guard: the memory of an object that is retired meanwhile is not used again,
/// so no traversal of a sound list meets an address twice.
///
/// ```
/// use farfield::prelude::*;
///
/// #[remote]
/// struct Node {
///     next: Link<Node>,
/// }
///
/// async fn length(first: RemotePtr<Node>, g: &Guard<'_>) -> Result<u64> {
///     let (mut node, mut walk) = (first.shared(g), Walk::new());
///     while !node.is_null() {
///         walk.visit(node)?;
///         node = node.next().load(g).await?;
///     }
///     Ok(walk.steps())
/// }
///
/// # fn main() -> Result<()> {
/// Cluster::connect("local:")?.run(1, async |ct| {
///     let last = Node::new_in(ct, Node::init()).await?.write(ct).await?;
///     let first = Node::new_in(ct, Node::init().next(last)).await?.write(ct).await?;
///     let g = &ct.pin();
///     assert_eq!(length(first, g).await?, 2);
///     last.next().store(g, first.shared(g)).await?; // a cycle
///     assert!(matches!(length(first, g).await, Err(farfield::Error::Corrupted(_))));
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Walk {
    /// The object at the last step whose number is a power of two.
    kept: Address,
    /// The number of steps until it is replaced.
    left: u64,
    /// The number of the step at which it is replaced.
    until: u64,
}

/// An address that no traversal visits: past the end of every segment.
const NOWHERE: Address = Address::from_bits(u64::MAX);

impl Walk {
    /// A walk at its beginning.
    #[inline]
    pub const fn new() -> Self {
        Self { kept: NOWHERE, left: 1, until: 1 }
    }

    /// Visits an address. Returns an error if the traversal was there before.
    #[inline]
    pub(crate) fn visit_address(&mut self, at: Address) -> Result<()> {
        if at == self.kept {
            return Err(self.cycle());
        }
        // One instruction a step, and one branch.
        self.left -= 1;
        if self.left == 0 {
            (self.kept, self.left, self.until) = (at, self.until, self.until.saturating_mul(2));
        }
        Ok(())
    }

    /// The number of objects that were visited.
    pub const fn steps(&self) -> u64 {
        self.until - self.left
    }

    #[cold]
    fn cycle(&self) -> crate::error::Error {
        corrupted_as(
            "list",
            self.kept,
            self.kept.bits(),
            "a traversal has come back to this object, so it has no end",
        )
    }
}

impl Default for Walk {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of steps until a link from the last of `objects` to the object at `back` is detected.
    fn steps_around(objects: u64, back: u64) -> u64 {
        let mut walk = Walk::new();
        let mut object = 0;
        while walk.visit_address(Address::new(0, 64 + object * 8)).is_ok() {
            object = if object + 1 < objects { object + 1 } else { back };
            assert!(walk.steps() <= 4 * objects, "{objects} objects, back to {back}");
        }
        walk.steps()
    }

    #[test]
    fn every_cycle_is_detected_soon() {
        for objects in 1..100 {
            for back in 0..objects {
                let (before, around) = (back, objects - back);
                assert!(steps_around(objects, back) <= 3 * before.max(around) + 1, "{before} and {around}");
            }
        }
    }

    #[test]
    fn a_list_that_ends_is_walked_to_its_end() {
        let mut walk = Walk::new();
        assert!((1..10_000).all(|object| walk.visit_address(Address::new(3, object * 8)).is_ok()));
        assert_eq!(walk.steps(), 9_999);
    }

    #[test]
    fn the_error_names_the_location() {
        let mut walk = Walk::new();
        walk.visit_address(Address::new(1, 4096)).unwrap();
        assert_eq!(
            walk.visit_address(Address::new(1, 4096)).unwrap_err().to_string(),
            "far memory is corrupted: the list at 1:0x1000 is 0x1000000001000: a traversal has come back to this object, \
             so it has no end"
        );
    }
}
