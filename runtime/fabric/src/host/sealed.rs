//! Memory that several processes map: a file of memory without a name, whose size is sealed.
//!
//! A mapped page that lies behind the end of its file is no memory: the kernel kills a process that touches it by SIGBUS. So a process that can
//! shorten the file can kill all that map it, the memory node included. A file in a directory can be shortened by every process of its
//! user. This one is a `memfd`, and its size is sealed before any other process gets it:
//!
//! 1. [`SealedMemory::new`] makes the file, gives it its size, takes the pages of the segments, and seals it against shrinking, growing, and
//!    further seals. From then on the kernel refuses to change the size, through any descriptor, for every user.
//! 2. The descriptor is passed to processes over a socket. The file has no path.
//! 3. [`SealedMemory::received`] asks the kernel for the seals and the size of what was passed. A seal can not be taken back, so what is true
//!    then is true for ever.
//!
//! A [`SealedMemory`] is made in these two ways only. So a mapping of as many bytes as it has needs no trust in other processes:
//! that is the argument of the arena.
//!
//! Seals do not protect contents: who has the descriptor may write, and may punch holes. A page in a hole reads as zero and is given anew by
//! the kernel, as is every page that was not touched before. A file on `hugetlbfs` is refused: there the kernel may have no page
//! to give, and kills by SIGBUS.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, StatFs, fallocate, fchmod, fcntl_add_seals, fcntl_get_seals,
    fstatfs, ftruncate, memfd_create,
};
use rustix::io::Errno;

use super::available::available_bytes;

/// Nothing changes the size any more, and nothing is added to that.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// What file systems in memory call themselves.
const TMPFS: u64 = 0x0102_1994;

/// A file of memory that keeps its size: see the [module](self).
#[derive(Debug)]
pub struct SealedMemory {
    file: File,
    bytes: u64,
}

/// Why there is no memory.
#[derive(Debug)]
pub enum SharedMemoryError {
    /// The system has too little; about so much, if that is known.
    NoRoom(Option<u64>),
    /// The system refused.
    System(io::Error),
}

impl From<Errno> for SharedMemoryError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOSPC | Errno::NOMEM => Self::NoRoom(available_bytes()),
            error => Self::System(error.into()),
        }
    }
}

impl SealedMemory {
    /// Memory of `bytes` bytes, all zero, of which only the given ranges take pages. They are taken now, so that no process is killed later
    /// because there is none left; if the system has too few, none is taken. `name` is shown where the system lists mappings.
    pub fn new(
        name: &str,
        bytes: u64,
        ranges: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> Result<Self, SharedMemoryError> {
        // Nothing limits a file like this, and the kernel would end other processes for the sake of it.
        let taken: u64 = ranges.clone().map(|(_, length)| length).sum();
        if let Some(available) = available_bytes().filter(|available| *available < taken) {
            return Err(SharedMemoryError::NoRoom(Some(available)));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Linux before 6.3 does not know that files like this need not be programs; later ones may insist on it.
        let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(name, flags),
            made => made,
        }?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&file, bytes)?;
        for (start, length) in ranges {
            fallocate(&file, FallocateFlags::empty(), start, length)?;
        }
        fcntl_add_seals(&file, SEALS)?;
        Self::received(file).map_err(|reason| SharedMemoryError::System(io::Error::other(reason)))
    }

    /// Takes a descriptor that another process has passed.
    ///
    /// # Errors
    /// What it lacks, in a line.
    pub fn received(file: OwnedFd) -> Result<Self, String> {
        // The kernel knows no seals of other files.
        let seals =
            fcntl_get_seals(&file).map_err(|_| "it is no file of memory that can be sealed".to_owned())?;
        if !seals.contains(SEALS) {
            return Err("its size is not sealed".to_owned());
        }
        let StatFs { f_type, .. } = fstatfs(&file).map_err(|error| error.to_string())?;
        if u64::try_from(f_type) != Ok(TMPFS) {
            return Err("it is not of ordinary memory".to_owned());
        }
        let file = File::from(file);
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        Ok(Self { file, bytes })
    }

    /// Its size, which does not change.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl AsFd for SealedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    use super::*;

    const BYTES: u64 = 64 << 10;

    fn memory(flags: MemfdFlags, bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("farfield-test", MemfdFlags::CLOEXEC | flags).unwrap();
        ftruncate(&file, bytes).unwrap();
        if !seals.is_empty() {
            fcntl_add_seals(&file, seals).unwrap();
        }
        file
    }

    /// By the descriptor that is passed, by one of another mode, by name in /proc: it is the file that keeps its size.
    #[test]
    fn nothing_changes_the_size() {
        let sealed = SealedMemory::new("farfield-test", BYTES, std::iter::once((0, BYTES))).unwrap();
        let path = format!("/proc/self/fd/{}", sealed.file.as_raw_fd());
        let other = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for file in [&sealed.file, &other] {
            for bytes in [0, BYTES - 1, BYTES + 1, 1 << 40] {
                assert_eq!(file.set_len(bytes).unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
            }
            for seals in [SealFlags::WRITE, SealFlags::empty(), SealFlags::SHRINK] {
                assert_eq!(fcntl_add_seals(file, seals), Err(Errno::PERM), "{seals:?}");
            }
            assert_eq!(fallocate(file, FallocateFlags::empty(), BYTES, 8), Err(Errno::PERM));
        }
        let emptied = OpenOptions::new().write(true).truncate(true).open(&path).unwrap_err();
        assert_eq!(emptied.raw_os_error(), Some(Errno::PERM.raw_os_error()));
        assert_eq!(other.metadata().unwrap().len(), BYTES);
        // Holes are no end: what was there is zero, and memory as before.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&other, hole, 0, BYTES).unwrap();
        assert_eq!(other.metadata().unwrap().len(), BYTES);
        let mode = std::os::unix::fs::MetadataExt::mode(&other.metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_not_sealed_is_refused() {
        let sealing = MemfdFlags::ALLOW_SEALING;
        let refused = |file: OwnedFd| SealedMemory::received(file).unwrap_err();
        assert!(SealedMemory::received(memory(sealing, BYTES, SEALS)).is_ok());
        for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let refused = refused(memory(sealing, BYTES, SEALS.difference(seal)));
            assert_eq!(refused, "its size is not sealed", "without {seal:?}");
        }
        assert_eq!(refused(memory(MemfdFlags::empty(), BYTES, SealFlags::empty())), "its size is not sealed");
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(refused(file.into()), "it is no file of memory that can be sealed");
        let (pipe, _other) = io::pipe().unwrap();
        assert_eq!(refused(pipe.into()), "it is no file of memory that can be sealed");
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(refused(socket.into()), "it is no file of memory that can be sealed");
        // Also where the system has no such pages, and so would kill whoever touches them.
        match memfd_create("farfield-huge", sealing | MemfdFlags::HUGETLB) {
            Ok(file) => {
                fcntl_add_seals(&file, SEALS).unwrap();
                assert_eq!(refused(file), "it is not of ordinary memory");
            }
            Err(_) => crate::skip::skip("hugetlb", "the system has no huge pages"),
        }
    }

    #[test]
    fn more_than_there_is_is_refused_before_it_is_taken() {
        let asked = 1 << 45;
        match SealedMemory::new("farfield-test", asked, std::iter::once((0, asked))) {
            Err(SharedMemoryError::NoRoom(Some(available))) => {
                assert!((1 << 20..asked).contains(&available), "{available}");
            }
            other => panic!("{other:?}"),
        }
        // What is not taken needs no room.
        assert_eq!(SealedMemory::new("farfield-test", asked, std::iter::empty()).unwrap().bytes(), asked);
    }
}
