//! What lies behind the end of the log: searching it for valid records, and erasing it.

use crate::commit_log::CommitLog;
use crate::record::{self, Parsed, RecordHead, RecordView, MAGIC_V1, MAGIC_V2};
use crate::segment::{all_zero, Segment};
use crate::store_error::StoreError;
use std::sync::Arc;

/// Bytes that are passed over at once when all are zero.
const BLOCK: u64 = 1 << 16;

/// What a disk writes whole.
const SECTOR: usize = 512;

/// Whether a sector of the record was never written, where no checksum would tell: topic and
/// properties. Nothing but zeros is where the log has not been yet.
pub(crate) fn torn(record: &RecordView<'_>, at: usize) -> bool {
    let end = at + record.total_size as usize;
    let properties = end - record.properties.len().min(end);
    let topic = properties.saturating_sub(2 + record.topic.len());
    never_written(record.topic, topic) || never_written(record.properties, properties)
}

/// Whether all of `bytes`, which begin at `at` of their file, that lie in one sector are zero.
fn never_written(bytes: &[u8], at: usize) -> bool {
    let first = (SECTOR - at % SECTOR).min(bytes.len());
    let (front, rest) = bytes.split_at(first);
    let mut parts = std::iter::once(front).chain(rest.chunks(SECTOR));
    parts.any(|part| !part.is_empty() && all_zero(part))
}

/// Valid records behind the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Where the first one starts.
    pub(crate) first: u64,
    /// Its store time.
    pub(crate) first_time: i64,
    /// The store time of the last one.
    pub(crate) last_time: i64,
}

/// Looks for whole records with a right checksum that stand where they say, from `end` on.
pub(crate) fn search(segments: &[Arc<Segment>], end: u64) -> Result<Option<Behind>, StoreError> {
    let mut behind: Option<Behind> = None;
    for segment in segments.iter().filter(|segment| segment.end() > end) {
        search_file(segment, end.max(segment.base()), &mut behind)?;
    }
    Ok(behind)
}

/// The valid records in one file from `from` on, folded into `behind`.
fn search_file(
    segment: &Segment,
    from: u64,
    behind: &mut Option<Behind>,
) -> Result<(), StoreError> {
    // Inside a record there is no other one.
    let mut at = from;
    // Not through the map, in which a gibibyte of zeros would stay with the process.
    let mut buffer = Vec::new();
    for (start, end) in segment.data(from)? {
        let mut block = start.max(at);
        while block < end {
            let next = end.min(block + BLOCK);
            // A head may begin in front of a block and reach into it.
            let base = block.max(from + 4) - 4;
            let size = segment.end().min(next + 4) - base;
            buffer.resize(usize::try_from(size).unwrap_or(0), 0);
            segment.read(&mut buffer, base)?;
            if !all_zero(&buffer) {
                search_block(segment, base, &buffer, &mut at, behind);
            }
            block = next.max(at.min(end));
        }
    }
    Ok(())
}

/// Finds records whose magic number begins in `bytes`, which are at log offset `base`.
fn search_block(
    segment: &Segment,
    base: u64,
    bytes: &[u8],
    at: &mut u64,
    behind: &mut Option<Behind>,
) {
    let first = (MAGIC_V1 >> 24) as u8;
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == first) {
        let Some(start) = (base + index as u64)
            .checked_sub(4)
            .filter(|start| *start >= *at)
        else {
            continue;
        };
        if let Some((time, size)) = record_at(segment, start) {
            *at = start + size;
            let known = behind.unwrap_or(Behind {
                first: start,
                first_time: time,
                last_time: time,
            });
            *behind = Some(Behind {
                last_time: time,
                ..known
            });
        }
    }
}

fn record_at(segment: &Segment, at: u64) -> Option<(i64, u64)> {
    let bytes = segment.bytes(at, segment.end())?;
    let magic = u32::from_be_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    if magic != MAGIC_V1 && magic != MAGIC_V2 {
        return None;
    }
    let head = RecordHead::read(bytes)?;
    if head.physical_offset.cast_unsigned() != at {
        return None;
    }
    match record::parse(bytes, 0, true) {
        Parsed::Record { view, size } => Some((view.store_timestamp, u64::from(size))),
        _ => None,
    }
}

/// Zeroes what is behind `end` and removes the files that only hold such; returns the bytes zeroed.
///
/// It is durable when this returns: whatever was cut never comes back.
pub(crate) fn erase(
    log: &CommitLog,
    segments: &[Arc<Segment>],
    end: u64,
) -> Result<u64, StoreError> {
    // Newest first, so that a crash in between leaves no gap.
    log.drop_from(end.saturating_add(1))?;
    let mut erased = 0;
    for segment in segments.iter().filter(|s| s.base() <= end && end < s.end()) {
        let wrote = segment.zero(end, segment.end())?;
        if wrote > 0 {
            segment.sync()?;
        }
        erased += wrote;
    }
    Ok(erased)
}
