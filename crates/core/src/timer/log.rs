//! The timer log: units in files of equal length, only ever appended (spec: store §16.3).
//!
//! Appended units are gathered in memory and written together; reads see them at once.

use super::sums::{FileSum, Sums};
use super::unit::{blank, is_blank, Unit, BLANK_SIZE, UNIT_SIZE};
use crate::disk::segment::{all_zero, base_of, make_folder, Segment};
use crate::disk::Disk;
use crate::store::error::StoreError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const SIZE: u64 = UNIT_SIZE as u64;
/// Gathered units are written when they reach this size.
const GATHERED_MAX: usize = 256 << 10;

fn is_empty(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    let fail = |error: std::io::Error| StoreError::io("open", path, &error);
    let file = disk.open(path).map_err(fail)?;
    let bytes = file.map().map_err(fail)?;
    Ok(all_zero(&bytes))
}

/// The files and the end of the log.
pub struct TimerLog {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    file_size: u64,
    pub(super) segments: Vec<Arc<Segment>>,
    end: u64,
    pub(super) gathered: Vec<u8>,
    unsynced: bool,
    pub(super) sums: Sums,
}

impl TimerLog {
    /// Opens the files that are there; the end has to be found by [`Self::find_end`].
    ///
    /// Files of another length, or with one missing between them, are removed: see [`Self::anew`].
    pub fn open(disk: Arc<dyn Disk>, folder: PathBuf, file_size: u64) -> Result<Self, StoreError> {
        make_folder(disk.as_ref(), &folder)?;
        let listed = disk
            .list(&folder)
            .map_err(|error| StoreError::io("list", &folder, &error))?;
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        for (path, is_folder, length) in listed {
            let Some(base) = base_of(&path).filter(|_| !is_folder) else {
                continue;
            };
            if length < file_size && is_empty(disk.as_ref(), &path)? {
                // It was being made when the power went.
                disk.remove(&path)
                    .map_err(|error| StoreError::io("remove", &path, &error))?;
                continue;
            }
            let follows = segments.last().is_none_or(|last| last.end() == base);
            if length != file_size || !follows {
                // Made with another `mappedFileSizeTimerLog`, or a file is missing. All that the log
                // says is in the timer topic, too.
                return Self::anew(disk, folder, file_size);
            }
            segments.push(Arc::new(Segment::open(disk.as_ref(), &path, base, length)?));
        }
        let end = segments.first().map_or(0, |first| first.base());
        Ok(Self {
            disk,
            folder,
            file_size,
            segments,
            end,
            gathered: Vec::new(),
            unsynced: false,
            sums: Sums {
                closed: Vec::new(),
                open: FileSum::empty(end),
            },
        })
    }

    /// Whether files are missing in front of the first one: [`Self::clean`] removes those only whose
    /// messages the commit log, which begins at `log_min`, has no more.
    pub(super) fn lacks_front(&self, log_min: u64) -> bool {
        let Some(first) = self.segments.first().filter(|first| first.base() > 0) else {
            return false;
        };
        let base = first.base();
        let unit = first.bytes(base, base + SIZE).and_then(Unit::decode);
        unit.is_none_or(|unit| unit.physical_offset.cast_unsigned() > log_min)
    }

    /// Starts over: removes all files.
    pub(super) fn anew(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        file_size: u64,
    ) -> Result<Self, StoreError> {
        let listed = disk
            .list(&folder)
            .map_err(|error| StoreError::io("list", &folder, &error))?;
        for (path, _, _) in listed.iter().filter(|(path, ..)| base_of(path).is_some()) {
            disk.remove(path)
                .map_err(|error| StoreError::io("remove", path, &error))?;
        }
        disk.sync_dir(&folder)
            .map_err(|error| StoreError::io("sync", &folder, &error))?;
        Self::open(disk, folder, file_size)
    }

    /// Position of the first unit that is still there.
    pub fn min(&self) -> u64 {
        self.segments.first().map_or(self.end, |first| first.base())
    }

    /// Position behind the last unit.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Walks over all units from the file that holds `from` on, and ends the log behind the last
    /// one for which `keep` holds: what follows is removed. Returns the removed bytes.
    pub fn find_end(
        &mut self,
        from: u64,
        keep: impl FnMut(u64, &Unit) -> bool,
    ) -> Result<u64, StoreError> {
        let scanned = self.scan(from, u64::MAX, keep)?;
        self.sums.open = scanned.sums.open;
        self.cut(scanned.end)
    }

    fn over_blank(&self, at: u64) -> u64 {
        let Some(segment) = self.segment_at(at) else {
            return at;
        };
        let left = segment.end() - at;
        let is_end = left < SIZE + BLANK_SIZE as u64
            || segment
                .bytes(at, at + BLANK_SIZE as u64)
                .is_some_and(is_blank);
        if is_end {
            segment.end()
        } else {
            at
        }
    }

    /// Ends the log at a position; files behind it go, the newest first.
    pub(super) fn cut(&mut self, end: u64) -> Result<u64, StoreError> {
        let mut removed = 0;
        self.gathered.clear();
        while let [_, .., last] = self.segments.as_slice() {
            if last.base() < end {
                break;
            }
            removed += last
                .data(last.base())?
                .iter()
                .map(|(from, to)| to - from)
                .sum::<u64>();
            let last = Arc::clone(last);
            self.segments.pop();
            self.remove(&last)?;
        }
        if let Some(last) = self.segments.last() {
            let zeroed = last.zero(end, last.end())?;
            if zeroed > 0 {
                last.sync()?;
            }
            removed += zeroed;
        }
        self.end = end;
        self.sum_up_to(end)?;
        Ok(removed)
    }

    fn remove(&self, segment: &Segment) -> Result<(), StoreError> {
        let path = segment.path();
        self.disk
            .remove(path)
            .and_then(|()| self.disk.sync_dir(&self.folder))
            .map_err(|error| StoreError::io("remove", path, &error))
    }

    /// Appends a unit; returns its position.
    pub fn append(&mut self, unit: &Unit) -> Result<u64, StoreError> {
        if self.room() < SIZE + BLANK_SIZE as u64 {
            self.roll()?;
        }
        let at = self.end;
        self.gathered.extend_from_slice(&unit.encode());
        self.end += SIZE;
        self.unsynced = true;
        if self.gathered.len() >= GATHERED_MAX {
            self.write()?;
        }
        Ok(at)
    }

    fn room(&self) -> u64 {
        let last = self.segments.last().map_or(0, |last| last.end());
        last.saturating_sub(self.end)
    }

    fn roll(&mut self) -> Result<(), StoreError> {
        self.write()?;
        let room = self.room();
        let base = self.end + room;
        // The new file first: a full disk must leave the old one as it is.
        let disk = self.disk.as_ref();
        let next = Segment::create(disk, &self.folder, base, self.file_size, false)?;
        if let Some(last) = self.segments.last().filter(|_| room >= BLANK_SIZE as u64) {
            let filler = blank(u32::try_from(room).unwrap_or(u32::MAX));
            let done = last.write(&filler, self.end);
            done.map_err(|error| StoreError::io("write", last.path(), &error))?;
            last.sync()?;
        }
        self.segments.push(Arc::new(next));
        self.end = base;
        self.sums.close(base);
        Ok(())
    }

    /// Writes what is gathered.
    fn write(&mut self) -> Result<(), StoreError> {
        if let Some(last) = self.segments.last().filter(|_| !self.gathered.is_empty()) {
            let at = self.end - self.gathered.len() as u64;
            let done = last.write(&self.gathered, at);
            done.map_err(|error| StoreError::io("write", last.path(), &error))?;
            self.mark();
            self.gathered.clear();
        }
        Ok(())
    }

    /// Makes all units durable.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.write()?;
        if let Some(last) = self.segments.last().filter(|_| self.unsynced) {
            last.sync()?;
        }
        self.unsynced = false;
        Ok(())
    }

    /// The unit at a position; `None` when none starts there.
    pub fn read(&self, at: u64) -> Option<Unit> {
        if at + SIZE > self.end {
            return None;
        }
        let written = self.end - self.gathered.len() as u64;
        if let Some(offset) = at.checked_sub(written) {
            let offset = usize::try_from(offset).ok()?;
            return Unit::decode(self.gathered.get(offset..)?);
        }
        let bytes = self.segment_at(at)?.bytes(at, at + SIZE)?.to_owned();
        Unit::decode(&bytes)
    }

    /// All units from the first one on: (position, unit).
    pub fn units(&self) -> impl Iterator<Item = (u64, Unit)> + '_ {
        self.units_from(self.min())
    }

    /// All units from a position on, where one begins: (position, unit).
    pub fn units_from(&self, from: u64) -> impl Iterator<Item = (u64, Unit)> + '_ {
        let mut at = from.max(self.min());
        let written = self.end - self.gathered.len() as u64;
        let mut segment: Option<&Arc<Segment>> = None;
        std::iter::from_fn(move || {
            if segment.is_none_or(|segment| segment.end() <= at) {
                segment = self.segment_at(at);
            }
            // Most are found in place; what is not may be a filler, or not written yet.
            let bytes = segment.and_then(|segment| segment.bytes(at, at + SIZE));
            let in_place = bytes
                .filter(|_| at + SIZE <= written)
                .and_then(Unit::decode);
            let (here, unit) = if let Some(unit) = in_place {
                (at, unit)
            } else {
                let here = self.over_blank(at);
                (here, self.read(here)?)
            };
            at = here + SIZE;
            Some((here, unit))
        })
    }

    /// The last unit before a position.
    pub fn before(&self, at: u64) -> Option<(u64, Unit)> {
        let mut here = at;
        // Over the filler of a file that ends there, which is shorter than two units.
        for _ in 0..3 {
            let segment = self.segments.iter().rev().find(|it| it.base() < here)?;
            let units = (here.min(segment.end()) - segment.base()) / SIZE;
            let last = segment.base() + units.checked_sub(1)? * SIZE;
            if let Some(unit) = self.read(last) {
                return Some((last, unit));
            }
            here = last;
        }
        None
    }

    /// Removes the oldest files whose messages are all gone from the commit log.
    pub fn clean(&mut self, log_min: u64) -> Result<usize, StoreError> {
        let mut removed = 0;
        while let [first, next, ..] = self.segments.as_slice() {
            // Units are in the order of their messages: those before the next file's first are older.
            let Some(unit) = self.read(next.base()) else {
                break;
            };
            if unit.physical_offset.cast_unsigned() > log_min {
                break;
            }
            let first = Arc::clone(first);
            self.remove(&first)?;
            self.segments.remove(0);
            removed += 1;
        }
        let min = self.min();
        self.sums.closed.retain(|it| it.base >= min);
        Ok(removed)
    }

    fn segment_at(&self, at: u64) -> Option<&Arc<Segment>> {
        let index = self.segments.partition_point(|segment| segment.end() <= at);
        self.segments
            .get(index)
            .filter(|segment| segment.base() <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::{TimerLog, Unit, SIZE};
    use crate::disk::file_disk::FileDisk;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("roquet-timerlog-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self, file_size: u64) -> TimerLog {
            TimerLog::open(Arc::new(FileDisk::new()), self.0.clone(), file_size).unwrap()
        }

        fn files(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The unit of message `n`, a hundred bytes long.
    fn unit(n: u64) -> Unit {
        Unit {
            previous: -1,
            rolls: false,
            cancels: false,
            written_ms: 1000,
            wait_ms: 1,
            physical_offset: n.cast_signed() * 100,
            size: 100,
            topic_hash: 0,
        }
    }

    /// Files of so many bytes take so many units: behind the last one a filler has room.
    const FILES: [(u64, u64); 5] = [(171, 2), (172, 3), (200, 3), (223, 3), (224, 4)];

    fn place(n: u64, (size, units): (u64, u64)) -> u64 {
        n / units * size + n % units * SIZE
    }

    fn all(log: &TimerLog) -> Vec<(u64, Unit)> {
        log.units().collect()
    }

    /// Every unit is found by its place, from both sides.
    fn holds(log: &TimerLog, want: &[(u64, Unit)]) {
        assert_eq!(all(log), want);
        for (n, (at, unit)) in want.iter().enumerate() {
            assert_eq!(log.read(*at), Some(*unit));
            assert_eq!(log.read(at + 1), None);
            assert_eq!(log.units_from(*at).collect::<Vec<_>>(), want[n..]);
            assert_eq!(log.before(at + SIZE), Some((*at, *unit)));
            assert_eq!(log.before(*at), n.checked_sub(1).map(|n| want[n]));
        }
        assert_eq!(log.read(log.end()), None);
    }

    #[test]
    fn units_are_found_where_they_were_put_in_memory_and_on_disk() {
        for file in FILES {
            let folder = Folder::new();
            let mut log = folder.open(file.0);
            assert_eq!((log.min(), log.end(), log.before(0)), (0, 0, None));
            let want: Vec<_> = (0..10).map(|n| (place(n, file), unit(n))).collect();
            for (at, unit) in &want {
                assert_eq!(log.append(unit).unwrap(), *at, "{file:?}");
            }
            holds(&log, &want);
            log.sync().unwrap();
            holds(&log, &want);
            let mut again = folder.open(file.0);
            assert_eq!(again.find_end(0, |_, _| true).unwrap(), 0);
            holds(&again, &want);
            assert_eq!(again.append(&unit(10)).unwrap(), place(10, file));
        }
    }

    #[test]
    fn log_ends_behind_the_last_unit_that_is_kept() {
        for file in FILES {
            for kept in 0..=10 {
                let folder = Folder::new();
                let mut log = folder.open(file.0);
                for n in 0..10 {
                    log.append(&unit(n)).unwrap();
                }
                log.sync().unwrap();
                let mut again = folder.open(file.0);
                let end = place(kept, file);
                let removed = again.find_end(0, |at, _| at < end).unwrap();
                assert_eq!(removed > 0, kept < 10, "{file:?} {kept}");
                let want: Vec<_> = (0..kept).map(|n| (place(n, file), unit(n))).collect();
                assert_eq!(all(&again), want, "{file:?} {kept}");
                let files = kept.div_ceil(file.1).max(1);
                assert_eq!(folder.files() as u64, files, "{file:?} {kept}");
                // What is behind it does not come back.
                again.append(&unit(77)).unwrap();
                again.sync().unwrap();
                let mut third = folder.open(file.0);
                third.find_end(0, |_, _| true).unwrap();
                assert_eq!(all(&third).len() as u64, kept + 1, "{file:?} {kept}");
            }
        }
    }

    #[test]
    fn files_go_with_the_messages_of_all_their_units() {
        // Three units a file: the second one begins with message 3, at 300, the third with 6.
        for (log_min, gone) in [(0, 0), (299, 0), (300, 1), (599, 1), (600, 2), (5000, 3)] {
            let folder = Folder::new();
            let mut log = folder.open(200);
            for n in 0..10 {
                log.append(&unit(n)).unwrap();
            }
            log.sync().unwrap();
            assert_eq!(log.clean(log_min).unwrap(), gone, "{log_min}");
            assert_eq!(folder.files(), 4 - gone);
            assert_eq!(log.min(), gone as u64 * 200);
            assert_eq!(all(&log).len(), 10 - 3 * gone);
            assert_eq!(log.before(log.min()), None);
        }
    }

    #[test]
    fn files_of_another_length_or_behind_a_gap_are_nothing() {
        let filled = |size| {
            let folder = Folder::new();
            let mut log = folder.open(size);
            for n in 0..10 {
                log.append(&unit(n)).unwrap();
            }
            log.sync().unwrap();
            folder
        };
        for size in [172, 201] {
            let folder = filled(200);
            assert!(all(&folder.open(size)).is_empty());
            assert_eq!(folder.files(), 0, "{size}");
        }
        let folder = filled(200);
        std::fs::remove_file(folder.0.join(format!("{:020}", 200))).unwrap();
        assert!(all(&folder.open(200)).is_empty());
        assert_eq!(folder.files(), 0);
        // One that was being made has nothing to say.
        let folder = filled(200);
        std::fs::write(folder.0.join(format!("{:020}", 800)), [0; 50]).unwrap();
        let mut log = folder.open(200);
        log.find_end(0, |_, _| true).unwrap();
        assert_eq!((all(&log).len(), folder.files()), (10, 4));
    }
}
