//! Finding a queue on disk: its files, where it ends, and what of it cannot be trusted.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::queue::{Queue, Shared, State};
use super::{Unit, UNIT_SIZE};
use crate::disk::DiskFile;

/// How many files from the end may hold damage (module documentation).
const CHECKED_FILES: usize = 3;
/// First and largest number of units read at once.
const CHUNK_UNITS: (u64, u64) = (204, 13_056);

/// A queue as found, and from which physical offset on the log must be dispatched again because
/// units were cut off.
pub(super) struct Loaded {
    pub(super) queue: Queue,
    pub(super) repair_from: Option<u64>,
}

/// Loads the queue in `dir`; `None` when there is no file.
pub(super) fn load(shared: &Arc<Shared>, dir: &Path) -> io::Result<Option<Loaded>> {
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
    damaged |= find_tail(&queue)?;
    let mut state = queue.lock();
    if state.files.is_empty() {
        return Ok(None);
    }
    state.min = first_message(&queue, &state)?;
    let mut last = None;
    queue.walk_back(&state, |_, unit| {
        last = (!unit.is_filler()).then_some(unit);
        last.is_none()
    })?;
    state.last = last;
    let repair_from = damaged.then(|| last.map_or(0, |unit| unit.end()));
    drop(state);
    Ok(Some(Loaded { queue, repair_from }))
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
                "queue file {}: {len} bytes at {base}, but files of {} bytes are configured",
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

/// Removes what follows a file that has no length or does not exist, among the newest ones.
fn drop_broken_files(queue: &Queue, found: &[(u64, u64)]) -> io::Result<bool> {
    let checked = found.len().saturating_sub(CHECKED_FILES);
    let mut end = None;
    let mut cut = None;
    for (base, len) in found.get(checked..).unwrap_or_default() {
        let follows = end.is_none_or(|end| end == *base);
        if *len == 0 || !follows {
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

/// Sets where the queue ends; says whether anything was cut off.
fn find_tail(queue: &Queue) -> io::Result<bool> {
    let shared = &queue.shared;
    let mut state = queue.lock();
    let checked = state.files.len().saturating_sub(CHECKED_FILES);
    let files: Vec<u64> = state.files.iter().copied().skip(checked).collect();
    let mut damaged = false;
    for base in files {
        let file = queue.file(base)?;
        let count = valid_units(&*file, shared.file_units())?;
        state.max = base / UNIT_SIZE + count;
        if count < shared.file_units() {
            if clear(&*file, count * UNIT_SIZE, shared.file_size)? {
                state.mark(base);
                damaged = true;
            }
            let later = state.files.last().is_some_and(|newest| *newest > base);
            damaged |= later;
            queue.remove_files(&mut state, |other| other > base)?;
            break;
        }
    }
    state.tail_from = state.max;
    state.written = state.max;
    Ok(damaged)
}

/// Counts the units at the start of a file before the first place that holds none.
fn valid_units(file: &dyn DiskFile, units: u64) -> io::Result<u64> {
    let (mut chunk, largest) = CHUNK_UNITS;
    let mut at = 0;
    while at < units {
        let count = chunk.min(units - at);
        let mut bytes = vec![0; super::queue::as_len(count)];
        file.read_at(&mut bytes, at * UNIT_SIZE)?;
        let valid = bytes
            .chunks_exact(20)
            .take_while(|unit| Unit::decode(unit).is_some())
            .count() as u64;
        at += valid;
        if valid < count {
            break;
        }
        chunk = (chunk * 4).min(largest);
    }
    Ok(at)
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
    let (mut chunk, largest) = (1, CHUNK_UNITS.1);
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
