//! The sums and the histograms of all threads, in far memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Error, Metrics};
use farfield_collections::Counters;

use crate::args::Args;
use crate::measures::Measures;

macro_rules! sums {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// Sums over all threads.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Sums { $($(#[$doc])* pub(crate) $field: u64),* }

        impl Sums {
            const COUNT: usize = [$(stringify!($field)),*].len();

            fn words(self) -> [u64; Self::COUNT] {
                [$(self.$field),*]
            }
            fn from_words(words: [u64; Self::COUNT]) -> Self {
                let [$($field),*] = words;
                Self { $($field),* }
            }
        }
    };
}

sums! {
    /// Read-modify-writes.
    modified,
    /// Records that were inserted during the run.
    inserted,
    /// Records that the structure has at the end.
    final_size,
    /// Bytes of far memory that the loaded records take.
    loaded_bytes,
    /// Records that scans have returned.
    scanned,
    /// Values that were compared with what their writer remembers.
    checked,
    /// Values whose writer does not remember them.
    unchecked,
    faults,
    // The traffic of the measured operations.
    reads, read_bytes, writes, write_bytes, cas, cas_failed, faa, chains, doorbells,
    // The objects of the whole run.
    allocated, freed, retired, reclaimed,
    // The counters of the handles during the measured operations.
    directory_hits, directory_misses, stale, slot_hits, slot_misses, retries, overtaken, growths, waits,
}

impl Sums {
    pub(crate) fn add_traffic(&mut self, metrics: Metrics) {
        (self.reads, self.read_bytes) = (metrics.reads, metrics.read_bytes);
        (self.writes, self.write_bytes) = (metrics.writes, metrics.write_bytes);
        (self.cas, self.cas_failed, self.faa) = (metrics.cas, metrics.cas_failed, metrics.faa);
        (self.chains, self.doorbells) = (metrics.chains, metrics.doorbells);
    }

    pub(crate) fn add_objects(&mut self, metrics: Metrics) {
        (self.allocated, self.freed) = (metrics.allocated, metrics.freed);
        (self.retired, self.reclaimed) = (metrics.retired, metrics.reclaimed);
    }

    pub(crate) fn add_counters(&mut self, now: Counters, before: Counters) {
        self.directory_hits = now.directory_hits - before.directory_hits;
        self.directory_misses = now.directory_misses - before.directory_misses;
        self.stale = now.stale - before.stale;
        self.slot_hits = now.slot_hits - before.slot_hits;
        self.slot_misses = now.slot_misses - before.slot_misses;
        self.retries = now.retries - before.retries;
        self.overtaken = now.overtaken - before.overtaken;
        self.growths = now.growths - before.growths;
        self.waits = now.waits - before.waits;
    }
}

const SUMS: usize = Sums::COUNT;

/// What the processes of a run tell each other.
#[remote]
pub(crate) struct Totals {
    /// A hash of the arguments that all processes must share.
    terms: u64,
    /// The times of the slowest thread, in nanoseconds: loading and the run.
    slowest: [Atomic<u64>; 2],
    sums: [Atomic<u64>; SUMS],
    histograms: Link<Published>,
}

/// A histogram of a process.
#[remote]
pub(crate) struct Published {
    number: u64,
    bytes: TaggedLink<Blob, SizeTag>,
    next: Link<Published>,
}

#[tag(class: 8)]
pub(crate) struct SizeTag;

/// The number of objects that [`Totals::create`] makes and that the run does not free before it has summed up.
pub(crate) const OBJECTS: u64 = 1;

impl Totals {
    pub(crate) async fn create(args: &Args, ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::new_in(ct, Self::init(terms(args))).await?.write(ct).await
    }

    /// Verifies that the process that has made the totals has the same arguments.
    pub(crate) async fn check(this: RemotePtr<Self>, args: &Args, ct: &ComputeThread) -> Result<()> {
        if this.read(&ct.pin()).await?.terms == terms(args) {
            return Ok(());
        }
        Err(Error::other(
            "another process of the run has a different --structure, --workload, --distribution, --records, --value-size, \
             --key-size, --scan-length, --tasks or --plot",
        ))
    }

    pub(crate) async fn add(this: RemotePtr<Self>, sums: Sums, ct: &ComputeThread) -> Result<()> {
        for (index, amount) in sums.words().into_iter().enumerate().filter(|(_, amount)| *amount > 0) {
            this.sums().at(index).fetch_add(ct, amount).await?;
        }
        Ok(())
    }

    pub(crate) async fn add_times(
        this: RemotePtr<Self>,
        times: [Duration; 2],
        ct: &ComputeThread,
    ) -> Result<()> {
        for (index, time) in times.into_iter().enumerate() {
            this.slowest().at(index).fetch_max(ct, time.as_nanos() as u64).await?;
        }
        Ok(())
    }

    /// Returns the sums and the times of the slowest thread.
    pub(crate) async fn read_all(this: RemotePtr<Self>, ct: &ComputeThread) -> Result<(Sums, [Duration; 2])> {
        let g = &ct.pin();
        let TotalsSnapshot { slowest, sums, .. } = this.read(g).await?;
        Ok((Sums::from_words(sums), slowest.map(Duration::from_nanos)))
    }

    /// Publishes a process's histograms.
    pub(crate) async fn publish(
        this: RemotePtr<Self>,
        measures: &Measures,
        ct: &ComputeThread,
    ) -> Result<()> {
        for (number, bytes) in measures.encode()? {
            let g = &ct.pin();
            let published = Published::new_in(ct, Published::init(number)).await?.write(ct).await?;
            let bytes = Blob::new_in(ct, bytes).await?;
            let tag = SizeTag::new(Blob::class(&bytes).number());
            published.bytes().store(g, bytes, tag).await?;
            let mut first = this.histograms().load(g).await?;
            loop {
                published.next().store(g, first).await?;
                match this.histograms().compare_exchange(g, first, published).await? {
                    Ok(_) => break,
                    Err(changed) => first = changed.current,
                }
            }
        }
        Ok(())
    }

    /// Returns the published histograms, merged.
    pub(crate) async fn merged(this: RemotePtr<Self>, ct: &ComputeThread) -> Result<Measures> {
        let g = &ct.pin();
        let (mut merged, mut walk) = (Measures::default(), Walk::new());
        let mut published = this.histograms().load(g).await?;
        while !published.is_null() {
            walk.visit(published)?;
            let PublishedSnapshot { number, bytes, next, .. } = published.read(g).await?;
            let class = SizeClass::from_number(bytes.tag().class());
            let class = class.ok_or_else(|| Error::other("a histogram without a size"))?;
            merged.decode(number, &bytes.shared().read_bytes(class, g).await?)?;
            published = next;
        }
        Ok(merged)
    }

    /// Frees the published histograms, which nobody reads any more.
    pub(crate) async fn free_histograms(this: RemotePtr<Self>, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut published = this.histograms().load(g).await?;
        let mut walk = Walk::new();
        while !published.is_null() {
            walk.visit(published)?;
            let PublishedSnapshot { bytes, next, .. } = published.read(g).await?;
            ct.delete(bytes.shared()).await?;
            ct.delete(published).await?;
            published = next;
        }
        Ok(())
    }
}

fn terms(args: &Args) -> u64 {
    let mut hasher = DefaultHasher::new();
    let names = [args.structure.name(), args.workload.name(), args.distribution().name()];
    (names, args.records, args.value_size, args.key_size, args.longest_scan()).hash(&mut hasher);
    (args.tasks, args.series().len()).hash(&mut hasher);
    hasher.finish()
}
