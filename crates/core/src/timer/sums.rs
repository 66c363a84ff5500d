//! Checksums over the timer log: its units have none, and Java's form leaves no room for one.
//!
//! A unit that was changed into another valid one can lead its message to a later slot, where
//! nothing in the log contradicts it. So each file has a checksum of its units: of the closed files
//! and of the one that is being written, up to the checkpoint. They stand in `timercheck`, behind
//! Java's numbers, and count only while a block of ours vouches for those.
//!
//! Invariant: a unit that a checksum covers is never written again where it stands.

use super::checkpoint::{low, SUMS_AT};
use super::log::{TimerLog, SIZE};
use super::unit::{is_blank, Unit, BLANK_SIZE};
use crate::disk::segment::Segment;
use crate::recovery::checkpoint::{fill, number};
use crate::store::error::StoreError;
use crc32fast::Hasher;

const SUMS_MAGIC: u64 = 0x526F_7175_6574_0058;
const SUM_SIZE: usize = 24;
/// Files whose checksums have room; of more files the newest.
pub(super) const SUMS_MAX: usize = (4096 - SUMS_AT - 24) / SUM_SIZE;
/// Units read together at a start: not through the map, whose pages would stay with the process.
const PIECE: u64 = SIZE * 16_384;

/// What a file of the log holds up to a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSum {
    /// Position of the file's first byte.
    pub base: u64,
    /// Position behind the last unit that is covered.
    pub end: u64,
    /// CRC-32 of the bytes between.
    pub sum: u32,
}

impl FileSum {
    pub(super) fn empty(base: u64) -> Self {
        Self {
            base,
            end: base,
            sum: 0,
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut hasher = Hasher::new_with_initial(self.sum);
        hasher.update(bytes);
        self.sum = hasher.finalize();
        self.end += bytes.len() as u64;
    }
}

/// The checksums of a log: of closed files, ascending, and of the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) closed: Vec<FileSum>,
    pub(super) open: FileSum,
}

impl Sums {
    /// Goes on with the file that begins at `base`.
    pub(super) fn close(&mut self, base: u64) {
        if self.open.end > self.open.base {
            self.closed.push(self.open);
        }
        self.open = FileSum::empty(base);
    }

    /// The first file whose units are not those that were noted, of files up to where a scan went.
    pub(super) fn first_other(&self, noted: &Noted) -> Option<u64> {
        let mut found = self.closed.iter().chain([&self.open]);
        found.find_map(|it| {
            let row = if it.base == noted.mark.base {
                (it.end == noted.mark.end).then_some(noted.mark)
            } else {
                noted.closed.iter().copied().find(|row| row.base == it.base)
            };
            let is_other = row.is_some_and(|row| (row.end, row.sum) != (it.end, it.sum));
            (is_other && it.end > it.base).then_some(it.base)
        })
    }
}

/// What the checkpoint says of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    pub(super) closed: Vec<FileSum>,
    /// The file that was being written, up to the checkpoint.
    pub(super) mark: FileSum,
}

/// Where a scan ended, and the checksums of what it went over.
pub(super) struct Scanned {
    pub(super) end: u64,
    pub(super) sums: Sums,
}

impl TimerLog {
    /// Goes over the units from the file that holds `from` to the first place where none stands, to
    /// `until`, or to the first one that `keep` refuses.
    ///
    /// The checksums begin with that file.
    pub(super) fn scan(
        &self,
        from: u64,
        until: u64,
        mut keep: impl FnMut(u64, &Unit) -> bool,
    ) -> Result<Scanned, StoreError> {
        let first = self.segments.iter().rposition(|it| it.base() <= from);
        let files = self.segments.get(first.unwrap_or(0)..).unwrap_or_default();
        let base = files.first().map_or(self.min(), |file| file.base());
        let mut scanned = Scanned {
            end: base,
            sums: Sums {
                closed: Vec::new(),
                open: FileSum::empty(base),
            },
        };
        for file in files {
            if scanned.sums.open.end > scanned.sums.open.base {
                scanned.sums.close(file.base());
            }
            scanned.sums.open = FileSum::empty(file.base());
            let is_full = scan_file(file, until, &mut scanned.sums.open, &mut keep)?;
            let open = scanned.sums.open;
            if open.end > open.base {
                scanned.end = open.end;
            }
            if !is_full {
                break;
            }
        }
        Ok(scanned)
    }

    /// Ends the log where a scan from its first file ended; returns the removed bytes.
    pub(super) fn end_at(&mut self, scanned: Scanned) -> Result<u64, StoreError> {
        self.sums = scanned.sums;
        self.cut(scanned.end)
    }

    /// Takes over the checksums of the closed files that the checkpoint noted.
    pub(super) fn take_closed(&mut self, closed: Vec<FileSum>) {
        let (min, base) = (self.min(), self.sums.open.base);
        let is_ours = |it: &FileSum| (min..base).contains(&it.base);
        self.sums.closed = closed.into_iter().filter(is_ours).collect();
    }

    /// The file that is being written and its checksum, up to the end of the log.
    pub(super) fn mark(&mut self) -> FileSum {
        let written = self.end() - self.gathered.len() as u64;
        let from = usize::try_from(self.sums.open.end.saturating_sub(written)).unwrap_or(0);
        self.sums
            .open
            .add(self.gathered.get(from..).unwrap_or_default());
        debug_assert_eq!(self.sums.open.end, self.end());
        self.sums.open
    }

    /// The checksums of the files before the one that is being written, ascending.
    pub(super) fn closed(&self) -> &[FileSum] {
        &self.sums.closed
    }

    /// Makes the checksums those of a log that ends at a position.
    pub(super) fn sum_up_to(&mut self, end: u64) -> Result<(), StoreError> {
        let last = self.segments.last().map(std::sync::Arc::clone);
        let base = last.as_ref().map_or(end, |last| last.base());
        self.sums.closed.retain(|it| it.base < base);
        if (self.sums.open.base, self.sums.open.end) == (base, end) {
            return Ok(());
        }
        self.sums.open = FileSum::empty(base);
        let Some(last) = last else { return Ok(()) };
        while self.sums.open.end < end {
            let at = self.sums.open.end;
            let size = usize::try_from((end - at).min(PIECE)).unwrap_or(0);
            let mut piece = vec![0; size];
            last.read(&mut piece, at)?;
            self.sums.open.add(&piece);
        }
        Ok(())
    }
}

/// Goes over the units of a file; true when another file may follow.
fn scan_file(
    file: &Segment,
    until: u64,
    sum: &mut FileSum,
    keep: &mut impl FnMut(u64, &Unit) -> bool,
) -> Result<bool, StoreError> {
    let blank = BLANK_SIZE as u64;
    let mut buffer = Vec::new();
    loop {
        let at = sum.end;
        // A unit leaves room for the filler that closes the file.
        let left = file.end() - at;
        if left < SIZE + blank {
            return Ok(true);
        }
        let units = (left - blank).min(until.saturating_sub(at)).min(PIECE) / SIZE;
        if units == 0 {
            return Ok(false);
        }
        buffer.resize(usize::try_from(units * SIZE).unwrap_or(0), 0);
        file.read(&mut buffer, at)?;
        let mut taken = 0;
        for bytes in buffer.chunks_exact(super::UNIT_SIZE) {
            let here = at + taken as u64;
            if !Unit::decode(bytes).is_some_and(|unit| keep(here, &unit)) {
                break;
            }
            taken += bytes.len();
        }
        sum.add(buffer.get(..taken).unwrap_or_default());
        if taken < buffer.len() {
            let rest = buffer.get(taken..).unwrap_or_default();
            return Ok(is_blank(rest));
        }
    }
}

pub(super) fn encode_sums(sums: &[FileSum]) -> Vec<u8> {
    let rows = sums.get(sums.len().saturating_sub(SUMS_MAX)..);
    let rows = rows.unwrap_or_default();
    let mut numbers = vec![SUMS_MAGIC, rows.len() as u64];
    numbers.extend(
        rows.iter()
            .flat_map(|row| [row.base, row.end, u64::from(row.sum)]),
    );
    let mut bytes = vec![0; 8 * numbers.len() + 8];
    fill(&mut bytes, 0, &numbers);
    let size = 8 * numbers.len();
    let sum = crc32fast::hash(bytes.get(..size).unwrap_or_default());
    fill(&mut bytes, size, &[u64::from(sum)]);
    bytes
}

/// The checksums of closed files; none where the bytes are not what was written.
pub(super) fn decode_sums(bytes: &[u8]) -> Vec<FileSum> {
    let at = |at: usize| number(bytes, at);
    let count = usize::try_from(at(8)).unwrap_or(usize::MAX);
    if at(0) != SUMS_MAGIC || count > SUMS_MAX {
        return Vec::new();
    }
    let size = 16 + count * SUM_SIZE;
    let sum = bytes.get(..size).map(crc32fast::hash);
    if sum.is_none_or(|sum| u64::from(sum) != at(size)) {
        return Vec::new();
    }
    let rows = (0..count).map(|row| 16 + row * SUM_SIZE);
    rows.map(|row| FileSum {
        base: at(row),
        end: at(row + 8),
        sum: low(at(row + 16).cast_signed()),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::{FileSum, Noted, Sums};

    fn sum(base: u64, end: u64, sum: u32) -> FileSum {
        FileSum { base, end, sum }
    }

    #[test]
    fn sum_of_parts_is_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = crc32fast::hash(&bytes);
        for cut in [0, 1, 51, 52, 255, 256] {
            let mut it = FileSum::empty(100);
            it.add(&bytes[..cut]);
            it.add(&bytes[cut..]);
            assert_eq!(it, sum(100, 356, whole), "{cut}");
        }
    }

    #[test]
    fn first_file_with_other_units_is_found_among_those_that_were_noted() {
        let noted = Noted {
            closed: vec![sum(0, 90, 1), sum(100, 190, 2)],
            mark: sum(200, 252, 3),
        };
        let scan = |closed: Vec<FileSum>, open| Sums { closed, open };
        let first = sum(0, 90, 1);
        for (found, other) in [
            (scan(vec![first, sum(100, 190, 2)], sum(200, 252, 3)), None),
            (
                scan(vec![first, sum(100, 190, 2)], sum(200, 252, 4)),
                Some(200),
            ),
            (
                scan(vec![first, sum(100, 190, 9)], sum(200, 252, 4)),
                Some(100),
            ),
            (
                scan(vec![sum(0, 90, 7), sum(100, 190, 9)], sum(200, 252, 3)),
                Some(0),
            ),
            (scan(vec![sum(0, 52, 1)], sum(100, 190, 2)), Some(0)),
            // A scan that ended before the mark says nothing of the file it ended in.
            (scan(vec![first, sum(100, 190, 2)], sum(200, 204, 9)), None),
            (scan(vec![first], FileSum::empty(100)), None),
        ] {
            assert_eq!(found.first_other(&noted), other, "{found:?}");
        }
        // Files that nobody noted are not judged.
        let found = scan(vec![first], sum(100, 190, 2));
        assert_eq!(found.first_other(&Noted::default()), None);
    }

    #[test]
    fn file_without_units_leaves_no_sum() {
        let mut sums = Sums::default();
        sums.close(100);
        assert_eq!((sums.closed.len(), sums.open), (0, FileSum::empty(100)));
        sums.open.add(&[1; 52]);
        sums.close(200);
        assert_eq!(sums.closed.first().map(|it| it.end), Some(152));
    }
}
