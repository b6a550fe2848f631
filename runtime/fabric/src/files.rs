//! Files that others may have replaced: what is opened has to be a file.
//!
//! A file is made in three steps: [`create_private`] beside its place, under one fixed name; its owner writes and syncs it; [`replace`] gives it
//! its name. The crate `tempfile` draws a new name for each, so programs that are killed while they write leave one file more
//! each time, as large as a checkpoint; and its `persist` does not sync the folder, so a power failure could undo the renaming. With one
//! name there is at most one such file, which the next attempt removes.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file. A pipe or a device is refused, and not waited for.
///
/// # Errors
/// The system's, or that it is no file.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_with(path, options, false)
}

/// As [`open`]; a link is refused, too.
#[cfg(target_os = "linux")]
pub fn open_no_link(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_with(path, options, true)
}

fn open_with(path: &Path, options: &mut OpenOptions, refuses_links: bool) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let links = if refuses_links { OFlags::NOFOLLOW } else { OFlags::empty() };
        options.custom_flags((OFlags::NONBLOCK | links).bits().cast_signed());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = refuses_links;
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Makes a file that only its owner may read. One that is there already is removed, and so is a link: it is not followed. If another
/// appears meanwhile, that is an error.
///
/// # Errors
/// The system's.
pub fn create_private(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}

/// Gives a file that is on the disk the name of another, and waits until that is on the disk, too.
///
/// # Errors
/// The system's.
pub fn replace(beside: &Path, path: &Path) -> io::Result<()> {
    std::fs::rename(beside, path)?;
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
