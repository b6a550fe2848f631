//! Reports of stalls ask the thread that uses a lane for a description of the requests in flight.
//!
//! The report's thread sets a flag. The lane's user checks it in each round of its polls and with the clock, and answers. So a description is
//! consistent, and the lane's user takes no lock unless it was asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a report waits for the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// The question and the answer.
pub(crate) struct Inquiry {
    node: u16,
    is_asked: AtomicBool,
    answer: Mutex<Option<String>>,
}

impl Inquiry {
    /// Makes the inquiry of a lane to this memory node.
    pub(crate) fn new(node: u16) -> Self {
        Self { node, is_asked: AtomicBool::new(false), answer: Mutex::default() }
    }

    /// Asks, and returns the answer. A thread that reconnects, computes or sleeps does not answer in time.
    pub(crate) fn ask(&self) -> String {
        let begun = Instant::now();
        drop(self.answer_that_came());
        self.is_asked.store(true, Ordering::Relaxed);
        loop {
            if let Some(answer) = self.answer_that_came() {
                return answer;
            }
            if begun.elapsed() >= ANSWER_TIMEOUT {
                return format!(
                    "no thread polls the lane to memory node {}, which may be reconnecting",
                    self.node
                );
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the answer, if there is one.
    pub(crate) fn answer_that_came(&self) -> Option<String> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns whether a report waits for an answer.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn answer(&self, description: String) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(description);
        self.is_asked.store(false, Ordering::Relaxed);
    }
}
