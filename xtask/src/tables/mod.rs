//! Tables of measurements in the book, and their plots.
//!
//! | module | contents |
//! |---|---|
//! | `csv` | tables as CSV |
//! | `scaling`, `epochs`, `interlocked` | the rows of a table, written and read |
//! | `plot` (feature `plot`) | a table as curves |

mod csv;
pub(crate) mod epochs;
pub(crate) mod interlocked;
#[cfg(feature = "plot")]
pub(crate) mod plot;
pub(crate) mod scaling;

use std::path::{Path, PathBuf};

use crate::workspace::{create_folder, root};

/// The folder of tables and plots, created if it does not exist; by default that of the book.
pub(crate) fn folder(to: Option<&Path>) -> Result<PathBuf, String> {
    let folder = to.map_or_else(|| root().join("book/src/results"), Path::to_owned);
    create_folder(&folder).map(|()| folder)
}

/// Draws a table.
#[cfg(feature = "plot")]
pub(crate) fn draw(title: &str, csv: &Path, svg: &Path) -> Result<(), String> {
    plot::run(&plot::Options { title: title.to_owned(), csv: csv.to_owned(), svg: svg.to_owned() })
}

/// Without the plotting crate the task runs itself with the feature, for the plot only.
#[cfg(not(feature = "plot"))]
pub(crate) fn draw(title: &str, csv: &Path, svg: &Path) -> Result<(), String> {
    let (csv, svg) = (csv.to_string_lossy(), svg.to_string_lossy());
    let cargo = ["cargo", "run", "--quiet", "--package", "xtask", "--features", "plot", "--"];
    crate::workspace::run(&[&cargo[..], &["plot", title, &csv, &svg]].concat(), &[])
}
