//! What can be told of queues without reading them: their ends, and files that are gone.

use std::collections::BTreeSet;
use std::io;

use super::files::FileQueues;
use super::queue::{Queue, State};
use super::UNIT_SIZE;

impl FileQueues {
    /// The first offset that the files of a queue can hold, and the one behind its last unit.
    pub(super) fn span_of(&self, topic: &str, queue_id: i32) -> (u64, u64) {
        let queue = self.queue(topic, queue_id);
        queue.map_or((0, 0), |queue| {
            let state = queue.lock();
            (state.first(), state.max)
        })
    }

    /// The first offset that the files of a queue hold, and where its record is; `None` when there
    /// is no message.
    pub(super) fn head_of(&self, topic: &str, queue_id: i32) -> io::Result<Option<(u64, u64)>> {
        let Some(queue) = self.queue(topic, queue_id) else {
            return Ok(None);
        };
        let state = queue.lock();
        let mut at = state.first();
        while at < state.max {
            match queue.unit(&state, at)? {
                Some(unit) if !unit.is_filler() => return Ok(Some((at, unit.physical_offset))),
                _ => at += 1,
            }
        }
        Ok(None)
    }

    /// Queues that lack a file.
    pub(super) fn missing_files(&self) -> Vec<String> {
        let queues = self.every_queue();
        queues
            .iter()
            .filter_map(|queue| self.missing(queue))
            .collect()
    }

    fn missing(&self, queue: &Queue) -> Option<String> {
        let size = self.shared.file_size;
        let wanted = wanted(&queue.lock(), size);
        let listed = self.shared.disk.list(&queue.dir).unwrap_or_default();
        let there: BTreeSet<_> = listed.into_iter().map(|(path, ..)| path).collect();
        // It may have been deleted for its age, or with its topic, since.
        let gone = wanted.into_iter().find(|base| {
            !there.contains(&queue.path(*base)) && is_wanted(&queue.lock(), *base, size)
        })?;
        Some(format!("{} is gone", queue.path(gone).display()))
    }
}

/// Where the files begin that a queue must have on disk.
fn wanted(state: &State, size: u64) -> Vec<u64> {
    let first = state.files.first().copied().unwrap_or(0);
    let end = state.written * UNIT_SIZE;
    if state.gone || state.files.is_empty() {
        return Vec::new();
    }
    (first..end)
        .step_by(usize::try_from(size).unwrap_or(usize::MAX))
        .collect()
}

fn is_wanted(state: &State, base: u64, size: u64) -> bool {
    wanted(state, size).contains(&base)
}
