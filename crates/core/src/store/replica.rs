//! The store as one of a pair: what a master's slaves copy, and what a slave copies.

use crate::commit_log::NextOffsets;
use crate::disk::segment::Lease;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::health::hold;
use crate::store::Store;

impl Store {
    /// Up to where slaves may copy now: whole records, durable ones where each append is flushed,
    /// lest a slave has what its master loses with a power cut.
    pub fn copy_limit(&self) -> u64 {
        self.dispatcher.limit()
    }

    /// Leases bytes of the log for a slave, of one file; empty when there are none yet.
    pub fn copyable(&self, from: u64, most: u64) -> Result<Option<Lease>, StoreError> {
        self.usable()?;
        let limit = self.copy_limit();
        if from >= limit {
            return Ok(None);
        }
        let lease = self.log.copyable(from, most, limit).ok_or_else(|| {
            StoreError::usage(format!(
                "offset {from} is not kept any more, the log begins at {}",
                self.log.min()
            ))
        })?;
        // A slave would take the zeros for properties, which have no checksum.
        lease.check()?;
        Ok(Some(lease))
    }

    /// Tells everybody that as many slaves as are asked for have the log up to `offset`.
    pub(crate) fn tell_copied(&self, offset: u64) {
        for watcher in self.dispatcher.watchers() {
            watcher.copied(offset);
        }
    }

    /// Appends bytes of a master's log; returns where the log ends now.
    pub fn replicate(&self, from: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        self.replicable()?;
        self.log.replicate(from, bytes)
    }

    /// Makes all of the log durable, without what was copied of a record that is not whole; returns
    /// where it ends.
    ///
    /// What a slave shows of its log covers whole records, so it must not report more: the master
    /// that it connects to may have another record there. Nothing may copy meanwhile.
    pub fn settle_copies(&self) -> Result<u64, StoreError> {
        self.replicable()?;
        let end = self.log.end_whole()?;
        self.flush()?;
        Ok(end)
    }

    /// Makes what each append has to make durable so; returns up to where a slave may say that it
    /// has the log.
    pub fn vouched(&self) -> Result<u64, StoreError> {
        let written = self.log.written();
        if !self.config.sync_flush {
            return Ok(written);
        }
        if self.log.flushed() < written {
            self.usable()?;
            return self.flush().map(|flushed| flushed.min(written));
        }
        Ok(written)
    }

    /// Has the log be a copy of another broker's from now on: messages are refused. Returns where
    /// the log ends; no message comes behind that.
    pub fn follow_another(&self) -> Result<u64, StoreError> {
        self.replicable()?;
        Ok(self.log.follow())
    }

    /// Has the log be this broker's own from now on: copies are refused, messages taken. Returns
    /// where it ends.
    ///
    /// A record that was copied in part is taken back: nobody was told that it is here. The rest is
    /// made durable and dispatched first, since queues go on behind it; that may take long. After an
    /// error the log takes neither, until this is tried again or it follows another one.
    pub fn lead(&self) -> Result<u64, StoreError> {
        self.replicable()?;
        let places = if self.log.end_copies()? {
            self.flush()?;
            self.dispatch_all()?;
            let last = self.dispatcher.progress().last;
            Some((self.offsets_of_copy(), last.time))
        } else {
            None
        };
        self.log.lead(places);
        Ok(self.log.written())
    }

    /// Notes that topics were deleted by the master, each with all that lies before an offset, and
    /// removes their queues. Queues with later records stay: the topic was made anew.
    ///
    /// Returns those that the copy does not durably reach yet, for which nothing is done: the note
    /// must hide nothing that is written there next.
    pub fn follow_deletions(&self, rows: Vec<(String, u64)>) -> Result<Vec<String>, StoreError> {
        self.usable()?;
        let note = &self.derived.deleted;
        let mut news = rows;
        news.retain(|(topic, end)| *end > 0 && !note.covers(topic, *end - 1));
        if news.is_empty() {
            return Ok(Vec::new());
        }
        let durable = self.flush()?;
        let (news, late): (Vec<_>, Vec<_>) = news.into_iter().partition(|row| row.1 <= durable);
        self.alone(|| {
            // When this fails nobody knows whether the note is there after a power cut.
            self.note(note.add_all(news.clone()))?;
            for (topic, end) in &news {
                self.queues().delete_old(topic, *end)?;
            }
            Ok::<_, StoreError>(())
        })?;
        self.quick_checkpoint()?;
        Ok(late.into_iter().map(|(topic, _)| topic).collect())
    }

    /// The topics whose records have no queue any more, each up to an offset of the log.
    pub fn deletions(&self) -> Vec<(String, u64)> {
        self.derived.deleted.list()
    }

    /// The topics that began anew in what was copied since this was asked last: their master
    /// deleted them.
    pub fn take_renewed(&self) -> Vec<String> {
        std::mem::take(&mut *hold(&self.derived.renewed))
            .into_iter()
            .collect()
    }

    fn dispatch_all(&self) -> Result<(), StoreError> {
        while self.dispatched() < self.log.whole() {
            if !self.dispatch()? && self.dispatched() < self.log.whole() {
                return Err(StoreError::corrupt(format!(
                    "the log ends at {}, but its queues cannot be made beyond {}",
                    self.log.whole(),
                    self.dispatched()
                )));
            }
        }
        Ok(())
    }

    /// Where queues go on behind copied records: behind their units. What a queue had before the
    /// start counts only if nothing was copied into it and its topic was not deleted since.
    fn offsets_of_copy(&self) -> NextOffsets {
        let recovered = self.recovered();
        let mut next = NextOffsets::default();
        for (topic, queue_id, _, max) in self.queues().list() {
            next.set(&topic, queue_id, max.cast_signed());
        }
        for (topic, queue_id, floor) in recovered.floors.clone().drain() {
            let last = self.queues().last(&topic, queue_id);
            let is_old = last.is_none_or(|unit| unit.physical_offset < recovered.end);
            let before = recovered.end.saturating_sub(1);
            if is_old && !self.derived.deleted.covers(&topic, before) {
                next.set(&topic, queue_id, floor.max(next.get(&topic, queue_id)));
            }
        }
        next
    }

    fn replicable(&self) -> Result<(), StoreError> {
        self.usable()?;
        if self.is_started() {
            return Ok(());
        }
        Err(StoreError::new(
            ErrorKind::Closed,
            "the store is not started",
        ))
    }
}
