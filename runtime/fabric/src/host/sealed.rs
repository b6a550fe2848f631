//! Shared memory: an unnamed memory file (`memfd`) whose size is sealed.
//!
//! If a process touches a mapped page beyond the end of its file, the kernel kills it by SIGBUS. So a process that can shorten the file can kill all
//! processes that map it, including the memory node. Every process of its user can shorten a file in a directory. This one is a `memfd`, and its size
//! is sealed before any other process gets it:
//!
//! 1. [`SealedMemory::new`] makes the file, sets its size, allocates the pages of the segments, huge ones if it can, and seals it against shrinking, growing, and
//!    further seals. From then on the kernel refuses to change the size, through any descriptor, for every user.
//! 2. The descriptor is passed to processes over a socket. The file has no path.
//! 3. [`SealedMemory::received`] asks the kernel for the seals and the size of the passed file. A seal can not be removed, so both stay as they are.
//!
//! A [`SealedMemory`] is made in these two ways only. So a mapping of as many bytes as it has needs no trust in other processes:
//! that is the argument of the arena.
//!
//! Seals do not protect contents: every process with the descriptor may write, and may punch holes. A page in a hole reads as zero, and the kernel
//! allocates it again on demand, like every untouched page. A file on `hugetlbfs` is refused: there the kernel may have no free page, and kills by
//! SIGBUS.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, StatFs, fallocate, fchmod, fcntl_add_seals, fcntl_get_seals,
    fstatfs, ftruncate, memfd_create,
};
use rustix::io::Errno;

use super::available::available_bytes;
use super::mapping::take_huge_pages;

/// The seals that fix the size and forbid further seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// The type of file systems in ordinary memory, as `fstatfs` reports it.
const TMPFS: u64 = 0x0102_1994;

/// A memory file of fixed size. It is made by sealing a file or by checking its seals, so no process can change its size.
#[derive(Debug)]
pub struct SealedMemory {
    file: File,
    bytes: u64,
}

/// The reason why shared memory could not be made.
#[derive(Debug)]
pub enum SharedMemoryError {
    /// The system has too little memory: about this many bytes, if known.
    NoRoom(Option<u64>),
    /// The system refused for another reason.
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
    /// Makes a file of `bytes` zero bytes, of which only the given ranges take pages. They are allocated now, so that no process is killed later
    /// for lack of pages; if the system has too few, none is allocated. The system shows `name` in its lists of mappings.
    pub fn new(
        name: &str,
        bytes: u64,
        ranges: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> Result<Self, SharedMemoryError> {
        // The kernel does not limit such a file, and would kill other processes to satisfy it.
        let taken: u64 = ranges.clone().map(|(_, length)| length).sum();
        if let Some(available) = available_bytes().filter(|available| *available < taken) {
            return Err(SharedMemoryError::NoRoom(Some(available)));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Linux before 6.3 does not know the flag against executable files; later versions may require it.
        let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(name, flags),
            made => made,
        }?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&file, bytes)?;
        let file = File::from(file);
        take_huge_pages(&file, bytes, ranges.clone());
        for (start, length) in ranges {
            fallocate(&file, FallocateFlags::empty(), start, length)?;
        }
        fcntl_add_seals(&file, SEALS)?;
        Self::received(file.into()).map_err(|reason| SharedMemoryError::System(io::Error::other(reason)))
    }

    /// Checks a descriptor that another process has passed.
    ///
    /// # Errors
    /// The reason, in one line.
    pub fn received(file: OwnedFd) -> Result<Self, String> {
        // Other files have no seals.
        let seals =
            fcntl_get_seals(&file).map_err(|_| "it is not a memory file that can be sealed".to_owned())?;
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

    /// Returns its size, which does not change.
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

    /// The size is the file's: it can not be changed by the passed descriptor, by one of another mode, or by name in /proc.
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
        // Holes do not change the size: their pages are zero and can be used as before.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&other, hole, 0, BYTES).unwrap();
        assert_eq!(other.metadata().unwrap().len(), BYTES);
        let mode = std::os::unix::fs::MetadataExt::mode(&other.metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_without_all_seals_are_refused() {
        let sealing = MemfdFlags::ALLOW_SEALING;
        let refused = |file: OwnedFd| SealedMemory::received(file).unwrap_err();
        assert!(SealedMemory::received(memory(sealing, BYTES, SEALS)).is_ok());
        for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let refused = refused(memory(sealing, BYTES, SEALS.difference(seal)));
            assert_eq!(refused, "its size is not sealed", "without {seal:?}");
        }
        assert_eq!(refused(memory(MemfdFlags::empty(), BYTES, SealFlags::empty())), "its size is not sealed");
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(refused(file.into()), "it is not a memory file that can be sealed");
        let (pipe, _other) = io::pipe().unwrap();
        assert_eq!(refused(pipe.into()), "it is not a memory file that can be sealed");
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(refused(socket.into()), "it is not a memory file that can be sealed");
        // Refused even if the system has no huge pages, and so would kill a process that touches them.
        match memfd_create("farfield-huge", sealing | MemfdFlags::HUGETLB) {
            Ok(file) => {
                fcntl_add_seals(&file, SEALS).unwrap();
                assert_eq!(refused(file), "it is not of ordinary memory");
            }
            Err(_) => crate::skip::skip("hugetlb", "the system has no huge pages"),
        }
    }

    #[test]
    fn more_memory_than_available_is_refused_before_it_is_allocated() {
        let asked = 1 << 45;
        match SealedMemory::new("farfield-test", asked, std::iter::once((0, asked))) {
            Err(SharedMemoryError::NoRoom(Some(available))) => {
                assert!((1 << 20..asked).contains(&available), "{available}");
            }
            other => panic!("{other:?}"),
        }
        // Ranges that are not allocated need no memory.
        assert_eq!(SealedMemory::new("farfield-test", asked, std::iter::empty()).unwrap().bytes(), asked);
    }
}
