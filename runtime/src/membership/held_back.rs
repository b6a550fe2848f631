//! Held-back reclamation: a thread that has retired more than it may keep helps, waits, and then fails with the holder's name.
//!
//! A retired object is freed once all guards that could protect it are dropped. One guard that is never dropped, because its thread
//! sleeps or has forgotten it, prevents the reclamation of all objects that any thread retires from then on. So the retired bytes of a thread
//! are limited to `max-retired` of the cluster's URL, and [`GRACE_CALLS`] objects more. Beyond the limit, retiring and allocating first try to
//! reclaim. If they can not, because of
//! - the thread's own guard, they fail: a wait under that guard would never end. The first [`GRACE_CALLS`] in one epoch do not
//!   fail, because the guard may be new and about to be dropped, as in each operation of a structure;
//! - another thread or process, they wait: it may only need a processor. After [`PATIENCE`] and [`ATTEMPTS`] without a new
//!   epoch they fail. From then on they fail after one attempt to reclaim, until there is a new epoch.
//!
//! A burst of retirements without long-lived guards does not fail, even with a small limit: each attempt advances the epoch, and frees
//! objects that were retired three epochs ago.
//!
//! Costs: a comparison for each allocation and retirement; beyond the limit those of [`try_reclaim`](ComputeThread::try_reclaim).

use std::time::Duration;

use crate::error::{self, Error, HeldBackBy, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::memory::worker::HeldBack;
use crate::segment::control::{self, EpochPage};
use crate::segment::decode;
use crate::session::ComputeThread;

/// The minimum time, on fabrics with real time, and the minimum number of attempts before a thread fails because of another one.
const PATIENCE: Duration = Duration::from_millis(100);
const ATTEMPTS: u32 = 256;

/// The number of calls in one epoch that succeed because the thread's own guard may be new.
const GRACE_CALLS: u32 = 16;

impl ComputeThread {
    /// Checks that this thread may retire more, or allocate.
    ///
    /// # Errors
    /// [`Error::ReclamationHeldBack`].
    #[inline]
    pub(crate) async fn check_retired(&self) -> Result<()> {
        self.free_eagerly();
        if self.has_retired_too_much() { Box::pin(self.reclaim_too_much()).await } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn has_retired_too_much(&self) -> bool {
        self.limbo.borrow().bytes() > self.max_retired
    }

    #[cold]
    async fn reclaim_too_much(&self) -> Result<()> {
        let (began, mut backoff, mut attempts) = (self.time(), Retry::for_holder(self.worker()), 0);
        let mut is_first = true;
        loop {
            self.try_reclaim().await;
            if !self.has_retired_too_much() {
                self.held_back.set(None);
                return Ok(());
            }
            let epoch = self.known_epoch();
            let before = self.held_back.get().filter(|before| before.epoch == epoch);
            if before.is_none() {
                attempts = 0;
            }
            let new = || HeldBack { epoch, since: self.time(), calls: 0, has_failed: false };
            let mut held_back = before.unwrap_or_else(new);
            held_back.calls += u32::from(std::mem::take(&mut is_first));
            self.held_back.set(Some(held_back));
            if self.io.epoch.is_pinned_before(epoch)
                && !held_back.has_failed
                && held_back.calls <= GRACE_CALLS
            {
                // The guard may be another task's.
                self.give_way().await;
                return Ok(());
            }
            if self.io.epoch.is_pinned_before(epoch) {
                return Err(self.held_back_error(held_back).await?);
            }
            let is_patient =
                self.io.endpoint.virtual_time().is_none() && self.time().saturating_sub(began) < PATIENCE;
            attempts += 1;
            if held_back.has_failed || (attempts >= ATTEMPTS && !is_patient) {
                return Err(self.held_back_error(held_back).await?);
            }
            backoff.wait_a_round_trip_for(Purpose::Epoch).await;
        }
    }

    /// The error that names the holder of reclamation.
    async fn held_back_error(&self, held_back: HeldBack) -> Result<Error> {
        self.held_back.set(Some(HeldBack { has_failed: true, ..held_back }));
        let reclamation = self.reclamation().await?;
        let held_back_by = if self.io.epoch.is_pinned_before(held_back.epoch) {
            Some(HeldBackBy::Thread(self.index_here()))
        } else {
            reclamation.held_back_by
        };
        let holder = match held_back_by {
            Some(HeldBackBy::Thread(thread)) if thread == self.index_here() => {
                format!("a guard of this thread itself ({thread}, {})", self.id())
            }
            Some(HeldBackBy::Thread(thread)) => format!("a guard of thread {thread} of this process"),
            Some(HeldBackBy::Process(slot)) => match self.process_in_slot(slot).await? {
                Some(process) => format!("process {process}, which keeps a guard or is idle"),
                None => format!("the process in slot {slot}, which has just ended"),
            },
            None => "threads that have just caught up".to_owned(),
        };
        tracing::warn!(retired_bytes = reclamation.retired_bytes, holder, "reclamation is held back");
        Ok(Error::from(error::ReclamationHeldBack {
            retired_bytes: reclamation.retired_bytes,
            limit_bytes: self.max_retired,
            held_ms: self.time().saturating_sub(held_back.since).as_millis() as u64,
            held_back_by,
            holder: holder.into(),
        }))
    }

    /// The number of the process with a slot. One round trip more than [`members`](Self::members) if there were ever more than 126 at a time.
    async fn process_in_slot(&self, slot: usize) -> Result<Option<u32>> {
        let at = match slot.checked_sub(control::SLOTS_HERE) {
            None => control::epoch_slot(slot),
            Some(behind) => {
                let index = behind / control::SLOTS_PER_PAGE;
                let word = self.read_word(control::epoch_page(index)).await?;
                let Some(page) = decode::slot_page(&self.heap().grid, index, word)? else { return Ok(None) };
                EpochPage::slot(page, behind % control::SLOTS_PER_PAGE)
            }
        };
        Ok(self.members().await?.iter().find(|member| member.slot() == at).map(|member| member.identity))
    }
}
