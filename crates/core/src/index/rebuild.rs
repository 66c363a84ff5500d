//! Making the slot table anew from the entries, after a crash or when the log was cut.

use std::io;

use super::entry::{Entry, ENTRY_SIZE};
use super::file::IndexFile;
use super::header::Header;
use crate::disk::DiskFile;

/// Entries read at once.
const CHUNK: i32 = 8192;

impl IndexFile {
    /// As [`IndexFile::rebuild`] of a file that is in use.
    pub(super) fn rebuild_written(&self, phy_end: u64) -> io::Result<i32> {
        self.write_tail()?;
        self.rebuild(phy_end, i64::MAX)
    }

    /// Keeps the entries before the first that is not whole or lies at `phy_end` or later, and
    /// rebuilds header and slots from them; returns how many are left.
    ///
    /// Entries younger than `safe` are written again: a sync that failed in the last run has left
    /// pages that the kernel takes for written.
    pub(super) fn rebuild(&self, phy_end: u64, safe: i64) -> io::Result<i32> {
        let mut state = self.lock();
        let old = state.header;
        state.reset(Header {
            next: 1,
            slots_used: 0,
            ..old
        });
        let file = self.handle()?;
        let end = old.next.min(self.shape.limit());
        let mut kept: Option<Entry> = None;
        let mut number = 1;
        while number < end {
            let count = CHUNK.min(end - number);
            let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * ENTRY_SIZE];
            let at = self.shape.entry_at(number);
            file.read_at(&mut bytes, at)?;
            let mut linked = Vec::with_capacity(bytes.len());
            for chunk in bytes.chunks_exact(ENTRY_SIZE) {
                let entry = Entry::decode(chunk);
                if !follows(&entry, kept.as_ref(), number, phy_end) {
                    break;
                }
                // A chain that an earlier crash had cut is whole again by this.
                self.link(&mut state, entry.hash, entry.phy, entry.seconds)?;
                linked.append(&mut state.take_tail());
                kept = Some(entry);
                number += 1;
            }
            let time = kept.map_or(0, |last| old.time_of(&last));
            if time.saturating_add(999) > safe || !bytes.starts_with(&linked) {
                file.write_at(&linked, at)?;
            }
            if linked.len() < bytes.len() {
                break;
            }
        }
        if let Some(last) = kept.filter(|_| number < old.next) {
            state.header.end_time = old.time_of(&last);
            state.header.end_phy = last.phy;
        }
        Ok(number - 1)
    }
}

/// Whether an entry can be what was written after `before`; half-written ones have zeros somewhere.
fn follows(entry: &Entry, before: Option<&Entry>, number: i32, phy_end: u64) -> bool {
    let in_log = u64::try_from(entry.phy).is_ok_and(|phy| phy < phy_end);
    let chained = entry.previous >= 0 && entry.previous < number;
    let ordered = before.is_none_or(|last| last.phy <= entry.phy);
    let nothing = entry.hash == 0 && entry.phy == 0;
    in_log && chained && ordered && !nothing && entry.hash >= 0 && entry.seconds >= 0
}

/// Zeroes data between `from` and `to` in pages that `in_memory` does not know.
pub(super) fn clear_holes(
    file: &dyn DiskFile,
    from: u64,
    to: u64,
    in_memory: impl Fn(u64) -> bool,
) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let Some(data) = file.seek_data(at)? else {
            break;
        };
        at = data.max(at);
        if at >= to {
            break;
        }
        let end = ((at / 4096 + 1) * 4096).min(to);
        if !in_memory(at) {
            let zeros = [0; 4096];
            let len = usize::try_from(end - at).unwrap_or(0).min(zeros.len());
            file.write_at(zeros.get(..len).unwrap_or_default(), at)?;
        }
        at = end;
    }
    Ok(())
}
