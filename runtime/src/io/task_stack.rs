//! The task stack: the running task, the tasks that wait for it, and the locks that they hold. Detects waits for a lock of the waiting task itself.
//!
//! A lock is held by the task that took it. A task that waits for its own lock, or for a lock of a task that waits for it to end, may wait for ever.
//! But a task may also join futures, one of which waits for a lock that another is about to release. The cases differ in the other futures of the
//! holder: the future that will release the lock makes *steps*. A step is a poll of an operation or of a wait of the runtime. Each task counts its
//! steps, except those of futures that wait for a lock which the task itself holds. So:
//!
//! 1. If the holder of a lock makes no step from one attempt to the next, several times in a row, the lock is never released.
//! 2. A future that waits for a time counts as making steps.
//! 3. The steps of a task count for its parent, which waits for it. For a child itself they do not: it waits for a lock that its parent can not
//!    release before the child has ended, whatever the child's siblings do.
//!
//! Invariant: `above` and `running` are the tasks whose polls are on the call stack, outermost first. Any other task makes progress independently,
//! so waiting for its locks makes sense.
//!
//! Cost: an addition for each poll of an operation in flight, and a few words for each held lock. A thread that has warmed up allocates nothing.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use super::posting::{Operations, Thread};
use farfield_fabric::stall::Waits;

/// A task and the number of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskState {
    /// Unique among all tasks of the thread; 0 is the thread's code outside of tasks.
    number: u64,
    steps: u64,
}

impl TaskState {
    pub(super) fn number(self) -> u64 {
        self.number
    }
}

/// A lock, by its token, that a task holds or may hold. Token 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    token: u64,
    task: u64,
}

/// The number of a thread's newest locks that are found without a search.
const NEW: usize = 8;

/// The locks that a thread's tasks hold or may hold.
///
/// Invariant: a lock is in `new[place(token)]`, or in `older`. Consecutive tokens have different places, so most locks never move.
#[derive(Debug, Default)]
struct Held {
    new: [Cell<Holding>; NEW],
    older: RefCell<Vec<Holding>>,
}

impl Held {
    #[inline]
    fn place(&self, token: u64) -> &Cell<Holding> {
        &self.new[(token >> 1) as usize % NEW]
    }

    #[inline]
    fn insert(&self, new: Holding) {
        let before = self.place(new.token).replace(new);
        if before.token != 0 {
            self.keep(before);
        }
    }

    #[cold]
    fn keep(&self, older: Holding) {
        self.older.borrow_mut().push(older);
    }

    #[inline]
    fn remove(&self, token: u64) {
        let place = self.place(token);
        if place.get().token == token {
            place.set(Holding::default());
        } else {
            self.remove_older(token);
        }
    }

    #[cold]
    fn remove_older(&self, token: u64) {
        let mut older = self.older.borrow_mut();
        if let Some(index) = older.iter().rposition(|held| held.token == token) {
            older.swap_remove(index);
        }
    }

    /// Returns the task that holds a lock.
    fn task(&self, token: u64) -> Option<u64> {
        let new = self.place(token).get();
        if new.token == token {
            return Some(new.task);
        }
        self.older.borrow().iter().rfind(|held| held.token == token).map(|held| held.task)
    }

    /// Gives the locks of a task to another.
    fn give(&self, from: u64, to: u64) {
        for place in &self.new {
            if place.get().task == from {
                place.set(Holding { task: to, ..place.get() });
            }
        }
        for held in self.older.borrow_mut().iter_mut().filter(|held| held.task == from) {
            held.task = to;
        }
    }
}

/// A thread's tasks on the call stack, and its locks.
#[derive(Debug, Default)]
pub(crate) struct TaskStack {
    /// The tasks that wait for a time, and their ancestors: their timers fire without polls. Pairs of the wait's number and the task.
    sleeping: RefCell<Vec<(u64, u64)>>,
    /// True while the polled future waits for a lock of its own task.
    is_own: Cell<bool>,
    running: Cell<TaskState>,
    above: RefCell<Vec<TaskState>>,
    tasks: Cell<u64>,
    /// The number of polls of tasks, if stalls are reported.
    polls: Cell<u64>,
    held: Held,
}

impl TaskStack {
    /// Makes a task.
    pub(crate) fn new_task(&self) -> TaskState {
        self.tasks.set(self.tasks.get() + 1);
        TaskState { number: self.tasks.get(), steps: 0 }
    }

    /// A round of polls of a set's tasks begins, which have made `set_steps` steps together: the running task is their parent.
    fn enter_set(&self, set_steps: u64) {
        let mut parent = self.running.get();
        parent.steps = parent.steps.wrapping_sub(set_steps);
        self.above.borrow_mut().push(parent);
    }

    /// The round has ended.
    fn leave_set(&self, set_steps: u64) {
        let mut parent = self.above.borrow_mut().pop().unwrap_or_default();
        parent.steps = parent.steps.wrapping_add(set_steps);
        self.running.set(parent);
    }

    /// The poll of a task of the set has ended. Updates the task's steps and those of its set.
    #[inline]
    fn leave_task(&self, task: &mut TaskState, set_steps: &mut u64) {
        let left = self.running.get();
        *set_steps = set_steps.wrapping_add(left.steps.wrapping_sub(task.steps));
        debug_assert_eq!(task.number, left.number, "the tasks of a poll have left when it ends");
        task.steps = left.steps;
    }

    /// A task of the set has ended: its parent holds its locks now.
    fn ended(&self, task: TaskState) {
        let parent = self.above.borrow().last().map_or(0, |parent| parent.number);
        self.held.give(task.number, parent);
    }

    /// Returns the running task's steps and the number of polls of tasks, or `None` while the task waits for a time. A task that is polled and
    /// changes neither waits for a future of another crate; stall reports say so.
    fn trace(&self) -> Option<(u64, u64)> {
        let TaskState { number, steps } = self.running.get();
        let sleeps = self.sleeping.borrow().iter().any(|(_, sleeping)| *sleeping == number);
        (!sleeps).then(|| (steps, self.polls.get()))
    }

    /// A future of the running task polls an operation or a wait.
    #[inline]
    pub(crate) fn makes_step(&self) {
        let TaskState { number, steps } = self.running.get();
        self.running.set(TaskState { number, steps: steps.wrapping_add(1) });
    }

    /// A future of the running task begins to wait for a time.
    pub(super) fn sleeps(&self, wait: u64) {
        if !self.is_own.get() {
            let mut sleeping = self.sleeping.borrow_mut();
            sleeping.push((wait, self.running.get().number));
            sleeping.extend(self.above.borrow().iter().map(|above| (wait, above.number)));
        }
    }

    /// The wait for a time has ended.
    pub(super) fn awakes(&self, wait: u64) {
        self.sleeping.borrow_mut().retain(|(sleeping, _)| *sleeping != wait);
    }

    /// The running task posts an attempt to take a lock with this token.
    #[inline]
    pub(crate) fn takes(&self, token: u64) {
        self.held.insert(Holding { token, task: self.running.get().number });
    }

    /// The lock was not taken, or its release is posted.
    #[inline]
    pub(crate) fn lets_go(&self, token: u64) {
        self.held.remove(token);
    }

    /// Returns the steps of a lock's holder if that is the running task or one of its ancestors, and does not wait for a time.
    fn holder_steps(&self, token: u64) -> Option<u64> {
        let task = self.held.task(token)?;
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

/// A round of polls of a set's tasks. It ends when this is dropped, even by a panic.
pub(crate) struct Round<'a, T: Thread> {
    ct: &'a T,
    /// The task whose set it is, as programs number it.
    outer: u32,
    /// The number of steps that the set's tasks have made together.
    steps: &'a mut u64,
}

impl<T: Thread> Round<'_, T> {
    /// Polls task `index` of the set.
    #[inline]
    pub(crate) fn poll<R>(&mut self, index: u32, task: &mut TaskState, poll: impl FnOnce() -> R) -> R {
        let task_stack = &self.ct.io().task_stack;
        self.ct.enter_task(index);
        task_stack.running.set(*task);
        let polled = match &self.ct.io().stalls {
            None => poll(),
            Some(waits) => self.watch(&Arc::clone(waits), index, task.number, poll),
        };
        task_stack.leave_task(task, self.steps);
        polled
    }

    /// Polls a task, if stalls are reported.
    #[cold]
    fn watch<R>(&self, waits: &Waits, index: u32, number: u64, poll: impl FnOnce() -> R) -> R {
        let task_stack = &self.ct.io().task_stack;
        waits.polls_task(index);
        let before = task_stack.trace();
        let polled = poll();
        let is_foreign = before.is_some() && task_stack.trace() == before;
        task_stack.polls.set(task_stack.polls.get() + 1);
        waits.polls_task(self.outer);
        waits.was_polled(number, index, is_foreign);
        polled
    }

    /// A task of the set has completed.
    pub(crate) fn task_ends(&self, task: TaskState) {
        self.ct.io().task_stack.ended(task);
        if let Some(waits) = &self.ct.io().stalls {
            waits.has_ended(task.number);
        }
    }
}

impl<T: Thread> Drop for Round<'_, T> {
    fn drop(&mut self) {
        self.ct.enter_task(self.outer);
        self.ct.io().task_stack.leave_set(*self.steps);
    }
}

/// Polling of tasks.
pub(crate) trait Polling: Operations {
    /// Begins a round of polls of a set whose tasks have made `steps` steps together.
    fn polls_set<'a>(&'a self, steps: &'a mut u64) -> Round<'a, Self> {
        self.io().task_stack.enter_set(*steps);
        Round { ct: self, outer: self.task_number(), steps }
    }

    /// A poll of the thread's future begins. Returns the argument of [`poll_ends`](Self::poll_ends).
    #[inline]
    fn poll_begins(&self) -> Option<(u64, u64)> {
        let waits = self.io().stalls.as_ref()?;
        waits.poll_begins();
        self.io().task_stack.trace()
    }

    /// A poll of the thread's future has ended without completing it.
    #[inline]
    fn poll_ends(&self, seen: Option<(u64, u64)>) {
        if let Some(waits) = &self.io().stalls {
            waits.poll_ends();
            waits.was_polled(0, 0, seen.is_some() && self.io().task_stack.trace() == seen);
        }
    }
}

impl<T: Thread> Polling for T {}

/// The number of consecutive attempts without a step of the lock's holder, after which a wait for the lock is hopeless.
const FRUITLESS_LOOKS: u32 = 8;

/// Detects that a wait for a lock is hopeless, because its own task holds the lock.
#[derive(Debug)]
pub(crate) struct OwnLock {
    /// The lock's token and its holder's steps at the last attempt, if the holder is the task or an ancestor.
    last: Cell<Option<(u64, u64)>>,
    /// The number of consecutive attempts that found the same.
    looks: Cell<u32>,
}

impl OwnLock {
    pub(crate) const fn new() -> Self {
        Self { last: Cell::new(None), looks: Cell::new(0) }
    }

    /// An attempt has found a lock taken with this token. Returns `true` if it is never released: the waiting task holds it.
    pub(crate) fn is_hopeless(&self, task_stack: &TaskStack, token: u64) -> bool {
        let found = task_stack.holder_steps(token).map(|steps| (token, steps));
        let is_same = found.is_some() && found == self.last.get();
        self.last.set(found);
        task_stack.is_own.set(found.is_some());
        self.looks.set(if is_same { self.looks.get() + 1 } else { 0 });
        self.looks.get() >= FRUITLESS_LOOKS
    }

    /// An attempt has found the lock free.
    pub(crate) fn is_free(&self) {
        self.last.set(None);
    }
}

/// Waits for locks. Its polls are no steps while the task itself holds one of these locks.
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
    fn a_lock_of_a_task_without_steps_is_hopeless() {
        let (task_stack, own) = (TaskStack::default(), OwnLock::new());
        task_stack.takes(7);
        for _ in 0..FRUITLESS_LOOKS {
            assert!(!own.is_hopeless(&task_stack, 7));
        }
        assert!(own.is_hopeless(&task_stack, 7));
        task_stack.makes_step();
        assert!(!own.is_hopeless(&task_stack, 7), "another future of the task has made a step");
        task_stack.lets_go(7);
        for _ in 0..2 * FRUITLESS_LOOKS {
            assert!(!own.is_hopeless(&task_stack, 7), "another thread's lock");
        }
    }

    #[test]
    fn a_parents_lock_is_its_childrens_and_a_siblings_is_not() {
        let (task_stack, mut set) = (TaskStack::default(), 0);
        let (mut one, mut two) = (task_stack.new_task(), task_stack.new_task());
        task_stack.takes(1);
        task_stack.enter_set(set);
        task_stack.running.set(one);
        task_stack.takes(2);
        let seen = task_stack.holder_steps(1);
        assert!(seen.is_some());
        task_stack.leave_task(&mut one, &mut set);
        task_stack.running.set(two);
        task_stack.makes_step();
        task_stack.leave_task(&mut two, &mut set);
        assert_eq!(task_stack.holder_steps(1), seen, "not for its siblings in the same round");
        task_stack.leave_set(set);
        assert_eq!(
            task_stack.holder_steps(1),
            seen.map(|steps| steps + 1),
            "a task's steps are its parent's"
        );
        task_stack.enter_set(set);
        task_stack.running.set(one);
        assert_eq!(task_stack.holder_steps(1), seen, "but not for the task itself");
        task_stack.leave_task(&mut one, &mut set);
        task_stack.running.set(two);
        assert!(task_stack.holder_steps(2).is_none(), "a child makes progress independently");
        task_stack.ended(one);
        task_stack.leave_set(set);
        assert!(task_stack.holder_steps(2).is_some(), "the parent holds the locks of an ended task");
    }
}
