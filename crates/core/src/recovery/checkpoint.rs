//! The `checkpoint` file: up to where queues and index are known to be durable (spec: store §7).
//!
//! Java's six numbers come first. Behind them, in bytes that Java leaves alone, is a block of ours:
//! a copy of the sixth number (if it differs, Java has written since and the block is void), the
//! durable end of the log and the boot during which it was written.
//!
//! Invariant: in one run of a store the durable end in the file never moves back, and it never lies
//! behind what a sync of the log covered. It is durable itself after [`Notes::sync`]: at each start,
//! about once a second, and before a record counts as flushed that recovery could take for a torn
//! one (see `tail`).

use crate::disk::{Disk, DiskFile, Space};
use crate::store::error::StoreError;
use crate::store::health::hold;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const FILE_SIZE: u64 = 4096;
const JAVA_SIZE: usize = 48;
const OURS_AT: usize = 64;
const SIZE: usize = OURS_AT + 40;
const MAGIC: u64 = 0x526F_7175_6574_0001;

/// What our block adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The log is durable up to here, at least.
    pub flushed: u64,
    /// The boot of the machine during which that was written.
    pub boot: u64,
}

/// The numbers of the file; absent ones are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Store time of the last message known durable in the log.
    pub log_time: i64,
    /// Store time of the last message whose queue unit is durable.
    pub queue_time: i64,
    /// Store time of the last message whose index entries are durable.
    pub index_time: i64,
    /// For replication; kept as found.
    pub master_flushed: i64,
    /// For replication; kept as found.
    pub confirm: i64,
    /// Start of the last record whose queue unit is durable, with all before it.
    pub queue_offset: i64,
    /// Our block, when it is valid.
    pub known: Option<Known>,
}

impl Checkpoint {
    /// The bytes of the file up to the last that is not zero.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let java = [
            self.log_time,
            self.queue_time,
            self.index_time,
            self.master_flushed,
            self.confirm,
            self.queue_offset,
        ];
        fill(&mut bytes, 0, &java.map(i64::cast_unsigned));
        if let Some(known) = self.known {
            let copy = self.queue_offset.cast_unsigned();
            let ours = [MAGIC, copy, known.flushed, known.boot];
            fill(&mut bytes, OURS_AT, &ours);
            let sum = u64::from(crc32fast::hash(
                bytes.get(OURS_AT..SIZE - 8).unwrap_or_default(),
            ));
            fill(&mut bytes, SIZE - 8, &[sum]);
        }
        bytes
    }

    /// Reads the numbers; a short file reads as if zeros followed.
    pub fn decode(bytes: &[u8]) -> Self {
        let java = |index: usize| number(bytes, index * 8).cast_signed();
        let ours = |index: usize| number(bytes, OURS_AT + index * 8);
        let sum = bytes.get(OURS_AT..SIZE - 8).map(crc32fast::hash);
        let valid = ours(0) == MAGIC
            && ours(1) == java(5).cast_unsigned()
            && sum.is_some_and(|sum| u64::from(sum) == ours(4));
        Self {
            log_time: java(0),
            queue_time: java(1),
            index_time: java(2),
            master_flushed: java(3),
            confirm: java(4),
            queue_offset: java(5),
            known: valid.then(|| Known {
                flushed: ours(2),
                boot: ours(3),
            }),
        }
    }
}

const _: () = assert!(
    JAVA_SIZE <= OURS_AT && SIZE <= 512,
    "one sector is written at once"
);

/// Writes numbers one behind the other.
pub(crate) fn fill(bytes: &mut [u8], at: usize, numbers: &[u64]) {
    let places = bytes.get_mut(at..).unwrap_or_default().chunks_exact_mut(8);
    for (place, number) in places.zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// The number at a place; 0 where the bytes end.
pub(crate) fn number(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<8>())
        .map_or(0, |chunk| u64::from_be_bytes(*chunk))
}

/// The open file.
pub struct CheckpointFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

impl CheckpointFile {
    /// Opens the file in `root`, making it when there is none, and reads it; `None` for a new one.
    pub fn open(disk: &dyn Disk, root: &Path) -> Result<(Self, Option<Checkpoint>), StoreError> {
        let path = root.join("checkpoint");
        let refuse = |error: std::io::Error| StoreError::io("open", &path, &error);
        let found = disk.read_front(&path, SIZE).map_err(refuse)?;
        if let Some(bytes) = found {
            if bytes.len() >= SIZE {
                let file = disk.open(&path).map_err(refuse)?;
                return Ok((Self { path, file }, Some(Checkpoint::decode(&bytes))));
            }
            disk.remove(&path).map_err(refuse)?;
        }
        let file = disk
            .create(&path, FILE_SIZE, Space::Allocated)
            .map_err(refuse)?;
        file.sync()
            .and_then(|()| disk.sync_dir(root))
            .map_err(refuse)?;
        Ok((Self { path, file }, None))
    }

    /// Writes the numbers; they count once [`Self::sync`] has returned, and may count before.
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        self.file
            .write_at(&checkpoint.encode(), 0)
            .map_err(|error| StoreError::io("write", &self.path, &error))
    }

    /// Makes the last write durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.file
            .sync()
            .map_err(|error| StoreError::io("sync", &self.path, &error))
    }
}

/// The checkpoint of an open store: whoever learns something adds it, and the file follows.
pub(crate) struct Notes {
    file: CheckpointFile,
    boot: u64,
    held: Mutex<Held>,
    syncing: Mutex<()>,
}

struct Held {
    checkpoint: Checkpoint,
    /// The durable end of the log as this run knows it.
    flushed: u64,
    /// Whether something was written since the last sync.
    fresh: bool,
}

impl Notes {
    /// Takes the file over, with what is in it.
    pub(crate) fn new(file: CheckpointFile, checkpoint: Checkpoint, boot: u64) -> Self {
        let held = Held {
            checkpoint,
            flushed: 0,
            fresh: true,
        };
        Self {
            file,
            boot,
            held: Mutex::new(held),
            syncing: Mutex::new(()),
        }
    }

    /// Notes that the log is durable up to `flushed`, and whatever `change` sets beside that.
    pub(crate) fn write(
        &self,
        flushed: u64,
        change: impl FnOnce(&mut Checkpoint),
    ) -> Result<(), StoreError> {
        let mut held = hold(&self.held);
        let mut checkpoint = held.checkpoint;
        held.flushed = held.flushed.max(flushed);
        change(&mut checkpoint);
        checkpoint.known = Some(Known {
            flushed: held.flushed,
            boot: self.boot,
        });
        if checkpoint == held.checkpoint {
            return Ok(());
        }
        self.file.write(&checkpoint)?;
        held.checkpoint = checkpoint;
        held.fresh = true;
        Ok(())
    }

    /// Makes what was written durable, unless it is.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        // Whoever finds nothing fresh here has waited for the sync that covers it.
        let _one_at_a_time = hold(&self.syncing);
        if !std::mem::take(&mut hold(&self.held).fresh) {
            return Ok(());
        }
        let synced = self.file.sync();
        hold(&self.held).fresh |= synced.is_err();
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::{Checkpoint, CheckpointFile, Known, Notes};
    use crate::disk::{Bytes, DiskFile};
    use std::io;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    /// A file whose first sync fails.
    #[derive(Default)]
    struct Failing(AtomicU32);

    impl DiskFile for Failing {
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }
        fn write_vectored_at(&self, _: &[&[u8]], _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn len(&self) -> io::Result<u64> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn sync(&self) -> io::Result<()> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::Error::other("the disk is away")),
                _ => Ok(()),
            }
        }
        fn map(&self) -> io::Result<Arc<dyn Bytes>> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn seek_data(&self, _: u64) -> io::Result<Option<u64>> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn sync_that_failed_is_done_again_and_one_that_did_not_is_not() {
        let disk = Arc::new(Failing::default());
        let file = CheckpointFile {
            path: PathBuf::from("checkpoint"),
            file: Arc::<Failing>::clone(&disk),
        };
        let notes = Notes::new(file, Checkpoint::default(), 1);
        let syncs = || disk.0.load(Ordering::Relaxed);
        assert!(notes.sync().is_err(), "what an earlier run wrote");
        assert!(notes.sync().is_ok());
        assert_eq!(syncs(), 2);
        assert!(notes.sync().is_ok());
        assert_eq!(syncs(), 2, "nothing is fresh");
        notes.write(100, |_| ()).unwrap();
        assert!(notes.sync().is_ok());
        assert_eq!(syncs(), 3);
        notes.write(100, |_| ()).unwrap();
        assert!(notes.sync().is_ok());
        assert_eq!(syncs(), 3, "what was written says so already");
    }

    #[test]
    fn java_voids_our_block_by_moving_its_number() {
        let checkpoint = Checkpoint {
            log_time: 1,
            queue_time: 2,
            index_time: 3,
            master_flushed: 4,
            confirm: 5,
            queue_offset: 6,
            known: Some(Known {
                flushed: 7,
                boot: 8,
            }),
        };
        let mut bytes = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&bytes), checkpoint);
        bytes[47] = 9;
        let changed = Checkpoint::decode(&bytes);
        assert_eq!((changed.queue_offset, changed.known), (9, None));
        bytes[47] = 6;
        bytes[70] ^= 1;
        assert_eq!(Checkpoint::decode(&bytes).known, None);
    }

    #[test]
    fn a_short_or_java_file_reads_as_far_as_it_goes() {
        assert_eq!(Checkpoint::decode(&[]), Checkpoint::default());
        let mut bytes = vec![0; 4096];
        bytes[15] = 5;
        let found = Checkpoint::decode(&bytes);
        assert_eq!((found.queue_time, found.known), (5, None));
    }
}
