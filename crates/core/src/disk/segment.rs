//! One file of the commit log: its place in the log, its bytes, and who still reads them.

use crate::disk::bad_pages;
use crate::disk::{Bytes, Disk, DiskFile, Space};
use crate::store::error::{ErrorKind, StoreError};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros are written in pieces of this size.
const PIECE: u64 = 1 << 20;

/// The name of a commit-log or queue file: its first byte's offset in 20 digits.
pub fn file_name(base: u64) -> String {
    format!("{base:020}")
}

/// The offset in a file's name; `None` when the name is not 20 digits.
pub fn base_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    (name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| name.parse().ok())?
}

/// Makes a folder, and its name durable and those in it: a run that ended before it could make them
/// so may have left files, and what goes into them now must not depend on that.
pub(crate) fn make_folder(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    let above = match folder.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => folder,
    };
    disk.create_dir(folder)
        .and_then(|()| disk.sync_dir(above))
        .and_then(|()| disk.sync_dir(folder))
        .map_err(|error| StoreError::io("make", folder, &error))
}

/// A commit-log file of full length, open for writing and mapped for reading.
pub struct Segment {
    base: u64,
    size: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    map: Arc<dyn Bytes>,
}

impl Segment {
    /// Makes the file with all its blocks and makes it and its name durable.
    ///
    /// What happens to be left of a file that could not be finished is removed. With `warm` zeros
    /// are written over the blocks: a later sync need not turn them from promised into written
    /// ones, which on some file systems takes a commit of the journal each time.
    pub fn create(
        disk: &dyn Disk,
        folder: &Path,
        base: u64,
        size: u64,
        warm: bool,
    ) -> Result<Self, StoreError> {
        let path = folder.join(file_name(base));
        let file = disk
            .create(&path, size, Space::Allocated)
            .map_err(|error| StoreError::io("create", &path, &error))?;
        let written = if warm {
            write_zeros(file.as_ref(), size)
        } else {
            Ok(())
        };
        let made = written
            .and_then(|()| file.sync())
            .and_then(|()| disk.sync_dir(folder))
            .and_then(|()| file.map());
        match made {
            Ok(map) => Ok(Self {
                base,
                size,
                path,
                file,
                map,
            }),
            Err(error) => {
                let problem = StoreError::io("create", &path, &error);
                disk.remove(&path)
                    .map_err(|error| StoreError::io("remove", &path, &error))?;
                Err(problem)
            }
        }
    }

    /// Opens an existing file of the right length.
    pub fn open(disk: &dyn Disk, path: &Path, base: u64, size: u64) -> Result<Self, StoreError> {
        let refuse = |error: io::Error| StoreError::io("open", path, &error);
        let file = disk.open(path).map_err(refuse)?;
        let map = file.map().map_err(refuse)?;
        Ok(Self {
            base,
            size,
            path: path.to_path_buf(),
            file,
            map,
        })
    }

    /// Offset of its first byte in the log.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Offset behind its last byte in the log.
    pub fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes from one log offset to another; `None` when they are not all in this file.
    pub fn bytes(&self, from: u64, to: u64) -> Option<&[u8]> {
        let start = usize::try_from(from.checked_sub(self.base)?).ok()?;
        let end = usize::try_from(to.checked_sub(self.base)?).ok()?;
        self.map.get(start..end)
    }

    /// Maps the file once more. What a recovery reads would stay in the process for as long as the
    /// map that readers use; it goes with this one.
    pub(crate) fn map_anew(&self) -> Result<Arc<dyn Bytes>, StoreError> {
        self.file
            .map()
            .map_err(|error| StoreError::io("open", &self.path, &error))
    }

    /// Fills `buffer` from a log offset on, past the map.
    pub(crate) fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), StoreError> {
        let read = match at.checked_sub(self.base) {
            Some(offset) => self.file.read_at(buffer, offset),
            None => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        };
        read.map_err(|error| StoreError::io("read", &self.path, &error))
    }

    /// What is wrong when pages of it cannot be read.
    pub(crate) fn unreadable(&self) -> StoreError {
        StoreError::new(
            ErrorKind::Io,
            format!(
                "{} has pages that cannot be read: the disk fails, or somebody has cut the file; \
                 copy the store to a sound disk or take a slave's, and start there",
                self.path.display()
            ),
        )
    }

    /// Writes at a log offset.
    pub fn write(&self, data: &[u8], at: u64) -> io::Result<()> {
        match at.checked_sub(self.base) {
            Some(offset) => self.file.write_at(data, offset),
            None => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }

    /// Writes the bytes between two log offsets that are in this file once more as they are.
    pub(crate) fn write_again(&self, from: u64, to: u64) -> Result<(), StoreError> {
        let mut at = from.max(self.base);
        let to = to.min(self.end());
        while at < to {
            let end = to.min(at + PIECE);
            let mut piece = vec![0; usize::try_from(end - at).unwrap_or(0)];
            self.read(&mut piece, at)?;
            self.write(&piece, at)
                .map_err(|error| StoreError::io("write", &self.path, &error))?;
            at = end;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.file
            .sync()
            .map_err(|error| StoreError::io("sync", &self.path, &error))
    }

    /// Ranges of log offsets from `from` on that may hold something else than zeros.
    ///
    /// All are found before one is looked at: reading brings zeros into the page cache, and those
    /// would count as data from then on.
    pub fn data(&self, from: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let seek = || {
            let mut ranges = Vec::new();
            let mut at = from.saturating_sub(self.base);
            while let Some(start) = self.file.seek_data(at)?.filter(|start| *start < self.size) {
                let start = start.max(at);
                let end = self.file.seek_hole(start)?.clamp(start + 1, self.size);
                ranges.push((self.base + start, self.base + end));
                at = end;
                if at >= self.size {
                    break;
                }
            }
            Ok(ranges)
        };
        if from >= self.end() {
            return Ok(Vec::new());
        }
        seek().map_err(|error: io::Error| StoreError::io("search", &self.path, &error))
    }

    /// Writes zeros over whatever differs from zero in a range; returns how many bytes it wrote.
    pub fn zero(&self, from: u64, to: u64) -> Result<u64, StoreError> {
        let mut wrote = 0;
        let zeros = vec![0u8; usize::try_from(PIECE.min(to.saturating_sub(from))).unwrap_or(0)];
        let mut found = zeros.clone();
        for (start, end) in self.data(from)? {
            let (mut at, end) = (start.max(from), end.min(to));
            while at < end {
                let next = end.min(at + PIECE);
                let piece = usize::try_from(next - at).unwrap_or(0);
                let found = found.get_mut(..piece).unwrap_or_default();
                self.read(found, at)?;
                if !all_zero(found) {
                    self.write(zeros.get(..piece).unwrap_or_default(), at)
                        .map_err(|error| StoreError::io("write", &self.path, &error))?;
                    wrote += next - at;
                }
                at = next;
            }
        }
        Ok(wrote)
    }
}

fn write_zeros(file: &dyn DiskFile, size: u64) -> io::Result<()> {
    let zeros = vec![0; usize::try_from(PIECE.min(size)).unwrap_or(0)];
    let mut at = 0;
    while at < size {
        let piece = usize::try_from(PIECE.min(size - at)).unwrap_or(0);
        file.write_at(zeros.get(..piece).unwrap_or_default(), at)?;
        at += piece as u64;
    }
    Ok(())
}

/// Whether every byte is zero; fast, for tails of a gibibyte.
pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<256>();
    let dirty = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) != 0;
    !blocks.iter().any(|block| dirty(block)) && !dirty(rest)
}

/// Bytes of the log that stay readable for as long as this is held.
#[derive(Clone)]
pub struct Lease {
    segment: Arc<Segment>,
    from: u64,
    to: u64,
}

impl Lease {
    /// Leases a range of one file; `None` when it is not all in it.
    pub fn new(segment: Arc<Segment>, from: u64, to: u64) -> Option<Self> {
        segment.bytes(from, to)?;
        Some(Self { segment, from, to })
    }

    /// Log offset of the first byte.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Log offset behind the last byte.
    pub fn to(&self) -> u64 {
        self.to
    }

    /// Fails when the disk cannot give the bytes: they read as zeros then.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if bad_pages::is_readable(self) {
            return Ok(());
        }
        Err(self.segment.unreadable())
    }

    /// Takes in bytes that follow directly; false when they do not, or are in another file.
    pub fn extend(&mut self, next: &Lease) -> bool {
        let follows = next.from == self.to && Arc::ptr_eq(&self.segment, &next.segment);
        if follows {
            self.to = next.to;
        }
        follows
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.segment.bytes(self.from, self.to).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{base_of, file_name};
    use std::path::Path;

    #[test]
    fn names() {
        assert_eq!(file_name(131_072), "00000000000000131072");
        assert_eq!(base_of(Path::new("/x/00000000000000131072")), Some(131_072));
        for bad in ["/x/foo.tmp", "/x/131072", "/x/0000000000000013107x", "/"] {
            assert_eq!(base_of(Path::new(bad)), None);
        }
        assert_eq!(base_of(Path::new("99999999999999999999")), None);
    }
}
