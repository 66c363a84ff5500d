//! The timer wheel: for each step of time the chain of units that are due then (spec: store §16.2).
//!
//! The file has Java's form and length. It is held in memory and its changed pages are written when
//! the engine asks for it. A slot belongs to one time at a time; what it holds for another time is
//! ignored and overwritten, which is why slots need no clearing after they fired.

use super::unit::Unit;
use crate::disk::segment::all_zero;
use crate::disk::{Disk, DiskFile, Space};
use crate::recovery::checkpoint::number;
use crate::store::error::StoreError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Slots of the wheel: two weeks of seconds.
pub const SLOTS: u64 = 2 * 7 * 86_400;
/// Bytes of a slot.
pub const SLOT_SIZE: u64 = 32;
/// Bytes written together.
const PAGE: usize = 4096;

/// One step of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The time in steps since 1970.
    pub step: i64,
    /// Position of the first unit in the timer log.
    pub first: i64,
    /// Position of the last unit, from which the chain leads backwards.
    pub last: i64,
    /// Messages waiting; cancelling ones are subtracted.
    pub count: i32,
}

/// A page of the wheel that is in use.
pub(super) struct Page {
    /// Where it begins in the file.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

/// The wheel and its file.
pub struct Wheel {
    bytes: Vec<u8>,
    dirty: Vec<bool>,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    slots: u64,
    precision_ms: i64,
}

impl Wheel {
    /// Opens the file or makes it. The second value tells whether its contents can be used: a file
    /// that is new or has another length cannot.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        slots: u64,
        precision_ms: i64,
    ) -> Result<(Self, bool), StoreError> {
        let length = slots * SLOT_SIZE;
        let fail = |error: std::io::Error| StoreError::io("open", path, &error);
        let found = match disk.open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        let whole = match &found {
            Some(file) => file.len().map_err(fail)? == length,
            None => false,
        };
        let file = if let Some(file) = found.filter(|_| whole) {
            file
        } else {
            disk.remove(path).map_err(fail)?;
            disk.create(path, length, Space::Sparse).map_err(fail)?
        };
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let mut wheel = Self {
            bytes: vec![0; size],
            dirty: vec![false; size.div_ceil(PAGE)],
            file,
            path: path.to_path_buf(),
            slots,
            precision_ms,
        };
        if whole {
            wheel.load().map_err(fail)?;
        }
        Ok((wheel, whole))
    }

    fn load(&mut self) -> std::io::Result<()> {
        let length = self.bytes.len() as u64;
        let mut at = 0;
        // Holes stay untouched memory.
        while let Some(start) = self.file.seek_data(at)?.filter(|start| *start < length) {
            let end = self.file.seek_hole(start)?.clamp(start + 1, length);
            let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
                break;
            };
            if let Some(place) = self.bytes.get_mut(from..to) {
                self.file.read_at(place, start)?;
            }
            at = end;
        }
        Ok(())
    }

    /// The slot of a time as it is; `None` when it belongs to another time or is empty.
    pub fn get(&self, time_ms: i64) -> Option<Slot> {
        let step = time_ms.div_euclid(self.precision_ms);
        self.occupant(time_ms).filter(|slot| slot.step == step)
    }

    /// Whatever the place of a time holds, for this time or another; `None` when it was never used.
    pub fn occupant(&self, time_ms: i64) -> Option<Slot> {
        self.read(self.place(time_ms))
    }

    /// Makes a unit of the log, at a position, the last of its slot's chain.
    pub fn chain(&mut self, unit: &Unit, at: u64) {
        let (time_ms, at) = (unit.slot_ms(), at.cast_signed());
        let same = self.get(time_ms);
        let more = if unit.cancels { -1 } else { 1 };
        let slot = Slot {
            step: time_ms.div_euclid(self.precision_ms),
            first: same.map_or(at, |slot| slot.first),
            last: at,
            count: same.map_or(0, |slot| slot.count) + more,
        };
        self.put(time_ms, slot);
    }

    fn put(&mut self, time_ms: i64, slot: Slot) {
        let at = self.place(time_ms);
        let parts = [slot.step, slot.first, slot.last];
        let Some(place) = self.bytes.get_mut(at..at + 32) else {
            return;
        };
        for (field, value) in place.chunks_exact_mut(8).zip(parts) {
            field.copy_from_slice(&value.to_be_bytes());
        }
        if let Some(field) = place.get_mut(24..28) {
            field.copy_from_slice(&slot.count.to_be_bytes());
        }
        if let Some(page) = self.dirty.get_mut(at / PAGE) {
            *page = true;
        }
    }

    /// Empties every slot.
    pub fn clear(&mut self) {
        for (page, dirty) in self.bytes.chunks_mut(PAGE).zip(&mut self.dirty) {
            if !all_zero(page) {
                page.fill(0);
                *dirty = true;
            }
        }
    }

    /// Every slot that was ever used, with the time it belongs to in milliseconds.
    pub fn used(&self) -> impl Iterator<Item = (i64, Slot)> + '_ {
        self.used_pages().flat_map(move |(number, page)| {
            (0..page.len() / 32).filter_map(move |place| {
                let slot = self.read(number * PAGE + place * 32)?;
                Some((slot.step.saturating_mul(self.precision_ms), slot))
            })
        })
    }

    /// A copy of the pages that are in use.
    pub(super) fn copy(&self) -> Vec<Page> {
        let pages = self.used_pages();
        pages
            .map(|(number, page)| Page {
                at: (number * PAGE) as u64,
                bytes: page.to_vec(),
            })
            .collect()
    }

    /// Bytes of the file.
    pub(super) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A checksum of all slots.
    pub(super) fn sum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for (number, page) in self.used_pages() {
            hasher.update(&(number as u64).to_be_bytes());
            hasher.update(page);
        }
        hasher.finalize()
    }

    fn used_pages(&self) -> impl Iterator<Item = (usize, &[u8])> + '_ {
        let pages = self.bytes.chunks(PAGE).enumerate();
        pages.filter(|(_, page)| !all_zero(page))
    }

    /// Writes what has changed and makes it durable.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        let mut written = false;
        for (number, (page, dirty)) in self.bytes.chunks(PAGE).zip(&mut self.dirty).enumerate() {
            if !*dirty {
                continue;
            }
            let done = self.file.write_at(page, (number * PAGE) as u64);
            done.map_err(|error| StoreError::io("write", &self.path, &error))?;
            *dirty = false;
            written = true;
        }
        if written {
            let done = self.file.sync();
            done.map_err(|error| StoreError::io("sync", &self.path, &error))?;
        }
        Ok(())
    }

    fn place(&self, time_ms: i64) -> usize {
        let step = time_ms.div_euclid(self.precision_ms);
        let index = step.rem_euclid(self.slots.cast_signed());
        usize::try_from(index).unwrap_or(0) * 32
    }

    fn read(&self, at: usize) -> Option<Slot> {
        let bytes = self.bytes.get(at..at + 32)?;
        let number = |from: usize| number(bytes, from).cast_signed();
        let slot = Slot {
            step: number(0),
            first: number(8),
            last: number(16),
            count: (number(24) >> 32) as i32,
        };
        // A slot of the first step of 1970 is one that was never used.
        (slot.step > 0 && slot.last >= 0).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::{Slot, Unit, Wheel};
    use crate::disk::file_disk::FileDisk;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Slots of two pages and a bit.
    const SLOTS: u64 = 300;

    struct File(PathBuf);

    impl File {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("roquet-wheel-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self, slots: u64) -> (Wheel, bool) {
            Wheel::open(&FileDisk::new(), &self.0, slots, 100).unwrap()
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn unit(slot_ms: i64, cancels: bool) -> Unit {
        Unit {
            previous: -1,
            rolls: false,
            cancels,
            written_ms: slot_ms,
            wait_ms: 0,
            physical_offset: 0,
            size: 1,
            topic_hash: 0,
        }
    }

    fn slot(step: i64, first: i64, last: i64, count: i32) -> Slot {
        Slot {
            step,
            first,
            last,
            count,
        }
    }

    #[test]
    fn a_slot_keeps_the_ends_of_its_chain_and_how_many_wait() {
        let file = File::new();
        let (mut wheel, _) = file.open(SLOTS);
        assert_eq!(wheel.get(500), None);
        for (cancels, at) in [(false, 0), (false, 52), (true, 104), (false, 156)] {
            wheel.chain(&unit(500, cancels), at);
        }
        let want = slot(5, 0, 156, 2);
        // All times of a step are one.
        let found = [499, 500, 599, 600].map(|ms| wheel.get(ms));
        assert_eq!(found, [None, Some(want), Some(want), None]);
        // One turn later the place is another's, and is taken over.
        let later = 500 + 100 * SLOTS.cast_signed();
        assert_eq!(
            (wheel.get(later), wheel.occupant(later)),
            (None, Some(want))
        );
        wheel.chain(&unit(later, true), 208);
        let other = slot(305, 208, 208, -1);
        assert_eq!((wheel.get(later), wheel.get(500)), (Some(other), None));
        assert_eq!(wheel.occupant(500), Some(other));
    }

    #[test]
    fn what_was_synced_is_there_when_it_is_opened_again() {
        let file = File::new();
        let (mut wheel, found) = file.open(SLOTS);
        assert!(!found);
        // The first and the last place of each page, and of the file.
        let steps = [1, 127, 128, 255, 256, 299, 300];
        for step in steps {
            wheel.chain(&unit(step * 100, false), step.cast_unsigned());
        }
        let want: Vec<_> = [300, 1, 127, 128, 255, 256, 299]
            .map(|step| (step * 100, slot(step, step, step, 1)))
            .into();
        assert_eq!(wheel.used().collect::<Vec<_>>(), want);
        assert!(file.open(SLOTS).0.used().next().is_none(), "not written");
        wheel.sync().unwrap();
        let (mut again, found) = file.open(SLOTS);
        assert!(found);
        assert_eq!(again.used().collect::<Vec<_>>(), want);
        // What is changed later is written as well, and nothing else.
        again.chain(&unit(12_700, false), 900);
        again.sync().unwrap();
        let (mut third, _) = file.open(SLOTS);
        assert_eq!(third.get(12_700), Some(slot(127, 127, 900, 2)));
        assert_eq!(third.used().count(), want.len());
        third.clear();
        assert!(third.used().next().is_none());
        third.sync().unwrap();
        assert!(file.open(SLOTS).0.used().next().is_none());
        // A file of another length is no wheel.
        for slots in [SLOTS - 1, SLOTS + 1] {
            let (other, found) = file.open(slots);
            assert!(!found && other.used().next().is_none());
        }
    }
}
