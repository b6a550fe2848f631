//! Checkpoints: saving a quiescent cluster to a file, and restoring it.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..64 | [`Header`]: magic number, version of the layout, size of the cluster |
//! | for each segment | the number of taken chunks, their words in the chunk table, and their contents |
//! | then | the directory |
//! | the last 32 | SHA-256 of all bytes before |
//!
//! A file is read twice: once to verify its checksum, then to restore it. So a truncated or altered file changes nothing.
//!
//! Pointers stay valid: an address is a segment and an offset, and both stay. So the cluster that is restored into needs at least as many segments,
//! of at least the same size. (Up to 512 KiB a segment's size determines the size of its chunks; such a size must not grow beyond a power of two.)
//! The segments may be divided among memory nodes differently. State that only processes of the old cluster had, such as free lists, is rebuilt by a
//! [collection](super::collect): objects that are not reachable from a root are freed. Since processes and runs are numbered anew, held locks become
//! free and their next owners are notified, claimed names become free, and barriers begin anew.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::segment::control::{self, DIRECTORY_ENTRIES, Entry, LAYOUT_VERSION};
use crate::segment::grid::Grid;
use crate::session::{Cluster, ComputeThread};
use farfield_fabric::files;
use farfield_words::Address;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

const MAGIC: [u8; 16] = *b"farfield-checkpt";
/// The version of the file format.
const VERSION: u64 = 1;
const HEADER_WORDS: usize = 6;
const HEADER_BYTES: usize = MAGIC.len() + HEADER_WORDS * WORD_BYTES;
/// The byte order of words: that of memory.
const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
const DIGEST_BYTES: usize = 32;
const DIRECTORY_WORDS: usize = DIRECTORY_ENTRIES * Entry::WORDS;
/// The number of words that are copied at a time.
const WORDS_PER_COPY: usize = 1024;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    layout: u64,
    geometry: Geometry,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Self { layout, geometry } = self;
        let [nodes, segments_per_node] = [geometry.nodes(), geometry.segments_per_node()].map(u64::from);
        let words = [VERSION, BYTE_ORDER, layout, nodes, segments_per_node, geometry.segment_bytes()];
        let mut bytes = [0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[MAGIC.len()..].copy_from_slice(bytemuck::bytes_of(&words));
        bytes
    }

    /// Parses a header. The error is the reason for refusing it.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or("it is too short for a checkpoint")?;
        let (magic, words) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err("it is no checkpoint".to_owned());
        }
        let words: [u64; HEADER_WORDS] = bytemuck::pod_read_unaligned(words);
        let [version, order, layout, nodes, segments_per_node, segment_bytes] = words;
        if order != BYTE_ORDER {
            return Err("its words are in the other byte order".to_owned());
        }
        if version != VERSION {
            return Err(format!("it has version {version} of the format, this build knows {VERSION}"));
        }
        if layout != LAYOUT_VERSION {
            return Err(format!("its memory has layout version {layout}, this build knows {LAYOUT_VERSION}"));
        }
        let geometry = Geometry::new(nodes, segments_per_node, segment_bytes);
        let geometry = geometry.map_err(|wrong| format!("its cluster is invalid: its {wrong}"))?;
        Ok(Self { layout, geometry })
    }
}

/// A file that is being written, with the checksum of its contents.
struct Writer<'a> {
    file: BufWriter<File>,
    digest: Sha256,
    bytes: u64,
    path: &'a Path,
}

impl Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|cause| failed(self.path, cause.to_string()))
    }

    fn end(mut self) -> Result<u64> {
        let digest = self.digest.finalize();
        let written = self.file.write_all(&digest).and_then(|()| self.file.flush());
        let written = written.and_then(|()| self.file.get_ref().sync_all());
        written.map_err(|cause| failed(self.path, cause.to_string()))?;
        Ok(self.bytes + DIGEST_BYTES as u64)
    }
}

fn failed(path: &Path, reason: impl Into<Box<str>>) -> Error {
    Error::from(error::Checkpoint { file: path.display().to_string().into(), reason: reason.into() })
}

/// Verifies a file's checksum. Returns its header and the position of its digest.
pub(crate) fn examine(path: &Path) -> Result<(Header, u64)> {
    let io = |cause: io::Error| failed(path, cause.to_string());
    let file = files::open(path, OpenOptions::new().read(true)).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let body = length.checked_sub(DIGEST_BYTES as u64);
    let body = body.ok_or_else(|| failed(path, "it is too short for a checkpoint"))?;
    let mut file = BufReader::new(file);
    let mut head = Vec::new();
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head).map_err(io)?;
    let header = Header::parse(&head).map_err(|reason| failed(path, reason))?;
    let mut digest = Sha256::new();
    digest.update(&head);
    let mut remaining = body.saturating_sub(head.len() as u64);
    let mut buffer = vec![0; WORDS_PER_COPY * WORD_BYTES];
    while remaining > 0 {
        let count = buffer.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..count]).map_err(io)?;
        digest.update(&buffer[..count]);
        remaining -= count as u64;
    }
    let mut stored = [0; DIGEST_BYTES];
    file.read_exact(&mut stored).map_err(io)?;
    if digest.finalize().as_slice() != stored {
        return Err(failed(path, "it was cut off or altered: its checksum is wrong"));
    }
    Ok((header, body))
}

/// Reads words from the front of a verified file.
struct Reader<'a> {
    file: BufReader<File>,
    remaining_bytes: u64,
    path: &'a Path,
}

impl Reader<'_> {
    fn words(&mut self, count: usize) -> Result<Vec<u64>> {
        let mut words = vec![0; count];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        self.remaining_bytes = (self.remaining_bytes.checked_sub(bytes.len() as u64))
            .ok_or_else(|| failed(self.path, "it is truncated"))?;
        self.file.read_exact(bytes).map_err(|cause| failed(self.path, cause.to_string()))?;
        Ok(words)
    }
}

impl Cluster {
    /// Writes all objects and roots to a file, which is replaced if it exists. Returns its size in bytes.
    ///
    /// This process must be the cluster's only member, and other processes can not join meanwhile, so the cluster is quiescent.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the file can not be written. [`Error::InvalidArgument`] if there are other members, runs are active, or the
    /// cluster is private to this process.
    pub fn checkpoint(&self, path: &Path) -> Result<u64> {
        self.alone("checkpoint", async |ct| save(ct, path).await)
    }

    /// Restores a file that [`checkpoint`](Self::checkpoint) has written. The cluster must be empty, with at least as many segments of at least the
    /// same size; sizes up to 512 KiB must not grow beyond a power of two. All pointers stay valid.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the file can not be read, is not a checkpoint, is truncated or altered, or does not fit: the cluster is unchanged.
    /// Those of [`checkpoint`](Self::checkpoint).
    pub fn restore(&self, path: &Path) -> Result<()> {
        let (header, body) = examine(path)?;
        self.alone("restore", async |ct| load(ct, path, header, body).await)
    }
}

/// Returns how many words the chunks of a segment take, given the number of taken chunks.
fn used(grid: &Grid, segment: u16, taken: u64) -> usize {
    (taken * grid.chunk_bytes()).min(grid.bytes(segment)) as usize / WORD_BYTES
}

async fn save(ct: &ComputeThread, path: &Path) -> Result<u64> {
    // Written to a second file, so that the old checkpoint stays until the new one is complete.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let beside = Path::new(&beside);
    let file = files::create_private(beside).map_err(|cause| failed(beside, cause.to_string()))?;
    let saved = save_to(ct, path, file).await;
    let saved = saved.and_then(|bytes| {
        files::replace(beside, path).map_err(|cause| failed(path, cause.to_string()))?;
        Ok(bytes)
    });
    if saved.is_err() {
        let _ = std::fs::remove_file(beside);
    }
    saved
}

async fn save_to(ct: &ComputeThread, path: &Path, file: File) -> Result<u64> {
    let geometry = ct.heap().geometry;
    let grid = ct.heap().grid;
    let mut to = Writer { file: BufWriter::new(file), digest: Sha256::new(), bytes: 0, path };
    let header = Header { layout: LAYOUT_VERSION, geometry };
    to.write(&header.to_bytes())?;
    for segment in 0..geometry.segments() {
        let segment = segment as u16;
        let taken = ct.read_word(control::taken_chunks(segment)).await?.min(grid.chunks(segment));
        to.write(&taken.to_ne_bytes())?;
        copy_out(ct, &mut to, grid.word(segment, 0), taken as usize).await?;
        copy_out(ct, &mut to, grid.start(segment, 0), used(&grid, segment, taken)).await?;
    }
    copy_out(ct, &mut to, control::directory(0), DIRECTORY_WORDS).await?;
    let bytes = to.end()?;
    tracing::info!(bytes, "checkpoint written");
    Ok(bytes)
}

async fn copy_out(ct: &ComputeThread, to: &mut Writer<'_>, from: Address, words: usize) -> Result<()> {
    let mut done = 0;
    while done < words {
        let count = (words - done).min(WORDS_PER_COPY);
        let part = ct.read_far(from.add((done * WORD_BYTES) as u64), count).await?;
        to.write(bytemuck::cast_slice(&part))?;
        done += count;
    }
    Ok(())
}

async fn load(ct: &ComputeThread, path: &Path, header: Header, body: u64) -> Result<()> {
    let (geometry, grid) = (ct.heap().geometry, ct.heap().grid);
    let Header { geometry: old, .. } = header;
    let was = Grid::new(old);
    if !grid.extends(&was) || old.segments() > geometry.segments() {
        return Err(failed(
            path,
            format!(
                "it has {} segments of {} bytes: the cluster needs as many or more, of this size or larger, and has {} of {}",
                old.segments(),
                old.segment_bytes(),
                geometry.segments(),
                geometry.segment_bytes()
            ),
        ));
    }
    for segment in 0..geometry.segments() {
        if ct.read_word(control::taken_chunks(segment as u16)).await? > 0 {
            return Err(failed(path, "the cluster is not empty: restore into a new one"));
        }
    }
    let io = |cause: io::Error| failed(path, cause.to_string());
    let file = files::open(path, OpenOptions::new().read(true)).map_err(io)?;
    let mut from = Reader { file: BufReader::new(file), remaining_bytes: body, path };
    from.words(HEADER_BYTES / WORD_BYTES)?;
    for segment in 0..old.segments() {
        let segment = segment as u16;
        let taken = from.words(1)?[0];
        if taken > was.chunks(segment) {
            return Err(failed(path, "a segment has more taken chunks than chunks"));
        }
        copy_in(ct, &mut from, grid.word(segment, 0), taken as usize).await?;
        copy_in(ct, &mut from, grid.start(segment, 0), used(&was, segment, taken)).await?;
        ct.write_word(control::taken_chunks(segment), taken).await?;
    }
    copy_in(ct, &mut from, control::directory(0), DIRECTORY_WORDS).await?;
    ct.reset_directory().await?;
    ct.collect(true).await?;
    tracing::info!(segments = old.segments(), "checkpoint restored");
    Ok(())
}

async fn copy_in(ct: &ComputeThread, from: &mut Reader<'_>, to: Address, words: usize) -> Result<()> {
    let mut done = 0;
    while done < words {
        let count = (words - done).min(WORDS_PER_COPY);
        let part = from.words(count)?;
        ct.write_words(to.add((done * WORD_BYTES) as u64), &part).await?;
        done += count;
    }
    Ok(())
}

/// Parses bytes as the header of a file.
#[cfg(any(fuzzing, test))]
pub(crate) fn parse(bytes: &[u8]) {
    drop(Header::parse(bytes));
    drop(Header::parse(&[MAGIC.as_slice(), bytes].concat()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_encoding() {
        let header = Header { layout: LAYOUT_VERSION, geometry: Geometry::new(2, 3, 1 << 20).unwrap() };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Ok(header));
        let with = |at: usize, byte: u8| {
            let mut changed = bytes;
            changed[at] = byte;
            Header::parse(&changed).unwrap_err()
        };
        assert!(with(0, 0).contains("no checkpoint"));
        assert!(with(16, 9).contains("version 9 of the format"));
        assert!(with(24, 0).contains("byte order"));
        assert!(with(32, 9).contains("layout version 9"));
        assert!(with(40, 0).contains("its cluster is invalid: its number of segments is 0 times 3: "));
        assert!(with(56, 1).contains("its segment size is 1048577: a segment consists of words"));
        assert!(with(58, 0).contains("its segment size is 0: "));
        assert!(with(63, 255).contains("its segment size is 18374686479672672256: "));
        assert!(
            with(44, 1).contains("its number of segments is 4294967298 times 3: "),
            "32 bits do not hide it"
        );
        assert!(Header::parse(&bytes[1..]).unwrap_err().contains("too short"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
