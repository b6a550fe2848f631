//! The calls of a client that no thread has begun.
//!
//! One lock protects the waiting calls, the callers that wait for room, and the threads that wait for calls. A thread or caller checks for work or
//! room and stores its waker under that lock, so no wake is lost. Wakers are called, and calls dropped, after the lock is released: both are foreign
//! code.
//!
//! **Bounded and in order.** At most `bound` calls wait. A caller that finds no room stores its waker in a line. Freed room is *granted* to the first
//! caller in line: it is reserved until that caller uses it, or is dropped, which grants it to the next. A new caller does not overtake the line.
//! Nested calls, made by the work of other calls, need no room: see [`client`](super).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::work::Work;

/// The waiting calls, callers and threads.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    bound: usize,
}

struct QueueState {
    /// Calls that wait for a thread, in the order of arrival; and nested calls.
    calls: BTreeMap<u64, Box<dyn Work>>,
    nested: BTreeMap<u64, Box<dyn Work>>,
    /// Callers that wait for room, in order; and callers with granted room.
    line: BTreeMap<u64, Waker>,
    granted: BTreeSet<u64>,
    /// The last number that was assigned to a call or a place in line.
    numbers: u64,
    /// Threads without work, or whose work waits. `has_room` is true if a thread can take calls that are not nested.
    idle: Vec<Idle>,
    is_closed: bool,
    /// The number of threads that have not ended, and the wakers of tasks that wait for their end.
    threads: usize,
    end_wakers: Vec<Waker>,
}

struct Idle {
    thread: usize,
    has_room: bool,
    waker: Waker,
}

/// The result of offering a call.
pub(super) enum Offered {
    /// The call is in the queue, under this number.
    Accepted(u64),
    /// The queue is full.
    Full(Box<dyn Work>),
    /// The client accepts no more calls.
    Closed,
}

/// The result of taking a call.
pub(super) enum Taken {
    Call(Box<dyn Work>),
    /// The queue is empty. The thread's waker is stored.
    Empty,
    /// The queue is closed and empty. Only running calls can add nested calls, for which the waker is stored.
    Drained,
}

impl Queue {
    pub(super) fn new(bound: usize, threads: usize) -> Self {
        let state = QueueState {
            calls: BTreeMap::new(),
            nested: BTreeMap::new(),
            line: BTreeMap::new(),
            granted: BTreeSet::new(),
            numbers: 0,
            idle: Vec::with_capacity(threads),
            is_closed: false,
            threads,
            end_wakers: Vec::new(),
        };
        Self { state: Mutex::new(state), bound }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Nothing that panics is called while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of calls that may wait.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Returns the number of waiting calls.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state();
        state.calls.len() + state.nested.len()
    }

    /// Returns whether a call waits for a thread.
    pub(super) fn has(&self, number: u64) -> bool {
        let state = self.state();
        state.calls.contains_key(&number) || state.nested.contains_key(&number)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Offers a call. Without room, the caller's waker, if any, gets a place in line, or keeps the one that it has.
    pub(super) fn offer(
        &self,
        work: Box<dyn Work>,
        place: &mut Option<u64>,
        waker: Option<&Waker>,
    ) -> Offered {
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            return Offered::Closed;
        }
        let may_enter = match place {
            Some(place) => state.granted.remove(place),
            None => state.line.is_empty() && state.calls.len() + state.granted.len() < self.bound,
        };
        if may_enter {
            *place = None;
            let number = state.next_number();
            state.calls.insert(number, work);
            return Self::announce(state, number, true);
        }
        if let Some(waker) = waker {
            let number = *place.get_or_insert_with(|| state.next_number());
            let replaced = state.line.insert(number, waker.clone());
            drop(state);
            drop(replaced);
        }
        Offered::Full(work)
    }

    /// Offers a nested call.
    pub(super) fn offer_nested(&self, work: Box<dyn Work>) -> Offered {
        let mut state = self.state();
        let number = state.next_number();
        state.nested.insert(number, work);
        Self::announce(state, number, false)
    }

    /// Wakes a thread for a call.
    fn announce(mut state: MutexGuard<'_, QueueState>, number: u64, needs_room: bool) -> Offered {
        // The thread that has been idle for the shortest time may not sleep yet.
        let idle = state.idle.iter().rposition(|idle| idle.has_room || !needs_room);
        let idle = idle.map(|position| state.idle.remove(position));
        drop(state);
        if let Some(idle) = idle {
            idle.waker.wake();
        }
        Offered::Accepted(number)
    }

    /// Removes a caller from the line. Room that was granted to it is granted to the next.
    pub(super) fn leave_line(&self, place: u64) {
        let mut state = self.state();
        let removed = state.line.remove(&place);
        let granted = if state.granted.remove(&place) { state.grant(self.bound) } else { None };
        drop(state);
        drop(removed);
        wake(granted);
    }

    /// Removes a call. Returns whether no thread had begun it.
    pub(super) fn withdraw(&self, number: u64) -> bool {
        let mut state = self.state();
        let removed = state.calls.remove(&number).or_else(|| state.nested.remove(&number));
        let granted = state.grant(self.bound);
        drop(state);
        wake(granted);
        // The call's captures are dropped here.
        removed.is_some()
    }

    /// Removes a thread that is about to work from the idle ones, because others could take calls earlier.
    pub(super) fn leaves_idle(&self, thread: usize) {
        let mut state = self.state();
        let removed = state.remove_idle(thread);
        drop(state);
        drop(removed);
    }

    /// Takes the next call for a thread. `has_room` is true if the thread can take calls that are not nested.
    pub(super) fn take(&self, thread: usize, has_room: bool, waker: &Waker) -> Taken {
        let mut state = self.state();
        let removed = state.remove_idle(thread);
        let mut call = state.nested.pop_first();
        if call.is_none() && has_room {
            call = state.calls.pop_first();
        }
        if let Some((_, call)) = call {
            let granted = state.grant(self.bound);
            drop(state);
            drop(removed);
            wake(granted);
            return Taken::Call(call);
        }
        let is_drained = state.is_closed && state.calls.is_empty();
        state.idle.push(Idle { thread, has_room, waker: waker.clone() });
        drop(state);
        drop(removed);
        if is_drained { Taken::Drained } else { Taken::Empty }
    }

    /// Accepts no more calls.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.granted.clear();
        let callers = std::mem::take(&mut state.line);
        let threads = std::mem::take(&mut state.idle);
        drop(state);
        let threads = threads.into_iter().map(|idle| idle.waker);
        threads.chain(callers.into_values()).for_each(Waker::wake);
    }

    /// Records that a thread has ended. The end of the last thread drops the waiting calls.
    pub(super) fn end(&self, thread: usize) {
        let mut state = self.state();
        let removed = state.remove_idle(thread);
        state.threads -= 1;
        if state.threads > 0 {
            drop(state);
            drop(removed);
            return;
        }
        state.is_closed = true;
        let calls = (std::mem::take(&mut state.calls), std::mem::take(&mut state.nested));
        let wakers = std::mem::take(&mut state.end_wakers);
        drop(state);
        drop((removed, calls));
        self.close();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until all threads have ended.
    pub(super) fn poll_end(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.state();
        if state.threads == 0 {
            return Poll::Ready(());
        }
        if !state.end_wakers.iter().any(|kept| kept.will_wake(waker)) {
            state.end_wakers.push(waker.clone());
        }
        Poll::Pending
    }
}

impl QueueState {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn remove_idle(&mut self, thread: usize) -> Option<Idle> {
        let position = self.idle.iter().position(|idle| idle.thread == thread)?;
        Some(self.idle.remove(position))
    }

    /// Grants room, if there is any, to the first caller in line.
    fn grant(&mut self, bound: usize) -> Option<Waker> {
        if self.calls.len() + self.granted.len() >= bound {
            return None;
        }
        let (place, waker) = self.line.pop_first()?;
        self.granted.insert(place);
        Some(waker)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
