//! Output formats, and writing to the standard output.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use clap::ValueEnum;

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

/// The first error of writing.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes to the standard output. Returns whether the text was written: a reader may have closed the pipe, and the command goes on.
pub(crate) fn print(text: Arguments<'_>) -> bool {
    let written = io::stdout().write_fmt(text);
    written.map_err(|error| FAILED.set(error)).is_ok()
}

/// Returns the first error of writing, except that the reader of a pipe has closed it: it wants no more.
pub(crate) fn output_error() -> Option<&'static io::Error> {
    let _ = io::stdout().flush().map_err(|error| FAILED.set(error));
    FAILED.get().filter(|error| error.kind() != ErrorKind::BrokenPipe)
}

/// Prints a line to the [standard output](fn@print).
macro_rules! print_line {
    ($($arguments:tt)*) => {{
        let _ = $crate::format::print(format_args!("{}\n", format_args!($($arguments)*)));
    }};
}
