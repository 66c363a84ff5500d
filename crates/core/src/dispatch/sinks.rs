//! Sinks of the dispatcher: the seam behind which everything lives that is made from the log.

use super::derived::{Derived, Found};
use crate::codec::record::RecordView;
use crate::commit_log::NextOffsets;
use crate::consume_queue::light_queues;
use crate::store::error::StoreError;
use std::sync::Arc;

/// The last record dispatched: where it starts, and its store time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastRecord {
    /// Its first byte in the log.
    pub start: u64,
    /// Its store time.
    pub time: i64,
}

/// How far a sink is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It has everything before this offset of the log.
    pub position: u64,
    /// The last record of that.
    pub last: LastRecord,
}

impl Progress {
    /// The one of the slowest; nothing when there are none.
    pub(crate) fn slowest(all: &[Self]) -> Self {
        let slowest = all.iter().min_by_key(|progress| progress.position);
        slowest.copied().unwrap_or_default()
    }
}

/// A record of the log, as sinks see it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// The record; where it is in the log says `physical_offset`.
    pub record: &'a RecordView<'a>,
    /// What its properties say.
    pub found: Found<'a>,
}

/// Follows the log. One thread at a time calls `take`, in the order of the log; the others may be
/// called at the same time.
pub trait DispatchSink: Send + Sync {
    /// Takes one record; `fresh` hears where queues go on that grew by it.
    ///
    /// After an error it is offered again, also to a sink of an earlier place in the list if the
    /// store was opened anew in between: a record that is there already must change nothing.
    fn take(&self, entry: &Entry<'_>, fresh: &mut NextOffsets) -> Result<(), StoreError>;

    /// Whether `take` of this record reads, writes and makes no file; then it may be called by whoever
    /// waits for the record, on any thread, but never by two at a time. The dispatching thread meets
    /// everything else.
    fn takes_in_memory(&self, _entry: &Entry<'_>) -> bool {
        false
    }

    /// Makes durable what was taken, `taken`, and returns how far that is so: what it was given
    /// here, or earlier when it is behind.
    fn sync(&self, taken: Progress) -> Result<Progress, StoreError>;

    /// Where it wants to go on when the store is opened, as a position that it was given once; `None`
    /// where the checkpoint says, which may be one record too early.
    fn position(&self) -> Option<u64> {
        None
    }

    /// Forgets records at `end` and behind: the log ends there.
    fn truncate(&self, end: u64) -> Result<(), StoreError>;

    /// May give up what it has of records before `min`: the log begins there.
    fn clean(&self, min: u64) -> Result<(), StoreError>;
}

/// The sinks that every store has, in order. Recovery brings them up to the end of the log.
pub(crate) fn own_sinks(derived: &Arc<Derived>) -> Vec<Arc<dyn DispatchSink>> {
    let mut sinks: Vec<Arc<dyn DispatchSink>> = vec![Arc::new(Units(Arc::clone(derived)))];
    if derived.light_queues {
        sinks.push(Arc::new(LightUnits(Arc::clone(derived))));
    }
    if derived.index.is_some() {
        sinks.push(Arc::new(Keys(Arc::clone(derived))));
    }
    sinks
}

/// The unit of each record in its queue; that of a delayed message says when it is due.
struct Units(Arc<Derived>);

impl DispatchSink for Units {
    fn take(&self, entry: &Entry<'_>, fresh: &mut NextOffsets) -> Result<(), StoreError> {
        let Entry { topic, record, .. } = *entry;
        if !Derived::is_queued(record) {
            return Ok(());
        }
        // A slave hears of a deleted topic only when its queues begin anew.
        let at = record.physical_offset.cast_unsigned();
        let place = (topic, record.queue_id, record.queue_offset);
        self.0.forget_deleted(place, at)?;
        if self.0.put_unit(topic, record, &entry.found)? {
            let next = record.queue_offset.saturating_add(1);
            fresh.set(topic, record.queue_id, next);
        }
        Ok(())
    }

    fn takes_in_memory(&self, entry: &Entry<'_>) -> bool {
        let Entry { topic, record, .. } = *entry;
        !Derived::is_queued(record)
            || u64::try_from(record.queue_offset)
                .is_ok_and(|offset| (self.0.queues).takes_in_memory(topic, record.queue_id, offset))
    }

    fn sync(&self, taken: Progress) -> Result<Progress, StoreError> {
        self.0.queues.sync()?;
        Ok(taken)
    }

    fn truncate(&self, end: u64) -> Result<(), StoreError> {
        Ok(self.0.queues.truncate(end)?)
    }

    fn clean(&self, min: u64) -> Result<(), StoreError> {
        self.0.queues.correct_min(min)?;
        self.0.queues.delete_expired(min)?;
        Ok(())
    }
}

/// Units in the light queues that records name. They are kept where all units are: what [`Units`]
/// makes durable, cuts and cleans are these as well.
struct LightUnits(Arc<Derived>);

impl DispatchSink for LightUnits {
    fn take(&self, entry: &Entry<'_>, fresh: &mut NextOffsets) -> Result<(), StoreError> {
        let Entry { topic, record, .. } = *entry;
        for (name, offset) in self.0.places(topic, record) {
            let next = offset.cast_signed().saturating_add(1);
            let place = (name, light_queues::QUEUE_ID, offset.cast_signed());
            let at = record.physical_offset.cast_unsigned();
            self.0.forget_deleted(place, at)?;
            if (self.0).put_light(topic, record, &entry.found, (name, offset))? {
                fresh.set(name, light_queues::QUEUE_ID, next);
            }
        }
        Ok(())
    }

    fn sync(&self, taken: Progress) -> Result<Progress, StoreError> {
        Ok(taken)
    }

    fn truncate(&self, _end: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn clean(&self, _min: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The keys of each record in the index.
struct Keys(Arc<Derived>);

impl DispatchSink for Keys {
    fn take(&self, entry: &Entry<'_>, _fresh: &mut NextOffsets) -> Result<(), StoreError> {
        self.0.put_keys(entry.topic, entry.record, &entry.found)
    }

    fn sync(&self, taken: Progress) -> Result<Progress, StoreError> {
        if let Some(index) = &self.0.index {
            index.sync()?;
        }
        Ok(taken)
    }

    fn truncate(&self, end: u64) -> Result<(), StoreError> {
        match &self.0.index {
            Some(index) => Ok(index.truncate(end)?),
            None => Ok(()),
        }
    }

    fn clean(&self, min: u64) -> Result<(), StoreError> {
        if let Some(index) = &self.0.index {
            index.delete_expired(min)?;
        }
        Ok(())
    }
}
