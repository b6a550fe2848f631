//! The state of an operation's future: before its first poll the thread that will post it, afterwards the posted operation.
//!
//! On the host fabric the first poll is the last: it executes the operation. What such a future costs is what is stored when it is made, since the future
//! lives in the memory of the `async fn` that awaits it, and a processor stores one word a cycle: as many as a step of a pointer chase takes in
//! all. An enum would store its variant beside the reference. Here the reference says which of the two it is: no reference is null.

use std::mem::MaybeUninit;

/// A reference to a `C`, or a `P`.
///
/// Invariant: `posted` is initialised if and only if `thread` is `None`.
pub struct Unposted<'a, C, P> {
    thread: Option<&'a C>,
    posted: MaybeUninit<P>,
}

impl<'a, C, P> Unposted<'a, C, P> {
    /// Makes the state before the first poll.
    #[inline]
    pub const fn new(thread: &'a C) -> Self {
        Self { thread: Some(thread), posted: MaybeUninit::uninit() }
    }

    /// Returns the thread that will post the operation; `None` if it is posted.
    #[inline]
    pub const fn thread(&self) -> Option<&'a C> {
        self.thread
    }

    /// Returns the first poll, if this is it.
    #[inline(always)]
    #[allow(clippy::inline_always)] // or the state is in memory
    pub const fn first_poll(&mut self) -> Option<FirstPoll<'_, 'a, C, P>> {
        match self.thread {
            Some(thread) => Some(FirstPoll { state: self, thread }),
            None => None,
        }
    }

    /// Returns the posted operation, if it is posted.
    #[inline]
    pub fn posted(&mut self) -> Option<&mut P> {
        // SAFETY: if `thread` is `None`, `posted` is initialised.
        self.thread.is_none().then(|| unsafe { self.posted.assume_init_mut() })
    }

    /// Sets the posted operation. One that is posted already is not dropped.
    #[inline]
    pub fn set_posted(&mut self, posted: P) {
        debug_assert!(self.thread.is_some(), "an operation is posted once");
        self.posted.write(posted);
        self.thread = None;
    }

    /// The posted operation is completed, and is not dropped. The state is that before the first poll.
    #[inline]
    pub fn complete(&mut self, thread: &'a C) {
        self.thread = Some(thread);
    }
}

/// The first poll of an operation.
///
/// Invariant: `thread` is that of the state, so the operation is not posted. The state is borrowed and its fields are private: only this module could
/// post it meanwhile.
pub struct FirstPoll<'s, 'a, C, P> {
    state: &'s mut Unposted<'a, C, P>,
    thread: &'a C,
}

impl<'a, C, P> FirstPoll<'_, 'a, C, P> {
    /// Returns the thread that executes the operation.
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is one word
    pub const fn thread(&self) -> &'a C {
        self.thread
    }

    /// Notes that the operation has been executed without being posted. So the compiler knows that nothing is left to drop: after an access to far memory it
    /// would load the state again, and compare.
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is nothing
    pub const fn executed(self) {
        // SAFETY: the invariant.
        unsafe { std::hint::assert_unchecked(self.state.thread.is_some()) };
    }
}

impl<C, P> Drop for Unposted<'_, C, P> {
    #[inline]
    fn drop(&mut self) {
        if self.thread.is_none() {
            // SAFETY: `posted` is initialised by the invariant, and dropped once: nothing uses the state after this.
            unsafe { drop_posted(&mut self.posted) };
        }
    }
}

/// Drops a posted operation. Cold, although a future that waited is dropped like this, too: where the future is polled, the compiler would keep the
/// result on the stack for this call, on the path of the host fabric as well.
///
/// # Safety
/// It is initialised, and not used after this.
#[cold]
unsafe fn drop_posted<P>(posted: &mut MaybeUninit<P>) {
    // SAFETY: the contract.
    unsafe { posted.assume_init_drop() };
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn an_operation_is_posted_once_and_dropped_once() {
        let (thread, posted) = (7, Rc::new(()));
        let mut state = Unposted::new(&thread);
        assert_eq!((state.thread(), state.posted().is_none()), (Some(&7), true));
        state.set_posted((thread, Rc::clone(&posted)));
        assert_eq!(state.thread(), None);
        state.posted().unwrap().0 += 1;
        assert_eq!(state.posted().unwrap().0, 8);
        assert_eq!(Rc::strong_count(&posted), 2);
        drop(state);
        assert_eq!(Rc::strong_count(&posted), 1);
    }

    #[test]
    fn a_completed_operation_is_not_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("it is completed");
            }
        }
        let mut state = Unposted::new(&7);
        state.set_posted(Bomb);
        state.complete(&7);
        assert_eq!((state.thread(), state.posted().is_none()), (Some(&7), true));
    }

    #[test]
    fn an_operation_that_is_not_posted_is_not_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("it was never made");
            }
        }
        drop(Unposted::<_, Bomb>::new(&7));
        let mut state = Unposted::<_, Bomb>::new(&7);
        let first = state.first_poll().unwrap();
        assert_eq!(first.thread(), &7);
        first.executed();
        assert_eq!(state.thread(), Some(&7));
    }

    #[test]
    fn a_posted_operation_has_no_first_poll() {
        let mut state = Unposted::new(&7);
        state.set_posted(8);
        assert!(state.first_poll().is_none());
        state.complete(&7);
        assert!(state.first_poll().is_some());
    }

    #[test]
    fn a_state_takes_a_reference_beside_the_operation() {
        assert_eq!(size_of::<Unposted<'_, u8, [u64; 3]>>(), 4 * 8);
    }
}
