//! One consume-queue file out of pieces.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{take, UNIT_BYTES};
use crate::consume_queue::{Unit, UNIT_SIZE};

/// Units read at a time.
const UNITS: u64 = 8192;
/// A jump in a queue that is wider is a damaged number, not a loss of messages.
const GAP_MAX: u64 = 16 * 300_000;

/// The units of one queue in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The piece.
    pub path: PathBuf,
    /// First byte in it.
    pub at: u64,
    /// How many units.
    pub count: u64,
}

/// Which units of a run count: those of records at `cut` or behind, from queue offset `next` on;
/// each has to go beyond all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// First log offset.
    pub cut: u64,
    /// First queue offset.
    pub next: u64,
}

/// What of a run counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// How many units.
    pub count: u64,
    /// Queue offset of the first.
    pub first: u64,
    /// Queue offset behind the last.
    pub end: u64,
    /// Behind the last record in the log.
    pub physical_end: u64,
}

/// Calls `visit` with every unit that counts until it says false; returns where offsets go on.
fn walk(
    run: &Run,
    floor: Floor,
    visit: &mut impl FnMut(u64, Unit) -> io::Result<bool>,
) -> io::Result<(u64, bool)> {
    let file = File::open(&run.path)?;
    let mut next = floor.next;
    let mut done = 0;
    while done < run.count {
        let count = UNITS.min(run.count - done);
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * UNIT_BYTES];
        file.read_exact_at(&mut bytes, run.at + done * UNIT_BYTES as u64)?;
        for mut rest in bytes.chunks_exact(UNIT_BYTES) {
            let offset = u64::from_be_bytes(take(&mut rest)?);
            let unit = Unit {
                physical_offset: u64::from_be_bytes(take(&mut rest)?),
                size: u32::from_be_bytes(take(&mut rest)?),
                tags_code: i64::from_be_bytes(take(&mut rest)?),
            };
            // A number that is taken already: whoever came first has it.
            let placed = offset >= next && (next == 0 || offset - next <= GAP_MAX);
            if unit.physical_offset < floor.cut || !placed {
                continue;
            }
            next = offset + 1;
            if !visit(offset, unit)? {
                return Ok((next, false));
            }
        }
        done += count;
    }
    Ok((next, true))
}

/// Says what of a run counts.
pub fn span(run: &Run, floor: Floor) -> io::Result<Span> {
    let mut found = Span::default();
    walk(run, floor, &mut |offset, unit| {
        if found.count == 0 {
            found.first = offset;
        }
        found.count += 1;
        found.end = offset + 1;
        found.physical_end = unit.end();
        Ok(true)
    })?;
    Ok(found)
}

/// Makes the queue file that begins with queue offset `begin` and holds `units`, of the runs that
/// touch it in the order of the log, and one behind for what its last units may need; durable when
/// this returns. Says how many messages it holds.
///
/// In front of `first`, the queue's first message, stand units that no reader takes for messages.
/// An offset whose message was lost has the unit of the next message: every broker can read on from
/// there, which Java's does not behind a unit that stands for nothing.
pub fn queue_file(
    path: &Path,
    (begin, units): (u64, u64),
    first: u64,
    runs: &[Run],
    floor: Floor,
) -> io::Result<u64> {
    let end = begin.saturating_add(units);
    let mut bytes = Vec::new();
    for _ in begin..first.clamp(begin, end) {
        bytes.extend_from_slice(&Unit::FILLER.encode());
    }
    let mut at = first.clamp(begin, end);
    let mut count = 0;
    let mut next = floor.next;
    for run in runs {
        let (after, more) = walk(
            run,
            Floor {
                cut: floor.cut,
                next,
            },
            &mut |offset, unit| {
                if offset < begin {
                    return Ok(true);
                }
                while at < offset.saturating_add(1).min(end) {
                    bytes.extend_from_slice(&unit.encode());
                    at += 1;
                }
                count += u64::from(offset < end);
                Ok(at < end)
            },
        )?;
        next = after;
        if !more {
            break;
        }
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.set_len(units * UNIT_SIZE)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_all()?;
    Ok(count)
}
