//! What the store asks of a disk, so that tests can crash, tear, fill and break one.
//!
//! Rules every user of this trait keeps (architecture §4):
//! files are written with `write_at` only, never through a map; a file's length is set once, when it
//! is made; a mapped file is never shortened; names become durable only with `sync_dir`;
//! what a failed `sync` covered is unknown for good, so it is never retried and trusted.

pub(crate) mod ahead;
pub mod at_path;
pub(crate) mod bad_pages;
pub mod file_cache;
pub mod file_disk;
pub(crate) mod note_file;
pub(crate) mod resident;
pub mod segment;

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a new file gets its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Every block is allocated now, so that no later write can find the disk full.
    Allocated,
    /// Full length, no blocks: for files that stay mostly empty (queues, index).
    Sparse,
}

/// Bytes of a file that stay readable for as long as this is held: a lease on the file.
pub trait Bytes: Deref<Target = [u8]> + Send + Sync {}

impl<T: Deref<Target = [u8]> + Send + Sync> Bytes for T {}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// Writes all of `data` at `offset`; the file does not grow past its length.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Writes the parts one after another at `offset`, in one system call where that is possible.
    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Fills `buffer` from `offset`, or fails with `UnexpectedEof`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes every write that returned before this call durable (fdatasync).
    fn sync(&self) -> io::Result<()>;

    /// Returns the whole file, readable while the answer is held; later writes show in it.
    fn map(&self) -> io::Result<Arc<dyn Bytes>>;

    /// First offset at or after `from` that may hold data; `None` when only a hole follows.
    fn seek_data(&self, from: u64) -> io::Result<Option<u64>>;

    /// First offset at or after `from`, which has data, where a hole begins; the length when
    /// there is none, or when the disk does not know.
    fn seek_hole(&self, from: u64) -> io::Result<u64> {
        self.len().map(|len| len.max(from))
    }
}

/// One disk, or a folder of one.
pub trait Disk: Send + Sync {
    /// Makes a new file of `len` zero bytes; fails when it exists.
    fn create(&self, path: &Path, len: u64, space: Space) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Reads a file whole; `None` when there is none.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.read_front(path, usize::MAX)
    }

    /// Reads at most `most` bytes from the start of a file, whatever its length; `None` when there
    /// is none. For files of a fixed size, which may be damaged.
    fn read_front(&self, path: &Path, most: usize) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a small file's content in place or makes it; durable only after `sync_file`.
    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()>;

    /// Makes the content of the file at `path` durable.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Names a file anew, over an existing one if there is one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; fine when there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder; fine when there is none.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder and those above it; fine when it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes names made, changed and removed in the folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// As [`Self::sync_dir`]; fine when the folder is not there (any more).
    fn sync_dir_if_there(&self, path: &Path) -> io::Result<()> {
        match self.sync_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    /// Lists (path, is folder, length of a file), sorted by name; empty when the folder does not
    /// exist.
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool, u64)>>;

    /// Last modification time of a file in Unix milliseconds.
    fn modified_ms(&self, path: &Path) -> io::Result<u64>;

    /// (free, total) bytes of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<(u64, u64)>;

    /// Takes the exclusive lock file; `WouldBlock` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    /// Writes back all that waits on the file system of `path`, so that the many syncs that follow
    /// find little to do. It promises nothing: those syncs do, and they report what went wrong.
    fn write_back(&self, _path: &Path) {}

    /// How many new files had to be filled with zeros because blocks cannot be allocated.
    fn zero_filled(&self) -> u64 {
        0
    }
}
