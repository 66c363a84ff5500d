//! Appending the bytes of another broker's log at the same offsets (spec: ha §1.3).
//!
//! Pieces may be cut anywhere, so the log of a slave can end inside a record. `whole` is the offset
//! behind the last complete one: dispatch goes no further, and nothing else is appended while the
//! two differ. What cannot be the continuation of a log is refused before a byte of it is written: each
//! record is verified, its lengths and its body's CRC, before it counts as part of the log. After a
//! refusal the log ends at `whole` again, so that the damaged record is copied anew as a whole.

use super::append::Writer;
use super::CommitLog;
use crate::codec::record::{self, Parsed, BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2};
use crate::commit_log::scan;
use crate::disk::segment::Lease;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::health::hold;
use std::sync::atomic::Ordering;

/// Bytes that tell how long a record is, and where it says that it starts.
const FRONT: usize = 36;
/// Where a record says its own offset.
const OFFSET_AT: usize = 28;
/// No record is shorter: its fields without topic, body and properties.
const RECORD_MIN: u64 = 88;

impl CommitLog {
    /// Offset behind the last complete record.
    pub fn whole(&self) -> u64 {
        self.whole.load(Ordering::Acquire)
    }

    /// Leases what other brokers may copy from `from` on: at most `most` bytes of one file, none
    /// behind `limit`; `None` when the bytes there are not kept any more.
    pub fn copyable(&self, from: u64, most: u64, limit: u64) -> Option<Lease> {
        let limit = limit.min(from.saturating_add(most));
        self.rest(from, limit.max(from))
    }

    /// Appends bytes of another log, which has them at `from`; returns where the log ends now.
    ///
    /// An empty log begins there, which must be the start of a file.
    pub fn replicate(&self, from: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        self.replicate_held(&mut hold(&self.writer), from, bytes)
    }

    fn replicate_held(
        &self,
        writer: &mut Writer,
        from: u64,
        bytes: &[u8],
    ) -> Result<u64, StoreError> {
        if let Some(why) = self.health.refusal() {
            return Err(StoreError::new(ErrorKind::Io, why));
        }
        if !writer.takes_copies() {
            return Err(StoreError::usage(format!(
                "bytes of offset {from} are not appended: this log is not a copy any more"
            )));
        }
        if writer.position == 0 && self.segments().is_empty() && from > 0 {
            self.begin_at(writer, from)?;
        }
        if from != writer.position {
            return Err(StoreError::usage(format!(
                "bytes of offset {from} do not follow the log, which ends at {}",
                writer.position
            )));
        }
        let whole = match self.follow_records(from, bytes) {
            Ok(whole) => whole,
            Err(error) => {
                self.counters.refused_copies.fetch_add(1, Ordering::Relaxed);
                self.forget_half(writer)?;
                return Err(error);
            }
        };
        self.copied.store(true, Ordering::Release);
        writer.is_copy = true;
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.write_piece(writer, rest)?;
        }
        self.whole.store(whole, Ordering::Release);
        if self.settings.sync_flush {
            self.flush_wanted.notify();
        }
        self.has_grown();
        Ok(writer.position)
    }

    /// Lets an empty log begin elsewhere than at 0: older files of the master are not copied.
    fn begin_at(&self, writer: &mut Writer, base: u64) -> Result<(), StoreError> {
        if !base.is_multiple_of(self.settings.file_size) {
            return Err(StoreError::usage(format!(
                "the copied log begins at offset {base}, where no file of {} bytes begins; \
                 mappedFileSizeCommitLog must be the master's",
                self.settings.file_size
            )));
        }
        self.restart_files(base)?;
        writer.position = base;
        self.flushed_whole.store(base, Ordering::Release);
        self.flushed.store(base, Ordering::Release);
        self.whole.store(base, Ordering::Release);
        self.written.store(base, Ordering::Release);
        Ok(())
    }

    /// Writes as much as the last file takes, into a new one when it is full; returns the rest.
    fn write_piece<'b>(
        &self,
        writer: &mut Writer,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], StoreError> {
        if writer
            .segment
            .as_ref()
            .is_none_or(|segment| writer.position >= segment.end())
        {
            let next = self.take_next()?;
            self.change_segments(|list| list.push(next.clone()));
            writer.segment = Some(next);
            self.file_wanted.notify();
        }
        let Some(segment) = writer.segment.clone() else {
            return Err(StoreError::usage("there is no file to write to"));
        };
        let room = usize::try_from(segment.end() - writer.position).unwrap_or(usize::MAX);
        let (piece, rest) = bytes.split_at(room.min(bytes.len()));
        if let Err(error) = segment.write(piece, writer.position) {
            let error = StoreError::io("write", segment.path(), &error);
            self.undo(writer, &segment, piece.len() as u64, &error);
            return Err(error);
        }
        writer.position += piece.len() as u64;
        self.written.store(writer.position, Ordering::Release);
        Ok(rest)
    }

    /// Takes back what was copied of a record that is not whole; returns where the log ends then.
    pub(crate) fn end_whole(&self) -> Result<u64, StoreError> {
        let mut writer = hold(&self.writer);
        self.forget_half(&mut writer)?;
        Ok(writer.position)
    }

    /// Takes back what was copied of a record that is not whole.
    pub(super) fn forget_half(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let whole = self.whole();
        if writer.position <= whole {
            return Ok(());
        }
        let Some(segment) = self.segment_at(whole) else {
            return Ok(());
        };
        // A flush that is under way must not say that these bytes are durable.
        let _no_flush = hold(&self.flushing);
        segment.zero(whole, writer.position)?;
        writer.position = whole;
        writer.segment = Some(segment);
        self.written.store(whole, Ordering::Release);
        self.flushed.fetch_min(whole, Ordering::AcqRel);
        Ok(())
    }

    /// Walks over the records that `bytes` completes; returns the offset behind the last of them.
    fn follow_records(&self, from: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        let end = from.saturating_add(bytes.len() as u64);
        let mut whole = self.whole();
        while whole < end {
            let mut front = [0; FRONT];
            let known = self.front(whole, from, bytes, &mut front);
            let front = front.get(..known).unwrap_or_default();
            match self.record_size(whole, front)? {
                Some(size) if whole.saturating_add(size) <= end => {
                    self.verify(whole, size, from, bytes)?;
                    whole += size;
                }
                _ => break,
            }
        }
        Ok(whole)
    }

    /// Checks the lengths and the body's CRC of the record at `at`, which `bytes` completes.
    fn verify(&self, at: u64, size: u64, from: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let fresh = at.saturating_sub(from);
        let end = index(at.saturating_add(size).saturating_sub(from));
        let fresh = bytes.get(index(fresh)..end).unwrap_or_default();
        if at >= from {
            return verified(at, fresh);
        }
        let old = self.lease(at, from - at).ok_or_else(|| {
            StoreError::usage(format!(
                "the copied record at offset {at} cannot be read again"
            ))
        })?;
        verified(at, &[&old[..], fresh].concat())
    }

    /// Copies the front of the record at `at` together: from the log, then from what comes behind.
    fn front(&self, at: u64, from: u64, bytes: &[u8], front: &mut [u8; FRONT]) -> usize {
        let mut known = 0;
        if at < from {
            let old = self.rest(at, from.min(at + FRONT as u64));
            for (place, byte) in front.iter_mut().zip(old.iter().flat_map(|old| old.iter())) {
                *place = *byte;
                known += 1;
            }
        }
        let skip = usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX);
        let fresh = bytes.get(skip..).unwrap_or_default();
        let left = front.get_mut(known..).unwrap_or_default();
        let count = left.len().min(fresh.len());
        for (place, byte) in left.iter_mut().zip(fresh) {
            *place = *byte;
        }
        known + count
    }

    /// Bytes of the record or filler that starts at `at`; `None` while too little of it is known.
    fn record_size(&self, at: u64, front: &[u8]) -> Result<Option<u64>, StoreError> {
        let refuse = |what: &str| {
            StoreError::usage(format!(
                "what was copied to offset {at} is no record: {what}"
            ))
        };
        let Some((size, rest)) = front.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let Some(magic) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let size = u64::from(u32::from_be_bytes(*size));
        let left = self.next_file_start(at) - at;
        match u32::from_be_bytes(*magic) {
            MAGIC_BLANK if size == left => return Ok(Some(size)),
            MAGIC_BLANK => {
                return Err(refuse(
                    "a file ends where none of this log does; is mappedFileSizeCommitLog the \
                     master's?",
                ))
            }
            MAGIC_V1 | MAGIC_V2 => {}
            _ => return Err(refuse("it has an unknown magic number")),
        }
        if size < RECORD_MIN || size + BLANK_SIZE as u64 > left {
            return Err(refuse("its length is impossible in this file"));
        }
        let own = front.get(OFFSET_AT..).and_then(|rest| rest.first_chunk());
        match own.map(|own| u64::from_be_bytes(*own)) {
            Some(own) if own != at => Err(refuse("it belongs elsewhere")),
            _ => Ok(Some(size)),
        }
    }
}

fn verified(at: u64, bytes: &[u8]) -> Result<(), StoreError> {
    match record::parse(bytes, 0, true) {
        Parsed::Record { .. } | Parsed::Blank { .. } => Ok(()),
        Parsed::Broken { why, .. } => Err(StoreError::usage(format!(
            "what was copied to offset {at} is damaged: {}",
            scan::text(why)
        ))),
        Parsed::End => Err(StoreError::usage(format!(
            "what was copied to offset {at} is no record: it is empty"
        ))),
    }
}
