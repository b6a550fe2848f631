//! The uses of chunks that a process knows.
//!
//! A process caches the class of each chunk that it has read. The cache is sound: a chunk that is cut into blocks gets another use only after
//! every process has read that it must clear its cache, and has left the epoch in which it read so. See [`compaction`](super::compaction).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::segment::classes::Class;
use crate::segment::grid::Grid;

/// The classes of chunks that are cut into blocks, as far as a process has read them.
#[derive(Debug)]
pub(crate) struct Known {
    segments: Vec<OnceLock<Pages>>,
}

/// By chunk, 1 + the class; 0 if it is not known. Allocated by the page, since most processes know few chunks.
type Pages = Box<[OnceLock<Box<[AtomicU8; KNOWN_PER_PAGE]>>]>;

const KNOWN_PER_PAGE: usize = 256;

#[inline]
fn entry_of(class: Class) -> u8 {
    class.index() as u8 + 1
}

impl Known {
    pub(crate) fn new(segments: u32) -> Self {
        Self { segments: (0..segments).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn class(&self, segment: u16, chunk: u64) -> Option<Class> {
        self.entry(segment, chunk)?.checked_sub(1).and_then(|index| Class::from_index(usize::from(index)))
    }

    /// Returns whether a chunk is known to be cut into blocks of a class. `false` for numbers that no chunk has.
    #[inline]
    pub(crate) fn has_class(&self, segment: u16, chunk: u64, class: Class) -> bool {
        self.entry(segment, chunk) == Some(entry_of(class))
    }

    #[inline]
    fn entry(&self, segment: u16, chunk: u64) -> Option<u8> {
        let (page, within) = (chunk as usize / KNOWN_PER_PAGE, chunk as usize % KNOWN_PER_PAGE);
        let pages = self.segments.get(usize::from(segment))?.get()?;
        Some(pages.get(page)?.get()?[within].load(Ordering::Relaxed))
    }

    pub(crate) fn learn(&self, grid: &Grid, segment: u16, chunk: u64, class: Option<Class>) {
        let (page, within) = (chunk as usize / KNOWN_PER_PAGE, chunk as usize % KNOWN_PER_PAGE);
        let Some(segment_pages) = self.segments.get(usize::from(segment)) else { return };
        let pages = (grid.chunks(segment) as usize).div_ceil(KNOWN_PER_PAGE);
        let pages = segment_pages.get_or_init(|| (0..pages).map(|_| OnceLock::new()).collect());
        if let Some(page) = pages.get(page) {
            let page = page.get_or_init(|| Box::new([const { AtomicU8::new(0) }; KNOWN_PER_PAGE]));
            page[within].store(class.map_or(0, entry_of), Ordering::Relaxed);
        }
    }

    /// Forgets all classes.
    pub(crate) fn forget(&self) {
        let pages = self.segments.iter().filter_map(OnceLock::get).flatten();
        for known in pages.filter_map(OnceLock::get).flat_map(|page| page.iter()) {
            known.store(0, Ordering::Relaxed);
        }
    }
}
