//! How commands print.

use clap::ValueEnum;

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}
