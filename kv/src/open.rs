//! Opening a store: the index is made anew of the pages.
//!
//! All pages are read, 16 at a time if the budget has room for them. A record that is whole and live is that of its key. Two records of a key are live if a process ended between the WRITE of the newer one and that of the older one's
//! state, or while a page was rebuilt: the later one in the later page is taken, and the other one is marked as dead. The newer write has not returned, or both records are the same.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farfield::prelude::*;
use farfield::{Error, LinkWord, LockGuard};

use crate::options::Options;
use crate::pages::{COPY_BYTES, FarPage, PAGE_WORDS, State};
use crate::record::{self, Head, Place};
use crate::store::{Added, FORMAT, Found, Lookup, Record, Store, StoreRoot, least_bytes, records};

/// The pages that are read at the same time.
const TASKS: usize = 16;
/// The links to pages that are read at once.
const LINKS_PER_READ: u64 = 4096;

/// A store that this thread has opened. When it is dropped, no thread of the process can use the store any more, and another process can open it. Before that, operations must have ended, and all threads that have
/// performed some must have [flushed](Store::flush) them: another process would read pages to which WRITEs are under way.
pub struct Opened<'ct> {
    store: Arc<Store>,
    _owner: LockGuard<'ct>,
}

impl Opened<'_> {
    /// Returns the store for the other threads of the process.
    pub fn share(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Frees the store, with all of its records, and its name. No thread may use it any more, and no process may be about to open it. A round trip for each 4,096 pages, and some.
    ///
    /// # Errors
    /// Those of [`ComputeThread::unpublish`] and of [`ComputeThread::delete`].
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let root = ct.unpublish::<StoreRoot>(&self.store.name).await?;
        let most = self.store.most_pages();
        for first in (0..most).step_by(LINKS_PER_READ as usize) {
            let pages = self.store.linked_pages(first, ct).await?;
            ct.tasks(TASKS, async |task| {
                for (_, page) in pages.iter().skip(task).step_by(TASKS) {
                    ct.delete(*page).await?;
                }
                Ok(())
            })
            .await?;
        }
        // Its lock is in the root.
        drop(self);
        ct.flush().await?;
        ct.delete(root).await
    }
}

impl Deref for Opened<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.store.close();
        let stats = self.store.stats();
        tracing::info!(
            store = &*self.store.name,
            records = stats.records,
            pages = stats.pages,
            "a store was closed"
        );
    }
}

impl Options {
    /// Returns the least `local_bytes` of a store of a name and `far_bytes`, for so many threads. It has room for some keys.
    pub fn least_local_bytes(&self, name: &str, threads: usize) -> usize {
        least_bytes(name, threads, self.most_pages())
    }
}

fn exhausted() -> Error {
    Error::other(
        "the budget of local memory is exhausted: the index has no room for the records that the store has",
    )
}

impl Store {
    /// Opens the store of a name, or makes an empty one. A round trip for each 16 pages, and some.
    ///
    /// # Errors
    /// Those that say so if another process has the store, if it was made by another version or for another `far_bytes`, if it has encrypted records of another key, or if
    /// `local_bytes` is too little; those of an allocation.
    pub async fn open<'ct>(name: &str, options: &Options, ct: &'ct ComputeThread) -> Result<Opened<'ct>> {
        Self::open_for(name, options, ct.threads(), ct).await
    }

    /// Opens a store for so many threads, which need not be those of this one's run.
    pub(crate) async fn open_for<'ct>(
        name: &str,
        options: &Options,
        threads: usize,
        ct: &'ct ComputeThread,
    ) -> Result<Opened<'ct>> {
        let (began, most_pages) = (ct.now(), options.most_pages());
        // Each thread has two pages, and one more for rebuilding others.
        let least_pages = 3 * threads + 1;
        if (most_pages as usize) < least_pages {
            let least = least_pages * COPY_BYTES;
            let why =
                format!("far_bytes: {} is too little: {least} bytes are needed at least", options.far_bytes);
            return Err(Error::other(why));
        }
        let least = options.least_local_bytes(name, threads);
        if options.local_bytes < least {
            let value = options.local_bytes;
            let why = format!("local_bytes: {value} is too little: {least} bytes are needed at least");
            return Err(Error::other(why));
        }
        let create = async || {
            let pages = vec![LinkWord::default(); most_pages as usize];
            StoreRoot::new_in(ct, StoreRoot::init(FORMAT, [ct.random(), ct.random()], pages))
                .await?
                .write(ct)
                .await
        };
        let root = ct.root_or_init(name, create).await?;
        let refused = |why: String| Error::other(format!("the store `{name}`: {why}"));
        let (format, identity, length) = {
            let g = &ct.pin();
            let read = root.read(g).await?;
            (read.format, read.identity, read.pages.len())
        };
        if format != FORMAT {
            return Err(refused(format!("it has the format {format:#x}, and this version {FORMAT:#x}")));
        }
        if length != u64::from(most_pages) {
            return Err(refused(format!(
                "it was made for {length} pages, and `far_bytes` is enough for {most_pages}"
            )));
        }
        // A process that has died is noticed after a while.
        let owner = ct.within(options.patience, root.owner().acquire(ct)).await;
        let mut owner = match owner {
            Ok(owner) => owner,
            Err(Error::DeadlineExceeded(_)) => {
                return Err(refused("another process has opened it".to_owned()));
            }
            Err(error) => return Err(error),
        };
        owner.recovered();
        let openings = root.openings().fetch_add(ct, 1).await?;
        let openings = u32::try_from(openings).map_err(|_| refused("it was opened too often".to_owned()))?;
        let store = Self::new(name, (root, identity), options, openings, threads, ct)?;
        let key = root.key().load(ct).await?;
        match &store.cipher {
            None if key != 0 => return Err(refused("it has a key, and none was given".to_owned())),
            Some(cipher) if key == 0 => root.key().store(ct, 1 << 32 | u64::from(cipher.identity)).await?,
            Some(cipher) if key as u32 != cipher.identity => {
                return Err(refused("it has another key".to_owned()));
            }
            _ => {}
        }
        store.find_records(ct).await?;
        let (stats, took) = (store.stats(), ct.now().saturating_sub(began));
        tracing::info!(
            store = name,
            records = stats.records,
            pages = stats.pages,
            torn_records = stats.torn_records,
            ?took,
            "a store was opened"
        );
        Ok(Opened { store: Arc::new(store), _owner: owner })
    }

    /// Adds what the pages have to the index.
    async fn find_records(&self, ct: &ComputeThread) -> Result<()> {
        let most = self.most_pages();
        for first in (0..most).step_by(LINKS_PER_READ as usize) {
            let found = self.linked_pages(first, ct).await?;
            self.pages.take_numbers(|number| found.binary_search_by_key(&number, |found| found.0).is_ok());
            let mut rest = &found[..];
            while !rest.is_empty() {
                let tasks = self.take_buffers(rest.len().min(TASKS))?;
                let (some, others) = rest.split_at(tasks);
                rest = others;
                let read = ct
                    .tasks(tasks, async |task| self.find_records_of(some[task].0, some[task].1, ct).await)
                    .await;
                self.pages.give(tasks * COPY_BYTES);
                read?;
            }
        }
        self.settle(ct).await
    }

    /// Returns the pages to which the root links, of 4,096 numbers, and these. One round trip.
    async fn linked_pages(&self, first: u64, ct: &ComputeThread) -> Result<Vec<(u32, RemotePtr<FarPage>)>> {
        let g = &ct.pin();
        let range = first..(first + LINKS_PER_READ).min(self.most_pages());
        let links = g.chain(op::load_range(self.root.pages(), range)).submit().await?;
        let links = (first as u32..).zip(links).filter(|(_, link)| !link.is_null());
        Ok(links.map(|(number, link)| (number, link.as_ptr())).collect())
    }

    /// Takes the bytes of buffers for at most so many pages, if the budget has as many again for the index. Returns the number of pages.
    fn take_buffers(&self, most: usize) -> Result<usize> {
        let mut pages = most;
        while pages > 1 && !self.pages.take(2 * pages * COPY_BYTES) {
            pages /= 2;
        }
        if pages > 1 {
            self.pages.give(pages * COPY_BYTES);
            return Ok(pages);
        }
        self.pages.take(COPY_BYTES).then_some(1).ok_or_else(exhausted)
    }

    async fn find_records_of(&self, number: u32, far: RemotePtr<FarPage>, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let all = 0..PAGE_WORDS as u64;
        let (sequence, words) =
            g.chain((op::load(far.sequence()), op::load_range(far.words(), all))).submit().await?;
        self.sequence.fetch_max(sequence + 1, Ordering::Relaxed);
        let page = self.pages.add(number, (far, sequence), State::Full, ct.index());
        let mut end = 0;
        for (first, record) in records(&words) {
            if !record::is_whole(record) {
                break;
            }
            end = first + record.len();
            let Some(head) = Head::of_word(record[0]).filter(|head| head.is_live()) else { continue };
            let place = Place::of(number, first, head);
            let key = record::decode(record, false, self.cipher.as_ref())?.key;
            self.pages.count_live(page, place.words);
            self.add_found(&key, &Record { place, head }, g).await?;
        }
        page.set_used(end);
        // It was listed when none of its records was known.
        self.pages.list_again(page);
        if words[end..].iter().any(|word| *word != 0) {
            self.pages.counts.torn.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes a record that of its key, unless the key has a newer one.
    async fn add_found(&self, key: &record::Key, new: &Record, g: &Guard<'_>) -> Result<()> {
        let hash = self.hash(key);
        let age = |record: &Record| (self.pages[record.place.page].sequence(), record.place.first);
        loop {
            match self.find(key, hash, false, g).await? {
                Lookup::Present(Found { record: old, .. }) => {
                    if age(&old) > age(new) {
                        return self.bury(new, g);
                    }
                    let mut entries = self.index.lock(hash);
                    if let Some(slot) = entries.slot(hash, old.place) {
                        entries.replace(slot, new.place);
                        self.count_user(Some(new.head), Some(old.head));
                        return self.bury(&old, g);
                    }
                }
                Lookup::Absent(candidates) => {
                    if let Added::Done = self.insert(hash, &candidates, 0, || Ok(Some(*new)))? {
                        return Ok(());
                    }
                }
            }
            // Another task has changed the index.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u8 = 3;

    fn options() -> Options {
        Options::new(1 << 20, 1 << 20).with_key([5; 32])
    }

    fn value(store: &Store, number: u8) -> impl AsyncFn(&ComputeThread) -> Option<Vec<u8>> + '_ {
        async move |ct| store.read(&[number; 16], ct).await.unwrap()
    }

    /// Puts words behind the records of the only page that has some, as a process that is killed does.
    async fn leave(store: &Store, words: &[u64], ct: &ComputeThread) -> Result<()> {
        let pages = (0..store.most_pages()).map(|number| &store.pages[number as u32]);
        let page = pages.into_iter().find(|page| page.used() > 0).expect("a page with records");
        let first = page.used() as u64;
        ct.pin().chain(op::store_range(page.far().words(), first, words)).submit().await
    }

    /// An attacker who can write far memory can move an encrypted record to another one's place. The record is authentic, and of the wrong key.
    #[test]
    fn a_record_at_the_place_of_another_one_is_noticed() {
        let run = Cluster::connect("local:").unwrap().run(1, async |ct| {
            let mut options = options();
            options.local_bytes = options.least_local_bytes("store", 1) + (100 << 10);
            let store = Store::open("store", &options, ct).await?;
            let key = |number: u64| u128::from(number).to_le_bytes();
            for number in 0..2000 {
                store.write(&key(number), &[1; 100], true, ct).await?;
            }
            let place_of = |key: [u8; 16]| {
                let hash = store.hash(&key);
                let place = store.index.lock(hash).find(hash).next();
                place.expect("the index has the key")
            };
            let [one, other] = [0, 1].map(|number| place_of(key(number)));
            let page = &store.pages[one.page];
            assert!(page.copy().is_none() && other.page == one.page, "it was evicted");
            let range = |place: Place| u64::from(place.first)..u64::from(place.first + place.words);
            let g = &ct.pin();
            let moved = g.chain(op::load_range(page.far().words(), range(one))).submit().await?;
            g.chain(op::store_range(page.far().words(), other.first.into(), &moved)).submit().await?;
            assert_eq!(store.read(&key(0), ct).await?, Some(vec![1; 100]));
            let noticed = store.read(&key(1), ct).await.unwrap_err().to_string();
            assert!(noticed.contains("another key's record"), "{noticed}");
            let noticed = store.write(&key(1), b"new", true, ct).await.unwrap_err().to_string();
            assert!(noticed.contains("another key's record"), "{noticed}");
            Ok(())
        });
        run.unwrap();
    }

    /// Writes some records, leaves words behind them that may depend on the store, and opens the store twice. Each time all pages are rebuilt.
    fn opened_after(
        words: impl Fn(&Store) -> Vec<u64> + Sync,
        check: impl AsyncFn(&Store, u64, &ComputeThread) + Sync,
    ) {
        let run = Cluster::connect("local:").unwrap().run(1, async |ct| {
            {
                let store = Store::open("store", &options(), ct).await?;
                for number in 0..KEYS {
                    store.write(&[number; 16], &[number; 100], false, ct).await?;
                }
                leave(&store, &words(&store), ct).await?;
            }
            for opening in 0..2 {
                let store = Store::open("store", &options(), ct).await?;
                assert_eq!(store.stats().records, KEYS.into());
                check(&store, opening, ct).await;
                assert!(store.rebuild(100, ct).await? > 0);
                check(&store, opening, ct).await;
            }
            Ok(())
        });
        run.unwrap();
    }

    #[test]
    fn a_record_that_is_not_whole_is_counted_and_not_found() {
        for is_encrypted in [false, true] {
            let all = record::words_of(100, is_encrypted);
            for written in 1..all {
                let record = |store: &Store| {
                    let cipher =
                        store.cipher.as_ref().filter(|_| is_encrypted).map(|cipher| (cipher, [7; 12]));
                    record::encode(&[KEYS; 16], &[9; 100], cipher).unwrap()[..written].to_vec()
                };
                opened_after(record, async |store, opening, ct| {
                    // It goes when its page is rebuilt.
                    assert_eq!(store.stats().torn_records, 1 - opening, "{written} of {all} words");
                    assert_eq!(value(store, KEYS)(ct).await, None);
                    assert_eq!(value(store, 1)(ct).await, Some(vec![1; 100]));
                });
            }
        }
    }

    #[test]
    fn of_two_live_records_of_a_key_the_later_one_is_found() {
        let record = record::encode(&[1; 16], b"later", None).unwrap();
        opened_after(
            |_| record.to_vec(),
            async |store, _, ct| {
                assert_eq!(store.stats().torn_records, 0);
                assert_eq!(value(store, 1)(ct).await.as_deref(), Some(&b"later"[..]));
                assert_eq!(value(store, 2)(ct).await, Some(vec![2; 100]));
            },
        );
    }

    #[test]
    fn a_store_of_another_format_is_refused() {
        let run = Cluster::connect("local:").unwrap().run(1, async |ct| {
            let pages = vec![LinkWord::default(); options().most_pages() as usize];
            let create = async || {
                StoreRoot::new_in(ct, StoreRoot::init(FORMAT + 1, [1, 2], pages.clone()))
                    .await?
                    .write(ct)
                    .await
            };
            ct.root_or_init("store", create).await?;
            Store::open("store", &options(), ct).await.map(drop)
        });
        let refused = run.unwrap_err().to_string();
        assert!(refused.contains(&format!("it has the format {:#x}", FORMAT + 1)), "{refused}");
    }
}
