//! What keeps a store from taking writes, and how one thread waits for the work of another.

use crate::store::error::StoreError;
use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Locks; a thread that panicked while holding the lock does not stop the others.
pub(crate) fn hold<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why writes are refused. A failure stays until the store is opened again.
#[derive(Debug, Default)]
pub struct Health {
    failure: OnceLock<StoreError>,
    closed: AtomicBool,
    disk_full: AtomicBool,
    stuck: Mutex<Option<String>>,
    tries: AtomicU32,
}

/// So often queues may fail to be written in a row before messages are refused: half a second
/// lies between two tries, Java waits half a minute as well (spec: store §5.1).
const TRIES_MAX: u32 = 60;

impl Health {
    /// Notes that what is on disk is no longer known: from now on nothing is acknowledged.
    ///
    /// Only the first failure is kept. Returns whether this was the first.
    pub fn fail(&self, error: &StoreError) -> bool {
        self.failure.set(error.clone()).is_ok()
    }

    /// The failure, if there was one.
    pub fn failure(&self) -> Option<&StoreError> {
        self.failure.get()
    }

    /// Notes that the store is closed; false when it was already.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether the store was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Notes whether the disk is fuller than writes may be.
    pub fn set_disk_full(&self, full: bool) {
        self.disk_full.store(full, Ordering::Release);
    }

    /// Notes that queues or index could not be written, once more.
    pub fn stuck(&self, why: String) {
        *hold(&self.stuck) = Some(why);
        self.tries.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that they could.
    pub fn unstuck(&self) {
        self.tries.store(0, Ordering::Release);
    }

    fn is_stuck(&self) -> bool {
        self.tries.load(Ordering::Acquire) >= TRIES_MAX
    }

    /// Why a write would be refused; `None` when it would be taken.
    pub fn refusal(&self) -> Option<String> {
        if self.is_closed() {
            return Some("the store is closed".to_owned());
        }
        if let Some(failure) = self.failure() {
            return Some(failure.to_string());
        }
        if self.disk_full.load(Ordering::Acquire) {
            return Some("the disk is full".to_owned());
        }
        self.is_stuck().then(|| hold(&self.stuck).clone())?
    }

    /// Whether a write is taken, without saying why not.
    pub fn takes_writes(&self) -> bool {
        !self.is_closed()
            && self.failure().is_none()
            && !self.disk_full.load(Ordering::Acquire)
            && !self.is_stuck()
    }
}

/// What readers had to pass over, since it cannot be read or is not what it should be.
#[derive(Debug, Default)]
pub struct Damage {
    count: AtomicU64,
    last: Mutex<String>,
}

impl Damage {
    /// Counts messages that are passed over; `what` says for people which and why.
    pub fn count(&self, messages: u64, what: impl FnOnce() -> String) {
        *hold(&self.last) = what();
        self.count.fetch_add(messages, Ordering::AcqRel);
    }

    /// How many there were; one that is met twice counts twice.
    pub fn total(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last one.
    pub fn last(&self) -> String {
        hold(&self.last).clone()
    }
}

/// One thread waits, others wake it; waking costs next to nothing while it does not wait.
#[derive(Debug, Default)]
pub struct Wake {
    waiting: AtomicBool,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Wakes the waiting thread, if it waits. Call it after the change that it waits for.
    pub fn notify(&self) {
        // Pairs with the fence in `wait`: either this sees that the thread waits, or the thread
        // sees the change.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) {
            *hold(&self.rung) = true;
            self.changed.notify_one();
        }
    }

    /// Waits until woken, at most `timeout`, unless `ready` already holds.
    pub fn wait(&self, timeout: Duration, ready: impl Fn() -> bool) {
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            let rung = hold(&self.rung);
            let waited = self
                .changed
                .wait_timeout_while(rung, timeout, |rung| !*rung)
                .unwrap_or_else(PoisonError::into_inner);
            drop(waited);
        }
        self.waiting.store(false, Ordering::Relaxed);
        *hold(&self.rung) = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{Health, Wake};
    use crate::store::error::{ErrorKind, StoreError};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn only_space_comes_back() {
        let health = Health::default();
        assert_eq!(health.refusal(), None);
        health.set_disk_full(true);
        assert!(!health.takes_writes());
        health.set_disk_full(false);
        assert!(health.takes_writes());
        for _ in 0..60 {
            assert_eq!(health.refusal(), None);
            health.stuck("queues".to_owned());
        }
        assert_eq!(health.refusal().as_deref(), Some("queues"));
        assert!(!health.takes_writes());
        health.unstuck();
        assert!(health.takes_writes());
        assert!(health.fail(&StoreError::new(ErrorKind::Io, "first")));
        assert!(!health.fail(&StoreError::new(ErrorKind::Io, "second")));
        assert_eq!(health.refusal().as_deref(), Some("io: first"));
        assert!(health.close());
        assert!(!health.close());
        assert_eq!(health.refusal().as_deref(), Some("the store is closed"));
    }

    #[test]
    fn a_change_is_never_slept_through() {
        let wake = Arc::new(Wake::default());
        let count = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (wake, count) = (Arc::clone(&wake), Arc::clone(&count));
            std::thread::spawn(move || {
                for round in 1..=2_000 {
                    while count.load(Ordering::SeqCst) < round {
                        wake.wait(Duration::from_secs(20), || {
                            count.load(Ordering::SeqCst) >= round
                        });
                    }
                }
            })
        };
        let start = Instant::now();
        for _ in 0..2_000 {
            count.fetch_add(1, Ordering::SeqCst);
            wake.notify();
        }
        waiter.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
