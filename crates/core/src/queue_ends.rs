//! Where each queue ended when the store was closed in order.
//!
//! The next start looks only at the end of the log. A queue file that was damaged or lost meanwhile
//! would be met by nobody, and its messages could be read no more: the note tells.

use crate::consume_queue::ConsumeQueues;
use crate::disk::Disk;
use crate::note_file::{self, Found, Rows};
use crate::store_error::StoreError;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const MAGIC: u64 = 0x526F_7175_6574_0003;

fn path(root: &Path) -> PathBuf {
    root.join("queueEnds")
}

/// Writes the note.
pub(crate) fn write(
    disk: &dyn Disk,
    root: &Path,
    queues: &ConsumeQueues,
) -> Result<(), StoreError> {
    let rows: Rows<2> = queues
        .list()
        .into_iter()
        .map(|(topic, id, _, max)| (topic, [u64::from(id.unsigned_abs()), max]))
        .collect();
    note_file::write(disk, &path(root), MAGIC, &rows)
}

/// From which offset on the log must be dispatched again because a queue is shorter than the note
/// says; `None` when every queue is as it was, or nobody knows.
pub(crate) fn repair_from(
    disk: &dyn Disk,
    root: &Path,
    queues: &ConsumeQueues,
) -> Result<Option<u64>, StoreError> {
    let Found::Rows(rows) = note_file::read::<2>(disk, &path(root), MAGIC)? else {
        return Ok(None);
    };
    let there: HashMap<(String, u64), u64> = queues
        .list()
        .into_iter()
        .map(|(topic, id, _, max)| ((topic, u64::from(id.unsigned_abs())), max))
        .collect();
    let short = rows.into_iter().filter_map(|(topic, [id, max])| {
        let key = (topic, id);
        if there.get(&key).copied().unwrap_or(0) >= max {
            return None;
        }
        let queue = i32::try_from(id).unwrap_or(-1);
        let last = queues.last(&key.0, queue);
        Some(last.map_or(0, |unit| unit.end()))
    });
    Ok(short.min())
}
