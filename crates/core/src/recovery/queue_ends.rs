//! Where each queue began and ended at some moment, and how far the log had been dispatched then.
//!
//! A start looks only at the end of the log. A queue file that was damaged or lost would be met by
//! nobody, and its messages could be read no more, or their offsets be given out again: the note
//! tells. It is written with each checkpoint and at an orderly stop, of units that are durable, so
//! that whatever it says stays true until messages expire or their topic is deleted.
//!
//! Invariants of a start: a queue that lacks units which the note or the log has is made again from
//! the log, at both ends; and the next offset of a queue is never below the note's end, the queue's
//! end, or the last offset that the log has for it.

use crate::codec::record::RecordView;
use crate::commit_log::NextOffsets;
use crate::consume_queue::light_queues::{self, is_light};
use crate::consume_queue::{check_topic, ConsumeQueues, Unit};
use crate::disk::note_file::{self, Found, Rows};
use crate::disk::Disk;
use crate::recovery::checkpoint::Checkpoint;
use crate::recovery::deleted::Deleted;
use crate::store::error::StoreError;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const MAGIC: u64 = 0x526F_7175_6574_0004;
/// An offset this far behind the others is a damaged number.
const JUMP_MAX: u64 = 16 * 300_000;

fn path(root: &Path) -> PathBuf {
    root.join("queueEnds")
}

/// Topic, queue id, and offset.
pub(crate) type Place<'a> = (&'a str, i32, u64);
/// Whether a unit names the record of a place.
pub(crate) type IsOwn<'a> = &'a dyn Fn(Place<'_>, &Unit) -> bool;

/// What a note says.
pub(crate) struct Ends {
    rows: Rows<3>,
    /// Whether nobody has written since but those who keep the note.
    is_current: bool,
}

impl Ends {
    /// The ends of all queues now; the log has been dispatched up to `position` at least.
    pub(crate) fn of(queues: &ConsumeQueues, position: u64) -> Self {
        let rows = queues.list().into_iter();
        let mut ends: Rows<3> = vec![(String::new(), [position, 0, 0])];
        ends.extend(
            rows.map(|(topic, id, min, max)| (topic, [u64::from(id.unsigned_abs()), min, max])),
        );
        Self {
            rows: ends,
            is_current: true,
        }
    }

    /// Writes the note; all units that it tells of must be durable.
    pub(crate) fn write(&self, disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
        note_file::write(disk, &path(root), MAGIC, &self.rows)
    }

    /// The note of an earlier run, without a row when there is none that can be read. Without a
    /// checkpoint of ours it is not current: Java's broker may have written since.
    pub(crate) fn read(
        disk: &dyn Disk,
        root: &Path,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Self, StoreError> {
        let rows = match note_file::read::<3>(disk, &path(root), MAGIC)? {
            Found::Rows(rows) => rows,
            Found::Absent | Found::Damaged => Vec::new(),
        };
        let is_current = checkpoint.is_some_and(|checkpoint| checkpoint.known.is_some());
        Ok(Self { rows, is_current })
    }

    /// The queues that have had messages, without those of deleted topics: topic, queue id, and the
    /// offset behind the last message.
    pub(crate) fn noted(&self, deleted: &Deleted) -> Vec<(&str, i32, i64)> {
        let Some(((_, [position, _, _]), rows)) = self.rows.split_first() else {
            return Vec::new();
        };
        let last = position.saturating_sub(1);
        let there = rows.iter().filter(|it| !deleted.covers(&it.0, last));
        let known = there.filter_map(|(topic, [id, _, max])| {
            let (id, max) = (i32::try_from(*id).ok()?, i64::try_from(*max).ok()?);
            (max > 0).then_some((topic.as_str(), id, max))
        });
        known.collect()
    }
}

/// What a start has learnt of the queues.
#[derive(Default)]
pub(crate) struct Audit {
    /// No queue goes on below these offsets.
    pub(crate) floors: NextOffsets,
    /// From which offset on the log must be dispatched again.
    pub(crate) repair_from: Option<u64>,
    /// What is wrong with which queue, for people.
    pub(crate) notes: Vec<String>,
}

impl Audit {
    /// Holds the queues against the note. The log begins at `log_min`. A queue that lacks its
    /// beginning is dropped, to be made again whole; so is one that ends elsewhere than it did and has
    /// units of others, as after files were exchanged (`is_own` reads the record of a unit). After
    /// a kill any queue may have grown since the note.
    pub(crate) fn of(
        ends: &Ends,
        queues: &ConsumeQueues,
        (deleted, is_clean): (&Deleted, bool),
        (log_min, is_own): (u64, IsOwn<'_>),
    ) -> Result<Self, StoreError> {
        let mut audit = Self::default();
        let Some(((_, [position, _, _]), rows)) = ends.rows.split_first() else {
            return Ok(audit);
        };
        if !ends.is_current || *position < log_min {
            return Ok(audit);
        }
        for (topic, [id, min, max]) in rows {
            let Ok(id) = i32::try_from(*id) else {
                continue;
            };
            if deleted.covers(topic, position.saturating_sub(1)) {
                continue;
            }
            audit.raise(topic, id, *max);
            if min == max {
                continue;
            }
            let (first, end) = queues.span(topic, id);
            let last = queues.last(topic, id);
            let differs = end < *max || (is_clean && end > *max);
            let is_foreign = |unit: &Unit| {
                unit.physical_offset >= log_min && !is_own((topic, id, end - 1), unit)
            };
            if differs && last.as_ref().is_some_and(is_foreign) {
                queues.drop_queue(topic, id)?;
                audit.lost(
                    &format!("queue {id} of topic {topic} had {min} to {max}, found was another"),
                    0,
                );
            } else if end < *max {
                audit.lost(
                    &format!(
                        "queue {id} of topic {topic} had {min} to {max}, found was up to {end}"
                    ),
                    last.map_or(0, |unit| unit.end()),
                );
            } else if first > *min && Self::begins_late(queues, topic, id, log_min)? {
                queues.drop_queue(topic, id)?;
                audit.lost(
                    &format!(
                        "queue {id} of topic {topic} had {min} to {max}, found was from {first} on"
                    ),
                    0,
                );
            }
        }
        Ok(audit)
    }

    /// Whether all of a queue's files are of messages that the log still has: no older file went
    /// for its age then, but for one that ended exactly where the log began at that moment.
    fn begins_late(
        queues: &ConsumeQueues,
        topic: &str,
        id: i32,
        log_min: u64,
    ) -> Result<bool, StoreError> {
        let head = queues.head(topic, id)?;
        Ok(head.is_none_or(|(_, at)| at > log_min))
    }

    fn lost(&mut self, what: &str, repair_from: u64) {
        self.notes
            .push(format!("{what}: it is made again from the log"));
        self.repair_from = Some(
            self.repair_from
                .map_or(repair_from, |at| at.min(repair_from)),
        );
    }

    /// Sees to it that a queue does not go on below `next`.
    fn raise(&mut self, topic: &str, id: i32, next: u64) {
        let next = self.floors.get(topic, id).max(next.cast_signed());
        self.floors.set(topic, id, next);
    }

    /// Holds the queues against the records that were read, from `from` on, and drops those that do
    /// not fit, to be made again whole; returns how many. What queues there are is held against
    /// the log only where our broker wrote last: Java's does not say which topics were deleted.
    /// Light queues are passed over unless they are made from the log (`light`).
    pub(crate) fn compare(
        &mut self,
        seen: &Seen,
        queues: &ConsumeQueues,
        (from, ours, light): (u64, bool, bool),
    ) -> Result<usize, StoreError> {
        let mut dropped = 0;
        let mut known = 0;
        for (topic, id, min, max) in queues.list() {
            if !light && is_light(&topic) {
                continue;
            }
            let last = queues.last(&topic, id).map(|unit| unit.physical_offset);
            let told = seen.0.get(topic.as_bytes()).and_then(|it| it.get(&id));
            known += usize::from(told.is_some());
            let fits = match told {
                Some(told) if told.next.saturating_sub(max) > JUMP_MAX => true,
                Some(told) => max >= told.next && last.is_some_and(|at| at >= told.at),
                None => last.is_none_or(|at| at < from),
            };
            if !fits {
                self.raise(&topic, id, max);
                queues.drop_queue(&topic, id)?;
                dropped += 1;
                self.lost(
                    &format!(
                    "queue {id} of topic {topic}, from {min} to {max}, is not what the log says"
                ),
                    0,
                );
            }
        }
        let there = seen.0.values().map(BTreeMap::len).sum::<usize>();
        if ours && known < there && dropped == 0 {
            dropped = there - known;
            self.lost(
                &format!("{dropped} queues that the log has were not there"),
                0,
            );
        }
        Ok(dropped)
    }

    /// Takes the offsets that the log has given out as well.
    pub(crate) fn take_floors(&mut self, seen: &Seen, queues: &ConsumeQueues) {
        for (topic, ids) in &seen.0 {
            let topic = String::from_utf8_lossy(topic);
            for (id, told) in ids {
                if told.next.saturating_sub(queues.max(&topic, *id)) <= JUMP_MAX {
                    self.raise(&topic, *id, told.next);
                }
            }
        }
    }
}

/// The last record of each queue among those that were read.
#[derive(Default)]
pub(crate) struct Seen(HashMap<Vec<u8>, BTreeMap<i32, Last>>);

/// A queue's end as the log has it.
struct Last {
    /// Queue offset behind the highest.
    next: u64,
    /// Where the record with the highest is.
    at: u64,
}

impl Seen {
    /// Takes the next record that has a place in a queue; it is at `at`.
    pub(crate) fn add(&mut self, record: &RecordView<'_>, at: u64) {
        let (Ok(offset), true) = (u64::try_from(record.queue_offset), record.queue_id >= 0) else {
            return;
        };
        self.add_place(record.topic, record.queue_id, offset, at);
    }

    /// Takes the place in a light queue of the record at `at`.
    pub(crate) fn add_light(&mut self, name: &str, offset: u64, at: u64) {
        self.add_place(name.as_bytes(), light_queues::QUEUE_ID, offset, at);
    }

    fn add_place(&mut self, topic: &[u8], queue_id: i32, offset: u64, at: u64) {
        let next = offset.saturating_add(1);
        let Some(queues) = self.0.get_mut(topic) else {
            let first = BTreeMap::from([(queue_id, Last { next, at })]);
            if std::str::from_utf8(topic).is_ok_and(|it| check_topic(it).is_err()) {
                return;
            }
            self.0.insert(topic.to_vec(), first);
            return;
        };
        match queues.get_mut(&queue_id) {
            // The topic was deleted and made anew.
            Some(_) if offset == 0 => {
                queues.clear();
                queues.insert(queue_id, Last { next, at });
            }
            Some(last) if next > last.next && next - last.next <= JUMP_MAX => {
                *last = Last { next, at };
            }
            Some(_) => {}
            None => {
                queues.insert(queue_id, Last { next, at });
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_ends_tests.rs"]
mod tests;
