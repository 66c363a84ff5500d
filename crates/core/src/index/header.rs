//! The first 40 bytes of an index file.

use super::entry::Entry;

/// Bytes of the header.
pub(super) const HEADER_SIZE: usize = 40;

/// What a file knows about itself; times are Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) begin_time: i64,
    pub(super) end_time: i64,
    pub(super) begin_phy: i64,
    pub(super) end_phy: i64,
    pub(super) slots_used: i32,
    /// Number of the next entry; the first is 1.
    pub(super) next: i32,
}

impl Header {
    /// The header of a file without entries that follows one which ended at `time` and `phy`.
    pub(super) fn after(time: i64, phy: i64) -> Self {
        Self {
            begin_time: time,
            end_time: time,
            begin_phy: phy,
            end_phy: phy,
            slots_used: 0,
            next: 1,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let longs = [self.begin_time, self.end_time, self.begin_phy, self.end_phy];
        let (head, ints) = bytes.split_at_mut(32);
        for (to, value) in head.chunks_exact_mut(8).zip(longs) {
            to.copy_from_slice(&value.to_be_bytes());
        }
        for (to, value) in ints.chunks_exact_mut(4).zip([self.slots_used, self.next]) {
            to.copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// Reads a header; a counter below the first entry counts as no entry.
    pub(super) fn decode(bytes: &[u8; HEADER_SIZE]) -> Self {
        let (head, ints) = bytes.split_at(32);
        let mut longs = head.chunks_exact(8).map(long);
        let mut ints = ints.chunks_exact(4).map(int);
        Self {
            begin_time: longs.next().unwrap_or(0),
            end_time: longs.next().unwrap_or(0),
            begin_phy: longs.next().unwrap_or(0),
            end_phy: longs.next().unwrap_or(0),
            slots_used: ints.next().unwrap_or(0),
            next: ints.next().unwrap_or(0).max(1),
        }
    }

    /// Store time of an entry, rounded down to seconds after the begin.
    pub(super) fn time_of(&self, entry: &Entry) -> i64 {
        let after = i64::from(entry.seconds).saturating_mul(1000);
        self.begin_time.saturating_add(after)
    }

    /// Whether an entry may have a time between `begin` and `end`.
    pub(super) fn overlaps(&self, begin: i64, end: i64) -> bool {
        self.next > 1 && begin <= self.end_time && end >= self.begin_time
    }
}

/// A big-endian i64 at the start of `bytes`, 0 when they are too few.
pub(super) fn long(bytes: &[u8]) -> i64 {
    bytes
        .first_chunk::<8>()
        .map_or(0, |chunk| i64::from_be_bytes(*chunk))
}

/// A big-endian i32 at the start of `bytes`, 0 when they are too few.
pub(super) fn int(bytes: &[u8]) -> i32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |chunk| i32::from_be_bytes(*chunk))
}
