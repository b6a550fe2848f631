//! Opening and replacing files in directories that other programs may write to.
//!
//! A file is replaced in three steps: [`create_private`] makes a file beside it, under one fixed name; the caller writes and syncs it; [`replace`]
//! renames it. The crate `tempfile` draws a new name for each file, so each program that is killed while writing leaves one more file, as large as a
//! checkpoint. Its `persist` does not sync the folder, so a power failure could undo the renaming. With a fixed name there is at most one such file,
//! which the next attempt removes.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file. Refuses a pipe or a device without waiting for it.
///
/// # Errors
/// The system's; also if the path is not a regular file.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_with(path, options, false)
}

/// As [`open`]; refuses a symbolic link, too.
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
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Makes a file that only its owner may read. Removes an existing file or link of that name first, without following it. If another appears
/// meanwhile, that is an error.
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

/// Renames a synced file to `path`, and syncs the folder.
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
