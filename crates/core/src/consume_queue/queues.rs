//! The consume queues as the store uses them, whatever form they have.
//!
//! The rules that hold for every form stand here: which numbers a unit can have, and that a record
//! without a place in its queue is counted. The queues in files are called without indirection; a
//! test opens the store with others.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{FileQueues, QueueStore, Unit, UnitPut, FILLER_SIZE, UNIT_SIZE};
use crate::disk::file_cache::FileCache;
use crate::disk::Disk;
use crate::store::health::Damage;

/// How units are kept.
enum Form {
    Files(FileQueues),
    Other(Box<dyn QueueStore>),
}

/// Calls a method of the form at hand.
macro_rules! of_form {
    ($self:ident, $form:ident => $call:expr) => {
        match &$self.form {
            Form::Files($form) => $call,
            Form::Other($form) => $call,
        }
    };
}

/// The consume queues of one store: one writer (the dispatcher), any number of readers.
///
/// What the methods promise is said at [`QueueStore`].
pub struct ConsumeQueues {
    form: Form,
    conflicts: Damage,
}

impl ConsumeQueues {
    /// Loads the queues in files under `root`; `file_size` is rounded up to whole units.
    ///
    /// Fails with `InvalidData` when a queue file has another length than configured.
    pub fn open(
        disk: Arc<dyn Disk>,
        root: impl Into<PathBuf>,
        file_size: u64,
        cache: Arc<FileCache>,
    ) -> io::Result<Self> {
        let files = FileQueues::open(disk, root, file_size, cache)?;
        Ok(Self {
            form: Form::Files(files),
            conflicts: Damage::default(),
        })
    }

    /// Takes queues of another form.
    pub fn of(other: Box<dyn QueueStore>) -> Self {
        Self {
            form: Form::Other(other),
            conflicts: Damage::default(),
        }
    }

    /// Adds the unit of one message; says whether the queue grew. Fails as [`QueueStore::put`].
    pub fn put(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: u64,
        physical_offset: u64,
        size: u32,
        tags_code: i64,
    ) -> io::Result<bool> {
        let sane = size > 0 && size < FILLER_SIZE && i64::try_from(physical_offset).is_ok();
        if !sane || queue_offset > i64::MAX as u64 / (4 * UNIT_SIZE) {
            let text = format!(
                "offset {queue_offset} of {topic}-{queue_id}: {size} bytes at {physical_offset}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let unit = Unit {
            physical_offset,
            size,
            tags_code,
        };
        match of_form!(self, form => form.put(topic, queue_id, queue_offset, unit))? {
            UnitPut::Added => Ok(true),
            UnitPut::Repeat => Ok(false),
            UnitPut::Conflict => {
                let why = "an older record has it";
                self.refuse(topic, queue_id, queue_offset, physical_offset, why);
                Ok(false)
            }
        }
    }

    /// See [`QueueStore::takes_in_memory`].
    pub(crate) fn takes_in_memory(&self, topic: &str, queue_id: i32, offset: u64) -> bool {
        of_form!(self, form => form.takes_in_memory(topic, queue_id, offset))
    }

    /// Counts a record that its queue does not take.
    pub(crate) fn refuse(&self, topic: &str, queue_id: i32, offset: u64, at: u64, why: &str) {
        self.conflicts.count(1, || {
            format!(
                "the record at {at} of the log is not in queue {queue_id} of topic {topic} at \
                 offset {offset}: {why}"
            )
        });
    }

    /// How many records have no place in their queue: an older record has their offset, or no queue
    /// can have it.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.total()
    }

    /// The last of them, for people.
    pub fn last_conflict(&self) -> String {
        self.conflicts.last()
    }

    /// See [`QueueStore::range`]; units may be fillers ([`Unit::is_filler`]).
    pub fn range(
        &self,
        topic: &str,
        queue_id: i32,
        from: u64,
        units_max: u64,
        out: &mut Vec<Unit>,
    ) -> io::Result<()> {
        of_form!(self, form => form.range(topic, queue_id, from, units_max, out))
    }

    /// See [`QueueStore::min`].
    pub fn min(&self, topic: &str, queue_id: i32) -> u64 {
        of_form!(self, form => form.min(topic, queue_id))
    }

    /// See [`QueueStore::max`].
    pub fn max(&self, topic: &str, queue_id: i32) -> u64 {
        of_form!(self, form => form.max(topic, queue_id))
    }

    /// See [`QueueStore::last`].
    pub fn last(&self, topic: &str, queue_id: i32) -> Option<Unit> {
        of_form!(self, form => form.last(topic, queue_id))
    }

    /// See [`QueueStore::next_part`].
    pub fn next_part(&self, topic: &str, queue_id: i32, offset: u64) -> Option<u64> {
        of_form!(self, form => form.next_part(topic, queue_id, offset))
    }

    /// See [`QueueStore::offset_by_time`].
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        upper: bool,
        store_time: &dyn Fn(u64, u32) -> Option<i64>,
    ) -> io::Result<u64> {
        of_form!(self, form => form.offset_by_time(topic, queue_id, timestamp, upper, store_time))
    }

    /// See [`QueueStore::list`].
    pub fn list(&self) -> Vec<(String, i32, u64, u64)> {
        of_form!(self, form => form.list())
    }

    pub(crate) fn span(&self, topic: &str, queue_id: i32) -> (u64, u64) {
        of_form!(self, form => form.span(topic, queue_id))
    }

    pub(crate) fn head(&self, topic: &str, queue_id: i32) -> io::Result<Option<(u64, u64)>> {
        of_form!(self, form => form.head(topic, queue_id))
    }

    /// See [`QueueStore::position`].
    pub fn position(&self) -> u64 {
        of_form!(self, form => form.position())
    }

    /// See [`QueueStore::repair_from`].
    pub fn repair_from(&self) -> Option<u64> {
        of_form!(self, form => form.repair_from())
    }

    /// See [`QueueStore::truncate`]. The next offset of a queue in files never falls below the first
    /// offset it ever had on disk.
    pub fn truncate(&self, phy: u64) -> io::Result<()> {
        of_form!(self, form => form.truncate(phy))
    }

    /// See [`QueueStore::correct_min`].
    pub fn correct_min(&self, min_phy: u64) -> io::Result<()> {
        of_form!(self, form => form.correct_min(min_phy))
    }

    /// See [`QueueStore::delete_expired`]: deletes files, never the last of a queue.
    pub fn delete_expired(&self, min_phy: u64) -> io::Result<usize> {
        of_form!(self, form => form.delete_expired(min_phy))
    }

    /// Deletes every queue of a topic; returns how many there were.
    pub fn delete_topic(&self, topic: &str) -> io::Result<usize> {
        self.delete_old(topic, u64::MAX)
    }

    /// See [`QueueStore::delete_old`].
    pub fn delete_old(&self, topic: &str, end: u64) -> io::Result<usize> {
        of_form!(self, form => form.delete_old(topic, end))
    }

    pub(crate) fn drop_queue(&self, topic: &str, queue_id: i32) -> io::Result<()> {
        of_form!(self, form => form.drop_queue(topic, queue_id))
    }

    /// See [`QueueStore::sync`].
    pub fn sync(&self) -> io::Result<()> {
        of_form!(self, form => form.sync())
    }

    /// See [`QueueStore::self_check`].
    pub fn self_check(&self) -> Vec<String> {
        of_form!(self, form => form.self_check())
    }
}
