//! `config/timercheck`: how far the timers are known to be settled (spec: store §8, timercheck).
//!
//! Java's seven numbers come first, in a file of 4,096 bytes. Behind them, in bytes that Java leaves
//! alone, is a block of ours: whether the files were left whole by an orderly stop, with which
//! precision, and which messages name times of another one. Its checksum covers Java's numbers, so
//! a block is void once Java has written.

use crate::disk::{Disk, DiskFile, Space};
use crate::recovery::checkpoint::{fill, number};
use crate::store::error::StoreError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE_SIZE: u64 = 4096;
/// Bytes of Java's numbers, and of the answer to GET_TIMER_CHECK_POINT.
pub const JAVA_SIZE: usize = 56;
const OURS_AT: usize = 64;
const SIZE: usize = OURS_AT + 64;
const MAGIC: u64 = 0x526F_7175_6574_0056;
/// The block as it was before it had a sum of the wheel.
const OLD_SIZE: usize = OURS_AT + 56;
const OLD_MAGIC: u64 = 0x526F_7175_6574_0055;

/// What our block adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Whether wheel and log were left whole.
    pub whole: bool,
    /// Milliseconds of a step of the wheel.
    pub precision_ms: i64,
    /// Messages of the timer queue before this offset enter once more, and may have fired before.
    pub replay_until: i64,
    /// Messages before the first number, an offset of the timer queue, name times in steps of up to
    /// so many milliseconds; zeros when all are of this precision.
    pub other_steps: [i64; 2],
    /// Checksum of the wheel's slots, where it was left whole.
    pub wheel_sum: u32,
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
            let [until, steps_ms] = known.other_steps;
            let ours = [known.precision_ms, known.replay_until, until, steps_ms];
            fill(&mut bytes, OURS_AT, &[MAGIC, u64::from(known.whole)]);
            fill(&mut bytes, OURS_AT + 16, &ours.map(i64::cast_unsigned));
            fill(&mut bytes, OURS_AT + 48, &[u64::from(known.wheel_sum)]);
            let sum = crc32fast::hash(bytes.get(..SIZE - 8).unwrap_or_default());
            fill(&mut bytes, SIZE - 8, &[u64::from(sum)]);
        }
        bytes
    }

    /// Reads the numbers; `None` when they cannot be a checkpoint.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| number(bytes, at).cast_signed();
        let is_block = |size: usize, magic: u64| {
            let sum = bytes.get(..size - 8).map(crc32fast::hash);
            number(OURS_AT).cast_unsigned() == magic
                && sum.is_some_and(|sum| u64::from(sum) == number(size - 8).cast_unsigned())
        };
        let valid = is_block(SIZE, MAGIC);
        let found = Self {
            read_ms: number(0),
            log_position: number(8),
            queue_offset: number(16),
            master_queue_offset: number(24),
            version: [number(32), number(40), number(48)],
            known: (valid || is_block(OLD_SIZE, OLD_MAGIC)).then(|| Known {
                // Without a sum nothing shows that the wheel is what was left.
                whole: valid && number(OURS_AT + 8) == 1,
                precision_ms: number(OURS_AT + 16),
                replay_until: number(OURS_AT + 24),
                other_steps: [number(OURS_AT + 32), number(OURS_AT + 40)],
                wheel_sum: u32::try_from(number(OURS_AT + 48))
                    .ok()
                    .filter(|_| valid)
                    .unwrap_or(0),
            }),
        };
        let numbers = [found.read_ms, found.log_position, found.queue_offset];
        (bytes.len() >= JAVA_SIZE && numbers.iter().all(|number| *number >= 0)).then_some(found)
    }
}

const _: () = assert!(SIZE <= 512, "one sector is written at once");

/// The open file.
pub struct TimerCheckpointFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

impl TimerCheckpointFile {
    /// Opens the file, making it when there is none, and reads it; `None` for one without numbers.
    pub fn open(
        disk: &dyn Disk,
        folder: &Path,
    ) -> Result<(Self, Option<TimerCheckpoint>), StoreError> {
        let path = folder.join("timercheck");
        let fail = |error: std::io::Error| StoreError::io("open", &path, &error);
        let bytes = disk.read(&path).map_err(fail)?;
        let found = bytes.as_deref().and_then(TimerCheckpoint::decode);
        let file = if bytes.is_some_and(|bytes| bytes.len() as u64 == FILE_SIZE) {
            disk.open(&path).map_err(fail)?
        } else {
            disk.remove(&path).map_err(fail)?;
            let file = disk
                .create(&path, FILE_SIZE, Space::Allocated)
                .map_err(fail)?;
            disk.sync_dir(folder).map_err(fail)?;
            file
        };
        let is_new = found.is_some_and(|found| found == TimerCheckpoint::default());
        Ok((Self { path, file }, found.filter(|_| !is_new)))
    }

    /// Writes the numbers and makes them durable.
    pub fn write(&self, checkpoint: &TimerCheckpoint) -> Result<(), StoreError> {
        self.file
            .write_at(&checkpoint.encode(), 0)
            .and_then(|()| self.file.sync())
            .map_err(|error| StoreError::io("write", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, TimerCheckpoint, JAVA_SIZE, OLD_MAGIC, OLD_SIZE, OURS_AT, SIZE};
    use crate::recovery::checkpoint::fill;

    fn checkpoint() -> TimerCheckpoint {
        TimerCheckpoint {
            read_ms: 1,
            log_position: 2,
            queue_offset: 3,
            master_queue_offset: -4,
            version: [5, -6, 7],
            known: Some(Known {
                whole: true,
                precision_ms: 8,
                replay_until: 9,
                other_steps: [10, 11],
                wheel_sum: 12,
            }),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let ours = checkpoint();
        assert_eq!(TimerCheckpoint::decode(&ours.encode()), Some(ours));
        let known = ours.known.map(|known| Known {
            whole: false,
            ..known
        });
        let broken = TimerCheckpoint { known, ..ours };
        assert_eq!(TimerCheckpoint::decode(&broken.encode()), Some(broken));
        let java = TimerCheckpoint {
            known: None,
            ..ours
        };
        assert_eq!(TimerCheckpoint::decode(&java.encode()), Some(java));
        assert_eq!(java.encode()[..JAVA_SIZE], java.java());
        let numbers: Vec<u8> = [1_i64, 2, 3, -4, 5, -6, 7]
            .into_iter()
            .flat_map(i64::to_be_bytes)
            .collect();
        assert_eq!(ours.java().as_slice(), numbers);
    }

    #[test]
    fn a_block_of_ours_counts_with_its_mark_and_its_sum_only() {
        let ours = checkpoint();
        let bytes = ours.encode();
        let java = Some(TimerCheckpoint {
            known: None,
            ..ours
        });
        for at in (OURS_AT..SIZE).chain([39, 55]) {
            let mut other = bytes;
            other[at] ^= 1;
            let found = TimerCheckpoint::decode(&other).expect("Java's numbers");
            assert_eq!(found.known, None, "{at}");
        }
        for cut in JAVA_SIZE..SIZE {
            assert_eq!(TimerCheckpoint::decode(&bytes[..cut]), java, "{cut}");
        }
        assert_eq!(TimerCheckpoint::decode(&bytes[..JAVA_SIZE - 1]), None);
        assert_eq!(TimerCheckpoint::decode(&[]), None);
        // Java goes on and leaves the block.
        let mut later = bytes;
        later[7] = 99;
        let found = TimerCheckpoint::decode(&later).expect("Java's numbers");
        assert_eq!((found.read_ms, found.known), (99, None));
    }

    #[test]
    fn block_of_an_earlier_release_says_all_but_that_the_wheel_is_whole() {
        let ours = checkpoint();
        let mut bytes = ours.encode();
        fill(&mut bytes, OURS_AT, &[OLD_MAGIC]);
        let sum = crc32fast::hash(&bytes[..OLD_SIZE - 8]);
        fill(&mut bytes, OLD_SIZE - 8, &[u64::from(sum), 0]);
        let known = ours.known.map(|known| Known {
            whole: false,
            wheel_sum: 0,
            ..known
        });
        let found = TimerCheckpoint::decode(&bytes);
        assert_eq!(found, Some(TimerCheckpoint { known, ..ours }));
    }

    #[test]
    fn numbers_below_zero_are_no_checkpoint() {
        for at in [0, 8, 16] {
            let mut bytes = checkpoint().encode();
            bytes[at] = 0x80;
            assert_eq!(TimerCheckpoint::decode(&bytes), None, "{at}");
        }
        let zero = TimerCheckpoint::default();
        assert_eq!(TimerCheckpoint::decode(&zero.encode()), Some(zero));
    }
}
