//! What lies behind the end of the log: whether it was ever durable, searching it for valid
//! records, and erasing it.
//!
//! Invariants:
//!
//! * The log only grows, and what lies behind its end is zeros, durably. So whatever a power cut
//!   leaves of a sector is its content up to some earlier end of the log, and zeros from there on.
//! * A record whose last byte in a sector is not zero is whole in that sector. Sectors that end
//!   inside the body are covered by the body's checksum, lengths by their sum. Only topic and
//!   properties are left: they are whole unless one of them ends a sector with zeros.
//! * A record with zeros there counts as flushed only once the checkpoint says durably that it is
//!   (`commit_log::flush`). So a record that looks torn behind the noted end was never acknowledged,
//!   and one in front of it is as it was sent: it is never judged by its looks.
//! * A kill ends the write that it meets at a page, so only the last record of the log is unfinished
//!   then: from some byte on it is zeros. Lengths and sums tell, except in its last part: the properties,
//!   or the topic of a record without any. Neither ends in a zero when it is whole (`record::encode`).
//! * What lies inside the lengths of a record is content, and says nothing about the log.

use crate::codec::record::{self, Parsed, RecordHead, RecordView, MAGIC_V1, MAGIC_V2};
use crate::commit_log::CommitLog;
use crate::disk::segment::{all_zero, Segment};
use crate::recovery::extent::extent;
use crate::store::error::StoreError;
use std::sync::Arc;

/// Bytes that are passed over at once when all are zero.
const BLOCK: u64 = 1 << 16;

/// What a disk writes whole.
const SECTOR: usize = 512;

/// Whether a sector of the record with these bytes, which begins at `at` of its file, may be older
/// than the record where no checksum would tell: in topic and properties.
pub(crate) fn may_be_torn(bytes: &[u8], record: &RecordView<'_>, at: usize) -> bool {
    let properties = bytes.len().saturating_sub(record.properties.len());
    let topic = properties.saturating_sub(2 + record.topic.len());
    [
        (topic, record.topic.len()),
        (properties, record.properties.len()),
    ]
    .into_iter()
    .any(|(from, size)| ends_a_sector_with_zeros(bytes, from, from + size, at))
}

/// Whether nothing but zeros follows the last byte of `bytes[from..to]` in a sector, itself included.
fn ends_a_sector_with_zeros(bytes: &[u8], from: usize, to: usize, at: usize) -> bool {
    let mut begin = from;
    while begin < to {
        let sector = ((at + begin) / SECTOR + 1) * SECTOR - at;
        let last = to.min(sector) - 1;
        if bytes
            .get(last..sector.min(bytes.len()))
            .is_some_and(all_zero)
        {
            return true;
        }
        begin = sector;
    }
    false
}

/// Whether the last record of a log may be unfinished where no length and no sum would tell.
///
/// Each record that this program makes is whole when this is false. One that a Java master made may end
/// so when it is whole: on a slave it is copied again.
pub(crate) fn ends_in_zero(record: &RecordView<'_>) -> bool {
    record.properties.last().or(record.topic.last()) == Some(&0)
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

impl Behind {
    /// Returns the error of a log that cannot be read at `end` although records follow.
    pub(crate) fn damage(
        &self,
        segments: &[Arc<Segment>],
        end: u64,
        why: Option<&str>,
    ) -> StoreError {
        let file = segments.iter().find(|s| s.base() <= end && end < s.end());
        StoreError::corrupt(format!(
            "{}: no valid record at offset {end} ({}), but one follows at offset {}; \
             recoveryTruncateCorrupt=true cuts the log at {end} and loses what is behind",
            file.map_or_else(
                || "the log".to_owned(),
                |file| file.path().display().to_string()
            ),
            why.unwrap_or("nothing is there"),
            self.first,
        ))
    }
}

/// Looks for whole records with a right checksum that stand where they say, behind `end`: behind
/// all of the record that begins there, if its lengths say where it ends.
pub(crate) fn search(segments: &[Arc<Segment>], end: u64) -> Result<Option<Behind>, StoreError> {
    let mut behind: Option<Behind> = None;
    let from = end + unfinished(segments, end)?;
    for segment in segments.iter().filter(|segment| segment.end() > from) {
        search_file(segment, from.max(segment.base()), &mut behind)?;
    }
    Ok(behind)
}

/// The size of the unfinished or damaged record at `end`; 0 when that is not known.
fn unfinished(segments: &[Arc<Segment>], end: u64) -> Result<u64, StoreError> {
    let Some(segment) = segments.iter().find(|s| s.base() <= end && end < s.end()) else {
        return Ok(0);
    };
    let left = segment.end() - end;
    // Not through the map, whose pages would stay with the process.
    let mut bytes = vec![0; usize::try_from(left.min(8)).unwrap_or(0)];
    segment.read(&mut bytes, end)?;
    let size = bytes.first_chunk().map_or(0, |it| u32::from_be_bytes(*it));
    let magic = bytes.last_chunk().map_or(0, |it| u32::from_be_bytes(*it));
    if u64::from(size) > left || (magic != MAGIC_V1 && magic != MAGIC_V2) {
        return Ok(0);
    }
    bytes.resize(size as usize, 0);
    segment.read(&mut bytes, end)?;
    Ok(extent(&bytes, end).map_or(0, u64::from))
}

/// Where the last byte behind `end` is that is not zero; `end` when there is none.
pub(crate) fn dirty_end(segments: &[Arc<Segment>], end: u64) -> Result<u64, StoreError> {
    let mut buffer = Vec::new();
    for segment in segments.iter().rev().filter(|s| s.end() > end) {
        for (start, stop) in segment.data(end.max(segment.base()))?.into_iter().rev() {
            let mut to = stop;
            while to > start {
                let from = to.saturating_sub(BLOCK).max(start).max(end);
                buffer.resize(usize::try_from(to.saturating_sub(from)).unwrap_or(0), 0);
                segment.read(&mut buffer, from)?;
                if let Some(last) = buffer.iter().rposition(|byte| *byte != 0) {
                    return Ok(from + last as u64 + 1);
                }
                to = from;
            }
        }
    }
    Ok(end)
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

/// Zeroes what is behind `end` and removes the files that only hold such.
///
/// It is durable when this returns: whatever was cut never comes back.
pub(crate) fn erase(
    log: &CommitLog,
    segments: &[Arc<Segment>],
    end: u64,
) -> Result<(), StoreError> {
    // Newest first, so that a crash in between leaves no gap.
    log.drop_from(end.saturating_add(1))?;
    for segment in segments.iter().filter(|s| s.base() <= end && end < s.end()) {
        if segment.zero(end, segment.end())? > 0 {
            segment.sync()?;
        }
    }
    Ok(())
}
