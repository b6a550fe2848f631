//! Objects that count for something else: a stored handle of a delegated value must be taken out before its object is freed, or the value is not dropped before its thread ends.

use farfield_words::fingerprint_of;
use farfield_words::{Address, Remote};

/// The layout fingerprint of `delegation::StoredTrust`, which compares it with its own.
pub(crate) const STORED_HANDLE: u64 = 0xedae_b911_6bb5_97bf;

/// Reports that an object is freed, or retired, if it is a stored handle.
#[inline]
pub(crate) fn report_if_counted<T: Remote>(at: Address) {
    if const { fingerprint_of::<T>() == STORED_HANDLE } {
        report(at);
    }
}

#[cold]
fn report(at: Address) {
    tracing::warn!(
        address = %at,
        "a stored handle is freed that was not taken out: its value is not dropped before its trustee ends"
    );
}
