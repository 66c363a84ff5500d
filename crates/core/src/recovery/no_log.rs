//! Opening a store of whose log no file is there.
//!
//! It is new; or a power cut took its first file before any flush covered it; or its log is lost, or
//! not where the settings say. The last is told by anything that only messages leave behind: units
//! of queues, bytes that the checkpoint calls durable, the noted ends of queues, entries of the
//! index, topics deleted behind messages. Then the start is refused, for messages that come now would
//! get the offsets of those that are gone.
//!
//! Invariant: **no store that had messages begins anew without a word**, whichever of its other files
//! are there, and none of its queues goes on below an end that is noted.

use super::{Before, Recovered};
use crate::dispatch::Derived;
use crate::index::Index;
use crate::store::error::StoreError;

/// Begins an empty log, or says what speaks against it.
pub(super) fn begin(derived: &Derived, before: &Before<'_>) -> Result<Recovered, StoreError> {
    let dispatched = derived.queues.position();
    let flushed = before.known().map_or(0, |known| known.flushed);
    let noted = before.ends.noted(&derived.deleted);
    let traces = traces(derived, noted.len());
    let mut found = Recovered::default();
    if dispatched > 0 || flushed > 0 || !traces.is_empty() {
        // The first flush is noted durably before it counts.
        let was_never_durable = before.may_be_lost(0) == Some(true);
        if !was_never_durable && !before.settings.truncate_corrupt {
            return Err(StoreError::corrupt(format!(
                "there is no commit-log file, but consume queues for {dispatched} bytes of it, and \
                 {flushed} bytes were durable{traces}; is storePathCommitLog right? \
                 recoveryTruncateCorrupt=true starts an empty log",
            )));
        }
        let why = if was_never_durable {
            "the machine stopped before its first flush"
        } else {
            "recoveryTruncateCorrupt=true"
        };
        found.lost_bytes = flushed;
        found.notes.push(format!(
            "the log begins anew, without a file of it ({why}): {dispatched} bytes of messages \
             that the queues know are gone{traces}"
        ));
    }
    for (topic, id, end) in noted {
        found.floors.set(topic, id, end);
    }
    derived.queues.truncate(0)?;
    derived.deleted.settle(0, 0)?;
    if let Some(index) = &derived.index {
        index.truncate(0)?;
    }
    Ok(found)
}

/// What messages have left beside log and queues, as the end of a sentence; empty for nothing.
fn traces(derived: &Derived, queues: usize) -> String {
    let (last_time, last_offset) = derived.index.as_ref().map_or((0, 0), Index::last);
    // A topic may be deleted before any message comes: at the end of an empty log.
    let deleted = derived.deleted.list();
    let deleted = deleted.iter().filter(|(_, end)| *end > 0).count();
    [
        (queues > 0).then(|| format!(", queueEnds names {queues} queues with messages")),
        (last_time > 0).then(|| format!(", index has keys up to offset {last_offset}")),
        (deleted > 0).then(|| format!(", deletedTopics names {deleted} topics")),
    ]
    .into_iter()
    .flatten()
    .collect()
}
