//! Making one index file of entries that are known already.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::file::{IndexFile, Shape, State};
use super::header::Header;
use crate::disk::{Disk, Space};

/// One key of one message, as the index keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Hash of `<topic>#<key>`.
    pub hash: i32,
    /// Where the message is in the log.
    pub physical_offset: i64,
    /// Its store time, Unix milliseconds.
    pub time: i64,
}

/// Makes the file at `path`, which must not be there, of `slots` and `entries` (the first entry
/// number is never used), durable when this returns; says how many keys it took.
///
/// The bytes are those that a store makes which indexes the same messages one after the other.
pub fn write_file(
    disk: &Arc<dyn Disk>,
    path: &Path,
    (slots, entries): (u32, u32),
    keys: impl Iterator<Item = io::Result<Key>>,
) -> io::Result<u64> {
    let shape = Shape { slots, entries };
    let handle = disk.create(path, shape.file_size(), Space::Sparse)?;
    let state = State::new(Header::after(0, 0), true);
    let file = IndexFile::new(Arc::clone(disk), path.to_path_buf(), shape, state);
    file.keep_open(handle);
    let mut count = 0;
    for key in keys {
        let key = key?;
        if !file.add(key.hash, key.physical_offset, key.time)? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "more keys than an index file holds",
            ));
        }
        count += 1;
    }
    file.sync()?;
    Ok(count)
}
