//! `Client`: sends work to compute threads from any thread and any executor, and awaits the answer.
//!
//! [`Cluster::run`] owns its threads for as long as its body runs. A service has its own threads, those of its executor, and needs far memory only
//! occasionally. A client has compute threads that wait for *calls*. A call is a closure; it is sent to a compute thread, which polls it as one of
//! many tasks. So the closure and its answer are `Send`; the future that it returns, which borrows the [`ComputeThread`], need not be.
//!
//! # Guarantees
//!
//! - **Bounded.** At most `queue` calls wait for a thread, and each thread executes at most `tasks` concurrently. Beyond that [`call`](Client::call)
//!   waits, in the order of arrival, and [`try_call`](Client::try_call) returns an error.
//! - **Cancel-safe.** A [`Call`] that is dropped before a thread has begun it is removed from the queue, with its captures. If it has begun, its
//!   future is dropped in the thread's next round, at its current `await`: its posted operations take effect, and its guards and locks are released.
//!   Either way it frees its place.
//! - **Deadlines.** A call whose deadline passes ends with [`Error::DeadlineExceeded`], and is cancelled as if it was dropped. The deadline includes
//!   the wait for room. A thread that takes a call after its deadline does not begin it.
//! - **No call hangs.** If the work of a call panics, that call gets [`Error::CallPanicked`], and the thread continues.
//!   [`shutdown`](Client::shutdown) accepts no more calls, completes the accepted ones, and then ends the threads. Callers without room get
//!   [`Error::ClientClosed`], and so do all callers if the threads end for another reason.
//! - **Nested calls** of the same client, made while the work of a call is polled, need no room in the queue nor among a thread's tasks: calls that
//!   wait for calls can not exhaust the room of those calls.
//! - **Idle threads sleep.** They are woken by a call, and by requests to their process: see `io/idle.rs`.
//!
//! # Why the guarantees hold
//!
//! Each call is in one place at a time: with its caller, in the queue (`client/queue.rs`), or among a thread's tasks (`client/serve.rs`). One lock
//! protects the moves. A caller that cancels removes the call from the queue under that lock. If the call is not in the queue, a thread has begun it, or
//! will check before it begins that the caller still waits. The answer is sent through a channel for one value, each end of which detects that the other is
//! dropped: the caller if the work is dropped for any reason, the thread if the caller cancels. So no state needs repair.
//!
//! # Costs
//!
//! Four allocations and three locks a call, none of which the work contends; a system call if the caller or the thread sleeps. The operations in a
//! call cost the same as in a run.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_channel::oneshot;

use super::queue::{Offered, Queue};
use super::serve::{ClientThread, EndNotice, is_at_work_for};
use super::work::{CallWork, Work};
use crate::error::{self, Error, Result};
use crate::session::run::{Run, reserve};
use crate::session::{Cluster, ComputeThread, lock};
use farfield_fabric::host::{Alarm, Alarms, BackgroundThread, Moment};
use farfield_fabric::stall::{Waiting, blocked, blocked_for};

/// Options of a [`Client`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The number of compute threads, from 1. One is enough unless the work computes: a thread executes many calls concurrently.
    pub threads: usize,
    /// The number of calls that each thread executes concurrently, from 1. A thread polls all of them in turn, also those that wait for a future of
    /// another crate.
    pub tasks: usize,
    /// The number of calls that may wait for a thread, from 1.
    pub queue: usize,
    /// The deadline of calls without a [deadline](Call::deadline) of their own. `None` for no deadline.
    pub deadline: Option<Duration>,
}

impl ClientOptions {
    /// One thread, 64 tasks, a queue of 1024 calls, no deadline.
    pub fn new() -> Self {
        Self { threads: 1, tasks: 64, queue: 1024, deadline: None }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Sends work to compute threads, from any thread and any executor.
///
/// [`Cluster::client`] makes a client and starts its threads. Clones share one client; cloning costs a reference count. The threads end after
/// [`shutdown`](Self::shutdown), or when the last clone and the last [`Call`] are dropped. The last drop blocks until they have ended.
///
/// The threads of a client are a run of their own: [`ComputeThread::index`] is the thread's number among them. A call should not wait at a
/// [`barrier`](ComputeThread::barrier), which the client's other threads do not reach.
///
/// ```
/// use farfield::prelude::*;
///
/// # fn main() -> farfield::Result<()> {
/// # fn block_on<T>(future: impl Future<Output = T>) -> T {
/// #     let mut future = std::pin::pin!(future);
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     loop {
/// #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
/// #             return value;
/// #         }
/// #         std::thread::yield_now();
/// #     }
/// # }
/// let client = Cluster::connect("local:size=1MiB")?.client()?;
/// // On any executor:
/// let answer = block_on(async {
///     let answer = client.call(async |ct| Ok(ct.nodes())).await?;
///     client.shutdown().await?;
///     Ok::<_, farfield::Error>(answer)
/// })?;
/// assert_eq!(answer, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    service: Arc<Service>,
}

/// The state that a client's clones and calls share.
struct Service {
    queue: Arc<Queue>,
    deadline: Option<Duration>,
    alarms: Alarms,
    threads: Mutex<Vec<BackgroundThread>>,
}

impl Drop for Service {
    /// The threads are joined when their handles are dropped.
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Cluster {
    /// Starts one compute thread that waits for calls, with the defaults of [`ClientOptions`].
    ///
    /// # Errors
    /// Those of [`client_with`](Self::client_with).
    pub fn client(&self) -> Result<Client> {
        self.client_with(&ClientOptions::new())
    }

    /// Starts compute threads that wait for calls. Returns when they are ready.
    ///
    /// They are a run of this process alone, also if the cluster is [in a group](Self::in_group). While they exist, functions that require a cluster
    /// without runs return an error ([`clear`](Self::clear), checkpoints).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options out of their bounds, and on `sim:`: its threads live in virtual time, in which a call from outside has
    /// no moment of arrival, and a replay could not repeat it. [`Error::System`] if the system can not start the threads. Those of [`run`](Self::run)
    /// inside a run of the same cluster, and for a cluster that is not usable any more.
    pub fn client_with(&self, options: &ClientOptions) -> Result<Client> {
        let invalid = |argument, value: String, reason| {
            Err(Error::from(error::InvalidArgument { argument, value: value.into(), reason }))
        };
        let &ClientOptions { threads, tasks, queue, deadline } = options;
        for (argument, value) in [("tasks", tasks), ("queue", queue)] {
            if value == 0 || value > u32::MAX as usize - 1 {
                let reason = if value == 0 {
                    "a client needs at least one"
                } else {
                    "a client has at most 4294967294"
                };
                return invalid(argument, value.to_string(), reason);
            }
        }
        let shared = &self.shared;
        if shared.world().is_some() {
            let reason =
                "calls from outside have no moment of arrival in virtual time: start the work with `run`";
            return invalid("client", format!("of {}", self.url()), reason);
        }
        let reserved = reserve(shared, threads)?;
        shared.check_memory_node()?;
        let reserved = Arc::new((self.begin_run()?, reserved));
        shared.backing.prepare(threads)?;
        let run = Arc::new(Run::new(self, threads, None)?);
        let service = Service {
            queue: Arc::new(Queue::new(queue, threads)),
            deadline,
            alarms: Alarms::default(),
            threads: Mutex::default(),
        };
        let (mut waits, mut refused) = (Vec::with_capacity(threads), None);
        for index in 0..threads {
            let thread = ClientThread {
                end: EndNotice { queue: Arc::clone(&service.queue), index },
                reserved: Arc::clone(&reserved),
                run: Arc::clone(&run),
                cluster: self.clone(),
            };
            let (ready, wait) = mpsc::channel();
            waits.push(wait);
            match BackgroundThread::start(&format!("client-{index}"), move |_| thread.run(tasks, &ready)) {
                Ok(thread) => lock(&service.threads).push(thread),
                Err(error) => {
                    for index in index..threads {
                        run.depart();
                        run.account(index, crate::io::Metrics::default());
                    }
                    (index + 1..threads).for_each(|index| service.queue.end(index));
                    refused = Some(error.into());
                    break;
                }
            }
        }
        for wait in waits {
            let ended = |_| Err(Error::other("a compute thread of the client has ended"));
            let _waiting = blocked(|| "a client's thread to be ready".to_owned());
            refused = refused.or(wait.recv().unwrap_or_else(ended).err());
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(Client { service: Arc::new(service) }),
        }
    }
}

impl Client {
    /// Sends `work` to a compute thread and awaits its result.
    ///
    /// The call is sent when it is first polled; its [deadline](Call::deadline) counts from this function's return. If the queue is full the call
    /// waits for its turn. The work's future runs on the compute thread, so it need not be `Send`. It should not block, because the other calls of
    /// that thread would wait.
    ///
    /// No round trip of its own.
    ///
    /// # Errors
    /// Those of the work; [`Error::DeadlineExceeded`], [`Error::CallPanicked`], [`Error::ClientClosed`].
    pub fn call<R: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&ComputeThread) -> Result<R> + Send + 'static,
    ) -> Call<R> {
        let deadline = self.service.deadline.and_then(|deadline| Some((Moment::after(deadline)?, deadline)));
        let (answer, waits) = oneshot::channel();
        let work = Box::new(CallWork { work, answer, until: None });
        Call {
            service: Arc::clone(&self.service),
            state: CallState::Unsent { work, place: None },
            answer: waits,
            deadline,
            alarm: None,
            waiting: None,
        }
    }

    /// Like [`call`](Self::call), but a full queue is an error. The work is in the queue when this returns, and is executed also if the [`Call`] is
    /// not polled. Dropping the call cancels it.
    ///
    /// # Errors
    /// [`Error::ClientFull`]; [`Error::ClientClosed`].
    pub fn try_call<R: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&ComputeThread) -> Result<R> + Send + 'static,
    ) -> Result<Call<R>> {
        let mut call = self.call(work);
        if call.send(None)? {
            return Ok(call);
        }
        Err(Error::from(error::ClientFull { queue: self.service.queue.bound() }))
    }

    /// Returns the number of calls that wait for a thread: at most [`ClientOptions::queue`], and nested ones.
    pub fn waiting(&self) -> usize {
        self.service.queue.waiting()
    }

    /// Returns whether the client accepts no more calls.
    pub fn is_closed(&self) -> bool {
        self.service.queue.is_closed()
    }

    /// Accepts no more calls, waits until the accepted ones have completed, and ends the threads. All clones are shut down.
    ///
    /// Calls that wait for room in the queue are not accepted yet. To bound the wait, drop this future and the calls. A second shutdown has no
    /// effect.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] from within a call of the same client, which would wait for itself.
    pub async fn shutdown(&self) -> Result<()> {
        let queue = &self.service.queue;
        poll_fn(|context| {
            if is_at_work_for(queue) {
                let reason = "it would wait for itself: shut the client down from outside its calls";
                let value = "within a call".into();
                let error = error::InvalidArgument { argument: "shutdown", value, reason };
                return Poll::Ready(Err(Error::from(error)));
            }
            queue.close();
            queue.poll_end(context.waker()).map(Ok)
        })
        .await?;
        // The threads have ended, up to their return.
        let threads = std::mem::take(&mut *lock(&self.service.threads));
        drop(threads);
        Ok(())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// A call of a [`Client`]: the future of its answer. Dropping it cancels the call.
///
/// It is `Send`, and can be awaited on any executor.
#[must_use = "a call does nothing unless it is awaited, and is cancelled when it is dropped"]
pub struct Call<R> {
    service: Arc<Service>,
    state: CallState,
    answer: oneshot::Receiver<Result<R>>,
    /// The end of the deadline, and its length.
    deadline: Option<(Moment, Duration)>,
    alarm: Option<(Alarm, Waker)>,
    /// The entry in reports of stalls, while the call is not answered.
    waiting: Option<Waiting>,
}

/// The location of a call.
enum CallState {
    /// With the caller, which may have a place in the line for room.
    Unsent { work: Box<dyn Work>, place: Option<u64> },
    /// In the queue under this number, or begun.
    Sent(u64),
    /// Answered, cancelled, or refused.
    Over,
}

impl<R> Call<R> {
    /// Cancels the call if it is not answered within `deadline` from now: see [`Error::DeadlineExceeded`]. A deadline beyond the range of the clock
    /// is ignored.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Moment::after(deadline).map(|at| (at, deadline));
        self.alarm = None;
        self
    }

    /// Sends the call if there is room. Returns whether it is sent.
    fn send(&mut self, waker: Option<&Waker>) -> Result<bool> {
        let queue = &self.service.queue;
        if !matches!(self.state, CallState::Unsent { .. }) {
            return Ok(true);
        }
        let CallState::Unsent { mut work, mut place } = std::mem::replace(&mut self.state, CallState::Over)
        else {
            unreachable!("it was not sent")
        };
        if let Some((at, _)) = self.deadline {
            work.expire_at(at);
        }
        let offered = if is_at_work_for(queue) && place.is_none() {
            queue.offer_nested(work)
        } else {
            queue.offer(work, &mut place, waker)
        };
        match offered {
            Offered::Accepted(number) => self.state = CallState::Sent(number),
            Offered::Full(work) => {
                self.state = CallState::Unsent { work, place };
                return Ok(false);
            }
            Offered::Closed => return Err(Error::from(error::ClientClosed {})),
        }
        Ok(true)
    }

    /// Cancels the call. Returns whether a thread had begun it.
    fn cancel(&mut self) -> bool {
        self.alarm = None;
        // The thread that has begun it detects the closed channel.
        self.answer.close();
        match std::mem::replace(&mut self.state, CallState::Over) {
            CallState::Unsent { place, .. } => {
                if let Some(place) = place {
                    self.service.queue.leave_line(place);
                }
                false
            }
            CallState::Sent(number) => !self.service.queue.withdraw(number),
            CallState::Over => false,
        }
    }

    /// Reports that the call is not answered.
    fn note_wait(&self) -> Option<Waiting> {
        let (queue, state) = (Arc::downgrade(&self.service.queue), &self.state);
        let number = if let CallState::Sent(number) = state { Some(*number) } else { None };
        blocked_for(move || {
            let Some(queue) = queue.upgrade() else { return "a call of a client that has ended".to_owned() };
            let place = match number {
                Some(number) if queue.has(number) => {
                    "it waits in the queue: no thread of the client has taken it".to_owned()
                }
                Some(_) => "a thread of the client has begun it".to_owned(),
                None => "it waits for room in the queue".to_owned(),
            };
            format!("the answer of a client's call; {place}; {} calls wait", queue.waiting())
        })
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<R>> {
        if !self.send(Some(context.waker()))? {
            return Poll::Pending;
        }
        let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(context) else { return Poll::Pending };
        Poll::Ready(match (answer, self.deadline) {
            (Ok(answer), _) => answer,
            // A thread took the call after its deadline and dropped it, before the alarm rang.
            (Err(_), Some((at, deadline))) if at.has_come() => Err(late(deadline, false)),
            (Err(_), _) => Err(Error::from(error::ClientClosed {})),
        })
    }

    /// Returns an error if the deadline has passed. Otherwise sets an alarm for it.
    fn poll_deadline(&mut self, waker: &Waker) -> Poll<Result<()>> {
        let Some((at, deadline)) = self.deadline else { return Poll::Pending };
        if at.has_come() {
            let has_begun = self.cancel();
            return Poll::Ready(Err(late(deadline, has_begun)));
        }
        match &mut self.alarm {
            Some((_, set_for)) if set_for.will_wake(waker) => {}
            Some((alarm, set_for)) => {
                alarm.reset(waker);
                set_for.clone_from(waker);
            }
            None => self.alarm = Some((self.service.alarms.set(at, waker)?, waker.clone())),
        }
        Poll::Pending
    }
}

fn late(deadline: Duration, has_begun: bool) -> Error {
    Error::from(error::DeadlineExceeded { deadline_us: deadline.as_micros(), has_begun })
}

impl<R> Future for Call<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let this = &mut *self;
        if let Poll::Ready(answer) = this.poll_answer(context) {
            this.state = CallState::Over;
            this.alarm = None;
            this.waiting = None;
            return Poll::Ready(answer);
        }
        if this.waiting.is_none() {
            this.waiting = this.note_wait();
        }
        match this.poll_deadline(context.waker()) {
            Poll::Ready(Err(error)) => {
                this.cancel();
                Poll::Ready(Err(error))
            }
            _ => Poll::Pending,
        }
    }
}

impl<R> Drop for Call<R> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            CallState::Unsent { .. } => "not sent",
            CallState::Sent(_) => "sent",
            CallState::Over => "over",
        };
        f.debug_struct("Call").field("state", &state).finish_non_exhaustive()
    }
}
