//! The directory of a cluster, in which processes find its memory node. The memory is in no directory: it is [passed](super::passing).
//!
//! | path | contents |
//! |---|---|
//! | `/dev/shm/farfield-UID/` | the user's clusters, mode 0700 |
//! | `.NAME.lock` | a file that the memory node locks while it serves; no cluster has a name like this |
//! | `NAME/in-use` | an empty file, mode 0600; locked while a process maps the memory |
//! | `NAME/socket` | the socket on which the memory node listens |
//!
//! The kernel releases a lock when its owner ends, for any reason. So locked files are in use, and unlocked ones are stale. The variable
//! `FARFIELD_SHM_DIR` names another directory in place of `/dev/shm`, on any file system that has sockets and locks.
//!
//! # Why the memory's use is locked
//!
//! When a memory node is killed, its clients continue to use the memory until they wait for another process. A second memory node of the name has new
//! memory, so processes of one program could work on two clusters without noticing. It is refused until the clients of the first have ended. (A
//! memory node that stops in order closes their connections and releases its name, so that a second one can start.)
//!
//! The lock of `NAME/in-use` belongs to an open file, not to a process. The memory node opens it, locks it and passes its descriptor with that of the
//! memory. So it is locked from before the first process maps the memory until the last descriptor is closed, and a process never has the memory
//! without the lock. A descriptor in transit to a process, or inherited by a forked child, counts, too.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{self, Error, Result};
use crate::files;
use crate::host::{SealedMemory, SharedMemoryError};

const SHARED_MEMORY: &str = "/dev/shm";
const DIRECTORY_VARIABLE: &str = "FARFIELD_SHM_DIR";
/// The longest name: the path of a socket has room for 107 bytes.
const NAME_BYTES: usize = 48;
/// The most attempts of a memory node to lock its name while others release it.
const CLAIMS: u32 = 1000;

/// The files of a cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterDirectory {
    name: Box<str>,
    user: PathBuf,
    /// Makes an error from the cluster's address and a reason.
    error: fn(Box<str>, Box<str>) -> Error,
}

/// The lock of a cluster's name, held while the memory node serves.
#[derive(Debug)]
pub(super) struct NameLock(File);

pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || name.len() > NAME_BYTES || !name.chars().all(is_plain) {
        return Err(format!(
            "`{name}` is not a valid cluster name: use up to {NAME_BYTES} letters, digits, `.`, `_` and `-`, not first a `.`"
        ));
    }
    Ok(())
}

fn system(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |cause| Error::from(error::System { action, cause })
}

/// Whether a directory was there, and is not any more: making it fails with either error.
fn was_removed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

impl ClusterDirectory {
    /// The directory of a cluster, for a client.
    pub(super) fn of_client(name: &str) -> Self {
        Self::new(name, |address, reason| Error::from(error::CannotConnect { address, reason }))
    }

    /// The directory of a cluster, for its memory node.
    pub(super) fn of_node(name: &str) -> Self {
        Self::new(name, |address, reason| Error::from(error::CannotServe { address, reason }))
    }

    /// The directory of a cluster, for its memory node, below another root.
    #[cfg(test)]
    pub(super) fn below(root: &Path, name: &str) -> Self {
        let user = root.join("user");
        Self { user, ..Self::of_node(name) }
    }

    fn new(name: &str, error: fn(Box<str>, Box<str>) -> Error) -> Self {
        let root = std::env::var_os(DIRECTORY_VARIABLE).map_or_else(|| SHARED_MEMORY.into(), PathBuf::from);
        let user = root.join(format!("farfield-{}", rustix::process::geteuid().as_raw()));
        Self { name: name.into(), user, error }
    }

    fn path(&self) -> PathBuf {
        self.user.join(&*self.name)
    }

    fn in_use(&self) -> PathBuf {
        self.path().join("in-use")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path().join("socket")
    }

    pub(super) fn failed(&self, reason: impl Into<Box<str>>) -> Error {
        (self.error)(format!("shm:{}", self.name).into(), reason.into())
    }

    /// Checks that a directory belongs to this user, and that no other user may enter it.
    pub(super) fn check_owner(&self, directory: &Path) -> Result<()> {
        let found = fs::symlink_metadata(directory).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.failed(format!(
                "no memory node serves it; start one: farfield memnode --cluster shm:{}",
                self.name
            )),
            _ => self.failed(format!("{}: {error}", directory.display())),
        })?;
        self.check_found(directory, &found)
    }

    fn check_found(&self, directory: &Path, found: &fs::Metadata) -> Result<()> {
        let path = directory.display();
        if !found.is_dir() {
            return Err(self.failed(format!("{path} is not a directory")));
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.failed(format!("{path} belongs to another user: {}", found.uid())));
        }
        if found.mode() & 0o077 != 0 {
            return Err(self.failed(format!("users other than its owner may enter {path}: chmod 700")));
        }
        Ok(())
    }

    /// Checks the owner and mode of both directories.
    pub(super) fn check(&self) -> Result<()> {
        self.check_owner(&self.user)?;
        self.check_owner(&self.path())
    }

    /// Locks the name for a memory node: no other memory node serves under it while the lock is held.
    pub(super) fn claim(&self) -> Result<NameLock> {
        let path = self.lock_path();
        for _ in 0..CLAIMS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            // The last memory node of another name removes the directory when it is empty; once a lock is in it, it can not.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.user);
            let found = match made.and_then(|()| fs::symlink_metadata(&self.user)) {
                Err(error) if was_removed(&error) => continue,
                found => found.map_err(system("make a directory for shared memory"))?,
            };
            self.check_found(&self.user, &found)?;
            let lock = match files::open_no_link(&path, &mut options) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(|cause| self.failed(format!("{}: {cause}", path.display())))?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(
                        self.failed("a memory node serves a cluster of this name already: choose another")
                    );
                }
                Err(TryLockError::Error(cause)) => return Err(system("lock a cluster's name")(cause)),
            }
            // A memory node that released the name has removed the file: then this is the lock of a deleted file.
            let (name_lock, found) = (lock.metadata(), fs::symlink_metadata(&path));
            if let (Ok(name_lock), Ok(found)) = (name_lock, found)
                && name_lock.ino() == found.ino()
            {
                return Ok(NameLock(lock));
            }
        }
        self.check_owner(&self.user)?;
        Err(self.failed(format!("other processes keep creating and removing {}", path.display())))
    }

    fn lock_path(&self) -> PathBuf {
        self.user.join(format!(".{}.lock", self.name))
    }

    /// Removes the stale directory of an earlier memory node of this name, and makes a new one. Returns the lock that shows that the memory is in
    /// use. The name must be [claimed](Self::claim).
    pub(super) fn prepare(&self) -> Result<File> {
        if fs::symlink_metadata(self.path()).is_ok() {
            self.check_owner(&self.path())?;
            if let Ok(stale) = files::open_no_link(&self.in_use(), OpenOptions::new().read(true))
                && let Err(TryLockError::WouldBlock) = stale.try_lock()
            {
                return Err(self.failed(
                    "its memory node has ended, but processes still use its memory: end them first",
                ));
            }
            tracing::info!(cluster = &*self.name, "removed the stale directory of a killed memory node");
            fs::remove_dir_all(self.path()).map_err(system("remove a cluster's stale directory"))?;
        }
        let made = DirBuilder::new().mode(0o700).create(self.path());
        made.map_err(system("make a directory for a cluster"))?;
        let locked =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(self.in_use());
        let locked = locked.and_then(|file| file.lock_shared().map(|()| file));
        locked.map_err(|cause| {
            // The new directory is removed again.
            let _ = fs::remove_dir_all(self.path());
            system("lock a cluster's memory")(cause)
        })
    }

    /// Makes memory of `bytes` bytes, of which the given ranges are allocated.
    pub(super) fn make_memory(
        &self,
        bytes: u64,
        ranges: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> Result<SealedMemory> {
        let taken: u64 = ranges.clone().map(|(_, length)| length).sum();
        SealedMemory::new(&format!("farfield-{}", self.name), bytes, ranges).map_err(|error| match error {
            SharedMemoryError::NoRoom(available) => {
                let known =
                    available.map(|bytes| format!(", about {bytes} are available")).unwrap_or_default();
                self.failed(format!("no room for {taken} bytes of memory{known}: ask for less, or free some"))
            }
            SharedMemoryError::System(cause) => system("make shared memory")(cause),
        })
    }

    /// Removes the cluster's files, and releases its name. Processes that map the memory keep it.
    pub(super) fn remove(&self, name_lock: &NameLock) {
        let _ = fs::remove_dir_all(self.path());
        self.give_up(name_lock);
    }

    /// Releases the cluster's name.
    pub(super) fn give_up(&self, name_lock: &NameLock) {
        let _ = fs::remove_file(self.lock_path());
        let _ = fs::remove_dir(&self.user);
        let _ = name_lock.0.unlock();
    }
}
