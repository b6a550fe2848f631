//! A board of jobs that belongs to one thread: other processes add jobs and take them, also processes of other builds.
//!
//! Its interface is the `#[delegated]` impl alone, whose methods are named by their signatures. So a keeper that runs for weeks serves clients that were built later. The
//! program `jobs` keeps a board, and adds to it.

use std::collections::VecDeque;

use farfield::prelude::*;
use farfield::{Reaction, Result};

/// The name under which a board is published.
pub const ROOT: &str = "jobs";

/// Jobs that wait, and the number of those that were passed on to another board.
#[derive(Default)]
pub struct JobBoard {
    jobs: VecDeque<String>,
    passed_on: u64,
    is_closed: bool,
}

#[delegated]
impl JobBoard {
    /// Adds a job. Returns how many wait.
    pub fn add(&mut self, job: String) -> u64 {
        self.jobs.push_back(job);
        self.jobs.len() as u64
    }

    /// Takes the oldest job.
    pub fn take(&mut self) -> Option<String> {
        self.jobs.pop_front()
    }

    /// Passes all jobs on to another board, which may be another process's. `me` is this board. Jobs that the other board does not get come back. Returns how many are on
    /// their way.
    pub fn pass_on(&mut self, context: &Context<'_>, to: JobBoardClient, me: JobBoardClient) -> u64 {
        let mut sent = 0;
        for job in std::mem::take(&mut self.jobs) {
            let (me, kept) = (me.clone(), job.clone());
            let arrived = move |waiting: Result<u64>, reaction: &Reaction<'_>| {
                reaction.with(&me, |board| match waiting {
                    Ok(_) => board.passed_on += 1,
                    Err(_) => board.jobs.push_back(kept),
                });
            };
            match to.via(context).add(job.clone()).apply_then(arrived) {
                Ok(()) => sent += 1,
                Err(_) => self.jobs.push_back(job),
            }
        }
        sent
    }

    /// Returns how many jobs another board has got from this one.
    pub fn passed_on(&self) -> u64 {
        self.passed_on
    }

    /// Closes the board: its keeper ends.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns whether the board is closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// Finds the board of another thread.
///
/// # Errors
/// There is none, or its keeper has ended.
pub async fn find(ct: &ComputeThread) -> Result<JobBoardClient> {
    JobBoardClient::open(ct.lookup(ROOT).await?, ct).await
}

/// Keeps a board until it is closed. `is_open` is called once others can find it.
///
/// # Errors
/// There is a board already.
pub async fn keep(ct: &ComputeThread, is_open: impl FnOnce()) -> Result<()> {
    let board = JobBoardClient::entrust(ct, JobBoard::default()).await?;
    ct.publish(ROOT, Trust::from(board.clone()).store(ct).await?).await?;
    is_open();
    while !board.is_closed(ct).await? {
        // The thread serves others meanwhile.
        ct.sleep(std::time::Duration::from_millis(1)).await;
    }
    drop(Trust::<JobBoard>::take(ct.unpublish(ROOT).await?, ct).await?);
    Ok(())
}
