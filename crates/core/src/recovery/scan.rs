//! Reading the log at a start, file by file, while queues and index get what they lack.
//!
//! What the disk cannot give reads as zeros, and so does the end of the log. Invariant: a scan never
//! ends at a page that cannot be read; it fails, so that nothing behind it is cut.

use super::queue_ends::Seen;
use super::{tail, Before, Plan, Recovered};
use crate::codec::record::{self, Parsed, RecordView};
use crate::consume_queue::light_queues;
use crate::disk::bad_pages;
use crate::disk::segment::Segment;
use crate::dispatch::{Derived, Found, LastRecord};
use crate::store::error::StoreError;
use std::sync::Arc;

/// How a scan ended.
pub(super) enum Scan {
    /// At the end of all that can be read.
    End(Recovered, Option<String>),
    /// A queue lacks units that only older files have.
    Hole,
}

/// Reads the log from where a plan begins; queues and index get what they lack.
pub(super) fn scan(
    segments: &[Arc<Segment>],
    derived: &Derived,
    before: &Before<'_>,
    plan: Plan,
    seen: &mut Seen,
) -> Result<Scan, StoreError> {
    let mut found = Recovered {
        end: plan.from,
        ..Recovered::default()
    };
    for segment in segments
        .iter()
        .filter(|segment| segment.base() >= plan.from)
    {
        if segment.base() != found.end {
            return Ok(Scan::End(found, Some("a file is missing".to_owned())));
        }
        let map = segment.map_anew()?;
        let ending = scan_file(&map, derived, before, plan, (seen, &mut found))?;
        // What cannot be read looks like zeros, and so like the end of the log.
        if matches!(ending, Ending::Unreadable) || bad_pages::is_bad(&map) {
            return Err(segment.unreadable());
        }
        match ending {
            Ending::Hole => return Ok(Scan::Hole),
            Ending::Log(why) => return Ok(Scan::End(found, why)),
            Ending::File | Ending::Unreadable => found.end = segment.end(),
        }
    }
    Ok(Scan::End(found, None))
}

/// Where the scan of a file ended.
enum Ending {
    /// At the end of the file.
    File,
    /// At the end of the log, and why something there is no record.
    Log(Option<String>),
    /// A queue lacks units that only older files have.
    Hole,
    /// At a record that the disk cannot give.
    Unreadable,
}

fn scan_file(
    bytes: &[u8],
    derived: &Derived,
    before: &Before<'_>,
    plan: Plan,
    (seen, found): (&mut Seen, &mut Recovered),
) -> Result<Ending, StoreError> {
    let mut at = 0;
    loop {
        match record::parse(bytes, at, before.settings.check_crc) {
            Parsed::Record { view, size } if in_place(&view, found.end) => {
                let end = at + size as usize;
                if !bad_pages::is_readable(bytes.get(at..end).unwrap_or_default()) {
                    return Ok(Ending::Unreadable);
                }
                if lacks_a_part(before, bytes, at, &view) {
                    return Ok(Ending::Log(Some("a part is missing".to_owned())));
                }
                if !restore(derived, &view, plan, found.end, seen)? {
                    return Ok(Ending::Hole);
                }
                found.last = Some(LastRecord {
                    start: found.end,
                    time: view.store_timestamp,
                });
                found.records += 1;
                found.bytes += u64::from(size);
                found.end += u64::from(size);
                at = end;
            }
            Parsed::Blank { .. } => return Ok(Ending::File),
            Parsed::End => return Ok(Ending::Log(None)),
            Parsed::Record { .. } => {
                return Ok(Ending::Log(Some("it belongs elsewhere".to_owned())));
            }
            Parsed::Broken { why, .. } => {
                return Ok(Ending::Log(Some(format!("{why:?}").to_lowercase())));
            }
        }
    }
}

/// Whether a part of the record at `at` of its file may never have been written, although its lengths
/// and its body are right.
fn lacks_a_part(before: &Before<'_>, bytes: &[u8], at: usize, record: &RecordView<'_>) -> bool {
    let start = record.physical_offset.cast_unsigned();
    let end = at + record.total_size as usize;
    let is_torn = || tail::may_be_torn(bytes.get(at..end).unwrap_or_default(), record, at);
    let is_last = || matches!(record::parse(bytes, end, false), Parsed::End);
    (before.may_be_lost(start) == Some(true) && is_torn())
        || (before.may_be_unfinished(start) && tail::ends_in_zero(record) && is_last())
}

pub(super) fn in_place(record: &RecordView<'_>, at: u64) -> bool {
    record.physical_offset.cast_unsigned() == at
}

/// Gives a record's unit and keys back; false when units before it are missing from its queue.
fn restore(
    derived: &Derived,
    record: &RecordView<'_>,
    plan: Plan,
    at: u64,
    seen: &mut Seen,
) -> Result<bool, StoreError> {
    let topic = String::from_utf8_lossy(record.topic);
    let has_queue = Derived::is_queued(record) && !derived.deleted.covers(&topic, at);
    let places = derived.places(&topic, record);
    if has_queue {
        seen.add(record, at);
    }
    for (name, offset) in &places {
        seen.add_light(name, *offset, at);
    }
    if at < plan.queues && at <= plan.index {
        return Ok(true);
    }
    let found = Found::of(record);
    let whole = plan.queues <= plan.min;
    let is_hole = |topic: &str, queue_id, offset| {
        !whole && u64::try_from(offset).is_ok_and(|it| it > derived.queues.max(topic, queue_id))
    };
    if at >= plan.queues && has_queue {
        let place = (topic.as_ref(), record.queue_id, record.queue_offset);
        if is_hole(place.0, place.1, place.2) {
            return Ok(false);
        }
        derived.forget_deleted(place, at)?;
        derived.put_unit(&topic, record, &found)?;
    }
    for (name, offset) in places.into_iter().filter(|_| at >= plan.queues) {
        let place = (name, light_queues::QUEUE_ID, offset.cast_signed());
        if is_hole(place.0, place.1, place.2) {
            return Ok(false);
        }
        derived.forget_deleted(place, at)?;
        derived.put_light(&topic, record, &found, (name, offset))?;
    }
    if at > plan.index || plan.index == 0 {
        derived.put_keys(&topic, record, &found)?;
    }
    Ok(true)
}
