//! Opening a store that ran before: where the log ends, and what queues and index lack
//! (spec: store §9).
//!
//! Stricter than Java in what it gives up. Invariant: **a record that was acknowledged as durable is
//! never cut, and what is cut is said.** What decides is what a flush covered, lengths and checksums:
//!
//! * In front of the durable end that the checkpoint notes, nothing was torn. A record there that
//!   cannot be read is damage: an error when valid records follow it, a loss that is counted when
//!   none does.
//! * Behind it, and only if the machine was booted since, a power cut may have left any sector old.
//!   The log ends at the first record that is not surely whole (`tail`). Everything behind
//!   that was never flushed, whatever it looks like: it is cut.
//! * After a kill, all that was written is there, up to the record that was being written: it is
//!   cut, also when only its topic or properties lack their end. Records behind its lengths are none of
//!   its content, so they make it damage.
//! * A store that Java's broker wrote last says nothing of its durable end. What cannot be read is
//!   cut when all that follows was stored within the time that a flush may be late. What can be read
//!   is believed, as Java does.
//!
//! Queues are held against the log and against the note of their ends (`queue_ends`).

pub mod checkpoint;
pub mod deleted;
pub(crate) mod extent;
mod no_log;
pub(crate) mod queue_ends;
mod scan;
pub(crate) mod tail;

use crate::codec::record::{self, Parsed};
use crate::commit_log::{CommitLog, NextOffsets};
use crate::consume_queue::{light_queues, Unit};
use crate::disk::segment::Segment;
use crate::dispatch::{Derived, LastRecord};
use crate::recovery::checkpoint::{Checkpoint, Known};
use crate::recovery::queue_ends::{Audit, Ends, Place, Seen};
use crate::recovery::scan::{in_place, scan, Scan};
use crate::recovery::tail::Behind;
use crate::store::config::RecoveryConfig;
use crate::store::error::StoreError;
use std::sync::Arc;

/// Records behind damage that are further apart in time than this were flushed in between.
const FLUSH_LATE_MS: i64 = 60_000;

/// What a recovery starts from.
pub struct Before<'a> {
    /// The settings.
    pub settings: &'a RecoveryConfig,
    /// Whether the last run stopped in order.
    pub clean: bool,
    /// The checkpoint, if there was one.
    pub checkpoint: Option<Checkpoint>,
    /// The boot of the machine now.
    pub boot: u64,
    /// The ends of the queues that the last run noted.
    pub(crate) ends: Ends,
}

impl Before<'_> {
    fn known(&self) -> Option<Known> {
        self.checkpoint.and_then(|checkpoint| checkpoint.known)
    }

    /// Whether a power cut may have left what is at `at` old: `None` when nobody knows.
    fn may_be_lost(&self, at: u64) -> Option<bool> {
        let known = self.known()?;
        Some(!self.clean && known.boot != self.boot && known.flushed <= at)
    }

    /// Whether a kill or a power cut may have ended the write of what is at `at`.
    fn may_be_unfinished(&self, at: u64) -> bool {
        !self.clean && self.known().is_some_and(|known| known.flushed <= at)
    }
}

/// What a recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Where the log goes on.
    pub end: u64,
    /// The last record, if there is one.
    pub last: Option<LastRecord>,
    /// Records read.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes behind the end that were zeroed.
    pub cut_bytes: u64,
    /// Bytes behind the end that the last run knew as durable: they are lost.
    pub lost_bytes: u64,
    /// How often the whole log had to be read because queues lacked units.
    pub rebuilds: u64,
    /// No queue goes on below these offsets.
    pub floors: NextOffsets,
    /// What was cut or made again, for people.
    pub notes: Vec<String>,
}

/// So often at most the whole log is read to make queues again.
const REBUILDS_MAX: u64 = 2;

/// Where to begin, and from which record on queues and index get theirs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Records at this offset or behind go into their queues.
    queues: u64,
    /// Records behind this offset go into the index.
    index: u64,
    /// First byte read: the start of a file.
    from: u64,
    /// Units of records at this offset or behind may not be durable.
    durable: u64,
    /// The first byte of the log.
    min: u64,
}

/// Finds the end of the log, makes it the end on disk, and brings queues and index up to it.
pub fn recover(
    log: &CommitLog,
    derived: &Derived,
    before: &Before<'_>,
) -> Result<Recovered, StoreError> {
    let segments = log.segments();
    let Some(first) = segments.first() else {
        return no_log::begin(derived, before);
    };
    check_gaps(&segments, before)?;
    finish_deletions(derived, first.base())?;
    let queues = &derived.queues;
    let is_own = |place: Place<'_>, unit: &Unit| is_own(&segments, place, unit);
    let deleted = (&derived.deleted, before.clean);
    let audit = Audit::of(&before.ends, queues, deleted, (first.base(), &is_own))?;
    let plan = plan(&segments, derived, before, audit.repair_from);
    if !before.clean {
        queues.truncate(plan.durable)?;
    }
    let known_to_queues = if before.clean && before.known().is_none() {
        queues.position()
    } else {
        0
    };
    let (mut found, plan) = read(log, &segments, derived, before, plan, audit)?;
    let known = before.known().map(|known| known.flushed);
    for segment in segments
        .iter()
        .filter(|s| s.end() > plan.from && s.base() < found.end)
    {
        if let Some(known) = known.filter(|_| !before.clean) {
            // A sync that failed in the last run has left pages that the kernel takes for written:
            // only what is written again is durable after the next sync.
            segment.write_again(known, found.end)?;
        }
        segment.sync()?;
    }
    found.lost_bytes = known
        .unwrap_or(0)
        .max(known_to_queues)
        .saturating_sub(found.end);
    derived.queues.truncate(found.end)?;
    derived.queues.correct_min(first.base())?;
    derived.deleted.settle(first.base(), found.end)?;
    if let Some(index) = &derived.index {
        index.truncate(found.end)?;
    }
    Ok(found)
}

/// Reads the log, and again from its beginning while queues lack what it has; then ends it where
/// what can be read ends.
fn read(
    log: &CommitLog,
    segments: &[Arc<Segment>],
    derived: &Derived,
    before: &Before<'_>,
    mut plan: Plan,
    mut audit: Audit,
) -> Result<(Recovered, Plan), StoreError> {
    let mut rebuilds = 0;
    loop {
        let mut seen = Seen::default();
        let end = scan(segments, derived, before, plan, &mut seen)?;
        if let Scan::End(mut found, why) = end {
            check_end(segments, before, found.end, why.as_deref())?;
            derived.queues.truncate(found.end)?;
            let ours = before.checkpoint.is_some_and(|it| it.known.is_some());
            let known = (plan.from, ours, derived.light_queues);
            let compared = audit.compare(&seen, &derived.queues, known)?;
            if compared == 0 || rebuilds >= REBUILDS_MAX {
                audit.take_floors(&seen, &derived.queues);
                found.floors = audit.floors;
                found.notes = audit.notes;
                found.rebuilds = rebuilds;
                cut(log, segments, &mut found, why)?;
                return Ok((found, plan));
            }
        }
        rebuilds += 1;
        plan = Plan {
            queues: plan.min,
            from: plan.min,
            ..plan
        };
    }
}

/// Whether a unit names the record of its place.
fn is_own(segments: &[Arc<Segment>], (topic, id, at): Place<'_>, unit: &Unit) -> bool {
    let (from, to) = (unit.physical_offset, unit.end());
    let mut bytes = segments.iter().filter_map(|file| file.bytes(from, to));
    let record = bytes.next().map(|bytes| record::parse(bytes, 0, false));
    matches!(record, Some(Parsed::Record { view, .. }) if light_queues::is_place(&view, topic, id, at))
}

/// Removes what a deletion that was interrupted has left of its topic's queues.
fn finish_deletions(derived: &Derived, min: u64) -> Result<(), StoreError> {
    let deleted = derived.deleted.list().into_iter();
    for (topic, end) in deleted.filter(|(_, end)| *end > min) {
        derived.queues.delete_old(&topic, end)?;
    }
    Ok(())
}

fn check_gaps(segments: &[Arc<Segment>], before: &Before<'_>) -> Result<(), StoreError> {
    for pair in segments.windows(2) {
        if let [left, right] = pair {
            if left.end() != right.base() && !before.settings.truncate_corrupt {
                return Err(StoreError::corrupt(format!(
                    "no commit-log file begins at offset {}, but {} does later; \
                     recoveryTruncateCorrupt=true goes on without",
                    left.end(),
                    right.path().display()
                )));
            }
        }
    }
    Ok(())
}

fn plan(
    segments: &[Arc<Segment>],
    derived: &Derived,
    before: &Before<'_>,
    audited: Option<u64>,
) -> Plan {
    let min = segments.first().map_or(0, |segment| segment.base());
    let dispatched = derived.queues.position();
    let mut queues = if dispatched == 0 {
        min
    } else if before.clean {
        dispatched
    } else {
        durable_queues(segments, before.checkpoint.unwrap_or_default()).unwrap_or(min)
    };
    let durable = queues.max(min);
    for repair in [derived.queues.repair_from(), audited]
        .into_iter()
        .flatten()
    {
        queues = queues.min(repair);
    }
    let queues = queues.max(min);
    let (from_queues, from_index);
    let index = match &derived.index {
        None => u64::MAX,
        Some(index) => index.last().1,
    };
    from_queues = file_of(segments, queues);
    from_index = if before.settings.index_safe {
        file_of(segments, index)
    } else {
        // A log may be much longer than its index is worth: not more files than Java reads.
        let first = segments.len().saturating_sub(before.settings.files_max);
        file_of(segments, index).max(segments.get(first).map_or(min, |s| s.base()))
    };
    Plan {
        queues,
        index,
        from: from_queues.min(from_index),
        durable,
        min,
    }
}

/// Start of the file that holds `at`, of the last one when it lies behind all.
fn file_of(segments: &[Arc<Segment>], at: u64) -> u64 {
    let after = segments.partition_point(|segment| segment.base() <= at);
    segments
        .get(after.saturating_sub(1))
        .map_or(0, |segment| segment.base())
}

/// From where on queue units may be missing after a crash; `None` when nothing is known.
fn durable_queues(segments: &[Arc<Segment>], checkpoint: Checkpoint) -> Option<u64> {
    if checkpoint.queue_offset != 0 {
        // A number that names no record is damage, or the log has lost its end: it says nothing.
        let last = u64::try_from(checkpoint.queue_offset).ok()?;
        let segment = segments
            .iter()
            .find(|s| s.base() <= last && last < s.end())?;
        let bytes = segment.bytes(last, segment.end())?;
        return match record::parse(bytes, 0, false) {
            Parsed::Record { view, .. } if in_place(&view, last) => Some(last + 1),
            _ => None,
        };
    }
    if checkpoint.queue_time <= 0 || checkpoint.known.is_some() {
        return None;
    }
    let older = |segment: &&Arc<Segment>| {
        let bytes = segment.bytes(segment.base(), segment.end());
        match bytes.map(|bytes| record::parse(bytes, 0, false)) {
            Some(Parsed::Record { view, .. }) => view.store_timestamp <= checkpoint.queue_time,
            _ => false,
        }
    };
    segments
        .iter()
        .rev()
        .find(older)
        .map(|segment| segment.base())
}

/// Says why the log cannot end where what was read ends, when that would lose too much.
fn check_end(
    segments: &[Arc<Segment>],
    before: &Before<'_>,
    end: u64,
    why: Option<&str>,
) -> Result<(), StoreError> {
    match tail::search(segments, end)? {
        Some(behind) if !before.settings.truncate_corrupt && !power_cut(before, end, &behind) => {
            Err(behind.damage(segments, end, why))
        }
        _ => Ok(()),
    }
}

/// Makes the end of what was read the end of the log.
fn cut(
    log: &CommitLog,
    segments: &[Arc<Segment>],
    found: &mut Recovered,
    why: Option<String>,
) -> Result<(), StoreError> {
    let dirty = tail::dirty_end(segments, found.end)?;
    tail::erase(log, segments, found.end)?;
    found.cut_bytes = dirty - found.end;
    if found.cut_bytes > 0 {
        let why = why.unwrap_or_else(|| "no record".to_owned());
        found.notes.push(format!(
            "{} bytes of the log from offset {} to {dirty} were cut: {why} at offset {}",
            found.cut_bytes, found.end, found.end
        ));
    }
    Ok(())
}

/// Whether a power cut can have left valid records behind a place that cannot be read.
fn power_cut(before: &Before<'_>, end: u64, behind: &Behind) -> bool {
    let late = behind.last_time.saturating_sub(behind.first_time) <= FLUSH_LATE_MS;
    before.may_be_lost(end).unwrap_or(!before.clean && late)
}
