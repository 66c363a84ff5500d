//! Finding a queue on disk: its files, where it ends, and what of it cannot be trusted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::files::Topics;
use super::queue::{Queue, Shared, State};
use super::{Unit, UNIT_SIZE};
use crate::disk::DiskFile;

/// [`UNIT_SIZE`] as a length in memory.
const UNIT_BYTES: usize = 20;

/// How many files from the end may hold damage (module documentation).
const CHECKED_FILES: usize = 3;
/// First and largest number of bytes read at once. The first is one page: a short queue is known
/// whole after it, and behind it only a hole is left to be asked for.
const CHUNK: (u64, u64) = (4096, 262_144);

/// From so many topics on, several threads load the queues.
const MANY_TOPICS: usize = 64;
/// Most threads that load queues.
const LOADERS_MAX: usize = 4;

/// The queues of a store as found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) topics: Topics,
    /// Queues that loading has changed.
    pub(super) dirty: Vec<Arc<Queue>>,
    /// The first physical offset from which on any queue lacks units that were cut off.
    pub(super) repair_from: Option<u64>,
}

/// Loads every queue under `root`. Where there are many topics, several threads do: it takes some
/// ten system calls a queue.
pub(super) fn load_all(shared: &Arc<Shared>, root: &Path) -> io::Result<Found> {
    let listed = shared.disk.list(root)?;
    let dirs: Vec<PathBuf> = listed.into_iter().filter_map(folder).collect();
    let helpers = match thread::available_parallelism() {
        Ok(count) if dirs.len() >= MANY_TOPICS => count.get().min(LOADERS_MAX) - 1,
        _ => 0,
    };
    let (next, found) = (AtomicUsize::new(0), Mutex::default());
    let work = || load_topics(shared, &dirs, &next, &found);
    thread::scope(|scope| {
        let named = || thread::Builder::new().name("queue-loader".to_owned());
        // Where there is no further thread, those that are have more to do.
        let started = (0..helpers).filter_map(|_| named().spawn_scoped(scope, work).ok());
        let threads: Vec<_> = started.collect();
        let mut done = work();
        for thread in threads {
            let broken = |_| Err(io::Error::other("a thread that loads queues has ended"));
            done = done.and(thread.join().unwrap_or_else(broken));
        }
        done
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Loads the queues of topic folders; `next` is the number of the folder that nobody has begun.
fn load_topics(
    shared: &Arc<Shared>,
    dirs: &[PathBuf],
    next: &AtomicUsize,
    found: &Mutex<Found>,
) -> io::Result<()> {
    while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
        let Some(topic) = name(dir) else {
            continue;
        };
        let mut one = Found::default();
        let mut queues = Vec::new();
        for queue_dir in shared.disk.list(dir)?.into_iter().filter_map(folder) {
            let id = name(&queue_dir).and_then(|name| name.parse::<i32>().ok());
            let Some(id) = id.filter(|id| *id >= 0) else {
                continue;
            };
            let Some(loaded) = load(shared, &queue_dir)? else {
                continue;
            };
            one.repair_also(loaded.repair_from);
            let queue = Arc::new(loaded.queue);
            if queue.list_if_dirty() {
                one.dirty.push(Arc::clone(&queue));
            }
            queues.push((id, queue));
        }
        queues.sort_unstable_by_key(|(id, _)| *id);
        let mut all = found.lock().unwrap_or_else(PoisonError::into_inner);
        all.topics.insert(topic.to_owned(), queues);
        all.dirty.append(&mut one.dirty);
        all.repair_also(one.repair_from);
    }
    Ok(())
}

impl Found {
    fn repair_also(&mut self, from: Option<u64>) {
        self.repair_from = [self.repair_from, from].into_iter().flatten().min();
    }
}

/// The path of an entry of a folder, when it is a folder itself.
fn folder((path, is_dir, _): (PathBuf, bool, u64)) -> Option<PathBuf> {
    is_dir.then_some(path)
}

fn name(path: &Path) -> Option<&str> {
    path.file_name().and_then(|name| name.to_str())
}

/// A queue as found, and from which physical offset on the log must be dispatched again because
/// units were cut off.
struct Loaded {
    queue: Queue,
    repair_from: Option<u64>,
}

/// Loads the queue in `dir`; `None` when there is no file.
fn load(shared: &Arc<Shared>, dir: &Path) -> io::Result<Option<Loaded>> {
    let found = list(shared, dir)?;
    if found.is_empty() {
        return Ok(None);
    }
    let owner = shared.cache.owner();
    let state = State {
        files: found.iter().map(|(base, _)| *base).collect(),
        ..State::default()
    };
    let queue = Queue::new(Arc::clone(shared), dir.to_path_buf(), owner, state);
    let mut damaged = drop_broken_files(&queue, &found)?;
    let tail = find_tail(&queue)?;
    damaged |= tail.damaged;
    let mut state = queue.lock();
    if state.files.is_empty() {
        return Ok(None);
    }
    if !tail.note_ends(&mut state) {
        state.min = first_message(&queue, &state)?;
        let mut last = None;
        queue.walk_back(&state, |_, unit| {
            last = (!unit.is_filler()).then_some(unit);
            last.is_none()
        })?;
        state.last = last;
    }
    let repair_from = damaged.then(|| state.last.map_or(0, |unit| unit.end()));
    drop(state);
    Ok(Some(Loaded { queue, repair_from }))
}

/// What looking for the end of a queue has found.
#[derive(Default)]
struct Tail {
    /// Whether anything was cut off.
    damaged: bool,
    /// All units of the last file that was read, when its first bytes hold them all.
    units: Vec<Unit>,
}

impl Tail {
    /// Sets the first and the last message of a queue that was seen whole; says whether it was.
    fn note_ends(&self, state: &mut State) -> bool {
        let first = state.first();
        if self.units.is_empty() || first + self.units.len() as u64 != state.max {
            return false;
        }
        let mut messages = self.units.iter().enumerate();
        let head = messages.find(|(_, unit)| !unit.is_filler());
        state.head = head.map(|(at, unit)| (first + at as u64, *unit));
        state.min = state.head.map_or(state.max, |(at, _)| at);
        let mut newest = self.units.iter().rev();
        state.last = newest.find(|unit| !unit.is_filler()).copied();
        true
    }
}

/// Lists (start, length) of the queue's files in order.
fn list(shared: &Shared, dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for (path, is_dir, len) in shared.disk.list(dir)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let digits = name.filter(|name| name.len() == 20);
        let Some(base) = digits.and_then(|name| name.parse::<u64>().ok()) else {
            continue;
        };
        let whole = len == shared.file_size && base % shared.file_size == 0;
        if is_dir || !(whole || len == 0) {
            let text = format!(
                "queue file {}: {len} bytes at {base}, but files of {} bytes are configured; \
                 mappedFileSizeConsumeQueue has to be the store's, and if it is, \
                 `roquet store repair` has the queues made again from the log",
                path.display(),
                shared.file_size
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        found.push((base, len));
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes what follows a file that has no length, does not exist, or whose ends hold no units.
fn drop_broken_files(queue: &Queue, found: &[(u64, u64)]) -> io::Result<bool> {
    let checked = found.len().saturating_sub(CHECKED_FILES);
    let mut end = None;
    let mut cut = None;
    for (number, (base, len)) in found.iter().enumerate() {
        let follows = end.is_none_or(|end| end == *base);
        // The newest ones are read whole.
        if *len == 0 || !follows || (number < checked && !is_full(queue, *base)?) {
            cut = Some(*base);
            break;
        }
        end = Some(base + len);
    }
    let Some(cut) = cut else {
        return Ok(false);
    };
    let mut state = queue.lock();
    queue.remove_files(&mut state, |base| base >= cut)?;
    Ok(found
        .last()
        .is_some_and(|(base, len)| *base > cut || *len > 0))
}

/// Whether a file that was full has units at its two ends still.
fn is_full(queue: &Queue, base: u64) -> io::Result<bool> {
    let first = base / UNIT_SIZE;
    let last = first + queue.shared.file_units() - 1;
    for at in [first, last] {
        let mut found = Vec::with_capacity(1);
        queue.read_units(at, at + 1, &mut found)?;
        if found.first().is_none_or(Unit::is_lost) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sets where the queue ends.
fn find_tail(queue: &Queue) -> io::Result<Tail> {
    let shared = &queue.shared;
    let mut state = queue.lock();
    let checked = state.files.len().saturating_sub(CHECKED_FILES);
    let files: Vec<u64> = state.files.iter().copied().skip(checked).collect();
    let mut tail = Tail::default();
    for base in files {
        let file = queue.file(base)?;
        let found = valid_units(&*file, shared.file_size)?;
        state.max = base / UNIT_SIZE + found.count;
        tail.units = found.units;
        if found.count < shared.file_units() {
            if clear(&*file, found.clean_to, shared.file_size)? {
                state.mark(base);
                tail.damaged = true;
            }
            let later = state.files.last().is_some_and(|newest| *newest > base);
            tail.damaged |= later;
            queue.remove_files(&mut state, |other| other > base)?;
            break;
        }
    }
    state.tail_from = state.max;
    state.written = state.max;
    Ok(tail)
}

/// The units at the start of a file, up to the first place that holds none.
struct Valid {
    count: u64,
    /// Behind the units there are zeros up to this byte at least.
    clean_to: u64,
    /// The units themselves, when the first read held them all.
    units: Vec<Unit>,
}

fn valid_units(file: &dyn DiskFile, size: u64) -> io::Result<Valid> {
    let (mut chunk, largest) = CHUNK;
    let mut at = 0;
    loop {
        let to = (at - at % CHUNK.0 + chunk).min(size);
        let mut bytes = vec![0; usize::try_from(to - at).unwrap_or(0)];
        file.read_at(&mut bytes, at)?;
        let slots = bytes.chunks_exact(UNIT_BYTES);
        let units: Vec<Unit> = slots.map_while(Unit::decode).collect();
        let is_first = at == 0;
        let behind = units.len() * UNIT_BYTES;
        at += behind as u64;
        let rest = bytes.get(behind..).unwrap_or_default();
        if rest.len() >= UNIT_BYTES || at >= size {
            let clean = rest.iter().all(|byte| *byte == 0);
            return Ok(Valid {
                count: at / UNIT_SIZE,
                clean_to: if clean { to } else { at },
                units: if is_first { units } else { Vec::new() },
            });
        }
        chunk = (chunk * 4).min(largest);
    }
}

/// Zeroes what lies between `from` and `to`; says whether anything did.
///
/// New units must not grow together with old ones that a crash left behind a hole.
pub(super) fn clear(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<bool> {
    let mut found = false;
    let mut at = from;
    while at < to {
        let Some(data) = file.seek_data(at)? else {
            break;
        };
        let start = data.max(at);
        let len = (64 * 1024).min(to.saturating_sub(start));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_at(&mut bytes, start)?;
        if bytes.iter().any(|byte| *byte != 0) {
            bytes.fill(0);
            file.write_at(&bytes, start)?;
            found = true;
        }
        at = start + len.max(1);
    }
    Ok(found)
}

/// First queue offset of the first file that stands for a message.
fn first_message(queue: &Queue, state: &State) -> io::Result<u64> {
    let first = state.first();
    let end = (first + queue.shared.file_units()).min(state.max);
    let mut at = first;
    let (mut chunk, largest) = (1, CHUNK.1 / UNIT_SIZE);
    while at < end {
        let mut found = Vec::new();
        queue.read_units(at, end.min(at + chunk), &mut found)?;
        let fillers = found.iter().take_while(|unit| unit.is_filler()).count();
        at += fillers as u64;
        if fillers < found.len() || found.is_empty() {
            break;
        }
        chunk = (chunk * 16).min(largest);
    }
    Ok(at)
}
