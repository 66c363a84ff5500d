//! One queue: its files, the units still in memory, and the rules of putting.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Unit, UNIT_SIZE};
use crate::disk::file_cache::FileCache;
use crate::disk::{Disk, DiskFile, Space};

/// Units are written out when this many wait: a page of them.
const BLOCK_UNITS: u64 = 204;
/// What all queues together may keep in memory before each write goes through.
const BUFFER_MAX: usize = 16 * 1024 * 1024;
/// A jump in a queue with messages that is wider than this many files is refused.
const GAP_FILES_MAX: u64 = 16;
/// Units read at once when a queue is searched from its end.
const SEARCH_UNITS: u64 = 4096;

/// What all queues of a store share.
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) cache: Arc<FileCache>,
    pub(super) file_size: u64,
    /// A sync failed once: what it covered is unknown for good.
    pub(super) failed: AtomicBool,
    pub(super) buffered: AtomicUsize,
}

impl Shared {
    pub(super) fn file_units(&self) -> u64 {
        self.file_size / UNIT_SIZE
    }

    /// Syncs, and remembers for ever when that failed.
    pub(super) fn watch<T>(&self, synced: io::Result<T>) -> io::Result<T> {
        if synced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        synced
    }
}

/// What became of a unit that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Added,
    /// The record was dispatched before.
    Repeat,
    /// A newer record claims a queue offset that is taken.
    Conflict,
    /// The queue was deleted meanwhile; look it up again.
    Gone,
}

#[derive(Default)]
pub(super) struct State {
    /// Byte positions at which the files start, ascending.
    pub(super) files: Vec<u64>,
    pub(super) min: u64,
    pub(super) max: u64,
    /// Units `tail_from..max` as bytes; those from `written` on are not in a file yet.
    pub(super) tail: Vec<u8>,
    pub(super) tail_from: u64,
    pub(super) written: u64,
    pub(super) last: Option<Unit>,
    /// The first message and its offset, once it was read; of use only where `min` is that offset.
    pub(super) head: Option<(u64, Unit)>,
    /// Files written since their last sync: where they start, and the write that was last.
    pub(super) dirty: Vec<(u64, u64)>,
    pub(super) writes: u64,
    pub(super) names_dirty: bool,
    /// Whether the set has this queue on its list of dirty ones.
    pub(super) listed: bool,
    pub(super) gone: bool,
}

/// One queue of one topic.
pub(super) struct Queue {
    pub(super) shared: Arc<Shared>,
    pub(super) dir: PathBuf,
    pub(super) owner: u64,
    state: Mutex<State>,
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>, dir: PathBuf, owner: u64, state: State) -> Self {
        Self {
            shared,
            dir,
            owner,
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, base: u64) -> PathBuf {
        self.dir.join(format!("{base:020}"))
    }

    pub(super) fn file(&self, base: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.shared
            .cache
            .get(self.owner, base, || self.shared.disk.open(&self.path(base)))
    }

    /// Whether [`Self::put`] at this offset does nothing but keep the unit in memory.
    pub(super) fn takes_in_memory(&self, offset: u64) -> bool {
        let state = self.lock();
        let has_room = state.max - state.written < BLOCK_UNITS;
        let fits = self.shared.buffered.load(Ordering::Relaxed) <= BUFFER_MAX;
        !state.gone && offset == state.max && has_room && fits
    }

    /// Puts one unit; on an error nothing has happened and the same call may be made again.
    pub(super) fn put(&self, offset: u64, unit: Unit) -> io::Result<(Put, bool)> {
        let mut state = self.lock();
        if state.gone {
            return Ok((Put::Gone, false));
        }
        if state.last.is_some_and(|last| unit.end() <= last.end()) {
            return Ok((Put::Repeat, false));
        }
        if offset < state.max {
            if state.last.is_some() {
                return Ok((Put::Conflict, false));
            }
            // Units that stood for messages still in the log are lost with their files.
            self.start_over(&mut state, offset)?;
        }
        if offset > state.max {
            self.fill_gap(&mut state, offset)?;
        }
        if state.max - state.written >= BLOCK_UNITS {
            self.write_out(&mut state)?;
        }
        let buffered = self.shared.buffered.fetch_add(20, Ordering::Relaxed);
        state.tail.extend_from_slice(&unit.encode());
        state.max += 1;
        state.last = Some(unit);
        if buffered > BUFFER_MAX && self.write_out(&mut state).is_ok() {
            self.drop_tail(&mut state);
        }
        let news = !state.listed;
        state.listed = true;
        Ok((Put::Added, news))
    }

    /// Fills the queue up to `offset` with units that stand for no message.
    fn fill_gap(&self, state: &mut State, offset: u64) -> io::Result<()> {
        let units = self.shared.file_units();
        // Messages that the log has no more are nothing to keep together with.
        let empty = state.last.is_none() || state.min >= state.max;
        if empty && state.max < offset / units * units {
            self.start_over(state, offset)?;
        } else if !empty && offset - state.max > GAP_FILES_MAX.saturating_mul(units) {
            let text = format!(
                "queue {}: offset {offset} is too far behind {}",
                self.dir.display(),
                state.max
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        while state.max < offset {
            let step = (offset - state.max).min(BLOCK_UNITS);
            for _ in 0..step {
                state.tail.extend_from_slice(&Unit::FILLER.encode());
            }
            self.shared.remember_units(step);
            state.max += step;
            if empty {
                state.min = state.max;
            }
            self.write_out(state)?;
        }
        Ok(())
    }

    /// Makes a queue without messages begin with the file that `offset` belongs to.
    fn start_over(&self, state: &mut State, offset: u64) -> io::Result<()> {
        let units = self.shared.file_units();
        let file_start = offset / units * units;
        self.remove_files(state, |_| true)?;
        self.shared.forget_bytes(state.tail.len());
        state.tail.clear();
        state.head = None;
        state.last = None;
        state.min = file_start;
        state.max = file_start;
        state.tail_from = file_start;
        state.written = file_start;
        Ok(())
    }

    /// Writes the units that wait into the files.
    pub(super) fn write_out(&self, state: &mut State) -> io::Result<()> {
        let units = self.shared.file_units();
        while state.written < state.max {
            let from = state.written;
            let count = (units - from % units).min(state.max - from);
            let base = from / units * self.shared.file_size;
            let file = self.file_to_write(state, base)?;
            let bytes = unit_bytes(&state.tail, from - state.tail_from, count);
            file.write_at(bytes, from % units * UNIT_SIZE)?;
            state.mark(base);
            state.written += count;
        }
        let kept = state.max - state.tail_from;
        if kept > 2 * BLOCK_UNITS {
            let drop = kept - BLOCK_UNITS;
            let bytes = as_len(drop);
            state.tail.drain(..bytes.min(state.tail.len()));
            state.tail_from += drop;
            self.shared.forget_bytes(bytes);
        }
        Ok(())
    }

    /// Gives the memory of units that are in files back.
    pub(super) fn drop_tail(&self, state: &mut State) {
        if state.written == state.max {
            self.shared.forget_bytes(state.tail.len());
            state.tail = Vec::new();
            state.tail_from = state.max;
        }
    }

    fn file_to_write(&self, state: &mut State, base: u64) -> io::Result<Arc<dyn DiskFile>> {
        if state.files.contains(&base) {
            return self.file(base);
        }
        // Keeps the promise that only the last two files are not durable, and that no file is found
        // without the one before it.
        if let Some(&newest) = state.files.last() {
            self.sync_older(state, newest)?;
            if std::mem::take(&mut state.names_dirty) {
                for dir in self.dirs().iter().rev() {
                    self.shared.watch(self.shared.disk.sync_dir_if_there(dir))?;
                }
            }
        }
        self.shared.disk.create_dir(&self.dir)?;
        let file =
            self.shared
                .disk
                .create(&self.path(base), self.shared.file_size, Space::Sparse)?;
        state.files.push(base);
        state.files.sort_unstable();
        state.names_dirty = true;
        self.shared.cache.put(self.owner, base, Arc::clone(&file));
        Ok(file)
    }

    fn sync_older(&self, state: &mut State, newest: u64) -> io::Result<()> {
        let older: Vec<u64> = (state.dirty.iter().map(|(base, _)| *base))
            .filter(|base| *base < newest)
            .collect();
        if older.is_empty() {
            return Ok(());
        }
        for base in older {
            let file = self.file(base)?;
            self.shared.watch(file.sync())?;
            state.dirty.retain(|(dirty, _)| *dirty != base);
        }
        Ok(())
    }

    /// The folders that lead to the queue's files, the store's own first.
    pub(super) fn dirs(&self) -> BTreeSet<PathBuf> {
        let parents = self.dir.ancestors().take(4).map(PathBuf::from);
        parents.filter(|dir| !dir.as_os_str().is_empty()).collect()
    }

    /// Appends units `from..from+count` that exist to `out`; stops at a missing file.
    pub(super) fn range(&self, from: u64, count: u64, out: &mut Vec<Unit>) -> io::Result<()> {
        let (to, split, tail) = {
            let state = self.lock();
            if from < state.min || from >= state.max {
                return Ok(());
            }
            let to = from.saturating_add(count).min(state.max);
            let split = from.max(state.tail_from).min(to);
            let skip = split - state.tail_from.min(split);
            let bytes = unit_bytes(&state.tail, skip, to - split);
            if split == from {
                decode_into(bytes, out);
                return Ok(());
            }
            (to, split, bytes.to_vec())
        };
        let before = out.len();
        self.read_units(from, split, out)?;
        if (out.len() - before) as u64 == split - from && to > split {
            decode_into(&tail, out);
        }
        Ok(())
    }

    /// Reads units from the files; stops early where a file is missing.
    pub(super) fn read_units(&self, from: u64, to: u64, out: &mut Vec<Unit>) -> io::Result<()> {
        let units = self.shared.file_units();
        let mut at = from;
        while at < to {
            let count = (units - at % units).min(to - at);
            let file = match self.file(at / units * self.shared.file_size) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut bytes = vec![0; as_len(count)];
            file.read_at(&mut bytes, at % units * UNIT_SIZE)?;
            decode_into(&bytes, out);
            at += count;
        }
        Ok(())
    }

    /// Reads one unit, from memory or file; `None` where there is none.
    pub(super) fn unit(&self, state: &State, offset: u64) -> io::Result<Option<Unit>> {
        if offset >= state.tail_from {
            return Ok(Unit::decode(unit_bytes(
                &state.tail,
                offset - state.tail_from,
                1,
            )));
        }
        let mut found = Vec::with_capacity(1);
        self.read_units(offset, offset + 1, &mut found)?;
        Ok(found.first().copied())
    }

    /// Walks units backwards from the newest while `more` says so.
    pub(super) fn walk_back(
        &self,
        state: &State,
        mut more: impl FnMut(u64, Unit) -> bool,
    ) -> io::Result<()> {
        let first = state.first();
        let mut to = state.max;
        while to > first {
            let from = to.saturating_sub(SEARCH_UNITS).max(first);
            let mut found = Vec::new();
            let split = to.min(state.written).max(from);
            self.read_units(from, split, &mut found)?;
            if (found.len() as u64) < split - from {
                return Ok(());
            }
            let skip = split - state.tail_from.min(split);
            decode_into(unit_bytes(&state.tail, skip, to - split), &mut found);
            for (index, unit) in found.iter().enumerate().rev() {
                if !more(from + index as u64, *unit) {
                    return Ok(());
                }
            }
            to = from;
        }
        Ok(())
    }

    /// Removes files chosen by their start.
    pub(super) fn remove_files(
        &self,
        state: &mut State,
        chosen: impl Fn(u64) -> bool,
    ) -> io::Result<()> {
        let bases: Vec<u64> = state.files.iter().copied().filter(|b| chosen(*b)).collect();
        for base in bases {
            self.shared.disk.remove(&self.path(base))?;
            self.shared.cache.forget(self.owner, base);
            state.files.retain(|b| *b != base);
            state.dirty.retain(|(dirty, _)| *dirty != base);
            state.names_dirty = true;
        }
        Ok(())
    }
}

impl Shared {
    pub(super) fn forget_bytes(&self, bytes: usize) {
        let _ = self
            .buffered
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                Some(now.saturating_sub(bytes))
            });
    }

    fn remember_units(&self, units: u64) {
        self.buffered.fetch_add(as_len(units), Ordering::Relaxed);
    }

    pub(super) fn crowded(&self) -> bool {
        self.buffered.load(Ordering::Relaxed) > BUFFER_MAX / 2
    }
}

impl State {
    /// First queue offset that a file of the queue, or memory, holds.
    pub(super) fn first(&self) -> u64 {
        let file = self.files.first();
        file.map_or(self.tail_from, |base| base / UNIT_SIZE)
    }

    /// Notes that the file at `base` was written.
    pub(super) fn mark(&mut self, base: u64) {
        self.writes += 1;
        let write = self.writes;
        if let Some(entry) = self.dirty.iter_mut().find(|(dirty, _)| *dirty == base) {
            entry.1 = write;
        } else {
            self.dirty.push((base, write));
        }
    }
}

/// Bytes of so many units.
pub(super) fn as_len(units: u64) -> usize {
    usize::try_from(units.saturating_mul(UNIT_SIZE)).unwrap_or(usize::MAX)
}

fn unit_bytes(tail: &[u8], skip: u64, count: u64) -> &[u8] {
    let from = as_len(skip).min(tail.len());
    let to = from.saturating_add(as_len(count)).min(tail.len());
    tail.get(from..to).unwrap_or_default()
}

/// Decodes whole units; what is none keeps its place, so that positions stay right.
fn decode_into(bytes: &[u8], out: &mut Vec<Unit>) {
    let units = bytes.chunks_exact(20);
    out.extend(units.map(|unit| Unit::decode(unit).unwrap_or(Unit::LOST)));
}
