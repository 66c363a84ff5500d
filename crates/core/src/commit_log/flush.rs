//! Making the log durable. A sync that failed is the end of all promises (architecture §4).
//!
//! Recovery tells a torn record by zeros that stand where the record may end a sector
//! ([`crate::recovery::tail`]). A record that really has a zero byte in its properties could look
//! like that. It counts as flushed only once the checkpoint says durably that it is, so recovery
//! never has to guess. Other records cost nothing.

use super::append::{PutStatus, Writer};
use super::CommitLog;
use crate::codec::record::{self, Parsed};
use crate::disk::segment::Segment;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::health::hold;
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
        let done = self.sync_to(from, to).and_then(|()| {
            if self.needs_note(from, whole) {
                return self.note_durable(to);
            }
            if from == 0 {
                // Without a note recovery takes a first file that is gone for one that was never
                // durable. Half a record of a copy counts for nobody.
                let noted = if whole == 0 { self.whole() } else { whole };
                return self.note_durable(noted.min(to));
            }
            Ok(())
        });
        if let Err(error) = done {
            self.health.fail(&error);
            return Err(error);
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

    fn sync_to(&self, from: u64, to: u64) -> Result<(), StoreError> {
        for segment in self.segments().iter() {
            if segment.end() > from && segment.base() < to {
                segment.sync()?;
            }
        }
        Ok(())
    }

    /// Whether what is flushed now has a record that recovery could take for a torn one.
    fn needs_note(&self, from: u64, whole: u64) -> bool {
        self.unsure.load(Ordering::Acquire) > from
            || (self.copied.swap(false, Ordering::AcqRel)
                && self.holds_zeros(self.flushed_whole.load(Ordering::Acquire), whole))
    }

    fn note_durable(&self, to: u64) -> Result<(), StoreError> {
        let Some(notes) = self.notes.get() else {
            return Ok(());
        };
        notes.write(to, |_| {})?;
        notes.sync()
    }

    /// Whether a record between two offsets has a zero byte in its topic or properties.
    fn holds_zeros(&self, from: u64, to: u64) -> bool {
        let mut at = from.max(self.min());
        while at < to {
            let Some(lease) = self.rest(at, to) else {
                return true;
            };
            match record::parse(&lease, 0, false) {
                Parsed::Record { view, size } => {
                    if view.topic.contains(&0) || view.properties.contains(&0) {
                        return true;
                    }
                    at += u64::from(size);
                }
                Parsed::Blank { .. } => at = self.next_file_start(at),
                Parsed::End | Parsed::Broken { .. } => return true,
            }
        }
        false
    }

    /// Takes back a write that failed half-way, lest a later recovery finds its pieces.
    pub(super) fn undo(
        &self,
        writer: &Writer,
        segment: &Segment,
        size: u64,
        error: &StoreError,
    ) -> PutStatus {
        // Durably: a page that a power cut leaves old must hold nothing but zeros.
        let clean = segment
            .zero(writer.position, writer.position + size)
            .and_then(|_| segment.sync());
        if clean.is_err() || error.kind != ErrorKind::DiskFull {
            self.health.fail(error);
        }
        PutStatus::ServiceNotAvailable
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
