//! `jobs`: keeps a board of jobs, adds to it and takes from it. See [`farfield_examples::job_board`].

use std::io::Write;

use clap::{Parser, Subcommand};
use farfield::prelude::*;
use farfield_examples::job_board::{find, keep};

/// Keeps a board of jobs that other processes add to, or uses it.
#[derive(Debug, Parser)]
#[command(name = "jobs", version)]
struct Args {
    /// The cluster's URL
    #[arg(long)]
    cluster: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Keep the board until it is closed
    Keep,
    /// Add a job
    Add {
        /// What is to be done
        job: String,
    },
    /// Take the oldest job
    Take,
    /// Close the board
    Close,
}

fn main() -> farfield::Result<()> {
    let args = Args::parse();
    Cluster::connect(&args.cluster)?.run(1, async |ct| {
        match &args.action {
            Action::Keep => keep(ct, || say("the board is open")).await?,
            Action::Add { job } => say(&format!("{} waiting", find(ct).await?.add(ct, job.clone()).await?)),
            Action::Take => match find(ct).await?.take(ct).await? {
                Some(job) => say(&job),
                None => say("nothing to do"),
            },
            Action::Close => find(ct).await?.close(ct).await?,
        }
        Ok(())
    })?;
    Ok(())
}

/// Prints a line at once. If nobody reads it, nothing is lost.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
