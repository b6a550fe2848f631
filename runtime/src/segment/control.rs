//! The control block: what stands at the front of each segment.
//!
//! | bytes | in | what |
//! |---|---|---|
//! | 0 | every segment | `MAGIC`: never handed out, so null is never an object |
//! | 8 | every segment | version of this layout |
//! | 16 | every segment | how many [chunks](crate::segment::grid) have been taken, or tried to be |
//! | 24 | every segment | about how many of them are free again |
//! | 32 | a node's first segment | the bytes of its live objects |
//! | 40..64 | every segment | reserved, zero |
//! | 64..704 | a node's first segment | the pool: for each class of blocks, the first page of free ones |
//! | 704..17088 | segment 0 | the directory: 128 entries of 128 bytes |
//! | 17088..19152 | segment 0 | the epochs: the epoch, requests, 126 slots, and where further slots are |
//! | 19152..27328 | segment 0 | the members: counts, and a record of 64 bytes for the process of each slot |
//!
//! The chunks follow, and the chunk table is at the segment's end.

use memoffset::{offset_of, span_of};

use crate::epoch::FIRST_EPOCH;
use crate::segment::classes::{CLASSES, Class};
use farfield_words::Address;
use farfield_words::geometry::MIN_SEGMENT_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"farfield");
/// The version of this layout.
pub(crate) const LAYOUT_VERSION: u64 = 6;

/// The header of every segment.
#[repr(C)]
struct Header {
    magic: u64,
    version: u64,
    taken: u64,
    freed: u64,
    live: u64,
    reserved: [u64; 3],
    pool: [u64; CLASSES],
}

/// The control block of segment 0.
#[repr(C)]
struct Control {
    header: Header,
    directory: [Entry; DIRECTORY_ENTRIES],
    epochs: Epochs,
    members: Members,
}

/// The epoch of the cluster and what its processes have announced. See [`crate::memory::global`].
#[repr(C)]
struct Epochs {
    epoch: u64,
    /// Slots that were ever used: those behind them need not be looked at.
    used: u64,
    /// How often somebody short of memory has asked all to give back what they do not use.
    requests: u64,
    /// How often chunks that were cut into blocks have been put together again.
    recut: u64,
    slots: [u64; SLOTS_HERE],
    /// Addresses of pages of further slots; 0 where there is none yet.
    pages: [u64; SLOT_PAGES],
}

/// Who takes part. See [`super::members`].
#[repr(C)]
struct Members {
    /// How many processes have been evicted.
    evictions: u64,
    /// How many runs of several processes there have been.
    runs: u64,
    /// How often a process has ended without giving back all of its memory, how often it had when memory was last
    /// collected, and who is at it.
    debts: u64,
    collected: u64,
    collector: u64,
    /// How often a process had ended so when memory was last swept, who is at it, and its list of candidates.
    swept: u64,
    sweeper: u64,
    candidates: u64,
    /// The bytes that were taken back in all: swept, and collected.
    swept_bytes: u64,
    collected_bytes: u64,
    /// Where the sweeper's list is, also before it is published and when nobody is to read it any more.
    own_list: u64,
    /// About how many bytes processes had that have ended so, since memory was last swept or collected: what their records said.
    left_bytes: u64,
    /// What was chosen when the cluster was made: see [`SWEEPS`].
    options: u64,
    reserved: u64,
    records: [Record; SLOTS_HERE],
}

/// In a cluster's options: memory that dead processes leave is swept while others live.
pub(crate) const SWEEPS: u64 = 1;

/// The words in front of the records.
const MEMBER_COUNTS: usize = offset_of!(Members, records) / size_of::<u64>();

/// A process, as the others see it. Its slot has the same number.
#[repr(C)]
pub(crate) struct Record {
    /// Who it is and, while it is being evicted, by whom; 0 if there is nobody.
    pub(crate) state: u64,
    /// Who it was that has gone: written by the memory node alone.
    pub(crate) gone: u64,
    /// The system's number of the process, and a count that grows as long as it lives.
    pub(crate) sign: u64,
    /// About how many bytes its threads have in free blocks and in garbage.
    pub(crate) holds: u64,
    /// Which part of which group of processes it is.
    pub(crate) group: u64,
    /// Which of the group's runs it is in, with how many threads, and how many of them have ended in it.
    pub(crate) round: u64,
    /// The number of that run, from the group's first process.
    pub(crate) run: u64,
    /// Which sweep it has heard of, and how far it is with it.
    pub(crate) attends: u64,
}

/// Words in front of a list of candidates of a sweep.
pub(crate) const LIST_HEAD_WORDS: usize = 2;
/// Slots in the control block.
pub(crate) const SLOTS_HERE: usize = 126;
/// Slots in a page.
pub(crate) const SLOTS_PER_PAGE: usize = 128;
/// How many pages there can be.
pub(crate) const SLOT_PAGES: usize = 128;
/// How many processes can be in a cluster at a time.
pub(crate) const MOST_PROCESSES: usize = SLOTS_HERE + SLOT_PAGES * SLOTS_PER_PAGE;

/// A named word. See [`super::directory`] for the protocol.
#[repr(C)]
pub(crate) struct Entry {
    /// The entry's state and, while a thread works on it, that thread's identity.
    pub(crate) state: u64,
    /// A root's address, or a barrier's run and count.
    pub(crate) value: u64,
    /// The layout fingerprint of the root's type, or the mark of a barrier.
    pub(crate) fingerprint: u64,
    /// The name: its length in the first byte, then its bytes.
    pub(crate) name: [u64; NAME_WORDS],
    /// The root's type, in the same form, cut off where it is too long.
    pub(crate) type_name: [u64; NAME_WORDS],
    /// Where the description of the root's type is, if there is one: the bytes that it has, and these.
    pub(crate) description: u64,
}

/// Words of a name in an entry: up to 47 bytes and their length.
pub(crate) const NAME_WORDS: usize = 6;
/// The longest name, in bytes.
pub(crate) const NAME_BYTES: usize = NAME_WORDS * 8 - 1;
/// How many roots and barriers there can be.
pub(crate) const DIRECTORY_ENTRIES: usize = 128;

pub(crate) const HEADER_BYTES: u64 = size_of::<Header>() as u64;
pub(crate) const CONTROL_BYTES: u64 = size_of::<Control>() as u64;
/// The smallest segment has room for the control block and a word.
const _: () = assert!(MIN_SEGMENT_BYTES == CONTROL_BYTES + size_of::<u64>() as u64);
pub(crate) const ENTRY_WORDS: usize = size_of::<Entry>() / 8;
pub(crate) const RECORD_WORDS: usize = 8;
/// The bytes of a page of further slots, behind which are their records.
pub(crate) const SLOT_PAGE_BYTES: u64 = (SLOTS_PER_PAGE * (1 + RECORD_WORDS) * size_of::<u64>()) as u64;

/// The bytes of all pages that so many processes need.
pub(crate) const fn bytes_of_slots(processes: usize) -> u64 {
    processes.saturating_sub(SLOTS_HERE).div_ceil(SLOTS_PER_PAGE) as u64 * SLOT_PAGE_BYTES
}

const _: () = assert!(MOST_PROCESSES == 16_510);
const _: () = assert!(HEADER_BYTES == 704 && size_of::<Entry>() == 128 && CONTROL_BYTES == 27328);
const _: () = assert!(size_of::<Record>() == RECORD_WORDS * 8);

/// Where a segment's control structures of a fixed size end.
pub(crate) fn first_free(segment: u16) -> u64 {
    if segment == 0 { CONTROL_BYTES } else { HEADER_BYTES }
}

/// How many chunks of a segment have been taken; how many are free again follows.
pub(crate) fn taken(segment: u16) -> Address {
    Address::new(segment, offset_of!(Header, taken) as u64)
}

/// About how many chunks of a segment are free again.
pub(crate) fn freed(segment: u16) -> Address {
    Address::new(segment, offset_of!(Header, freed) as u64)
}

/// The bytes of the live objects of the memory node with this first segment.
pub(crate) fn live(segment: u16) -> Address {
    Address::new(segment, offset_of!(Header, live) as u64)
}

/// The head of the list of free blocks of a class, on the memory node with this first segment.
pub(crate) fn pool(segment: u16, class: Class) -> Address {
    Address::new(segment, (offset_of!(Header, pool) + class.index() * size_of::<u64>()) as u64)
}

/// What else but the directory can lead to objects: the first words of segments, as offsets.
pub(crate) fn pools() -> std::ops::Range<u64> {
    offset_of!(Header, pool) as u64..HEADER_BYTES
}

/// The entry at `index` of the directory.
pub(crate) fn entry(index: usize) -> Address {
    Address::new(0, (offset_of!(Control, directory) + index * size_of::<Entry>()) as u64)
}

/// The cluster's epoch; the number of used slots, the requests and the slots in the control block follow it.
pub(crate) fn epoch() -> Address {
    Address::new(0, (offset_of!(Control, epochs) + offset_of!(Epochs, epoch)) as u64)
}

/// How often memory has been asked back.
pub(crate) fn requests() -> Address {
    Address::new(0, (offset_of!(Control, epochs) + offset_of!(Epochs, requests)) as u64)
}

/// How often chunks have been put together again.
pub(crate) fn recut() -> Address {
    Address::new(0, (offset_of!(Control, epochs) + offset_of!(Epochs, recut)) as u64)
}

/// The number of used slots.
pub(crate) fn used_slots() -> Address {
    Address::new(0, (offset_of!(Control, epochs) + offset_of!(Epochs, used)) as u64)
}

/// Slot `number` of those in the control block.
pub(crate) fn slot_here(number: u64) -> Address {
    let slots = offset_of!(Control, epochs) + offset_of!(Epochs, slots);
    Address::new(0, slots as u64).add(number * size_of::<u64>() as u64)
}

/// Slot `within` of a page.
pub(crate) fn slot_in_page(page: Address, within: u64) -> Address {
    page.add(within * size_of::<u64>() as u64)
}

/// The record of slot `number` of those in the control block.
pub(crate) fn record_here(number: u64) -> Address {
    let records = offset_of!(Control, members) + offset_of!(Members, records);
    Address::new(0, records as u64).add(number * size_of::<Record>() as u64)
}

/// The record of slot `within` of a page.
pub(crate) fn record_in_page(page: Address, within: u64) -> Address {
    slot_in_page(page, SLOTS_PER_PAGE as u64).add(within * size_of::<Record>() as u64)
}

/// How many processes have been evicted.
pub(crate) fn evictions() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, evictions)) as u64)
}

/// How many runs of several processes there have been.
pub(crate) fn runs() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, runs)) as u64)
}

/// How often a process has ended without giving back all of its memory; how often it had when memory was last collected, and who is
/// collecting, follow; then the same of sweeping, and the list of candidates.
pub(crate) fn debts() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, debts)) as u64)
}

/// How often it had when memory was last collected.
pub(crate) fn collected() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, collected)) as u64)
}

/// The process that is collecting memory: its identity and 1, or 0.
pub(crate) fn collector() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, collector)) as u64)
}

/// How often a process had ended without giving back all of its memory when that was last swept.
pub(crate) fn swept() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, swept)) as u64)
}

/// The process that is sweeping memory: its identity and 1, or 0. The list of candidates follows.
pub(crate) fn sweeper() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, sweeper)) as u64)
}

/// Where the sweeper's list of candidates is, or 0.
pub(crate) fn candidates() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, candidates)) as u64)
}

/// Where the sweeper's list is, whether others are to read it or not; or 0.
pub(crate) fn own_list() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, own_list)) as u64)
}

/// About how many bytes are left by processes that have ended, and were neither swept nor collected since.
pub(crate) fn left_bytes() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, left_bytes)) as u64)
}

/// What was chosen when the cluster was made.
pub(crate) fn options() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, options)) as u64)
}

/// The bytes that were swept in all; those that were collected follow.
pub(crate) fn swept_bytes() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, swept_bytes)) as u64)
}

/// The bytes that were collected in all.
pub(crate) fn collected_bytes() -> Address {
    Address::new(0, (offset_of!(Control, members) + offset_of!(Members, collected_bytes)) as u64)
}

/// The address of page `index` of slots.
pub(crate) fn slot_page(index: usize) -> Address {
    let pages = offset_of!(Control, epochs) + offset_of!(Epochs, pages);
    Address::new(0, (pages + index * size_of::<u64>()) as u64)
}

/// Whether a word is of those that only the progress of epochs changes.
pub(crate) fn is_of_epochs(at: Address) -> bool {
    let epochs = offset_of!(Control, epochs)..offset_of!(Control, members);
    at.segment() == 0 && epochs.contains(&(at.offset() as usize))
}

/// Whether a word is of those that the runtime counts and links with, which change whatever programs do: all but the directory's.
pub(crate) fn is_bookkeeping(at: Address) -> bool {
    let directory = offset_of!(Control, directory)..offset_of!(Control, epochs);
    at.offset() < first_free(at.segment())
        && !(at.segment() == 0 && directory.contains(&(at.offset() as usize)))
}

/// Whether a word at this address is an entry's state, and names a thread that works on the entry.
pub(crate) fn is_claimed(at: Address, word: u64) -> bool {
    let directory = offset_of!(Control, directory)..offset_of!(Control, epochs);
    let offset = at.offset() as usize;
    at.segment() == 0
        && directory.contains(&offset)
        && (offset - directory.start) % size_of::<Entry>() == offset_of!(Entry, state)
        && super::entry::claimant(word).is_some()
}

/// Where, in an entry, a new one's value, fingerprint and names are: everything but its state.
pub(crate) fn entry_body() -> std::ops::Range<usize> {
    span_of!(Entry, value..)
}

/// The words of a new segment that are not zero, by offset, in the order in which they are written. `options` are the cluster's.
pub(crate) fn initial_words(is_first: bool, options: u64) -> impl Iterator<Item = (u64, u64)> {
    let version = (offset_of!(Header, version) as u64, LAYOUT_VERSION);
    let of_first = [(epoch().offset(), FIRST_EPOCH), (self::options().offset(), options)];
    let of_first = of_first.into_iter().filter(move |_| is_first);
    [version].into_iter().chain(of_first).chain([(offset_of!(Header, magic) as u64, MAGIC)])
}

/// What the words in front of the records are called, and those of a record.
const MEMBER_WORDS: [&str; MEMBER_COUNTS] = [
    "evictions",
    "runs of groups",
    "debts",
    "collected debts",
    "collector",
    "swept debts",
    "sweeper",
    "list of candidates",
    "swept bytes",
    "collected bytes",
    "own list of candidates",
    "left bytes",
    "options",
    "reserved word",
];
const RECORD_NAMES: [&str; RECORD_WORDS] =
    ["state", "gone", "sign", "holds", "group", "round", "run", "attends"];

/// What the word at an address in front of a segment's chunks is called.
pub(crate) fn describe(at: Address) -> String {
    let offset = at.offset() as usize;
    let header = ["magic", "version", "taken chunks", "freed chunks", "live bytes"];
    let entry = |offset: usize| {
        let (index, within) = (offset / size_of::<Entry>(), offset % size_of::<Entry>());
        let field = [
            (offset_of!(Entry, state), "state"),
            (offset_of!(Entry, value), "value"),
            (offset_of!(Entry, fingerprint), "fingerprint"),
            (offset_of!(Entry, name), "name"),
            (offset_of!(Entry, type_name), "type name"),
            (offset_of!(Entry, description), "description"),
        ];
        let (_, name) = field.into_iter().rfind(|(start, _)| *start <= within).expect("one begins at 0");
        format!("directory[{index}].{name}")
    };
    if at.segment() == 0 && offset >= offset_of!(Control, epochs) {
        return match (offset - offset_of!(Control, epochs)) / size_of::<u64>() {
            0 => "epoch".to_owned(),
            1 => "used epoch slots".to_owned(),
            2 => "requests for memory".to_owned(),
            3 => "recut chunks".to_owned(),
            word if word < 4 + SLOTS_HERE => format!("epoch slot[{}]", word - 4),
            word if word < 4 + SLOTS_HERE + SLOT_PAGES => format!("epoch page[{}]", word - 4 - SLOTS_HERE),
            word => {
                let word = word - 4 - SLOTS_HERE - SLOT_PAGES;
                match (MEMBER_WORDS.get(word), word.checked_sub(MEMBER_COUNTS)) {
                    (Some(name), _) => (*name).to_owned(),
                    (None, Some(word)) if word < SLOTS_HERE * RECORD_WORDS => {
                        format!("member[{}].{}", word / RECORD_WORDS, RECORD_NAMES[word % RECORD_WORDS])
                    }
                    _ => "unallocated".to_owned(),
                }
            }
        };
    }
    if pools().contains(&at.offset()) {
        let class = Class::from_index((offset - offset_of!(Header, pool)) / size_of::<u64>());
        return format!("pool of {} bytes", class.map_or(0, Class::bytes));
    }
    match offset.checked_sub(offset_of!(Control, directory)) {
        Some(offset) if at.segment() == 0 && offset < size_of::<[Entry; DIRECTORY_ENTRIES]>() => {
            entry(offset)
        }
        _ => (*header.get(offset / 8).unwrap_or(&"unallocated")).to_owned(),
    }
}
