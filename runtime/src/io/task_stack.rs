//! TaskStack: which task runs, which tasks wait for it, and which of them holds a lock.
//!
//! A lock is held by the task that took it. A task that waits for a lock of its own, or of a task that waits for it to end, may wait
//! for ever. But futures of one task may also be joined, and then one may wait for a lock that another is about to release. The two
//! cases differ in what the task does meanwhile: the future that is about to release the lock is polled, and polls an
//! operation or a wait of the runtime; it *steps*. Each task counts that, except for what waits for a lock that the task
//! itself holds. A lock whose holder does not makes_step from one attempt to the next, several times in a row, is never released.
//! A future that waits for a time steps all the while. A task steps, too, when tasks makes_step that it waits for; but for one of those this does not count. It waits for a lock that its
//! parent can not release before it has ended, whatever its siblings do.
//!
//! Invariant: the tasks in `above` and the one that runs are those whose polls are on the call stack, outermost first. A task
//! outside of this list goes on by itself, so its locks are worth waiting for.
//!
//! Costs: an addition for each poll of an operation in flight, and a few words for each lock that is held; no allocation once
//! the thread has warmed up.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use super::posting::{Operations, Thread};
use farfield_fabric::stall::Waits;

/// A task, and how often its futures have been polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskState {
    /// No other task of the thread has or had this number; 0 is the thread's own code outside of all tasks.
    number: u64,
    steps: u64,
}

impl TaskState {
    pub(super) fn number(self) -> u64 {
        self.number
    }
}

/// A lock that a task holds or may hold, by its token.
#[derive(Clone, Copy, Debug)]
struct Holding {
    token: u64,
    task: u64,
}

/// One thread's tasks on the call stack, and its locks.
#[derive(Debug, Default)]
pub(crate) struct TaskStack {
    /// The tasks that wait for a time, and those that wait for these to end: they go on though nobody polls them. By the wait's number.
    sleeping: RefCell<Vec<(u64, u64)>>,
    /// Whether what is polled waits for a lock of its own task.
    is_own: Cell<bool>,
    running: Cell<TaskState>,
    above: RefCell<Vec<TaskState>>,
    tasks: Cell<u64>,
    /// Polls of tasks so far, where stalls are reported.
    polls: Cell<u64>,
    held: RefCell<Vec<Holding>>,
}

impl TaskStack {
    /// A new task.
    pub(crate) fn new_task(&self) -> TaskState {
        self.tasks.set(self.tasks.get() + 1);
        TaskState { number: self.tasks.get(), steps: 0 }
    }

    /// Polls a task of a set, whose tasks have stirred so often together.
    fn enter(&self, task: TaskState, set_steps: u64) {
        let mut parent = self.running.replace(task);
        parent.steps = parent.steps.wrapping_sub(set_steps);
        self.above.borrow_mut().push(parent);
    }

    /// The poll of a task is over that was `entered`. Updates the task, and how often the set's tasks have stirred.
    fn leave(&self, entered: &mut TaskState, set_steps: &mut u64) {
        let mut parent = self.above.borrow_mut().pop().unwrap_or_default();
        let steps = self.running.get().steps.wrapping_sub(entered.steps);
        *set_steps = set_steps.wrapping_add(steps);
        parent.steps = parent.steps.wrapping_add(*set_steps);
        *entered = self.running.replace(parent);
    }

    /// A task has ended: its locks are its parent's, which runs.
    fn ended(&self, task: TaskState) {
        let parent = self.running.get().number;
        for held in self.held.borrow_mut().iter_mut().filter(|held| held.task == task.number) {
            held.task = parent;
        }
    }

    /// How often the running task has stirred, and how many polls of tasks there were; `None` while it waits for a time. For reports of
    /// stalls: a task that is polled and does none of this waits for something that this library does not know.
    fn trace(&self) -> Option<(u64, u64)> {
        let TaskState { number, steps } = self.running.get();
        let sleeps = self.sleeping.borrow().iter().any(|(_, sleeping)| *sleeping == number);
        (!sleeps).then(|| (steps, self.polls.get()))
    }

    /// A future of the running task waits for something, and has been polled.
    #[inline]
    pub(crate) fn makes_step(&self) {
        let TaskState { number, steps } = self.running.get();
        self.running.set(TaskState { number, steps: steps.wrapping_add(1) });
    }

    /// A wait for a time begins, in a future of the running task.
    pub(super) fn sleeps(&self, wait: u64) {
        if !self.is_own.get() {
            let mut sleeping = self.sleeping.borrow_mut();
            sleeping.push((wait, self.running.get().number));
            sleeping.extend(self.above.borrow().iter().map(|above| (wait, above.number)));
        }
    }

    /// It is over.
    pub(super) fn awakes(&self, wait: u64) {
        self.sleeping.borrow_mut().retain(|(sleeping, _)| *sleeping != wait);
    }

    /// The running task is about to take a lock with this token.
    #[inline]
    pub(crate) fn takes(&self, token: u64) {
        self.held.borrow_mut().push(Holding { token, task: self.running.get().number });
    }

    /// The lock is released, or about to be; or it was not taken.
    #[inline]
    pub(crate) fn lets_go(&self, token: u64) {
        let mut held = self.held.borrow_mut();
        if let Some(index) = held.iter().rposition(|held| held.token == token) {
            held.swap_remove(index);
        }
    }

    /// How often the holder of a lock has stirred, if that is the running task or one that waits for it to end. `None`, too, while the holder
    /// waits for a time.
    fn holder_steps(&self, token: u64) -> Option<u64> {
        let task = self.held.borrow().iter().rfind(|held| held.token == token)?.task;
        if self.sleeping.borrow().iter().any(|(_, sleeping)| *sleeping == task) {
            return None;
        }
        let running = self.running.get();
        if running.number == task {
            return Some(running.steps);
        }
        self.above.borrow().iter().find(|above| above.number == task).map(|above| above.steps)
    }
}

/// A task's poll; over when it is dropped, also by a panic.
struct Polled<'a, T: Thread> {
    ct: &'a T,
    outer: u32,
    task: &'a mut TaskState,
    set_steps: &'a mut u64,
}

impl<T: Thread> Drop for Polled<'_, T> {
    fn drop(&mut self) {
        self.ct.enter_task(self.outer);
        self.ct.io().task_stack.leave(self.task, self.set_steps);
    }
}

/// Polls of tasks.
pub(crate) trait Polling: Operations {
    /// Polls a task, which is number `index` of a set whose tasks have stirred so often together.
    fn poll_task<R>(
        &self,
        index: u32,
        task: &mut TaskState,
        set_steps: &mut u64,
        poll: impl FnOnce() -> R,
    ) -> R {
        if let Some(waits) = &self.io().stalls {
            return self.poll_watched_task(&Arc::clone(waits), index, task, set_steps, poll);
        }
        self.io().task_stack.enter(*task, *set_steps);
        let _during = Polled { ct: self, outer: self.enter_task(index), task, set_steps };
        poll()
    }

    /// As [`poll_task`](Self::poll_task), where stalls are reported.
    #[cold]
    fn poll_watched_task<R>(
        &self,
        waits: &Waits,
        index: u32,
        task: &mut TaskState,
        set_steps: &mut u64,
        poll: impl FnOnce() -> R,
    ) -> R {
        let number = task.number;
        self.io().task_stack.enter(*task, *set_steps);
        let outer = self.enter_task(index);
        let _during = Polled { ct: self, outer, task, set_steps };
        waits.polls_task(index);
        let before = self.io().task_stack.trace();
        let polled = poll();
        let is_foreign = before.is_some() && self.io().task_stack.trace() == before;
        self.io().task_stack.polls.set(self.io().task_stack.polls.get() + 1);
        waits.polls_task(outer);
        waits.was_polled(number, index, is_foreign);
        polled
    }

    /// A poll of the thread's future begins; gives what [`poll_ends`](Self::poll_ends) needs.
    #[inline]
    fn poll_begins(&self) -> Option<(u64, u64)> {
        let waits = self.io().stalls.as_ref()?;
        waits.poll_begins();
        self.io().task_stack.trace()
    }

    /// It is over, and not ready.
    #[inline]
    fn poll_ends(&self, seen: Option<(u64, u64)>) {
        if let Some(waits) = &self.io().stalls {
            waits.poll_ends();
            waits.was_polled(0, 0, seen.is_some() && self.io().task_stack.trace() == seen);
        }
    }

    /// A task of a set has ended, or is dropped.
    fn task_ends(&self, task: TaskState) {
        self.io().task_stack.ended(task);
        if let Some(waits) = &self.io().stalls {
            waits.has_ended(task.number);
        }
    }
}

impl<T: Thread> Polling for T {}

/// How often in a row a holder may be found not to have stirred.
const FRUITLESS_LOOKS: u32 = 8;

/// What a wait for a lock has found, if its own task holds it.
#[derive(Debug)]
pub(crate) struct OwnLock {
    /// The lock's token, how often its holder had stirred, and how many looks in a row have found that.
    last: Cell<Option<(u64, u64)>>,
    looks: Cell<u32>,
}

impl OwnLock {
    pub(crate) const fn new() -> Self {
        Self { last: Cell::new(None), looks: Cell::new(0) }
    }

    /// An attempt has found a lock taken, with this token. Returns whether it is never released: the lock is the waiting task's own.
    pub(crate) fn is_hopeless(&self, task_stack: &TaskStack, token: u64) -> bool {
        let found = task_stack.holder_steps(token).map(|steps| (token, steps));
        let is_same = found.is_some() && found == self.last.get();
        self.last.set(found);
        task_stack.is_own.set(found.is_some());
        self.looks.set(if is_same { self.looks.get() + 1 } else { 0 });
        self.looks.get() >= FRUITLESS_LOOKS
    }

    /// The lock has been found free.
    pub(crate) fn is_free(&self) {
        self.last.set(None);
    }
}

/// Waits for locks. Does not count as stirring while one that is waited for is the task's own.
pub(crate) async fn wait_for_locks<R>(
    task_stack: &TaskStack,
    own: &[OwnLock],
    waits: impl Future<Output = R>,
) -> R {
    let mut waits = pin!(waits);
    poll_fn(|context| {
        let before = task_stack.running.get();
        let is_own = || own.iter().any(|own| own.last.get().is_some());
        let outer = task_stack.is_own.replace(is_own());
        let polled = waits.as_mut().poll(context);
        task_stack.is_own.set(outer);
        if polled.is_pending() && is_own() {
            task_stack.running.set(before);
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_a_task_that_does_not_stir_is_hopeless() {
        let (task_stack, own) = (TaskStack::default(), OwnLock::new());
        task_stack.takes(7);
        for _ in 0..FRUITLESS_LOOKS {
            assert!(!own.is_hopeless(&task_stack, 7));
        }
        assert!(own.is_hopeless(&task_stack, 7));
        task_stack.makes_step();
        assert!(!own.is_hopeless(&task_stack, 7), "another future of the task goes on");
        task_stack.lets_go(7);
        for _ in 0..2 * FRUITLESS_LOOKS {
            assert!(!own.is_hopeless(&task_stack, 7), "somebody else's");
        }
    }

    #[test]
    fn a_parents_lock_is_its_childrens_and_a_siblings_is_not() {
        let (task_stack, mut set) = (TaskStack::default(), 0);
        let (mut one, mut two) = (task_stack.new_task(), task_stack.new_task());
        task_stack.takes(1);
        task_stack.enter(one, set);
        task_stack.takes(2);
        let seen = task_stack.holder_steps(1);
        assert!(seen.is_some());
        task_stack.leave(&mut one, &mut set);
        task_stack.enter(two, set);
        task_stack.makes_step();
        task_stack.leave(&mut two, &mut set);
        assert_eq!(
            task_stack.holder_steps(1),
            seen.map(|steps| steps + 1),
            "the parent steps with its tasks"
        );
        task_stack.enter(one, set);
        assert_eq!(task_stack.holder_steps(1), seen, "but not for them");
        task_stack.leave(&mut one, &mut set);
        assert!(task_stack.holder_steps(2).is_none(), "a child goes on by itself");
        task_stack.ended(one);
        assert!(task_stack.holder_steps(2).is_some(), "what an ended task holds is its parent's");
    }
}
