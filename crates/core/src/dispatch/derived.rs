//! What is derived from the log: the queues and the index, and what a record gives them
//! (spec: store §5.1, §6).

use crate::codec::properties;
use crate::codec::record::{RecordView, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION};
use crate::consume_queue::light_queues;
use crate::consume_queue::ConsumeQueues;
use crate::index::Index;
use crate::java_hash;
use crate::recovery::deleted::Deleted;
use crate::store::error::StoreError;
use crate::store::health::hold;
use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;

/// The topic whose queue units hold delivery times.
const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Delay of a level that has none, in milliseconds (spec: store §15).
const UNKNOWN_DELAY: i64 = 1000;
/// Topics that began anew, of which nobody has asked yet; more are not remembered.
const RENEWED_MAX: usize = 100_000;
/// The queues and the index of a store, as whoever reads records feeds them.
pub struct Derived {
    /// The consume queues.
    pub queues: ConsumeQueues,
    /// The key index, when it is kept.
    pub index: Option<Index>,
    /// Milliseconds of each delay level.
    pub delays: Vec<i64>,
    /// The topics whose records have no queue any more.
    pub deleted: Deleted,
    /// Whether records get units in the light queues that they name.
    pub light_queues: bool,
    /// Topics and light queues that were seen to begin anew, until somebody asks.
    pub renewed: Mutex<BTreeSet<String>>,
}

impl Derived {
    /// Whether a record has a place in a queue: prepared and rolled-back ones do not.
    pub fn is_queued(record: &RecordView<'_>) -> bool {
        let transaction = record.sys_flag & SYS_TRANSACTION;
        transaction != SYS_PREPARED && transaction != SYS_ROLLBACK
    }

    /// Adds a record's unit to its queue; false when no queue can have it, or it is there already,
    /// or its topic was deleted since.
    pub fn put_unit(
        &self,
        topic: &str,
        record: &RecordView<'_>,
        found: &Found<'_>,
    ) -> Result<bool, StoreError> {
        let Ok(queue_offset) = u64::try_from(record.queue_offset) else {
            return Ok(false);
        };
        let code = tags_code(topic, record, found, &self.delays);
        self.put_at((topic, record.queue_id, queue_offset), record, code)
    }

    /// Adds the unit of a record to one of its light queues; false as [`Self::put_unit`].
    pub fn put_light(
        &self,
        topic: &str,
        record: &RecordView<'_>,
        found: &Found<'_>,
        (name, offset): (&str, u64),
    ) -> Result<bool, StoreError> {
        let code = tags_code(topic, record, found, &self.delays);
        self.put_at((name, light_queues::QUEUE_ID, offset), record, code)
    }

    /// The light queues of a record, with its offset in each; none unless they are kept here, and
    /// none that was deleted since.
    pub(crate) fn places<'a>(&self, topic: &str, record: &RecordView<'a>) -> Vec<(&'a str, u64)> {
        if !self.light_queues || !Self::is_queued(record) {
            return Vec::new();
        }
        let at = record.physical_offset.cast_unsigned();
        let mut places = light_queues::places(topic, record.properties);
        places.retain(|(name, _)| !self.deleted.covers(name, at));
        places
    }

    fn put_at(
        &self,
        (topic, queue_id, offset): (&str, i32, u64),
        record: &RecordView<'_>,
        code: i64,
    ) -> Result<bool, StoreError> {
        let Ok(at) = u64::try_from(record.physical_offset) else {
            return Ok(false);
        };
        if self.deleted.covers(topic, at) {
            return Ok(false);
        }
        let size = record.total_size;
        let put = self.queues.put(topic, queue_id, offset, at, size, code);
        if let Some(error) = put.as_ref().err().filter(|error| is_final(error)) {
            let why = error.to_string();
            self.queues.refuse(topic, queue_id, offset, at, &why);
        }
        tolerate(put, false)
    }

    /// Adds a record's keys to the index.
    pub fn put_keys(
        &self,
        topic: &str,
        record: &RecordView<'_>,
        found: &Found<'_>,
    ) -> Result<(), StoreError> {
        let Some(index) = &self.index else {
            return Ok(());
        };
        if !is_indexed(record) {
            return Ok(());
        }
        let tag = found.tag();
        let list = found.list(tag.as_deref());
        if list.is_empty() {
            return Ok(());
        }
        let at = record.physical_offset.cast_unsigned();
        tolerate(index.put(topic, &list, at, record.store_timestamp), ())
    }

    /// Drops the units of a topic that was deleted and made anew, when a record at `at` has the
    /// offset 0 in one of its queues: they began once more.
    pub(crate) fn forget_deleted(
        &self,
        (topic, queue_id, offset): (&str, i32, i64),
        at: u64,
    ) -> Result<(), StoreError> {
        let last = || self.queues.last(topic, queue_id);
        if offset == 0
            && self.queues.max(topic, queue_id) > 0
            && last().is_some_and(|unit| unit.end() <= at)
        {
            self.queues.delete_topic(topic)?;
            let mut renewed = hold(&self.renewed);
            if renewed.len() < RENEWED_MAX {
                renewed.insert(topic.to_owned());
            }
        }
        Ok(())
    }
}

/// Whether the keys of a record are indexed: those of rolled-back ones are not.
pub(crate) fn is_indexed(record: &RecordView<'_>) -> bool {
    record.sys_flag & SYS_TRANSACTION != SYS_ROLLBACK && !record.properties.is_empty()
}

/// What a queue unit says beside place and size; `delays` are the milliseconds of each level.
pub(crate) fn tags_code(
    topic: &str,
    record: &RecordView<'_>,
    found: &Found<'_>,
    delays: &[i64],
) -> i64 {
    if topic == SCHEDULE_TOPIC {
        if let Some(delay) = delay(record.properties, delays) {
            return record.store_timestamp.saturating_add(delay);
        }
    }
    java_hash::tags_code(found.tags)
}

fn delay(text: &[u8], delays: &[i64]) -> Option<i64> {
    let level = usize::try_from(properties::delay_level(text)?).ok()?;
    let place = level.min(delays.len()).checked_sub(1);
    match place {
        Some(place) => delays.get(place).copied(),
        None => (level > 0).then_some(UNKNOWN_DELAY),
    }
}

/// The properties that queues and index look at, found in one pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    unique: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
    tags: Option<&'a [u8]>,
}

impl<'a> Found<'a> {
    /// Looks through the properties of a record.
    pub fn of(record: &RecordView<'a>) -> Self {
        let mut found = Self::default();
        for (name, value) in properties::entries(record.properties) {
            match name {
                properties::UNIQ_KEY => found.unique = Some(value),
                properties::KEYS => found.keys = Some(value),
                properties::TAGS => found.tags = Some(value),
                _ => {}
            }
        }
        found
    }

    /// The key that stands for the tags.
    pub(crate) fn tag(&self) -> Option<Vec<u8>> {
        self.tags.map(|tags| [b"T#", tags].concat())
    }

    /// Everything to be indexed, in Java's order; `tag` is what [`Self::tag`] made.
    pub(crate) fn list<'b>(&self, tag: Option<&'b [u8]>) -> Vec<&'b [u8]>
    where
        'a: 'b,
    {
        let mut list: Vec<&[u8]> = Vec::with_capacity(4);
        list.extend(self.unique);
        let tokens = self.keys.unwrap_or_default().split(|byte| *byte == b' ');
        list.extend(tokens.filter(|token| !token.is_empty()));
        list.extend(tag);
        list
    }
}

/// Whether the same call will never succeed.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData
    )
}

/// Lets a record pass that no queue can ever take; other errors may be gone at the next try.
fn tolerate<T>(put: io::Result<T>, otherwise: T) -> Result<T, StoreError> {
    match put {
        Ok(done) => Ok(done),
        Err(error) if is_final(&error) => Ok(otherwise),
        Err(error) => Err(StoreError::from(error)),
    }
}
