//! The control block: the words at the front of each segment, and the records that other words point to.
//!
//! The [tables](records!) below are the layout. In bytes:
//!
#![doc = include_str!("control.md")]
//!
//! The chunks follow the control block, and the chunk table is at the segment's end.

use super::records::records;
use crate::epoch::FIRST_EPOCH;
use crate::segment::classes::{CLASSES, Class};
use farfield_words::geometry::MIN_SEGMENT_BYTES;
use farfield_words::{Address, WORD_BYTES};
use memoffset::offset_of;

const MAGIC: u64 = u64::from_le_bytes(*b"farfield");
/// The version of this layout.
pub(crate) const LAYOUT_VERSION: u64 = 7;

/// Words of a name in an entry: up to 47 bytes and their length.
pub(crate) const NAME_WORDS: usize = 6;
/// The longest name, in bytes.
pub(crate) const NAME_BYTES: usize = NAME_WORDS * WORD_BYTES - 1;
/// The number of entries for roots and barriers.
pub(crate) const DIRECTORY_ENTRIES: usize = 128;
/// The number of epoch slots in the control block.
pub(crate) const SLOTS_HERE: usize = 126;
/// The number of epoch slots in a page.
pub(crate) const SLOTS_PER_PAGE: usize = 128;
/// The largest number of pages of epoch slots.
pub(crate) const SLOT_PAGES: usize = 128;

records! {
    /// The header of a segment. Words of a node are in its first segment, and 0 in the others.
    Header [in each segment]: 704 bytes {
        magic: u64 @ "`farfield` in ASCII. The word is never allocated, so no object has the null address",
        version: u64 @ "the version of this layout",
        taken_chunks: u64 @ "the number of [chunks](crate::segment::grid) that were ever taken; larger than the number of chunks after attempts in a full segment",
        freed_chunks: u64 @ "the approximate number of these that are free again",
        live_bytes: u64 @ "the bytes of the node's live objects",
        reserved: [u64; 3] @ "zero",
        pool_head: [u64; CLASSES] @ "the node's [pool](crate::memory::pool): for each class of blocks, the link to the first page of free ones",
    }

    /// The control block of segment 0.
    Control [in segment 0]: 27328 bytes {
        header: Header @ "as in each segment",
        directory: [Entry; DIRECTORY_ENTRIES] @ "the [directory](crate::directory): named words",
        epochs: Epochs @ "the cluster's epoch and the announcements of processes",
        members: Members @ "the processes of the cluster, and counters of exits and reclaimed memory",
    }

    /// A named word. `directory/roots` has the protocol.
    Entry [anywhere, as a value]: 128 bytes {
        state: u64 @ "the entry's state and, while a thread works on it, that thread's identity",
        value: u64 @ "a root's address, or a barrier's run and count",
        fingerprint: u64 @ "the layout fingerprint of the root's type, or the mark of a barrier",
        name: [u64; NAME_WORDS] @ "the name: its length in the first byte, then its bytes",
        type_name: [u64; NAME_WORDS] @ "the name of the root's type, in the same form, cut off where it is too long",
        description: u64 @ "the address of the description of the root's type, or 0: the number of its bytes, and these",
    }

    /// The epoch of the cluster, and the announcements of its processes. `memory/global` has the protocol.
    Epochs [in segment 0, at Control.epochs]: 2064 bytes {
        epoch: u64 @ "the epoch",
        used_epoch_slots: u64 @ "the number of slots that were ever used; scans stop there",
        requests_for_memory: u64 @ "the number of requests of threads short of memory to return unused memory",
        coalesced_chunks: u64 @ "the number of times that free blocks were coalesced into chunks",
        epoch_slot: [u64; SLOTS_HERE] @ "for each process the epoch that it has announced, or 0",
        epoch_page: [u64; SLOT_PAGES] @ "the addresses of pages of further slots, or 0",
    }

    /// The processes of the cluster. `membership` has the protocol.
    Members [in segment 0, at Control.members]: 8176 bytes {
        evictions: u64 @ "the number of processes that were evicted",
        runs_of_groups: u64 @ "the number of runs of several processes",
        unclean_exits: u64 @ "the number of processes that have ended without giving back all of their memory",
        collected_exits: u64 @ "`unclean_exits` at the last collection",
        collector: u64 @ "the identity of the process that collects memory, plus 1; or 0",
        swept_exits: u64 @ "`unclean_exits` at the last sweep",
        sweeper: u64 @ "the identity of the process that sweeps memory, plus 1; or 0",
        list_of_candidates: u64 @ "the address of the sweeper's list of candidates while members are to read it, or 0",
        swept_bytes: u64 @ "the bytes that sweeps have reclaimed",
        collected_bytes: u64 @ "the bytes that collections have reclaimed",
        own_list_of_candidates: u64 @ "the address of the sweeper's list from its allocation until it is freed, or 0",
        left_bytes: u64 @ "the approximate number of bytes that ended processes have left since the last sweep or collection, by their records",
        options: u64 @ "the options of the cluster, chosen when it was made: `SWEEPS`",
        reserved_word: u64 @ "zero",
        member: [Record; SLOTS_HERE] @ "the record of the process with each slot of the control block",
    }

    /// The record of a process, for other processes. It has the number of the process's epoch slot.
    Record [anywhere, as a value]: 64 bytes {
        state: u64 @ "the process's identity plus 1 and, while it is evicted, the evictor's; 0 if the record is free",
        gone: u64 @ "the identity plus 1 of the process that has gone, and a bit if only the first memory node knows yet; written by that node alone",
        heartbeat: u64 @ "the process identifier on its machine, and a count of heartbeats below it",
        held_bytes: u64 @ "the approximate number of bytes that the process's threads have in free blocks and in garbage",
        group: u64 @ "the group that the process is a part of, the part, and the number of parts",
        round: u64 @ "the number of threads for a run of the group, the state of joining it, and the number of threads that have ended in it",
        run: u64 @ "the number of that run, written by the group's part 0, and the identity that it was written for",
        sweep_answer: u64 @ "the number of the list of candidates that all threads of the process have acknowledged, and a bit once its vetoes are written",
    }

    /// A page of further slots and their records, on a block of its own.
    EpochPage [anywhere]: 9216 bytes {
        slot: [u64; SLOTS_PER_PAGE] @ "for each process the epoch that it has announced, or 0",
        record: [Record; SLOTS_PER_PAGE] @ "their records",
    }

    /// The head of a list of candidates. The ranges follow, then three bitmaps of their blocks: listed, used, kept.
    ListHead [anywhere, as a value]: 16 bytes {
        number: u64 @ "the list's number, and a bit once vetoes are requested; 0 once the sweep is over",
        not_ranges: u64 @ "the number of ranges, with all bits inverted",
    }

    /// A range of a list of candidates: blocks of one size that lie side by side. Inverted words are not taken for links.
    ListRange [anywhere, as a value]: 16 bytes {
        not_address: u64 @ "the address of the first block, with all bits inverted",
        not_blocks: u64 @ "the size of a block in 48 bits, and the number of blocks above, with all bits inverted",
    }
}

/// A flag in a cluster's options: the memory of dead processes is swept while others live.
pub(crate) const SWEEPS: u64 = 1;
/// The largest number of processes in a cluster at a time.
pub(crate) const MAX_PROCESSES: usize = SLOTS_HERE + SLOT_PAGES * SLOTS_PER_PAGE;
pub(crate) const HEADER_BYTES: u64 = size_of::<Header>() as u64;
pub(crate) const CONTROL_BYTES: u64 = size_of::<Control>() as u64;
/// The counters beside the epoch, and the epoch: the words before the first slot.
pub(crate) const EPOCH_COUNTERS: usize = offset_of!(Epochs, epoch_slot) / WORD_BYTES;

/// The smallest segment has room for the control block and a word.
const _: () = assert!(MIN_SEGMENT_BYTES == CONTROL_BYTES + WORD_BYTES as u64);
const _: () = assert!(MAX_PROCESSES == 16_510);

/// The bytes of all pages of further slots for a number of processes.
pub(crate) const fn bytes_of_slots(processes: usize) -> u64 {
    processes.saturating_sub(SLOTS_HERE).div_ceil(SLOTS_PER_PAGE) as u64 * EpochPage::BYTES
}

/// The end of a segment's control structures of a fixed size.
pub(crate) fn first_free(segment: u16) -> u64 {
    if segment == 0 { CONTROL_BYTES } else { HEADER_BYTES }
}

/// The head of the pool's list of free blocks of a class, on the memory node with this first segment.
pub(crate) fn pool(segment: u16, class: Class) -> Address {
    pool_head(segment, class.index())
}

/// Returns whether a word belongs to the epochs: only their progress changes it.
pub(crate) fn is_of_epochs(at: Address) -> bool {
    (epochs()..members()).contains(&at)
}

/// Returns whether a word is one of the runtime's counters and links, which change independently of programs: all but the directory's.
pub(crate) fn is_bookkeeping(at: Address) -> bool {
    at.offset() < first_free(at.segment()) && !is_of_directory(at)
}

fn is_of_directory(at: Address) -> bool {
    (directory(0)..epochs()).contains(&at)
}

/// Returns whether the word at this address is an entry's state, and names a thread that works on the entry.
pub(crate) fn is_claimed(at: Address, word: u64) -> bool {
    is_of_directory(at)
        && (at.offset() - directory(0).offset()) % Entry::BYTES == offset_of!(Entry, state) as u64
        && super::entry::claimant(word).is_some()
}

/// The words of a new segment that are not zero, by offset, in the order in which they are written. `options` are the cluster's.
pub(crate) fn initial_words(is_first: bool, options: u64) -> impl Iterator<Item = (u64, u64)> {
    let of_first = [(epoch(), FIRST_EPOCH), (self::options(), options)];
    let of_first = of_first.into_iter().filter(move |_| is_first);
    let words = [(version(0), LAYOUT_VERSION)].into_iter().chain(of_first).chain([(magic(0), MAGIC)]);
    words.map(|(at, word)| (at.offset(), word))
}

/// The name of the word at an address in front of a segment's chunks.
pub(crate) fn describe(at: Address) -> String {
    let pools = pool_head(at.segment(), 0)..pool_head(at.segment(), CLASSES);
    if pools.contains(&at) {
        let class = Class::from_index((at.offset() - pools.start.offset()) as usize / WORD_BYTES);
        return format!("pool of {} bytes", class.map_or(0, Class::bytes));
    }
    let layout = if at.segment() == 0 { Control::LAYOUT } else { Header::LAYOUT };
    layout.word_name(at.offset() as usize).unwrap_or_else(|| "unallocated".to_owned())
}

#[cfg(test)]
mod tests;
