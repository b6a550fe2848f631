//! Delegation between two builds: this test program, and the program `jobs`. They share the interface of a board of jobs, and no position of a function.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_examples::job_board::{JobBoard, JobBoardClient, ROOT, find, keep};

const JOBS: &str = env!("CARGO_BIN_EXE_jobs");

/// The interface of a later build: one method has the same signature, one has another, and one is new.
mod later {
    use farfield::prelude::*;

    pub(super) struct JobBoard(Vec<(String, u8)>);

    #[delegated]
    impl JobBoard {
        /// Other code, and another name of the argument.
        pub(super) fn add(&mut self, text: String) -> u64 {
            self.0.insert(0, (text, 1));
            self.0.len() as u64
        }
        pub(super) fn take(&mut self, most: u64) -> Vec<String> {
            self.0.drain(..most as usize).map(|(text, _)| text).collect()
        }
        pub(super) fn urgent(&self) -> Option<String> {
            self.0.iter().find(|(_, urgency)| *urgency > 1).map(|(text, _)| text.clone())
        }
    }
}

/// A program that keeps a board, with the cluster's URL.
struct Keeper {
    process: Child,
    url: String,
}

impl Keeper {
    fn start(url: &str) -> Self {
        let keep = Command::new(JOBS).args(["--cluster", url, "keep"]).stdout(Stdio::piped()).spawn();
        let mut process = keep.unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "the board is open\n");
        Self { process, url: url.to_owned() }
    }

    /// Closes the board by a third process, and waits for the keeper's end.
    fn close(mut self) {
        assert_eq!(jobs(&self.url, &["close"]), "");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Closes the board of a cluster when it is dropped, also by a panic.
struct Closing<'a>(&'a str);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let _ = Command::new(JOBS).args(["--cluster", self.0, "close"]).output();
    }
}

/// Runs the program `jobs`, and returns what it prints.
fn jobs(url: &str, words: &[&str]) -> String {
    let output = Command::new(JOBS).args(["--cluster", url]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Ends the memory node when it is dropped, also by a panic.
struct Stopping(Stopper);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `body` with the URL of a cluster in shared memory, and with that of one over TCP.
fn on_each(name: &str, body: impl Fn(&str)) {
    for address in [format!("shm:builds-{name}-{}", std::process::id()), "tcp://127.0.0.1:0".to_owned()] {
        let mut options = MemoryNodeOptions::new(&address);
        options.segment_bytes = 4 << 20;
        let node = MemoryNode::listen(&options).unwrap();
        let (url, stopping) = (node.urls()[0].clone(), Stopping(node.stopper().unwrap()));
        std::thread::scope(|scope| {
            scope.spawn(|| node.serve().unwrap());
            let _stopping = stopping;
            body(&url);
        });
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T>) -> (String, &'static str) {
    match outcome {
        Err(Error::DelegationRefused(refused)) => (refused.function.to_string(), refused.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn methods_of_another_build_are_called_and_functions_by_position_are_refused_by_name() {
    on_each("client", |url| {
        let keeper = Keeper::start(url);
        let done = Cluster::connect(url).unwrap().run(2, async |ct| {
            let board = find(ct).await?;
            // The first request of the pair is refused, and so is one after it; the methods go on working.
            let (function, reason) = refusal(board.apply(ct, 1, |_: &mut JobBoard, n: u64| n).await);
            assert!(function.contains("JobBoard") && function.contains("two_builds.rs:"), "{function}");
            assert!(reason.contains("another build"), "{reason}");
            let mine = format!("job of thread {}", ct.index());
            board.add(ct, mine.clone()).await?;
            let (_, again) = refusal(board.apply(ct, (), |_: &mut JobBoard, ()| ()).await);
            assert_eq!(again, reason);
            ct.barrier("added").await?;
            assert!(board.take(ct).await?.is_some_and(|job| job.starts_with("job of thread ")));
            ct.barrier("taken").await?;
            assert_eq!(board.take(ct).await?, None);
            // A posted function is not called either: nobody has asked for its answer.
            board.post(ct, (), |board: &mut JobBoard, ()| board.close()).await?;
            assert!(!board.is_closed(ct).await?);
            ct.barrier("done").await
        });
        done.unwrap();
        keeper.close();
    });
}

#[test]
fn another_build_calls_methods_of_this_one() {
    on_each("trustee", |url| {
        let cluster = Cluster::connect(url).unwrap();
        std::thread::scope(|scope| {
            let use_board = || {
                let _closing = Closing(url);
                assert_eq!(jobs(url, &["add", "sweep the floor"]), "1 waiting\n");
                assert_eq!(jobs(url, &["add", "feed the cat"]), "2 waiting\n");
                for job in ["sweep the floor", "feed the cat", "nothing to do"] {
                    assert_eq!(jobs(url, &["take"]), format!("{job}\n"));
                }
            };
            cluster.run(1, async |ct| keep(ct, || drop(scope.spawn(use_board))).await).unwrap();
        });
    });
}

/// The code that another build's trustee executes requests a method of a value of this build.
#[test]
fn delegated_code_of_another_build_requests_methods_of_this_one() {
    on_each("both", |url| {
        let keeper = Keeper::start(url);
        let done = Cluster::connect(url).unwrap().run(1, async |ct| {
            let theirs = find(ct).await?;
            for number in 0..5 {
                theirs.add(ct, format!("job {number}")).await?;
            }
            let mine = JobBoardClient::entrust(ct, JobBoard::default()).await?;
            assert_eq!(theirs.pass_on(ct, mine.clone(), theirs.clone()).await?, 5);
            while theirs.passed_on(ct).await? < 5 {
                ct.sleep(Duration::from_millis(1)).await;
            }
            for number in 0..5 {
                assert_eq!(mine.take(ct).await?, Some(format!("job {number}")));
            }
            // And back: this build's code requests of the other one.
            mine.add(ct, "last".into()).await?;
            mine.pass_on(ct, theirs.clone(), mine.clone()).await?;
            while mine.passed_on(ct).await? < 1 {
                ct.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(theirs.take(ct).await?, Some("last".into()));
            Ok(())
        });
        done.unwrap();
        keeper.close();
    });
}

#[test]
fn a_later_build_calls_the_methods_whose_signatures_are_the_same() {
    on_each("later", |url| {
        let keeper = Keeper::start(url);
        let done = Cluster::connect(url).unwrap().run(1, async |ct| {
            let board = later::JobBoardClient::open(ct.lookup(ROOT).await?, ct).await?;
            assert_eq!(board.add(ct, "a job".into()).await?, 1);
            let refused =
                [("take", refusal(board.take(ct, 1).await)), ("urgent", refusal(board.urgent(ct).await))];
            for (method, (function, reason)) in refused {
                assert_eq!(function, format!("JobBoard::{method}"));
                assert!(reason.contains("no such method, or one with another signature"), "{reason}");
            }
            assert_eq!(find(ct).await?.take(ct).await?, Some("a job".into()));
            Ok(())
        });
        done.unwrap();
        keeper.close();
    });
}
