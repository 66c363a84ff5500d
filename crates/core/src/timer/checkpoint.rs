//! `config/timercheck`: how far the timers are known to be settled (spec: store §8, timercheck).
//!
//! Java's seven numbers come first, in a file of 4,096 bytes. Behind them, in bytes that Java leaves
//! alone, is a block of ours: whether the files were left whole by an orderly stop, with which
//! precision, which messages name times of another one, what fired while the clock stood ahead, and
//! where what is overdue waits together.
//! Its checksum covers Java's numbers, so a block is void once Java has written. All of this stands
//! once more from byte 256 on, and is written there first: a write that failed may have torn what it
//! wrote, and what is torn must not be taken for Java's. From byte 512 on stand the checksums of the
//! closed files of the timer log; they count only together with a valid block.

use super::clock::fired::{Fired, FIRED_MAX};
use super::eras::{Eras, ERAS_MAX};
use super::sums::{decode_sums, encode_sums, FileSum};
use crate::disk::{Disk, DiskFile, Space};
use crate::recovery::checkpoint::{fill, number};
use crate::store::error::StoreError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAME: &str = "timercheck";
const FILE_SIZE: usize = 4096;
/// Bytes of Java's numbers, and of the answer to GET_TIMER_CHECK_POINT.
pub const JAVA_SIZE: usize = 56;
const OURS_AT: usize = 64;
const FIRED_AT: usize = OURS_AT + 56 + 16 * ERAS_MAX;
const GATHERED_AT: usize = FIRED_AT + 24 * FIRED_MAX;
/// Our block: its mark and six numbers, the eras, what fired ahead of the clock, where what is overdue
/// waits, its checksum.
const SIZE: usize = GATHERED_AT + 16;
const MAGIC: u64 = 0x526F_7175_6574_005A;
/// The block as it was without the last of these, and before that without what fired ahead.
const SHORT_BLOCKS: [(u64, usize); 2] = [
    (0x526F_7175_6574_0059, GATHERED_AT + 8),
    (0x526F_7175_6574_0057, FIRED_AT + 8),
];
/// The block as it was with one era, and before that without a sum of the wheel.
const OLD_BLOCKS: [(u64, usize); 2] = [
    (0x526F_7175_6574_0056, OURS_AT + 64),
    (0x526F_7175_6574_0055, OURS_AT + 56),
];
/// Where the copy of Java's numbers and our block begins.
const COPY_AT: usize = 256;
pub(super) const SUMS_AT: usize = 512;

/// What our block adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Whether wheel and log were left whole.
    pub whole: bool,
    /// Milliseconds of a step of the wheel.
    pub precision_ms: i64,
    /// Messages of the timer queue before this offset enter once more, and may have fired before.
    pub replay_until: i64,
    /// Messages that name times in other steps than these.
    pub eras: Eras,
    /// What fired while the clock stood ahead.
    pub fired: Fired,
    /// The slot in which everything waits that is due before it; 0 for none.
    pub gathered_ms: i64,
    /// Checksum of the wheel's slots, where it was left whole.
    pub wheel_sum: u32,
    /// Where the last file of the timer log begins, and the checksum of its units up to the
    /// position in Java's numbers; `None` in blocks of earlier releases.
    pub log: Option<(u64, u32)>,
}

/// The numbers of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerCheckpoint {
    /// Time of the next slot to fire, Unix milliseconds; all before it have fired.
    pub read_ms: i64,
    /// Position in the timer log up to which it is durable.
    pub log_position: i64,
    /// Offset of the next message of the timer queue to enter the wheel.
    pub queue_offset: i64,
    /// The same of the master, on a slave.
    pub master_queue_offset: i64,
    /// State version, time stamp and counter of Java's data version.
    pub version: [i64; 3],
    /// Our block, when it is valid.
    pub known: Option<Known>,
}

impl TimerCheckpoint {
    /// Java's seven numbers.
    pub fn java(&self) -> [u8; JAVA_SIZE] {
        let [state, time, counter] = self.version;
        let numbers = [
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.master_queue_offset,
            state,
            time,
            counter,
        ];
        let mut bytes = [0; JAVA_SIZE];
        fill(&mut bytes, 0, &numbers.map(i64::cast_unsigned));
        bytes
    }

    fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        if let Some(java) = bytes.first_chunk_mut() {
            *java = self.java();
        }
        if let Some(known) = self.known {
            let (base, sum) = known.log.unwrap_or((u64::MAX, 0));
            let ours = [
                MAGIC,
                u64::from(known.whole),
                known.precision_ms.cast_unsigned(),
                known.replay_until.cast_unsigned(),
                u64::from(known.wheel_sum),
                base,
                u64::from(sum),
            ];
            fill(&mut bytes, OURS_AT, &ours);
            fill(&mut bytes, OURS_AT + 56, &known.eras.encode());
            fill(&mut bytes, FIRED_AT, &known.fired.encode());
            fill(
                &mut bytes,
                GATHERED_AT,
                &[known.gathered_ms.cast_unsigned()],
            );
            let sum = crc32fast::hash(bytes.get(..SIZE - 8).unwrap_or_default());
            fill(&mut bytes, SIZE - 8, &[u64::from(sum)]);
        }
        bytes
    }

    /// Reads the numbers; `None` when they cannot be a checkpoint.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| number(bytes, at).cast_signed();
        let is_block = |(magic, size): (u64, usize)| {
            let sum = bytes.get(..size - 8).map(crc32fast::hash);
            number(OURS_AT).cast_unsigned() == magic
                && sum.is_some_and(|sum| u64::from(sum) == number(size - 8).cast_unsigned())
        };
        let numbers = |at: usize, count: usize| -> Vec<i64> {
            (0..count).map(|place| number(at + 8 * place)).collect()
        };
        let is_new = is_block((MAGIC, SIZE));
        let has_fired = is_new || is_block(SHORT_BLOCKS[0]);
        let known = if has_fired || is_block(SHORT_BLOCKS[1]) {
            let eras = numbers(OURS_AT + 56, 2 * ERAS_MAX);
            let fired = numbers(FIRED_AT, 3 * FIRED_MAX);
            let fired = has_fired.then(|| Fired::decode(&fired));
            let base = number(OURS_AT + 40).cast_unsigned();
            Some(Known {
                whole: number(OURS_AT + 8) == 1,
                precision_ms: number(OURS_AT + 16),
                replay_until: number(OURS_AT + 24),
                eras: Eras::decode(&eras),
                fired: fired.unwrap_or_default(),
                gathered_ms: if is_new { number(GATHERED_AT) } else { 0 },
                wheel_sum: low(number(OURS_AT + 32)),
                log: (base != u64::MAX).then(|| (base, low(number(OURS_AT + 48)))),
            })
        } else {
            OLD_BLOCKS.into_iter().find(|it| is_block(*it)).map(|it| {
                let has_sum = it == OLD_BLOCKS[0];
                let sum = number(OURS_AT + 48);
                Known {
                    // Without a sum nothing shows that the wheel is what was left.
                    whole: has_sum && number(OURS_AT + 8) == 1,
                    precision_ms: number(OURS_AT + 16),
                    replay_until: number(OURS_AT + 24),
                    eras: Eras::decode(&[number(OURS_AT + 32), number(OURS_AT + 40)]),
                    fired: Fired::default(),
                    gathered_ms: 0,
                    wheel_sum: if has_sum { low(sum) } else { 0 },
                    log: None,
                }
            })
        };
        let found = Self {
            read_ms: number(0),
            log_position: number(8),
            queue_offset: number(16),
            master_queue_offset: number(24),
            version: [number(32), number(40), number(48)],
            known,
        };
        let numbers = [found.read_ms, found.log_position, found.queue_offset];
        (bytes.len() >= JAVA_SIZE && numbers.iter().all(|number| *number >= 0)).then_some(found)
    }
}

const _: () = assert!(
    SIZE <= COPY_AT && COPY_AT + SIZE <= SUMS_AT && SUMS_AT <= 512,
    "one sector is written at once"
);

/// The numbers of a file, of the copy where a failed write tore what stands first.
///
/// Java rewrites its numbers only: then our block is still that of the copy, with a checksum that has
/// become wrong. A torn one either begins with the copy's numbers or ends in an older block. Where
/// both blocks are void and differ, neither explains it: the numbers are damaged and say nothing.
fn read_file(bytes: &[u8]) -> Option<TimerCheckpoint> {
    let first = TimerCheckpoint::decode(bytes);
    if first.is_some_and(|first| first.known.is_some()) {
        return first;
    }
    let Some(copy_bytes) = bytes.get(COPY_AT..COPY_AT + SIZE) else {
        return first;
    };
    let block = |bytes: &[u8]| bytes.get(JAVA_SIZE..SIZE).map(<[u8]>::to_vec);
    if block(bytes) == block(copy_bytes) {
        return first;
    }
    let copy = TimerCheckpoint::decode(copy_bytes).filter(|copy| copy.known.is_some());
    copy.or(first.filter(|_| copy_bytes.iter().all(|byte| *byte == 0)))
}

/// A file's bytes, and its numbers; none of a file that has only been made.
fn load(
    disk: &dyn Disk,
    path: &Path,
) -> Result<(Option<Vec<u8>>, Option<TimerCheckpoint>), StoreError> {
    // A byte more shows that it is longer than it may be.
    let bytes = disk
        .read_front(path, FILE_SIZE + 1)
        .map_err(|error| StoreError::io("open", path, &error))?;
    let found = bytes.as_deref().and_then(read_file);
    let is_new = found.is_some_and(|found| found == TimerCheckpoint::default());
    Ok((bytes, found.filter(|_| !is_new)))
}

pub(super) fn low(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The open file.
pub struct TimerCheckpointFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Checksums of closed files as they stand in the file.
    sums: Vec<FileSum>,
    /// Whether a failed write tore what stands first, so that the copy has to stay.
    is_torn: bool,
}

impl TimerCheckpointFile {
    /// What a wheel that stands still saved last in a folder; `None` for nothing, or damage.
    pub fn saved(disk: &dyn Disk, folder: &Path) -> Result<Option<TimerCheckpoint>, StoreError> {
        Ok(load(disk, &folder.join(NAME))?.1)
    }

    /// Opens the file, making it when there is none, and reads it; `None` for one without numbers.
    pub fn open(
        disk: &dyn Disk,
        folder: &Path,
    ) -> Result<(Self, Option<TimerCheckpoint>), StoreError> {
        let path = folder.join(NAME);
        let fail = |error: std::io::Error| StoreError::io("open", &path, &error);
        let (bytes, found) = load(disk, &path)?;
        let file = if bytes.as_ref().is_some_and(|it| it.len() == FILE_SIZE) {
            disk.open(&path).map_err(fail)?
        } else {
            disk.remove(&path).map_err(fail)?;
            let file = disk
                .create(&path, FILE_SIZE as u64, Space::Allocated)
                .map_err(fail)?;
            disk.sync_dir(folder).map_err(fail)?;
            file
        };
        let sums = found.and_then(|found| found.known).and(bytes.as_deref());
        let sums = sums.and_then(|bytes| bytes.get(SUMS_AT..)).map(decode_sums);
        let sums = sums.unwrap_or_default();
        let first = bytes.as_deref().and_then(TimerCheckpoint::decode);
        let opened = Self {
            path,
            file,
            sums,
            is_torn: found != first,
        };
        Ok((opened, found))
    }

    /// Checksums of the closed files of the timer log, as the last run left them.
    pub(super) fn sums(&self) -> &[FileSum] {
        &self.sums
    }

    /// Writes the numbers, and the checksums of the closed files where they changed, and makes them
    /// durable.
    pub fn write(
        &mut self,
        checkpoint: &TimerCheckpoint,
        sums: &[FileSum],
    ) -> Result<(), StoreError> {
        let has_changed = self.sums != sums;
        let rows = if has_changed {
            self.file.write_at(&encode_sums(sums), SUMS_AT as u64)
        } else {
            Ok(())
        };
        let numbers = checkpoint.encode();
        let places = if self.is_torn {
            [0, COPY_AT]
        } else {
            [COPY_AT, 0]
        };
        let mut done = rows;
        for at in places {
            if done.is_ok() {
                done = self.file.write_at(&numbers, at as u64);
                self.is_torn = at == 0 && done.is_err();
            }
        }
        done.and_then(|()| self.file.sync())
            .map_err(|error| StoreError::io("write", &self.path, &error))?;
        if has_changed {
            self.sums = sums.to_vec();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
