//! Opening a store: the index is made anew of the pages.
//!
//! All pages are read, 16 at a time. A record that is whole and live is that of its key. Two records of a key are live if a process ended between the WRITE of the newer one and that of the older one's
//! state, or while a page was rebuilt: the later one in the later page is taken, and the other one is marked as dead. The newer write has not returned, or both records are the same.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farfield::prelude::*;
use farfield::{Error, LinkWord, LockGuard};

use crate::index::Place;
use crate::options::Options;
use crate::pages::{FarPage, PAGE_BYTES, PAGE_WORDS, Page, State};
use crate::record::{self, Head};
use crate::store::{Added, FORMAT, Record, Store, StoreRoot, records};

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
    }
}

impl Store {
    /// Opens the store of a name, or makes an empty one. A round trip for each 16 pages, and some.
    ///
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
        let most_pages = options.most_pages();
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
        let store = Self::new((root, identity), options, openings, threads, ct)?;
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
        Ok(Opened { store: Arc::new(store), _owner: owner })
    }

    /// Adds what the pages have to the index.
    async fn find_records(&self, ct: &ComputeThread) -> Result<()> {
        let most = self.most_pages();
        let mut found = Vec::new();
        for first in (0..most).step_by(LINKS_PER_READ as usize) {
            let g = &ct.pin();
            let range = first..(first + LINKS_PER_READ).min(most);
            let links = g.chain(op::load_range(self.root.pages(), range)).submit().await?;
            let links = (first as u32..).zip(links).filter(|(_, link)| !link.is_null());
            found.extend(links.map(|(number, link)| (number, link.as_ptr())));
        }
        let mut taken: Vec<u32> = found.iter().map(|(number, _)| *number).collect();
        taken.sort_unstable();
        self.pages.take_numbers(|number| taken.binary_search(&number).is_ok());
        for some in found.chunks(TASKS) {
            ct.tasks(some.len(), async |task| self.find_records_of(some[task].0, some[task].1, ct).await)
                .await?;
        }
        self.settle(ct).await
    }

    async fn find_records_of(&self, number: u32, far: RemotePtr<FarPage>, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let all = 0..PAGE_WORDS as u64;
        let (read, words) = g.chain((op::read(far), op::load_range(far.words(), all))).submit().await?;
        self.sequence.fetch_max(read.sequence + 1, Ordering::Relaxed);
        if !self.pages.take(PAGE_BYTES) {
            return Err(Error::other(
                "the budget of local memory is exhausted: there is no room for what is known of a page",
            ));
        }
        let page = Arc::new(Page::new(far, read.sequence, State::Full, ct.index()));
        self.pages.add(number, Arc::clone(&page));
        let mut end = 0;
        for (first, record) in records(&words) {
            let place = Place { page: number, first: first as u16, words: record.len() as u16 };
            if !record::is_whole(record) {
                break;
            }
            end = first + record.len();
            let Some(head) = Head::of_word(record[0]).filter(|head| head.is_live()) else { continue };
            let (key, _) = record::decode(record, self.cipher.as_ref())?;
            self.pages.count_live(&page, place.words);
            self.add_found(&key, &Record { page: Arc::clone(&page), place, head }, g).await?;
        }
        page.used.store(end as u32, Ordering::Relaxed);
        if words[end..].iter().any(|word| *word != 0) {
            self.pages.counts.torn.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes a record that of its key, unless the key has a newer one.
    async fn add_found(&self, key: &record::Key, new: &Record, g: &Guard<'_>) -> Result<()> {
        let hash = self.hash(key);
        let age = |record: &Record| (record.page.sequence, record.place.first);
        loop {
            let (found, places) = self.find(key, hash, g).await?;
            match found {
                Some(found) if age(&found.record) > age(new) => return self.bury(new, g),
                Some(found) if self.index.shard(hash).replace(hash, found.record.place, new.place) => {
                    return self.bury(&found.record, g);
                }
                // Another task has changed the index.
                Some(_) => {}
                None => {
                    let known = || {
                        let Record { page, place, head } = new;
                        Ok(Some(Record { page: Arc::clone(page), place: *place, head: *head }))
                    };
                    if let Added::Done = self.insert(hash, &places, known, g)? {
                        return Ok(());
                    }
                }
            }
        }
    }
}
