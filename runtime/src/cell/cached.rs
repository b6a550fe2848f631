//! `Cached<T, N>`: handles kept by a thread, so that frozen fields cost one READ once and nothing afterwards.
//!
//! A handle is what `attach` makes: the frozen fields of an object, read once, and places for the others, which are still
//! read where they are. So a cached handle is never out of date *as long as the object lives*: frozen fields do not change.
//! What the cache can not know is whether the object still lives. It is for objects that stay: sentinels, buckets, the
//! upper levels of a tree. Whoever frees an object that may be cached [forgets](Cached::forget) it first, in every thread
//! that may have it; the simulator reports the use of a cached handle to an object that was freed.
//!
//! The bound is a number of handles, `N`: a full cache gives up the one that was used longest ago. Hits, misses and
//! evictions are counted, because a cache that nobody looks at is too small or too large.

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

/// Up to `N` handles to objects of type `T` that live as long as the cache does, or until they are
/// [forgotten](Self::forget).
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
/// assert_eq!(buckets.get(ptr, ct).await?.from(), 7); // none
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
    /// An empty cache.
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
    /// A handle to the object at `ptr`. No round trip if it is cached; otherwise it is attached: one READ, or none if
    /// nothing in it is frozen.
    ///
    /// # Errors
    /// Those of a READ; nothing is cached then.
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
        // Another task may have attached it meanwhile: one of the two handles stays.
        let replaced = self.handles.borrow_mut().push(at, Rc::clone(&handle));
        if replaced.is_some_and(|(other, _)| other != at) {
            self.evictions.set(self.evictions.get() + 1);
        }
        Ok(handle)
    }
}

impl<T, const N: usize> Cached<T, N> {
    /// Forgets an object's handle, before the object is freed.
    pub fn forget(&self, ptr: RemotePtr<T>) {
        self.handles.borrow_mut().pop(&ptr.address());
    }

    /// Forgets all handles.
    pub fn clear(&self) {
        self.handles.borrow_mut().clear();
    }

    /// How many handles there are, `N` at most.
    pub fn len(&self) -> usize {
        self.handles.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a handle was there.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// How often a handle had to be attached.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// How often a handle was given up for another.
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
