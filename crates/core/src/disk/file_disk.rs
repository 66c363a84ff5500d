//! The disk of the operating system.

use crate::disk::at_path::at_path;
use crate::disk::bad_pages::GuardedMap;
use crate::disk::{Bytes, Disk, DiskFile, Space};
use memmap2::{Mmap, MmapOptions};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Zeros are written in pieces of this size where a file system cannot allocate.
const ZERO_PIECE: usize = 1 << 20;
/// Most parts that one vectored write may have on any system we know.
const PARTS_MAX: usize = 1024;
/// Ranges of a file that are told apart; what is behind so many counts as one.
const RANGES_MAX: usize = 4096;

/// Files of the operating system; paths are taken as they are.
#[derive(Debug, Default)]
pub struct FileDisk {
    zero_filled: AtomicU64,
}

impl FileDisk {
    /// Makes the disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn allocate(&self, file: &File, len: u64) -> io::Result<()> {
        if reserve(file, len)? {
            return Ok(());
        }
        self.zero_filled.fetch_add(1, Ordering::Relaxed);
        let zeros = vec![0u8; ZERO_PIECE];
        let mut at = 0;
        while at < len {
            let piece = usize::try_from(len - at).map_or(ZERO_PIECE, |left| left.min(ZERO_PIECE));
            file.write_all_at(zeros.get(..piece).unwrap_or_default(), at)?;
            at += piece as u64;
        }
        Ok(())
    }
}

/// Asks the file system for the blocks; false when it does not know how.
#[cfg(target_os = "linux")]
fn reserve(file: &File, len: u64) -> io::Result<bool> {
    let len = i64::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    loop {
        // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(false),
            _ => return Err(error),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _len: u64) -> io::Result<bool> {
    Ok(false)
}

struct PosixFile {
    path: Box<Path>,
    file: File,
    len: u64,
}

impl PosixFile {
    fn inside(&self, offset: u64, size: u64) -> io::Result<()> {
        match offset.checked_add(size) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{size} bytes at {offset} of a file of {}", self.len),
            )),
        }
    }

    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> io::Result<usize> {
        let list: Vec<libc::iovec> = parts
            .iter()
            .take(PARTS_MAX)
            .map(|part| libc::iovec {
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            })
            .collect();
        let at = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let count = libc::c_int::try_from(list.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: every entry of `list` points to a live slice of the stated length, which the
        // kernel only reads; the descriptor is open while `self` is borrowed.
        let wrote = unsafe { libc::pwritev(self.file.as_raw_fd(), list.as_ptr(), count, at) };
        usize::try_from(wrote).map_err(|_| io::Error::last_os_error())
    }
}

impl DiskFile for PosixFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        at_path(&self.path, || {
            self.inside(offset, data.len() as u64)?;
            self.file.write_all_at(data, offset)
        })
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        at_path(&self.path, || {
            let total: u64 = parts.iter().map(|part| part.len() as u64).sum();
            self.inside(offset, total)?;
            let mut left: Vec<&[u8]> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
            let mut at = offset;
            while !left.is_empty() {
                let mut wrote = match self.write_parts(&left, at) {
                    Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                    Ok(wrote) => wrote,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                at += wrote as u64;
                let whole = left
                    .iter()
                    .take_while(|part| {
                        let fits = part.len() <= wrote;
                        if fits {
                            wrote -= part.len();
                        }
                        fits
                    })
                    .count();
                left.drain(..whole);
                if let Some(first) = left.first_mut() {
                    *first = first.get(wrote..).unwrap_or_default();
                }
            }
            Ok(())
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        at_path(&self.path, || self.file.read_exact_at(buffer, offset))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn sync(&self) -> io::Result<()> {
        at_path(&self.path, || self.file.sync_data())
    }

    fn map(&self) -> io::Result<Arc<dyn Bytes>> {
        at_path::<Arc<dyn Bytes>>(&self.path, || {
            if self.len == 0 {
                return Ok(Arc::new(Vec::new()));
            }
            let len = usize::try_from(self.len)
                .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
            // SAFETY: we never shorten a file while it is in use (rule of the `disk` module), and a
            // page that cannot be read, also because others did, is replaced (`bad_pages`); bytes
            // that change below it are handled as bytes and checked, never as typed data.
            let map: Mmap = unsafe { MmapOptions::new().len(len).map(&self.file)? };
            Ok(Arc::new(GuardedMap::new(map)))
        })
    }

    #[cfg(target_os = "linux")]
    fn seek_data(&self, from: u64) -> io::Result<Option<u64>> {
        at_path(&self.path, || next_data(&self.file, from, self.len))
    }

    #[cfg(target_os = "linux")]
    fn seek_hole(&self, from: u64) -> io::Result<u64> {
        at_path(&self.path, || next_hole(&self.file, from, self.len))
    }

    #[cfg(not(target_os = "linux"))]
    fn seek_data(&self, from: u64) -> io::Result<Option<u64>> {
        at_path(&self.path, || next_data(&self.file, from, self.len))
    }
}

#[cfg(target_os = "linux")]
fn seek(file: &File, from: u64, whence: libc::c_int) -> io::Result<u64> {
    let at =
        libc::off_t::try_from(from).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: no memory is passed; the file position that this moves is used by nobody.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Where the next bytes at `from` or behind are that the file system has blocks for; `None` when
/// only a hole follows. A file system that does not know says `from` itself.
#[cfg(target_os = "linux")]
pub(crate) fn next_data(file: &File, from: u64, len: u64) -> io::Result<Option<u64>> {
    match seek(file, from, libc::SEEK_DATA) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((from < len).then_some(from))
        }
        found => found.map(Some),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn next_data(_file: &File, from: u64, len: u64) -> io::Result<Option<u64>> {
    Ok((from < len).then_some(from))
}

/// Where the next hole at `from` or behind begins; `len` when none is known of.
#[cfg(target_os = "linux")]
fn next_hole(file: &File, from: u64, len: u64) -> io::Result<u64> {
    match seek(file, from, libc::SEEK_HOLE) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::EINVAL)) => {
            Ok(len.max(from))
        }
        found => found,
    }
}

#[cfg(not(target_os = "linux"))]
fn next_hole(_file: &File, from: u64, len: u64) -> io::Result<u64> {
    Ok(len.max(from))
}

/// The ranges below `len` that the file system has blocks for; the last one may hold holes.
///
/// All are found before one is looked at: reading brings zeros into the page cache, and those
/// would count as data from then on.
pub(crate) fn data_ranges(file: &File, len: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let Some(begin) = next_data(file, at, len)?.filter(|begin| *begin < len) else {
            break;
        };
        let end = if found.len() < RANGES_MAX {
            next_hole(file, begin, len)?.clamp(begin + 1, len)
        } else {
            len
        };
        found.push((begin, end));
        at = end;
    }
    Ok(found)
}

/// Holds a lock until it is dropped.
struct HeldLock(#[allow(dead_code)] File);

impl Disk for FileDisk {
    fn create(&self, path: &Path, len: u64, space: Space) -> io::Result<Arc<dyn DiskFile>> {
        at_path::<Arc<dyn DiskFile>>(path, || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)?;
            let filled = match space {
                Space::Allocated => self.allocate(&file, len),
                Space::Sparse => file.set_len(len),
            };
            if let Err(error) = filled {
                // Half a file would stop the next start: better none.
                fs::remove_file(path)?;
                return Err(error);
            }
            let path = path.into();
            Ok(Arc::new(PosixFile { path, file, len }))
        })
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        at_path::<Arc<dyn DiskFile>>(path, || {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let len = file.metadata()?.len();
            let path = path.into();
            Ok(Arc::new(PosixFile { path, file, len }))
        })
    }

    fn read_front(&self, path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
        at_path(path, || {
            let found = match fs::metadata(path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            if !found.is_file() {
                // A pipe would keep the reader waiting for somebody who writes into it.
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
            }
            let file = File::open(path)?;
            let len = usize::try_from(found.len()).unwrap_or(usize::MAX);
            let mut data = Vec::new();
            // A byte more, so that the end is seen without more room.
            data.try_reserve_exact(len.min(most).saturating_add(1))?;
            file.take(most as u64).read_to_end(&mut data)?;
            Ok(Some(data))
        })
    }

    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        at_path(path, || {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            file.write_all_at(data, 0)?;
            if file.metadata()?.len() > data.len() as u64 {
                file.set_len(data.len() as u64)?;
            }
            Ok(())
        })
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        at_path(path, || File::open(path)?.sync_all())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        at_path(to, || fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        at_path(path, || absent_is_fine(fs::remove_file(path)))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        at_path(path, || absent_is_fine(fs::remove_dir(path)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        at_path(path, || fs::create_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        at_path(path, || File::open(path)?.sync_all())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool, u64)>> {
        at_path(path, || {
            let entries = match fs::read_dir(path) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            };
            let mut found = Vec::new();
            for entry in entries {
                let entry = entry?;
                // The kind comes with the name; a folder's length is of use to nobody.
                let is_dir = entry.file_type()?.is_dir();
                let len = if is_dir { 0 } else { entry.metadata()?.len() };
                found.push((entry.path(), is_dir, len));
            }
            found.sort();
            Ok(found)
        })
    }

    fn modified_ms(&self, path: &Path) -> io::Result<u64> {
        at_path(path, || {
            let since = fs::metadata(path)?.modified()?.duration_since(UNIX_EPOCH);
            Ok(since.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
        })
    }

    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)] // Widths differ between systems.
    fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        at_path(path, || {
            let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
            let mut about = std::mem::MaybeUninit::<libc::statvfs>::uninit();
            // SAFETY: `name` ends in a zero byte and `about` has the size that the call fills.
            if unsafe { libc::statvfs(name.as_ptr(), about.as_mut_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the call succeeded, so that all of it is set.
            let about = unsafe { about.assume_init() };
            let block = about.f_frsize as u64;
            let free = (about.f_bavail as u64).saturating_mul(block);
            let used = (about.f_blocks as u64)
                .saturating_sub(about.f_bfree as u64)
                .saturating_mul(block);
            Ok((free, used.saturating_add(free)))
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        at_path::<Box<dyn Send + Sync>>(path, || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            lock_first_byte(&file)?;
            file.write_all_at(b"lock", 0)?;
            Ok(Box::new(HeldLock(file)))
        })
    }

    fn write_back(&self, path: &Path) {
        #[cfg(target_os = "linux")]
        if let Ok(folder) = File::open(path) {
            // SAFETY: the descriptor is open for as long as the call takes.
            unsafe { libc::syncfs(folder.as_raw_fd()) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = path;
    }

    fn zero_filled(&self) -> u64 {
        self.zero_filled.load(Ordering::Relaxed)
    }
}

/// Locks byte 0 for this open file: Java's lock and ours exclude each other (spec: store §7).
fn lock_first_byte(file: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    const SET_LOCK: libc::c_int = libc::F_OFD_SETLK;
    #[cfg(not(target_os = "linux"))]
    const SET_LOCK: libc::c_int = libc::F_SETLK;
    let range = first_byte();
    // SAFETY: the descriptor is open and `range` lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), SET_LOCK, &range) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        _ => Err(error),
    }
}

/// Whether somebody holds that lock on the file `path`; it is not taken. A file that is not there
/// is not locked.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    const GET_LOCK: libc::c_int = libc::F_OFD_GETLK;
    #[cfg(not(target_os = "linux"))]
    const GET_LOCK: libc::c_int = libc::F_GETLK;
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut range = first_byte();
    // SAFETY: the descriptor is open and `range` lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), GET_LOCK, &raw mut range) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::c_int::from(range.l_type) != libc::F_UNLCK)
}

fn first_byte() -> libc::flock {
    // SAFETY: `flock` is plain numbers, for which zeros are valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::c_short::try_from(libc::F_WRLCK).unwrap_or_default();
    range.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    range.l_start = 0;
    range.l_len = 1;
    range
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
#[path = "file_disk_tests.rs"]
mod tests;
