//! The guest's file system in the form that the kernel unpacks: a cpio archive in the "newc" format.
//!
//! It is written here, not by the host's `cpio`, so that the archive can contain the console's device node without root privileges, and
//! needs no folder. It is not compressed: an emulated processor unpacks more slowly than it copies.
//!
//! The format is that of the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
const LINK: u32 = 0o120_777;

/// The device that the first process of a guest writes to: major and minor number.
const CONSOLE: (u32, u32) = (5, 1);

/// An archive that is being written. Paths are absolute; their parent folders are added automatically.
pub(super) struct Archive<W> {
    out: W,
    inode: u32,
    present: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, inode: 0, present: BTreeSet::new() }
    }

    /// Returns whether the path has been added.
    pub(super) fn has(&self, path: &str) -> bool {
        self.present.contains(path)
    }

    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        if path.is_empty() || self.has(path) {
            return Ok(());
        }
        self.add(path, DIRECTORY, (0, 0), &[])
    }

    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.add(path, FILE, (0, 0), bytes)
    }

    pub(super) fn program(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.add(path, PROGRAM, (0, 0), bytes)
    }

    pub(super) fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.add(path, LINK, (0, 0), to.as_bytes())
    }

    pub(super) fn console(&mut self, path: &str) -> io::Result<()> {
        self.add(path, CHARACTER_DEVICE, CONSOLE, &[])
    }

    /// Ends the archive and returns the writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn add(&mut self, path: &str, mode: u32, device: (u32, u32), bytes: &[u8]) -> io::Result<()> {
        if !self.present.insert(path.to_owned()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{path} is added twice")));
        }
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.directory(folder)?;
        }
        self.entry(path.trim_start_matches('/'), mode, device, bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(bytes.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: larger than 4 GiB")))?;
        let name_size = name.len() as u32 + 1;
        write!(self.out, "070701")?;
        // Inode, mode, owner, group, links, time, size, device, device node, length of the name, checksum.
        for field in [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0] {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        // The header has 110 bytes; names and contents end at a multiple of four.
        self.pad(110 + name_size)?;
        self.out.write_all(bytes)?;
        self.pad(size)
    }

    fn pad(&mut self, written: u32) -> io::Result<()> {
        let missing = written.wrapping_neg() as usize % 4;
        self.out.write_all(&[0; 3][..missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(archive: Archive<Vec<u8>>) -> String {
        String::from_utf8(archive.finish().unwrap()).unwrap()
    }

    #[test]
    fn entries_begin_at_multiples_of_four() {
        for length in 0..9 {
            let mut archive = Archive::new(Vec::new());
            archive.file("/f", &vec![b'x'; length]).unwrap();
            let text = text(archive);
            let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
            assert_eq!(starts.len(), 2, "the file and the trailer");
            assert_eq!(starts[1], 112 + length.div_ceil(4) * 4);
            assert!(text.len().is_multiple_of(4));
        }
    }

    #[test]
    fn folders_are_added_once_before_their_contents() {
        let mut archive = Archive::new(Vec::new());
        archive.program("/usr/bin/a", b"a").unwrap();
        archive.program("/usr/bin/b", b"b").unwrap();
        let text = text(archive);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("usr") < at("usr/bin") && at("usr/bin") < at("usr/bin/a"));
        assert_eq!(text.matches("usr/bin\0").count(), 1);
    }

    #[test]
    fn a_path_that_is_added_twice_is_named() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/a", b"").unwrap();
        assert!(archive.file("/a", b"").unwrap_err().to_string().contains("/a is added twice"));
    }

    #[test]
    fn a_header_follows_the_format() {
        let mut archive = Archive::new(Vec::new());
        archive.console("/console").unwrap();
        let text = text(archive);
        let fields: Vec<&str> = (0..13).map(|at| &text[6 + 8 * at..14 + 8 * at]).collect();
        let expected =
            ["00000001", "00002180", "00000000", "00000000", "00000001", "00000000", "00000000", "00000000"];
        assert_eq!(fields[..8], expected);
        assert_eq!(fields[8..], ["00000000", "00000005", "00000001", "00000008", "00000000"]);
    }
}
