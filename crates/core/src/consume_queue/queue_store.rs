//! What a form of consume queues can do: the seam between the store and how units are kept.
//!
//! Units are derived from the log, so a form may lose what was put since its last [`QueueStore::sync`]
//! and need not keep anything at all: at each start the store asks for [`QueueStore::position`] and
//! [`QueueStore::repair_from`], holds the queues against the note of their ends and against the log
//! (`queue_ends`), and dispatches again what is missing.
//!
//! Invariants that every form keeps, since readers and recovery rely on them: the offsets of a queue
//! have no gaps (an offset without a message reads as a filler); units are in the order of their
//! records in the log; and [`QueueStore::max`] of a queue falls only when it is cut or deleted.

use std::io;

use super::{time, Unit};

/// What became of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitPut {
    /// The queue grew.
    Added,
    /// The queue knows of this record or of a later one: it was dispatched before.
    Repeat,
    /// An older record has the queue offset.
    Conflict,
}

/// The consume queues of one store: one writer (the dispatcher), any number of readers.
///
/// A queue is named by topic and queue id. One that nobody has put a unit into is empty.
pub trait QueueStore: Send + Sync {
    /// Puts the unit of one message at a queue offset.
    ///
    /// On an error nothing has changed and the same call may be made again; `InvalidInput` (a name
    /// or number that no queue can have) and `InvalidData` (a jump too wide to fill) will never
    /// succeed.
    fn put(&self, topic: &str, queue_id: i32, offset: u64, unit: Unit) -> io::Result<UnitPut>;

    /// Whether [`QueueStore::put`] at this offset would only extend a queue in memory: no file is
    /// read, written, made or removed.
    fn takes_in_memory(&self, topic: &str, queue_id: i32, offset: u64) -> bool {
        let _ = (topic, queue_id, offset);
        false
    }

    /// Appends up to `units_max` units from queue offset `from` on to `out`; nothing for an offset
    /// outside of the queue, and less where units are missing.
    fn range(
        &self,
        topic: &str,
        queue_id: i32,
        from: u64,
        units_max: u64,
        out: &mut Vec<Unit>,
    ) -> io::Result<()>;

    /// First queue offset still there, not above [`Self::max`]; 0 for an unknown queue.
    fn min(&self, topic: &str, queue_id: i32) -> u64;

    /// Queue offset that the next unit gets; 0 for an unknown queue.
    fn max(&self, topic: &str, queue_id: i32) -> u64;

    /// The newest unit that stands for a message.
    fn last(&self, topic: &str, queue_id: i32) -> Option<Unit>;

    /// (topic, queue id, min, max) of every queue, sorted.
    fn list(&self) -> Vec<(String, i32, u64, u64)>;

    /// First queue offset stored at `timestamp` or later; with `upper` the last stored at it or
    /// earlier. `store_time` answers for (physical offset, size), `None` when the log has it no more.
    fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        upper: bool,
        store_time: &dyn Fn(u64, u32) -> Option<i64>,
    ) -> io::Result<u64> {
        time::offset_by_time(self, (topic, queue_id), timestamp, upper, store_time)
    }

    /// The first offset that the queue can hold on its disk, and the one behind its last unit.
    fn span(&self, topic: &str, queue_id: i32) -> (u64, u64) {
        (self.min(topic, queue_id), self.max(topic, queue_id))
    }

    /// The first offset that the queue holds on its disk, and where its record is; `None` when there
    /// is no message.
    fn head(&self, topic: &str, queue_id: i32) -> io::Result<Option<(u64, u64)>> {
        let (mut at, max) = self.span(topic, queue_id);
        let mut found = Vec::with_capacity(1);
        while at < max {
            found.clear();
            self.range(topic, queue_id, at, 1, &mut found)?;
            match found.first() {
                Some(unit) if !unit.is_filler() => return Ok(Some((at, unit.physical_offset))),
                _ => at += 1,
            }
        }
        Ok(None)
    }

    /// Where a reader goes on that found no unit at `offset`; `None` sends him to the end.
    fn next_part(&self, topic: &str, queue_id: i32, offset: u64) -> Option<u64> {
        let _ = (topic, queue_id, offset);
        None
    }

    /// Where the queues stand in the log: the end of the newest record that any of them knows of.
    fn position(&self) -> u64;

    /// Where the log must be dispatched again from because units were found to be missing when the
    /// queues were opened.
    fn repair_from(&self) -> Option<u64> {
        None
    }

    /// Cuts every unit whose record starts at `phy` or later.
    fn truncate(&self, phy: u64) -> io::Result<()>;

    /// Moves the min offset of every queue up to its first message at `min_phy` or later.
    fn correct_min(&self, min_phy: u64) -> io::Result<()>;

    /// Gives up space of messages that lie before `min_phy`, but never the next offset of a queue;
    /// returns how many parts went. Moves the min offsets as well.
    fn delete_expired(&self, min_phy: u64) -> io::Result<usize>;

    /// Deletes the queues of a topic that know of no record behind `end`; returns how many.
    fn delete_old(&self, topic: &str, end: u64) -> io::Result<usize>;

    /// Takes one queue away, to be made again from the log.
    fn drop_queue(&self, topic: &str, queue_id: i32) -> io::Result<()>;

    /// Makes every unit put before this call durable. After one failed sync it fails for ever: what
    /// is on disk is unknown then, and the checkpoint must not move any more.
    fn sync(&self) -> io::Result<()>;

    /// What is wrong with the queues on disk, for people.
    fn self_check(&self) -> Vec<String> {
        Vec::new()
    }
}
