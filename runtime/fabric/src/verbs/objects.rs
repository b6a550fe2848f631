//! Counting the objects of devices that are made and not destroyed.
//!
//! Each object owns what it was made from, by value or by `Arc`, so it is destroyed before that. A device refuses to destroy what is in use:
//! a failure is a bug of Farfield's, or of a driver. It is reported and stays counted, and the object is lost.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many objects there are.
struct Objects(AtomicU64);

static OBJECTS: Objects = Objects(AtomicU64::new(0));

impl Objects {
    fn count_created(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count_destroyed(&self, what: &'static str, result: c_int) -> bool {
        if result == 0 {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        // Functions of verbs return the reason, those of the connection manager -1.
        let cause =
            if result > 0 { io::Error::from_raw_os_error(result) } else { io::Error::last_os_error() };
        tracing::error!(what, %cause, "an object of the RDMA device is lost: it could not be destroyed");
        false
    }
}

/// An object of a device has been made.
pub(super) fn count_created() {
    OBJECTS.count_created();
}

/// Destroying an object of a device gave `result`; returns whether the object is gone.
pub(super) fn count_destroyed(what: &'static str, result: c_int) -> bool {
    OBJECTS.count_destroyed(what, result)
}

/// How many there are.
#[cfg(test)]
pub(super) fn objects() -> u64 {
    OBJECTS.0.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_not_destroyed_stays_counted() {
        let objects = Objects(AtomicU64::new(0));
        objects.count_created();
        objects.count_created();
        assert!(objects.count_destroyed("queue pair", 0));
        assert!(!objects.count_destroyed("queue pair", libc::EBUSY));
        assert!(!objects.count_destroyed("connection", -1));
        assert_eq!(objects.0.load(Ordering::Relaxed), 1);
    }
}
