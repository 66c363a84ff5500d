//! Second forms of the seams of the store, in memory.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)] // Each test uses some of it.

use roquet_core::commit_log::NextOffsets;
use roquet_core::consume_queue::{QueueStore, Unit, UnitPut};
use roquet_core::dispatch::{DispatchSink, Entry, Progress};
use roquet_core::store::error::{ErrorKind, StoreError};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// One queue: its first offset, the first that is still there, and its units.
#[derive(Clone, Default)]
struct Queue {
    min: u64,
    units: Vec<Unit>,
    last: Option<Unit>,
}

impl Queue {
    fn max(&self) -> u64 {
        self.units.len() as u64
    }

    fn cut(&mut self, phy: u64) {
        let is_kept = |unit: &Unit| !unit.is_filler() && unit.physical_offset < phy;
        let kept = self.units.iter().rposition(is_kept).map_or(0, |at| at + 1);
        self.units.truncate(kept);
        self.last = self.units.last().copied();
        self.min = self.min.min(self.max());
    }

    fn begin_at(&mut self, phy: u64) {
        let is_there = |unit: &Unit| !unit.is_filler() && unit.physical_offset >= phy;
        let first = self.units.iter().position(is_there);
        self.min = first.map_or(self.max(), |at| at as u64).max(self.min);
    }
}

/// Consume queues in memory; clones share them, as the files of two runs of a store do.
#[derive(Clone, Default)]
pub(crate) struct MemoryQueues(Arc<Mutex<BTreeMap<(String, i32), Queue>>>);

impl MemoryQueues {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, i32), Queue>> {
        self.0.lock().unwrap()
    }

    fn of<T>(&self, topic: &str, queue_id: i32, read: impl Fn(&Queue) -> T) -> Option<T> {
        self.all().get(&(topic.to_owned(), queue_id)).map(read)
    }
}

impl QueueStore for MemoryQueues {
    fn put(&self, topic: &str, queue_id: i32, offset: u64, unit: Unit) -> io::Result<UnitPut> {
        if topic.is_empty() || queue_id < 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut all = self.all();
        let queue = all.entry((topic.to_owned(), queue_id)).or_default();
        if queue.last.is_some_and(|last| unit.end() <= last.end()) {
            return Ok(UnitPut::Repeat);
        }
        if offset < queue.max() {
            return Ok(UnitPut::Conflict);
        }
        queue
            .units
            .resize(usize::try_from(offset).unwrap(), Unit::FILLER);
        queue.units.push(unit);
        queue.last = Some(unit);
        Ok(UnitPut::Added)
    }

    fn range(
        &self,
        topic: &str,
        queue_id: i32,
        from: u64,
        units_max: u64,
        out: &mut Vec<Unit>,
    ) -> io::Result<()> {
        let found = self.of(topic, queue_id, |queue| {
            let to = from.saturating_add(units_max).min(queue.max());
            let range = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
            let is_there = from >= queue.min && from < to;
            is_there.then(|| queue.units[range].to_vec())
        });
        out.extend(found.flatten().unwrap_or_default());
        Ok(())
    }

    fn min(&self, topic: &str, queue_id: i32) -> u64 {
        self.of(topic, queue_id, |queue| queue.min).unwrap_or(0)
    }

    fn max(&self, topic: &str, queue_id: i32) -> u64 {
        self.of(topic, queue_id, Queue::max).unwrap_or(0)
    }

    fn last(&self, topic: &str, queue_id: i32) -> Option<Unit> {
        self.of(topic, queue_id, |queue| queue.last).flatten()
    }

    fn list(&self) -> Vec<(String, i32, u64, u64)> {
        let all = self.all();
        let rows = all.iter();
        rows.map(|((topic, id), queue)| (topic.clone(), *id, queue.min, queue.max()))
            .collect()
    }

    fn position(&self) -> u64 {
        let ends = |queue: &Queue| queue.last.map_or(0, |unit| unit.end());
        self.all().values().map(ends).max().unwrap_or(0)
    }

    fn truncate(&self, phy: u64) -> io::Result<()> {
        self.all().values_mut().for_each(|queue| queue.cut(phy));
        Ok(())
    }

    fn correct_min(&self, min_phy: u64) -> io::Result<()> {
        let mut all = self.all();
        all.values_mut().for_each(|queue| queue.begin_at(min_phy));
        Ok(())
    }

    fn delete_expired(&self, min_phy: u64) -> io::Result<usize> {
        self.correct_min(min_phy).map(|()| 0)
    }

    fn delete_old(&self, topic: &str, end: u64) -> io::Result<usize> {
        let mut all = self.all();
        let before = all.len();
        all.retain(|(name, _), queue| {
            name != topic || queue.last.is_some_and(|last| last.end() > end)
        });
        Ok(before - all.len())
    }

    fn drop_queue(&self, topic: &str, queue_id: i32) -> io::Result<()> {
        self.all().remove(&(topic.to_owned(), queue_id));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What a sink of a test remembers.
#[derive(Default)]
pub(crate) struct Taken {
    /// Where each record was, and its topic.
    pub(crate) records: Vec<(u64, String)>,
    /// Where the log ended or began when it was told to cut or to clean.
    pub(crate) cut_at: Vec<u64>,
    pub(crate) cleaned_at: Vec<u64>,
    /// Whether what is taken now is not durable.
    pub(crate) lags: bool,
    durable: Progress,
    /// Records at this offset or behind are refused.
    pub(crate) refuses_from: Option<u64>,
    /// Where it goes on at a start.
    pub(crate) position: Option<u64>,
}

/// A sink in memory; clones share what they took, as files of two runs do.
#[derive(Clone, Default)]
pub(crate) struct MemorySink(Arc<Mutex<Taken>>);

impl MemorySink {
    pub(crate) fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap()
    }

    pub(crate) fn records(&self) -> Vec<(u64, String)> {
        self.taken().records.clone()
    }
}

impl DispatchSink for MemorySink {
    fn take(&self, entry: &Entry<'_>, _fresh: &mut NextOffsets) -> Result<(), StoreError> {
        let at = entry.record.physical_offset.cast_unsigned();
        let mut taken = self.taken();
        if taken.refuses_from.is_some_and(|from| at >= from) {
            return Err(StoreError::new(ErrorKind::DiskFull, "no room in the sink"));
        }
        taken.records.push((at, entry.topic.to_owned()));
        Ok(())
    }

    fn sync(&self, reached: Progress) -> Result<Progress, StoreError> {
        let mut taken = self.taken();
        if !taken.lags {
            taken.durable = reached;
        }
        Ok(taken.durable)
    }

    fn position(&self) -> Option<u64> {
        self.taken().position
    }

    fn truncate(&self, end: u64) -> Result<(), StoreError> {
        let mut taken = self.taken();
        taken.cut_at.push(end);
        taken.records.retain(|(at, _)| *at < end);
        Ok(())
    }

    fn clean(&self, min: u64) -> Result<(), StoreError> {
        self.taken().cleaned_at.push(min);
        Ok(())
    }
}
