//! `FarStore`: a store for any thread and any executor.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use farfield::prelude::*;
use farfield::{Call, Client, ClientOptions, Error};
use futures_channel::oneshot;

use crate::options::{Options, Stats};
use crate::pages::lock;
use crate::store::Store;

/// A store with compute threads of its own, for any thread and any executor.
///
/// Each method is a [call](Client::call) of a [`Client`]: cancel-safe, with a deadline if the [`ClientOptions`] have one.
///
/// ```
/// use farfield::Cluster;
/// use farfield_kv::{FarStore, Options};
///
/// # fn main() -> farfield::Result<()> {
/// # futures_executor::block_on(async {
/// let options = Options::new(2 << 20, 8 << 20);
/// let store = FarStore::start(&Cluster::connect("local:")?, "people", &options, 2).await?;
/// store.write(*b"0123456789abcdef", b"Ada", false).await?;
/// assert_eq!(store.read(*b"0123456789abcdef").await?.as_deref(), Some(&b"Ada"[..]));
/// store.stop().await
/// # })
/// # }
/// ```
pub struct FarStore {
    client: Client,
    store: Arc<Store>,
    /// Keeps the store until the client's threads have ended, and all of their WRITEs are over.
    keeper: Mutex<Option<Keeper>>,
}

struct Keeper {
    client: Client,
    /// It has opened the store, and ends when it is told to.
    call: Call<()>,
    stop: oneshot::Sender<()>,
}

impl FarStore {
    /// Opens the store of a name, or makes an empty one, with so many compute threads, and one more that keeps it.
    ///
    /// # Errors
    /// Those of [`Store::open`], and of [`Cluster::client_with`]: a simulated cluster has no clients.
    pub async fn start(cluster: &Cluster, name: &str, options: &Options, threads: usize) -> Result<Self> {
        let mut of_client = ClientOptions::new();
        of_client.threads = threads;
        Self::start_with(cluster, name, options, &of_client).await
    }

    /// Like [`start`](Self::start), with options of the client: its threads, the calls that each executes at the same time, its queue, and a deadline of calls.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn start_with(
        cluster: &Cluster,
        name: &str,
        options: &Options,
        of_client: &ClientOptions,
    ) -> Result<Self> {
        let (client, keeper) = (cluster.client_with(of_client)?, cluster.client()?);
        let (has_opened, mut opened) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (name, options, threads) = (name.to_owned(), options.clone(), of_client.threads);
        let mut call = keeper.call(async move |ct: &ComputeThread| {
            let opened = Store::open_for(&name, &options, threads, ct).await?;
            if has_opened.send(opened.share()).is_ok() {
                let _ = stopped.await;
            }
            Ok(())
        });
        let store = poll_fn(|context| {
            if let Poll::Ready(Ok(store)) = Pin::new(&mut opened).poll(context) {
                return Poll::Ready(Ok(store));
            }
            let closed = || Err(Error::other("the store was closed while it was opened"));
            Pin::new(&mut call).poll(context).map(|ended| ended.and_then(|()| closed()))
        });
        let store = store.await?;
        Ok(Self { client, store, keeper: Mutex::new(Some(Keeper { client: keeper, call, stop })) })
    }

    /// Completes the calls that were accepted, waits for all WRITEs, and closes the store.
    ///
    /// # Errors
    /// The first error of a WRITE.
    pub async fn stop(self) -> Result<()> {
        let Some(Keeper { client, call, stop }) = lock(&self.keeper).take() else { return Ok(()) };
        let ended = self.client.shutdown().await;
        let _ = stop.send(());
        let closed = call.await;
        client.shutdown().await?;
        ended.and(closed)
    }

    /// Returns whether the store can be used: its threads run, and no WRITE has failed.
    pub fn is_alive(&self) -> bool {
        !self.client.is_closed() && self.store.is_usable()
    }

    /// Returns the value of a key: see [`Store::read`].
    ///
    /// # Errors
    /// Those of [`Store::read`] and of a [call](Client::call); for all methods.
    pub async fn read(&self, key: [u8; 16]) -> Result<Option<Vec<u8>>> {
        self.call(async move |store, ct| store.read(&key, ct).await).await
    }

    /// Sets the value of a key: see [`Store::write`].
    ///
    /// # Errors
    /// Those of [`Store::write`].
    pub async fn write(&self, key: [u8; 16], value: impl Into<Vec<u8>>, is_encrypted: bool) -> Result<()> {
        let value = value.into();
        self.call(async move |store, ct| store.write(&key, &value, is_encrypted, ct).await).await
    }

    /// Changes the value of a key that is in the store: see [`Store::update`].
    ///
    /// # Errors
    /// Those of [`Store::write`].
    pub async fn update(&self, key: [u8; 16], value: impl Into<Vec<u8>>, is_encrypted: bool) -> Result<bool> {
        let value = value.into();
        self.call(async move |store, ct| store.update(&key, &value, is_encrypted, ct).await).await
    }

    /// Deletes a key: see [`Store::delete`].
    ///
    /// # Errors
    /// Those of [`Store::read`].
    pub async fn delete(&self, key: [u8; 16]) -> Result<bool> {
        self.call(async move |store, ct| store.delete(&key, ct).await).await
    }

    /// Returns the values of several keys: see [`Store::get_many`].
    ///
    /// # Errors
    /// Those of [`Store::read`].
    pub async fn get_many(&self, keys: Vec<[u8; 16]>) -> Result<Vec<Option<Vec<u8>>>> {
        self.call(async move |store, ct| {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            store.get_many(&keys, ct).await
        })
        .await
    }

    /// Rebuilds pages: see [`Store::rebuild`].
    ///
    /// # Errors
    /// Those of [`Store::write`].
    pub async fn rebuild(&self, percent: u64) -> Result<u64> {
        self.call(async move |store, ct| store.rebuild(percent, ct).await).await
    }

    /// Returns what the store has, and what it has done.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    async fn call<R: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Store, &ComputeThread) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let store = Arc::clone(&self.store);
        self.client.call(async move |ct: &ComputeThread| work(&store, ct).await).await
    }
}

impl fmt::Debug for FarStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
