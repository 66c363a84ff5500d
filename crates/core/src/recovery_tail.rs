//! What lies behind the end of the log: searching it for valid records, and erasing it.

use crate::commit_log::CommitLog;
use crate::record::{self, Parsed, RecordHead, MAGIC_V1, MAGIC_V2};
use crate::segment::Segment;
use crate::store_error::StoreError;
use std::sync::Arc;

/// Bytes searched between two looks for the next data.
const PIECE: u64 = 1 << 20;

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
        let mut at = end.max(segment.base());
        while let Some((place, time, next)) = next_record(segment, at)? {
            behind = Some(Behind {
                last_time: time,
                ..behind.unwrap_or(Behind {
                    first: place,
                    first_time: time,
                    last_time: time,
                })
            });
            at = next;
        }
    }
    Ok(behind)
}

/// The first valid record at or behind `from` in one file: (start, store time, end).
fn next_record(segment: &Segment, from: u64) -> Result<Option<(u64, i64, u64)>, StoreError> {
    let mut at = from;
    while let Some(data) = segment.data_from(at)? {
        let end = segment.end().min(data + PIECE);
        // A magic number may begin in one piece and end in the next.
        let bytes = segment
            .bytes(data, segment.end().min(end + 8))
            .unwrap_or_default();
        for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == 0xDA) {
            let Some(start) = index.checked_sub(4) else {
                // The size would be in front of this piece.
                continue;
            };
            if let Some((time, size)) = record_at(segment, data + start as u64) {
                let start = data + start as u64;
                return Ok(Some((start, time, start + size)));
            }
        }
        at = if end == segment.end() { end } else { end - 4 };
    }
    Ok(None)
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
