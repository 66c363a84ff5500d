//! How much connections may keep waiting: one of them, and all together.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bounds in bytes, and how much of the common one is used.
#[derive(Debug)]
pub struct Limits {
    /// Longest frame.
    pub frame_size_max: usize,
    /// Start of a frame and unwritten output of one connection.
    pub connection_max: usize,
    /// The same of all connections.
    pub total_max: usize,
    /// Unwritten output above which a connection is not read.
    pub high_water: usize,
    used: AtomicUsize,
    /// How far the loop's clock is ahead of the system's, in milliseconds.
    ahead_ms: AtomicI64,
}

impl Limits {
    /// Nothing is used yet.
    pub fn new(
        frame_size_max: usize,
        connection_max: usize,
        total_max: usize,
        high_water: usize,
    ) -> Self {
        Self {
            frame_size_max,
            connection_max,
            total_max,
            high_water,
            used: AtomicUsize::new(0),
            ahead_ms: AtomicI64::new(0),
        }
    }

    /// Bytes kept for all connections.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Unix milliseconds, by the loop's clock as last told.
    pub(super) fn now_ms(&self) -> i64 {
        system_ms().saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Goes by the loop's clock: what waits here and there is measured by one.
    pub(super) fn set_now(&self, now_ms: i64) {
        let ahead_ms = now_ms.saturating_sub(system_ms());
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    /// Output at which a connection that was stopped for it goes on.
    pub(super) fn low_water(&self) -> usize {
        self.high_water / 4
    }

    /// Enters what is kept for a connection now, in place of what was; false when that is too much.
    pub(super) fn charge(&self, before: usize, now: usize) -> bool {
        // Wraps in both steps alike.
        let change = now.wrapping_sub(before);
        let used = self.used.fetch_add(change, Ordering::Relaxed);
        let used = used.wrapping_add(change);
        now <= before || (now <= self.connection_max && used <= self.total_max)
    }
}

fn system_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn charge_above_a_bound_is_refused_and_counted() {
        let limits = Limits::new(100, 50, 80, 10);
        assert!(limits.charge(0, 50));
        assert!(!limits.charge(0, 51));
        assert_eq!(limits.used(), 101);
        assert!(!limits.charge(0, 1), "together too much");
        assert!(limits.charge(51, 0) && limits.charge(1, 0) && limits.charge(50, 0));
        assert_eq!(limits.used(), 0);
    }
}
