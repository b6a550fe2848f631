//! `Cached<T, N>`: a thread's cache of handles. Repeated use of an object's frozen fields costs one READ in all.
//!
//! A handle is the result of `attach`: the frozen fields of an object, and places of the other fields, which are still read from far memory. Frozen
//! fields do not change, so a cached handle is correct *as long as the object is allocated*. The cache can not detect that the object was freed. It
//! is for objects that stay: sentinels, buckets, the upper levels of a tree. Before such an object is freed, every thread that may have cached it
//! must [forget](Cached::forget) it. The simulator reports the use of a cached handle of a freed object.
//!
//! The cache holds up to `N` handles and evicts the least recently used one. It counts hits, misses and evictions, for the choice of `N`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;

use lru::LruCache;

use super::attach;
use crate::error::Result;
use crate::io::operations::*;
use crate::pointer::{Address, RemotePtr};
use crate::session::ComputeThread;
use farfield_words::{Remote, WORD_BYTES};

/// A cache of up to `N` handles of objects of type `T`. The objects must stay allocated until the cache is dropped or [forgets](Self::forget) them.
///
/// ```
/// # use farfield::prelude::*;
/// use farfield::Cached;
///
/// #[remote]
/// struct Bucket { from: u64, first: Link<Bucket> }
///
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// # let ptr = Bucket::new_in(ct, Bucket::init(7)).await?.write(ct).await?;
/// let buckets = Cached::<Bucket, 64>::default();
/// assert_eq!(buckets.get(ptr, ct).await?.from(), 7); // one READ
/// assert_eq!(buckets.get(ptr, ct).await?.from(), 7); // no READ
/// assert_eq!((buckets.hits(), buckets.misses()), (1, 1));
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
pub struct Cached<T, const N: usize> {
    handles: RefCell<LruCache<Address, Rc<T>>>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    evictions: Cell<u64>,
}

impl<T, const N: usize> Default for Cached<T, N> {
    /// Makes an empty cache.
    fn default() -> Self {
        const { assert!(N > 0, "a cache of no handles") };
        let bound = NonZeroUsize::new(N).unwrap_or(NonZeroUsize::MIN);
        Self {
            handles: RefCell::new(LruCache::new(bound)),
            hits: Cell::default(),
            misses: Cell::default(),
            evictions: Cell::default(),
        }
    }
}

impl<T: Remote<Stored = T>, const N: usize> Cached<T, N> {
    /// Returns a handle of the object at `ptr`. No round trip for a hit. A miss attaches the object: one READ, or none if no field is frozen.
    ///
    /// # Errors
    /// Those of a READ. Then the cache does not change.
    pub async fn get(&self, ptr: RemotePtr<T>, ct: &ComputeThread) -> Result<Rc<T>> {
        let at = ptr.address();
        let cached = self.handles.borrow_mut().get(&at).cloned();
        if let Some(handle) = cached {
            ct.check_cached(at, T::SIZE / WORD_BYTES)?;
            self.hits.set(self.hits.get() + 1);
            return Ok(handle);
        }
        self.misses.set(self.misses.get() + 1);
        let handle = Rc::new(attach(ptr, ct).await?);
        // Another task may have attached it meanwhile. One of the two handles stays.
        let replaced = self.handles.borrow_mut().push(at, Rc::clone(&handle));
        if replaced.is_some_and(|(other, _)| other != at) {
            self.evictions.set(self.evictions.get() + 1);
        }
        Ok(handle)
    }
}

impl<T, const N: usize> Cached<T, N> {
    /// Removes an object's handle. Call it before the object is freed.
    pub fn forget(&self, ptr: RemotePtr<T>) {
        self.handles.borrow_mut().pop(&ptr.address());
    }

    /// Removes all handles.
    pub fn clear(&self) {
        self.handles.borrow_mut().clear();
    }

    /// Returns the number of handles, at most `N`.
    pub fn len(&self) -> usize {
        self.handles.borrow().len()
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of hits.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// Returns the number of misses.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// Returns how many handles were evicted because the cache was full.
    pub fn evictions(&self) -> u64 {
        self.evictions.get()
    }
}

impl<T, const N: usize> fmt::Debug for Cached<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("len", &self.len())
            .field("bound", &N)
            .field("hits", &self.hits())
            .field("misses", &self.misses())
            .field("evictions", &self.evictions())
            .finish()
    }
}
