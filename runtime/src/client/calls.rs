//! `Client`: sends work to compute threads from any thread and any executor, and awaits the answer.
//!
//! [`Cluster::run`] owns its threads for as long as its body runs. A service has threads of its own, those of its executor, and wants
//! answers from far memory now and then. A client has compute threads that wait for *calls*. A call is a closure; it is sent
//! to a compute thread, and begun and polled there as one of many tasks. So the closure and its answer are `Send`, and the future that it
//! makes, which borrows the [`ComputeThread`], need not be.
//!
//! # What is promised
//!
//! - **Bounded.** At most `queue` calls wait for a thread, and each thread has at most `tasks` under way. Beyond that
//!   [`call`](Client::call) waits, in the order of arrival, and [`try_call`](Client::try_call) is refused.
//! - **Cancel-safe.** A [`Call`] that is dropped before a thread has begun it is taken out of the queue, with what it captured. If it has
//!   begun, its future is dropped where it waits, at the thread's next round: as everywhere, what it had posted takes effect, and guards and
//!   locks are released. Its place is free either way.
//! - **Deadlines.** A call whose deadline passes ends with [`Error::DeadlineExceeded`], and is cancelled as if it had been dropped. The
//!   deadline includes the wait for room. A thread that comes to a call too late does not begin it.
//! - **No call hangs.** The work of a call may panic: that call gets [`Error::CallPanicked`], and the thread goes on.
//!   [`shutdown`](Client::shutdown) accepts no more calls, does those that were accepted, and then ends the threads; callers without
//!   room get [`Error::ClientClosed`]. So does every caller if the threads end for any other reason.
//! - **Nested calls** of the same client, made while the work of a call is polled, need no room in the queue nor among a
//!   thread's tasks: calls that wait for calls can not use up what those need.
//! - **Idle threads sleep.** They are woken by a call, and by whoever needs an answer of their process: see [`task`](crate::task).
//!
//! # Why that holds
//!
//! Each call is in one place at a time: with its caller, in the [queue](queue), or among a thread's [tasks](serve). One lock protects the
//! moves; a caller that gives up takes the call back under that lock, and if it is not there any more a thread has begun it, or will look
//! whether the answer is wanted before it does. The answer goes through a channel for one value, each end of which learns that the other is gone:
//! the caller if the work is dropped for any reason, the thread if the caller gives up. So no state has to be repaired.
//!
//! # Costs
//!
//! Four allocations and three locks a call, none of which is contended by what the work does; a system call where one side sleeps. The
//! operations in a call cost what they cost in a run.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_channel::oneshot;

use super::life::{End, Life};
use super::queue::{Offered, Queue};
use super::serve::is_at_work_for;
use super::work::{Answered, Work};
use crate::error::{self, Error, Result};
use crate::session::run::{Run, reserve};
use crate::session::{Cluster, ComputeThread, lock};
use farfield_fabric::host::{Alarm, Alarms, BackgroundThread, Moment};
use farfield_fabric::stall::{Waiting, blocked, blocked_for};

/// How a [`Client`] works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Compute threads, from 1. One is enough unless the work computes: it has many calls under way at a time.
    pub threads: usize,
    /// Calls that each of them has under way at a time, from 1. A thread polls all of them in turn: those that wait for a future
    /// of another crate are polled with the others.
    pub tasks: usize,
    /// Calls that may wait for a thread, from 1.
    pub queue: usize,
    /// The deadline of calls that do not [set](Call::deadline) one. `None` for none.
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
/// [`Cluster::client`] makes one and starts its threads. Cloning it is cheap and gives the same client. The threads end with
/// [`shutdown`](Self::shutdown), or when the last clone and the last [`Call`] are dropped; the last one to be dropped blocks its thread
/// until they have.
///
/// The threads of a client are a run of their own: [`ComputeThread::index`] is the thread's number among them. A call should not wait at a
/// [`barrier`](ComputeThread::barrier), since nothing brings the client's other threads there.
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

/// What the clones of a client and its calls share.
struct Service {
    queue: Arc<Queue>,
    deadline: Option<Duration>,
    alarms: Alarms,
    threads: Mutex<Vec<BackgroundThread>>,
}

impl Drop for Service {
    /// The threads are waited for when they are dropped.
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Cluster {
    /// Starts a compute thread that waits for calls, with the defaults of [`ClientOptions`].
    ///
    /// # Errors
    /// Those of [`client_with`](Self::client_with).
    pub fn client(&self) -> Result<Client> {
        self.client_with(&ClientOptions::new())
    }

    /// Starts compute threads that wait for calls. Returns when they are ready.
    ///
    /// They are a run of this process alone, also if the cluster is [in a group](Self::in_group). While they exist, what needs the cluster
    /// without runs is refused ([`clear`](Self::clear), checkpoints).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options out of their bounds, and on `sim:`, whose threads live in virtual time: there is no moment of it
    /// at which a call from outside could arrive, and nothing to replay it from. [`Error::System`] if the system starts no more threads.
    /// As [`run`](Self::run), inside a run of the same cluster, and for a cluster that can not be used any more.
    pub fn client_with(&self, options: &ClientOptions) -> Result<Client> {
        let invalid = |argument, value: String, reason| {
            Err(Error::from(error::InvalidArgument { argument, value: value.into(), reason }))
        };
        let &ClientOptions { threads, tasks, queue, deadline } = options;
        for (argument, value) in [("tasks", tasks), ("queue", queue)] {
            if value == 0 || value > u32::MAX as usize - 1 {
                let reason = if value == 0 { "a client needs at least one" } else { "there are not so many" };
                return invalid(argument, value.to_string(), reason);
            }
        }
        let shared = &self.shared;
        if shared.world().is_some() {
            let reason = "calls from outside have no place in virtual time: start the work with `run`";
            return invalid("client", format!("of {}", self.url()), reason);
        }
        let reserved = reserve(shared, threads)?;
        shared.check_memory_node()?;
        let at_end = Arc::new((self.begin_run()?, reserved));
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
            let life = Life {
                end: End { queue: Arc::clone(&service.queue), index },
                at_end: Arc::clone(&at_end),
                run: Arc::clone(&run),
                cluster: self.clone(),
            };
            let (ready, wait) = mpsc::channel();
            waits.push(wait);
            match BackgroundThread::start(&format!("client-{index}"), move |_| life.live(tasks, &ready)) {
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
    /// Sends `work` to a compute thread and waits for what it returns.
    ///
    /// Nothing happens before the call is polled; but a [deadline](Call::deadline) counts from here. Where the queue is full the call
    /// waits for its turn. The work's future runs on the compute thread, so it need not be `Send`, but it should not block: other calls
    /// of that thread wait for it.
    ///
    /// No round trip of its own.
    ///
    /// # Errors
    /// That of the work; [`Error::DeadlineExceeded`], [`Error::CallPanicked`], [`Error::ClientClosed`].
    pub fn call<R: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&ComputeThread) -> Result<R> + Send + 'static,
    ) -> Call<R> {
        let deadline = self.service.deadline.and_then(|deadline| Some((Moment::after(deadline)?, deadline)));
        let (answer, waits) = oneshot::channel();
        let work = Box::new(Answered { work, answer, until: None });
        Call {
            service: Arc::clone(&self.service),
            state: State::Unsent { work, place: None },
            answer: waits,
            deadline,
            alarm: None,
            waiting: None,
        }
    }

    /// As [`call`](Self::call), where a full queue is an error. The work is in the queue when this returns, and is done also if the
    /// [`Call`] is not polled; it is cancelled if that is dropped.
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

    /// How many calls wait for a thread now: at most what [`ClientOptions::queue`] says, and nested ones.
    pub fn waiting(&self) -> usize {
        self.service.queue.waiting()
    }

    /// Whether the client accepts no more calls.
    pub fn is_closed(&self) -> bool {
        self.service.queue.is_closed()
    }

    /// Accepts no more calls, waits until those that were accepted are done, and ends the threads. The other clones are shut down, too.
    ///
    /// Calls that wait for room in the queue were not accepted. What is waited for can be bounded by dropping this future and the calls. Shutting
    /// down twice does no harm.
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
        // They are past their last line.
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
/// It can be sent, and awaited on any executor.
#[must_use = "a call does nothing unless it is awaited, and is cancelled when it is dropped"]
pub struct Call<R> {
    service: Arc<Service>,
    state: State,
    answer: oneshot::Receiver<Result<R>>,
    /// When it is given up, and how long after it was made that is.
    deadline: Option<(Moment, Duration)>,
    alarm: Option<(Alarm, Waker)>,
    /// Where stalls are reported, that it is not answered.
    waiting: Option<Waiting>,
}

/// Where a call is.
enum State {
    /// With the caller, who may have a place in line.
    Unsent { work: Box<dyn Work>, place: Option<u64> },
    /// In the queue under this number, or begun.
    Sent(u64),
    /// Answered, given up, or refused.
    Over,
}

impl<R> Call<R> {
    /// Gives the call up if it is not answered within `deadline` from now: see [`Error::DeadlineExceeded`]. One that is too far away to be told
    /// is none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Moment::after(deadline).map(|at| (at, deadline));
        self.alarm = None;
        self
    }

    /// Sends it if there is room; returns whether there was.
    fn send(&mut self, waker: Option<&Waker>) -> Result<bool> {
        let queue = &self.service.queue;
        if !matches!(self.state, State::Unsent { .. }) {
            return Ok(true);
        }
        let State::Unsent { mut work, mut place } = std::mem::replace(&mut self.state, State::Over) else {
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
            Offered::Accepted(number) => self.state = State::Sent(number),
            Offered::Full(work) => {
                self.state = State::Unsent { work, place };
                return Ok(false);
            }
            Offered::Closed => return Err(Error::from(error::ClientClosed {})),
        }
        Ok(true)
    }

    /// Gives it up; returns whether a thread had begun it.
    fn give_up(&mut self) -> bool {
        self.alarm = None;
        // The thread that has begun it hears of this.
        self.answer.close();
        match std::mem::replace(&mut self.state, State::Over) {
            State::Unsent { place, .. } => {
                if let Some(place) = place {
                    self.service.queue.leave_line(place);
                }
                false
            }
            State::Sent(number) => !self.service.queue.take_back(number),
            State::Over => false,
        }
    }

    /// Its answer is not there.
    fn note_wait(&self) -> Option<Waiting> {
        let (queue, state) = (Arc::downgrade(&self.service.queue), &self.state);
        let number = if let State::Sent(number) = state { Some(*number) } else { None };
        blocked_for(move || {
            let Some(queue) = queue.upgrade() else { return "a call of a client that is gone".to_owned() };
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
            // A thread came to it too late, and has said so before the alarm did.
            (Err(_), Some((at, deadline))) if at.has_come() => Err(late(deadline, false)),
            (Err(_), _) => Err(Error::from(error::ClientClosed {})),
        })
    }

    /// Looks whether the deadline has passed, and sets an alarm for it.
    fn poll_deadline(&mut self, waker: &Waker) -> Poll<Result<()>> {
        let Some((at, deadline)) = self.deadline else { return Poll::Pending };
        if at.has_come() {
            let has_begun = self.give_up();
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
            this.state = State::Over;
            this.alarm = None;
            this.waiting = None;
            return Poll::Ready(answer);
        }
        if this.waiting.is_none() {
            this.waiting = this.note_wait();
        }
        match this.poll_deadline(context.waker()) {
            Poll::Ready(Err(error)) => {
                this.give_up();
                Poll::Ready(Err(error))
            }
            _ => Poll::Pending,
        }
    }
}

impl<R> Drop for Call<R> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Unsent { .. } => "not sent",
            State::Sent(_) => "sent",
            State::Over => "over",
        };
        f.debug_struct("Call").field("state", &state).finish_non_exhaustive()
    }
}
