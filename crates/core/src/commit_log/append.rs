//! Appending: the one place where offsets are assigned.

use super::role::Owner;
use super::{CommitLog, NextOffsets, Prepared};
use crate::codec::record::{self, BLANK_SIZE};
use crate::consume_queue::light_queues;
use crate::disk::segment::Segment;
use crate::store::error::StoreError;
use crate::store::health::hold;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// Every record leaves room for the filler that closes a file.
const BLANK: u64 = BLANK_SIZE as u64;
/// How far ahead of the records zeros are written, and up to which size of a write that is done.
const AHEAD: usize = 64 << 10;
const AHEAD_WRITE_MAX: usize = 16 << 10;
static ZEROS: [u8; AHEAD] = [0; AHEAD];

/// How a put ended; the numbers are Java's `PutMessageStatus` (spec: store §11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PutStatus {
    /// It is in the log.
    Ok = 0,
    /// The store does not take writes at the moment.
    ServiceNotAvailable = 4,
    /// The next file could not be made.
    CreateFileFailed = 5,
    /// The message is too long, or its topic is no name for a queue.
    MessageIllegal = 6,
    /// The properties are too long.
    PropertiesTooLong = 7,
    /// Something else went wrong.
    Unknown = 9,
    /// It names light queues that do not exist yet, and there are as many as there may be.
    LightQueuesFull = 12,
}

/// Where a message ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// First byte of the record in the log.
    pub physical_offset: u64,
    /// Place in its queue; 0 for prepared and rolled-back messages.
    pub queue_offset: i64,
    /// Bytes of the record.
    pub size: u64,
}

impl Placed {
    /// Where the next record begins.
    pub fn end(&self) -> u64 {
        self.physical_offset + self.size
    }
}

/// What became of an append: the first `placed.len()` records are in the log.
#[derive(Debug)]
pub struct Appended {
    /// `Ok` when all are, otherwise why the rest are not.
    pub status: PutStatus,
    /// Places of those that are, in order.
    pub placed: Vec<Placed>,
    /// Store time of all of them, Unix milliseconds.
    pub store_time: i64,
}

impl Appended {
    /// Nothing is in the log, and why.
    pub fn refused(status: PutStatus) -> Self {
        Self {
            status,
            placed: Vec::new(),
            store_time: 0,
        }
    }
}

/// What only the holder of the lock may touch.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) position: u64,
    pub(super) segment: Option<Arc<Segment>>,
    last_time: i64,
    offsets: NextOffsets,
    /// Zeros were written up to here.
    zeroed: u64,
    pub(super) owner: Owner,
    /// Whether bytes of another log were appended: `offsets` does not know their records.
    pub(super) is_copy: bool,
}

impl Writer {
    pub(super) fn new(
        position: u64,
        segment: Option<Arc<Segment>>,
        last_time: i64,
        offsets: NextOffsets,
    ) -> Self {
        Self {
            position,
            segment,
            last_time,
            offsets,
            zeroed: 0,
            owner: Owner::Anyone,
            is_copy: false,
        }
    }

    /// Goes on behind records that were copied.
    pub(super) fn go_on(&mut self, offsets: NextOffsets, last_time: i64) {
        self.offsets = offsets;
        self.last_time = self.last_time.max(last_time);
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.segment
            .as_ref()
            .is_some_and(|segment| self.position + bytes + BLANK <= segment.end())
    }
}

/// Records patched and waiting to be written together.
#[derive(Clone, Copy, Default)]
struct Run {
    first: usize,
    count: usize,
    from: usize,
    bytes: usize,
}

impl CommitLog {
    /// Appends all records, waiting for other writers.
    pub fn append(&self, prepared: &mut Prepared<'_>) -> Appended {
        self.append_held(hold(&self.writer), prepared)
    }

    /// Appends all records unless that means waiting, for another writer or for a file that is
    /// being made: `None` then.
    pub fn try_append(&self, prepared: &mut Prepared<'_>) -> Option<Appended> {
        let writer = self.try_writer()?;
        if !writer.has_room(prepared.bytes_max() as u64) && self.is_making() {
            return None;
        }
        Some(self.append_held(writer, prepared))
    }

    pub(super) fn try_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The queue offset that the next message of a queue gets.
    pub fn next_offset(&self, topic: &str, queue_id: i32) -> i64 {
        hold(&self.writer).offsets.get(topic, queue_id)
    }

    /// As [`Self::next_offset`], or `None` while somebody is writing.
    pub fn try_next_offset(&self, topic: &str, queue_id: i32) -> Option<i64> {
        Some(self.try_writer()?.offsets.get(topic, queue_id))
    }

    /// Lets a topic's queues start at 0 again; returns the end of the log at that moment.
    pub fn forget_topic(&self, topic: &str) -> u64 {
        let mut writer = hold(&self.writer);
        writer.offsets.forget(topic);
        self.count_lights(&writer);
        writer.position
    }

    /// Bounds the light queues that appends may make: see [`Prepared::as_accepted`].
    pub fn limit_lights(&self, most: usize) {
        self.lights_max.store(most, Ordering::Relaxed);
    }

    /// How many light queues have an offset to go on at.
    pub(crate) fn light_queues(&self) -> usize {
        self.lights.load(Ordering::Relaxed)
    }

    pub(super) fn count_lights(&self, writer: &Writer) {
        self.lights
            .store(writer.offsets.lights(), Ordering::Relaxed);
    }

    /// Forgets a topic if the log has nothing behind `dispatched`.
    pub(crate) fn forget_dispatched(&self, topic: &str, dispatched: u64) {
        let mut writer = hold(&self.writer);
        if writer.position <= dispatched {
            writer.offsets.forget(topic);
            self.count_lights(&writer);
        }
    }

    fn append_held(
        &self,
        mut writer: MutexGuard<'_, Writer>,
        prepared: &mut Prepared<'_>,
    ) -> Appended {
        let total = prepared.len() as u64;
        // A log that ends inside a copied record is a slave's.
        let is_ours = writer.takes_messages() && self.whole() == writer.position;
        if !self.health.takes_writes() || !is_ours {
            self.counters
                .failed_puts
                .fetch_add(total, Ordering::Relaxed);
            return Appended::refused(PutStatus::ServiceNotAvailable);
        }
        let begun = Instant::now();
        let now = (self.clock)();
        self.busy_since.store(now, Ordering::Release);
        let lights_max = self.lights_max.load(Ordering::Relaxed);
        let room = lights_max.saturating_sub(writer.offsets.lights());
        let is_cut = prepared.cut_at_lights(room, |name| writer.offsets.knows(name));
        prepared.settle_lights(|name| writer.offsets.get(name, light_queues::QUEUE_ID));
        writer.last_time = writer.last_time.max(now);
        let mut done = Appended {
            status: PutStatus::Ok,
            placed: Vec::with_capacity(prepared.len()),
            store_time: writer.last_time,
        };
        if let Err(status) = self.append_groups(&mut writer, prepared, &mut done) {
            done.status = status;
        } else if is_cut {
            done.status = PutStatus::LightQueuesFull;
        }
        if prepared.has_lights() {
            self.count_lights(&writer);
        }
        if self.settings.sync_flush && !done.placed.is_empty() {
            self.await_flush(writer.position, begun);
        }
        drop(writer);
        self.busy_since.store(0, Ordering::Release);
        let placed = done.placed.len() as u64;
        self.counters.puts.fetch_add(placed, Ordering::Relaxed);
        self.counters
            .failed_puts
            .fetch_add(total - placed, Ordering::Relaxed);
        if placed > 0 {
            // Durable records only are dispatched when each append is flushed, which the store sees to.
            if !self.settings.sync_flush {
                self.counters.put_time.add(begun.elapsed());
                self.has_grown();
            }
        }
        done
    }

    fn append_groups(
        &self,
        writer: &mut Writer,
        prepared: &mut Prepared<'_>,
        done: &mut Appended,
    ) -> Result<(), PutStatus> {
        let mut run = Run::default();
        let mut next = 0;
        while next < prepared.len() {
            let (count, bytes) = prepared.group(next);
            if bytes as u64 + BLANK > self.settings.file_size {
                self.write_run(writer, prepared, run, done)?;
                return Err(PutStatus::MessageIllegal);
            }
            if !writer.has_room((run.bytes + bytes) as u64) {
                self.write_run(writer, prepared, run, done)?;
                run = Run {
                    first: next,
                    count: 0,
                    from: run.from + run.bytes,
                    bytes: 0,
                };
                if !writer.has_room(bytes as u64) {
                    self.roll(writer)?;
                }
            }
            run.count += count;
            run.bytes += bytes;
            next += count;
        }
        self.write_run(writer, prepared, run, done)
    }

    /// Patches the records of a run and writes them with one write, or leaves no trace of them.
    fn write_run(
        &self,
        writer: &mut Writer,
        prepared: &mut Prepared<'_>,
        run: Run,
        done: &mut Appended,
    ) -> Result<(), PutStatus> {
        let Some(segment) = writer.segment.clone().filter(|_| run.count > 0) else {
            return Ok(());
        };
        let entries = prepared.entries.get(run.first..run.first + run.count);
        let entries = entries.unwrap_or_default();
        let bytes = prepared.bytes.get_mut(run.from..run.from + run.bytes);
        let bytes = bytes.unwrap_or_default();
        let before = done.placed.len();
        let mut at = 0;
        for entry in entries {
            let queue_offset = if entry.counted {
                writer.offsets.take(entry.topic, entry.queue_id)
            } else {
                0
            };
            let physical_offset = writer.position + at as u64;
            let place = bytes.get_mut(at..at + entry.size).unwrap_or_default();
            record::patch(
                place,
                queue_offset,
                physical_offset.cast_signed(),
                done.store_time,
            );
            done.placed.push(Placed {
                physical_offset,
                queue_offset,
                size: entry.size as u64,
            });
            at += entry.size;
        }
        if let Err(error) = segment.write(bytes, writer.position) {
            for entry in entries.iter().filter(|entry| entry.counted) {
                writer.offsets.give_back(entry.topic, entry.queue_id);
            }
            done.placed.truncate(before);
            let error = StoreError::io("write", segment.path(), &error);
            return Err(self.undo(writer, &segment, at as u64, &error));
        }
        // Nothing else gives offsets of light queues out, so that these are still the next ones.
        let settled = if prepared.has_lights() { run.count } else { 0 };
        for number in run.first..run.first + settled {
            for name in prepared.light_queues(number) {
                writer.offsets.take(name, light_queues::QUEUE_ID);
            }
        }
        if prepared.zeros {
            // Before anybody can flush it.
            self.unsure.fetch_max(writer.position + 1, Ordering::AcqRel);
        }
        writer.position += at as u64;
        self.counters
            .put_bytes
            .fetch_add(at as u64, Ordering::Relaxed);
        self.whole.store(writer.position, Ordering::Release);
        self.written.store(writer.position, Ordering::Release);
        let promised = self.settings.sync_flush && !self.settings.warm;
        if promised && at <= AHEAD_WRITE_MAX {
            Self::write_ahead(writer, &segment);
        }
        Ok(())
    }

    /// Writes zeros behind the end, for the small writes that come and are synced one by one.
    ///
    /// A block that was only promised to the file costs a commit of the file system's journal when
    /// it is synced for the first time, one that was written does not: so blocks change in one sync
    /// of many instead of each in its own. Recovery takes zeros for what they are, the end.
    fn write_ahead(writer: &mut Writer, segment: &Segment) {
        if writer.position < writer.zeroed {
            return;
        }
        let to = segment.end().min(writer.position + AHEAD as u64);
        let length = usize::try_from(to - writer.position).unwrap_or(0);
        // Trouble shows in the write of a record there, which says so.
        let _ = segment.write(ZEROS.get(..length).unwrap_or_default(), writer.position);
        writer.zeroed = to;
    }

    /// Closes the file with a filler and goes on in the next one.
    fn roll(&self, writer: &mut Writer) -> Result<(), PutStatus> {
        // First the new file: a full disk must leave the old one open for shorter messages.
        let next = self.take_next().map_err(|_| PutStatus::CreateFileFailed)?;
        let next_base = next.base();
        if let Some(segment) = writer
            .segment
            .clone()
            .filter(|_| writer.position < next_base)
        {
            let left = usize::try_from(next_base - writer.position).unwrap_or(usize::MAX);
            if let Err(error) = segment.write(&record::blank(left), writer.position) {
                self.put_back(next);
                let error = StoreError::io("write", segment.path(), &error);
                return Err(self.undo(writer, &segment, BLANK, &error));
            }
        }
        self.change_segments(|list| list.push(Arc::clone(&next)));
        writer.segment = Some(next);
        writer.position = next_base;
        self.whole.store(next_base, Ordering::Release);
        self.written.store(next_base, Ordering::Release);
        self.file_wanted.notify();
        Ok(())
    }

    /// Waits until no append is under way.
    pub(crate) fn settle(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
