//! The count of device objects that are not destroyed.
//!
//! Each object owns the objects from which it was made, by value or by `Arc`, so it is destroyed before them. A device refuses to destroy an object
//! in use: such a failure is a bug of Farfield or of a driver. It is reported, the object is leaked and stays counted.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count of objects.
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

/// Counts a new object.
pub(super) fn count_created() {
    OBJECTS.count_created();
}

/// Counts a destroyed object, if `result` is success. Returns whether the object was destroyed.
pub(super) fn count_destroyed(what: &'static str, result: c_int) -> bool {
    OBJECTS.count_destroyed(what, result)
}

/// Returns the number of objects.
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
