//! Making the log durable. A sync that failed is the end of all promises (architecture §4).

use super::CommitLog;
use crate::store_error::{ErrorKind, StoreError};
use crate::store_health::hold;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl CommitLog {
    /// Makes everything appended so far durable and returns up to where it is.
    ///
    /// After a sync failed once this fails for good and never calls sync again: the kernel has
    /// marked the lost pages clean by then, and a second sync would say that all is well.
    pub fn flush(&self) -> Result<u64, StoreError> {
        let _one_at_a_time = hold(&self.flushing);
        if let Some(failure) = self.health.failure() {
            return Err(StoreError::new(
                ErrorKind::Io,
                format!("nothing is flushed any more: {failure}"),
            ));
        }
        let from = self.flushed();
        // Before `written`, which runs ahead of it while a copy is appended.
        let whole = self.whole();
        let to = self.written();
        if from >= to {
            return Ok(from);
        }
        let start = Instant::now();
        for segment in self.segments().iter() {
            if segment.end() > from && segment.base() < to {
                if let Err(error) = segment.sync() {
                    self.health.fail(&error);
                    return Err(error);
                }
            }
        }
        self.flushed_whole.store(whole.min(to), Ordering::Release);
        self.flushed.store(to, Ordering::Release);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let spent = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counters.flush_us.fetch_add(spent, Ordering::Relaxed);
        self.measure(to);
        self.has_grown();
        Ok(to)
    }

    /// How many flushes there were, and the microseconds that they took together.
    pub fn sync_times(&self) -> (u64, u64) {
        (
            self.counters.flushes.load(Ordering::Relaxed),
            self.counters.flush_us.load(Ordering::Relaxed),
        )
    }

    /// Has an append up to `end` counted once it is durable; called in the order of the log.
    pub(super) fn await_flush(&self, end: u64, begun: Instant) {
        hold(&self.unflushed).push_back((end, begun));
        if self.flushed() >= end {
            // A flush came in between, and may have looked before.
            self.measure(end);
        }
    }

    /// Counts how long the appends took that are durable now.
    fn measure(&self, flushed: u64) {
        let mut unflushed = hold(&self.unflushed);
        while let Some((_, begun)) = unflushed.pop_front_if(|(end, _)| *end <= flushed) {
            self.counters.put_time.add(begun.elapsed());
        }
    }
}
