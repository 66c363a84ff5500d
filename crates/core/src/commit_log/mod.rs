//! The commit log: every message of the store, one after another, in files of equal length
//! (spec: store §2, §3.7, §11).
//!
//! One writer at a time appends with one write a call and moves `written`; a flush moves `flushed`.
//! Readers never lock: they read below `written` through maps that live as long as somebody holds
//! them. The next file is made in the background, so that an append does not wait for it.

mod append;
mod flush;
mod next_file;
mod offsets;
mod prepared;
mod replica;
mod role;
pub mod scan;

pub use append::{Appended, Placed, PutStatus};
pub use offsets::NextOffsets;
pub use prepared::{Entry, Mark, Prepared};

use crate::codec::record::RecordHead;
use crate::disk::segment::{base_of, make_folder, Lease, Segment};
use crate::disk::Disk;
use crate::latency::Latency;
use crate::notifier::Followers;
use crate::recovery::checkpoint::Notes;
use crate::store::error::StoreError;
use crate::store::health::{hold, Damage, Health, Wake};
use append::Writer;
use next_file::NextFile;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

/// Gives the time in Unix milliseconds.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Where the files are and how long they are.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Folders that take turns in getting new files.
    pub folders: Vec<PathBuf>,
    /// Folders that are only read.
    pub read_only: Vec<PathBuf>,
    /// Bytes of a file.
    pub file_size: u64,
    /// Whether each append asks for a flush.
    pub sync_flush: bool,
    /// Whether new files are written full of zeros.
    pub warm: bool,
}

/// Counters that only grow.
#[derive(Debug, Default)]
pub struct LogCounters {
    /// Syncs done.
    pub flushes: AtomicU64,
    /// Microseconds spent in them.
    pub flush_us: AtomicU64,
    /// Messages appended.
    pub puts: AtomicU64,
    /// Bytes of them.
    pub put_bytes: AtomicU64,
    /// Messages refused or failed.
    pub failed_puts: AtomicU64,
    /// How long appends took, with the flush when each waits for one.
    pub put_time: Latency,
    /// How long reads from queues took.
    pub get_time: Latency,
    /// Pieces of a master's log that were refused: no log, or a damaged record.
    pub refused_copies: AtomicU64,
}

/// The log.
pub struct CommitLog {
    disk: Arc<dyn Disk>,
    settings: LogConfig,
    clock: Clock,
    health: Arc<Health>,
    segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    writer: Mutex<Writer>,
    written: AtomicU64,
    whole: AtomicU64,
    flushed: AtomicU64,
    /// `whole` as it was at the last flush.
    flushed_whole: AtomicU64,
    flushing: Mutex<()>,
    /// Where durability is noted before such records count as flushed that could look torn.
    notes: OnceLock<Arc<Notes>>,
    /// Behind the first byte of the last such record that was appended here.
    unsure: AtomicU64,
    /// Whether records were copied since the last flush: nobody has looked at them yet.
    copied: AtomicBool,
    /// Where appends end that wait for their flush, and when they began.
    unflushed: Mutex<VecDeque<(u64, Instant)>>,
    next: NextFile,
    busy_since: AtomicI64,
    /// How many light queues the writer knows.
    lights: AtomicUsize,
    /// How many an append may make it.
    lights_max: AtomicUsize,
    /// Rung after each append and each flush, for whoever follows the log.
    pub grown: Wake,
    /// Those who copy the log elsewhere; they hear of the same.
    pub followers: Followers,
    /// Rung when somebody wants a flush.
    pub flush_wanted: Wake,
    /// Rung when the next file should be made.
    pub file_wanted: Wake,
    /// What happened so far.
    pub counters: LogCounters,
    /// Messages that reads met and passed over.
    pub damage: Damage,
}

impl CommitLog {
    /// Opens the files that are there. Nothing can be read or written before [`Self::resume`].
    pub fn open(
        disk: Arc<dyn Disk>,
        settings: LogConfig,
        clock: Clock,
        health: Arc<Health>,
    ) -> Result<Self, StoreError> {
        for folder in &settings.folders {
            make_folder(disk.as_ref(), folder)?;
        }
        let segments = load(disk.as_ref(), &settings)?;
        Ok(Self {
            disk,
            settings,
            clock,
            health,
            segments: RwLock::new(Arc::new(segments)),
            writer: Mutex::new(Writer::default()),
            written: AtomicU64::new(0),
            whole: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            flushed_whole: AtomicU64::new(0),
            flushing: Mutex::new(()),
            notes: OnceLock::new(),
            unsure: AtomicU64::new(0),
            copied: AtomicBool::new(false),
            unflushed: Mutex::default(),
            next: NextFile::default(),
            busy_since: AtomicI64::new(0),
            lights: AtomicUsize::new(0),
            lights_max: AtomicUsize::new(usize::MAX),
            grown: Wake::default(),
            followers: Followers::default(),
            flush_wanted: Wake::default(),
            file_wanted: Wake::default(),
            counters: LogCounters::default(),
            damage: Damage::default(),
        })
    }

    /// Has flushes note in `notes` what recovery could not tell from the log alone.
    pub(crate) fn note_in(&self, notes: Arc<Notes>) {
        // A log has one store.
        let _ = self.notes.set(notes);
    }

    /// Goes on at `end`, up to which everything is durable; queues continue at `offsets`.
    pub fn resume(&self, end: u64, last_time: i64, offsets: NextOffsets) {
        let mut writer = hold(&self.writer);
        *writer = Writer::new(end, self.segment_at(end), last_time, offsets);
        self.count_lights(&writer);
        let last = self.segments().last().map(|last| last.end());
        self.next_begins(last.unwrap_or(end));
        self.flushed_whole.store(end, Ordering::Release);
        self.flushed.store(end, Ordering::Release);
        self.whole.store(end, Ordering::Release);
        self.written.store(end, Ordering::Release);
    }

    /// The files, oldest first; a file taken away later stays readable while this is held.
    pub fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        Arc::clone(&self.segments.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The file that has the byte at an offset.
    pub(crate) fn segment_at(&self, at: u64) -> Option<Arc<Segment>> {
        let segments = self.segments();
        let after = segments.partition_point(|segment| segment.base() <= at);
        let found = segments.get(after.checked_sub(1)?)?;
        (at < found.end()).then(|| Arc::clone(found))
    }

    /// Offset of the first byte that is still there.
    pub fn min(&self) -> u64 {
        let first = self.segments().first().map(|segment| segment.base());
        first.unwrap_or_else(|| self.written())
    }

    /// Offset behind the last byte appended.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Offset up to which everything is durable.
    pub fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Offset behind the last record that is complete and durable: a copied log may have been
    /// flushed inside a record.
    pub fn flushed_whole(&self) -> u64 {
        let whole = self.whole();
        if self.flushed() >= whole {
            return whole;
        }
        self.flushed_whole.load(Ordering::Acquire)
    }

    /// Leases `size` bytes at `from`; `None` when they are not (or no longer) there, or the disk
    /// cannot give them.
    pub fn lease(&self, from: u64, size: u64) -> Option<Lease> {
        let to = from.checked_add(size).filter(|to| *to <= self.written())?;
        Lease::new(self.segment_at(from)?, from, to).filter(|lease| lease.check().is_ok())
    }

    /// Leases what follows `from` in its file, up to `limit`.
    pub fn rest(&self, from: u64, limit: u64) -> Option<Lease> {
        let segment = self.segment_at(from)?;
        let to = segment.end().min(limit);
        Lease::new(segment, from, to)
    }

    /// The front of the record at an offset; `None` when none starts there.
    pub fn head(&self, at: u64) -> Option<RecordHead> {
        let limit = self
            .written()
            .min(at.saturating_add(RecordHead::SIZE as u64));
        let front = self.rest(at, limit)?;
        RecordHead::read(&front).filter(|head| head.physical_offset.cast_unsigned() == at)
    }

    /// Leases the whole record at an offset; `None` when none starts there.
    pub fn record(&self, at: u64) -> Option<Lease> {
        let size = u64::from(self.head(at)?.total_size);
        self.lease(at, size)
    }

    /// Where the file behind the one that holds `at` starts.
    pub fn next_file_start(&self, at: u64) -> u64 {
        let segment = self.segment_at(at).map(|segment| segment.end());
        segment.unwrap_or_else(|| {
            let size = self.settings.file_size;
            (at / size).saturating_add(1).saturating_mul(size)
        })
    }

    /// Bytes of a file.
    pub fn file_size(&self) -> u64 {
        self.settings.file_size
    }

    /// How many milliseconds the append now under way has taken; 0 when there is none.
    pub fn busy_ms(&self) -> i64 {
        match self.busy_since.load(Ordering::Acquire) {
            0 => 0,
            since => ((self.clock)() - since).max(1),
        }
    }

    /// Takes the oldest files away that end at or before `limit` and for which `gone` holds, at
    /// most `most`, never the last; returns how many.
    ///
    /// Whoever reads them goes on reading: the space comes back when the last lease ends.
    pub fn drop_oldest(
        &self,
        most: usize,
        mut gone: impl FnMut(&Segment) -> bool,
    ) -> Result<usize, StoreError> {
        let mut dropped = 0;
        while dropped < most {
            let segments = self.segments();
            let [first, _, ..] = segments.as_slice() else {
                break;
            };
            if first.end() > self.flushed() || !gone(first) {
                break;
            }
            self.remove(first)?;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Removes a file and makes that durable; used for the first and the last one only.
    fn remove(&self, segment: &Arc<Segment>) -> Result<(), StoreError> {
        self.change_segments(|list| list.retain(|other| !Arc::ptr_eq(other, segment)));
        remove_file(self.disk.as_ref(), segment.path())
    }

    /// Removes the files that begin at or behind `end`; recovery only.
    pub(crate) fn drop_from(&self, end: u64) -> Result<(), StoreError> {
        for segment in self.segments().iter().rev() {
            if segment.base() >= end {
                self.remove(segment)?;
            }
        }
        Ok(())
    }

    /// Files that are missing or have another length, and holes between two.
    pub fn self_check(&self) -> Vec<String> {
        let segments = self.segments();
        let mut found = Vec::new();
        for pair in segments.windows(2) {
            if let [left, right] = pair {
                if left.end() != right.base() {
                    found.push(format!("no file holds offset {} of the log", left.end()));
                }
            }
        }
        for segment in segments.iter() {
            let folder = segment.path().parent().unwrap_or_else(|| segment.path());
            let listed = self.disk.list(folder).unwrap_or_default();
            let len = listed.iter().find(|(path, ..)| path == segment.path());
            // It may have been deleted for its age since.
            let is_there = || self.segments().iter().any(|it| Arc::ptr_eq(it, segment));
            match len {
                Some((_, _, len)) if *len == self.settings.file_size => {}
                Some((_, _, len)) => {
                    found.push(format!("{} has {len} bytes", segment.path().display()));
                }
                None if is_there() => found.push(format!("{} is gone", segment.path().display())),
                None => {}
            }
        }
        found
    }

    /// Tells everybody who follows the log that it has grown, or is durable further on.
    fn has_grown(&self) {
        self.grown.notify();
        self.followers.tell();
    }

    fn change_segments(&self, change: impl FnOnce(&mut Vec<Arc<Segment>>)) {
        let mut held = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut list = held.as_ref().clone();
        change(&mut list);
        *held = Arc::new(list);
    }
}

fn remove_file(disk: &dyn Disk, path: &std::path::Path) -> Result<(), StoreError> {
    disk.remove(path)
        .and_then(|()| path.parent().map_or(Ok(()), |folder| disk.sync_dir(folder)))
        .map_err(|error| StoreError::io("remove", path, &error))
}

/// Opens the files of all folders in the order of the log.
fn load(disk: &dyn Disk, settings: &LogConfig) -> Result<Vec<Arc<Segment>>, StoreError> {
    let mut found = Vec::new();
    for folder in settings.folders.iter().chain(&settings.read_only) {
        let listed = disk
            .list(folder)
            .map_err(|error| StoreError::io("list", folder, &error))?;
        for (path, is_folder, len) in listed {
            if is_folder {
                continue;
            }
            let base = base_of(&path).ok_or_else(|| {
                StoreError::corrupt(format!("{} is no commit-log file", path.display()))
            })?;
            found.push((base, path, len));
        }
    }
    found.sort();
    found.dedup();
    drop_unfinished(disk, settings.file_size, &mut found)?;
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    for (base, path, len) in found {
        if len != settings.file_size {
            return Err(StoreError::corrupt(format!(
                "{} has {len} bytes, mappedFileSizeCommitLog is {}",
                path.display(),
                settings.file_size
            )));
        }
        if let Some(last) = segments.last().filter(|last| last.end() > base) {
            return Err(StoreError::corrupt(format!(
                "{} begins inside {}",
                path.display(),
                last.path().display()
            )));
        }
        segments.push(Arc::new(Segment::open(disk, &path, base, len)?));
    }
    Ok(segments)
}

/// Removes a last file that was being made when the power went: it is short and holds nothing.
fn drop_unfinished(
    disk: &dyn Disk,
    file_size: u64,
    found: &mut Vec<(u64, PathBuf, u64)>,
) -> Result<(), StoreError> {
    let Some((_, path, len)) = found.last() else {
        return Ok(());
    };
    if *len >= file_size {
        return Ok(());
    }
    let refuse = |error: std::io::Error| StoreError::io("open", path, &error);
    let file = disk.open(path).map_err(refuse)?;
    let bytes = file.map().map_err(refuse)?;
    if bytes.iter().any(|byte| *byte != 0) {
        return Ok(());
    }
    drop(bytes);
    drop(file);
    remove_file(disk, path)?;
    found.pop();
    Ok(())
}
