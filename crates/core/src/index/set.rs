//! The index of a store: its files from old to new.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::entry::key_hash;
use super::file::{IndexFile, Shape, State};
use super::header::{Header, HEADER_SIZE};
use crate::disk::{Disk, Space};

/// Bytes of a file name: local time `yyyyMMddHHmmssSSS`.
const NAME_LEN: usize = 17;

/// The index of one store: one writer (the dispatcher), any number of readers.
pub struct Index {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    shape: Shape,
    files: RwLock<Vec<Arc<IndexFile>>>,
    names_dirty: AtomicBool,
    failed: AtomicBool,
}

impl Index {
    /// Opens the files in `root`, of `slots` slots and `entries` entries each (the first entry
    /// number is never used).
    ///
    /// `safe_since` is given after an unclean stop: the store time up to which the checkpoint
    /// vouches for the index. Files that end later, and the newest, are checked entry by entry, cut
    /// at the first that is not whole, and get their slots anew; dispatch must then go on from
    /// [`Index::last`] at the latest. Fails with `InvalidData` on a file of another length.
    pub fn open(
        disk: Arc<dyn Disk>,
        root: impl Into<PathBuf>,
        slots: u32,
        entries: u32,
        safe_since: Option<i64>,
    ) -> io::Result<Self> {
        let index = Self {
            disk,
            root: root.into(),
            shape: Shape {
                slots: slots.max(1),
                entries: entries.max(2),
            },
            files: RwLock::default(),
            names_dirty: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        };
        index.load()?;
        if let Some(safe) = safe_since {
            index.check(safe)?;
        }
        Ok(index)
    }

    /// Adds the keys of one message. Records that are indexed already change nothing.
    ///
    /// On an error some keys may be in; the same call may be made again.
    pub fn put(
        &self,
        topic: &str,
        keys: &[&[u8]],
        physical_offset: u64,
        store_time: i64,
    ) -> io::Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let phy = i64::try_from(physical_offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut file = self.newest();
        if file.as_ref().is_some_and(|file| {
            let header = file.header();
            phy < header.end_phy
        }) {
            return Ok(());
        }
        for key in keys {
            let hash = key_hash(topic, key);
            loop {
                if let Some(current) = &file {
                    if current.add(hash, phy, store_time)? {
                        break;
                    }
                    current.spill()?;
                }
                file = Some(self.new_file(file.as_deref(), store_time)?);
            }
        }
        Ok(())
    }

    /// Physical offsets, ascending, of at most `max` messages (the newest) whose key has the same
    /// hash and that were stored between `begin` and `end`. The keys themselves are not compared.
    pub fn query(
        &self,
        topic: &str,
        key: &[u8],
        max: usize,
        begin: i64,
        end: i64,
    ) -> io::Result<Vec<u64>> {
        let hash = key_hash(topic, key);
        let mut found = BTreeSet::new();
        let files = self.every_file();
        for (age, file) in files.iter().rev().enumerate() {
            let mut hits = Vec::new();
            file.find(hash, max - found.len(), (begin, end), &mut hits)?;
            found.extend(hits);
            if age > 0 {
                file.close();
            }
            if found.len() >= max || file.header().begin_time < begin {
                break;
            }
        }
        Ok(found.into_iter().collect())
    }

    /// (store time, physical offset) of the newest indexed message; zeros when there is none.
    pub fn last(&self) -> (i64, u64) {
        let files = self.every_file();
        let header = files.last().map(|file| file.header());
        header.map_or((0, 0), |header| {
            (header.end_time, u64::try_from(header.end_phy).unwrap_or(0))
        })
    }

    /// Deletes files whose messages all lie before `min_phy`, never the newest; returns how many.
    pub fn delete_expired(&self, min_phy: u64) -> io::Result<usize> {
        let min = i64::try_from(min_phy).unwrap_or(i64::MAX);
        let mut deleted = 0;
        loop {
            let files = self.every_file();
            let Some(oldest) = files.first().filter(|_| files.len() > 1) else {
                return Ok(deleted);
            };
            if oldest.header().end_phy >= min {
                return Ok(deleted);
            }
            self.remove(oldest)?;
            deleted += 1;
        }
    }

    /// Cuts what lies at `phy` or later, when the log lost it.
    pub fn truncate(&self, phy: u64) -> io::Result<()> {
        let end = i64::try_from(phy).unwrap_or(i64::MAX);
        for file in self.every_file().iter().rev() {
            let header = file.header();
            if header.end_phy < end {
                break;
            }
            if header.begin_phy >= end || file.rebuild_written(phy)? == 0 {
                self.remove(file)?;
            }
        }
        Ok(())
    }

    /// Makes everything put before this call durable; fails for ever after one failed sync.
    pub fn sync(&self) -> io::Result<()> {
        let synced = self.sync_files();
        if synced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        synced?;
        if self.failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier sync of the index failed"));
        }
        Ok(())
    }

    fn sync_files(&self) -> io::Result<()> {
        let files = self.every_file();
        for file in &files {
            file.sync()?;
        }
        for older in files.iter().rev().skip(1) {
            older.close();
        }
        if self.names_dirty.swap(false, Ordering::AcqRel) {
            self.sync_names()?;
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_dir_if_there(&self.root)?;
        match self.root.parent() {
            Some(parent) => self.disk.sync_dir(parent),
            None => Ok(()),
        }
    }

    fn load(&self) -> io::Result<()> {
        let size = self.shape.file_size();
        let mut files = Vec::new();
        for (path, is_dir, len) in self.disk.list(&self.root)? {
            if is_dir || !is_index_name(&path) {
                continue;
            }
            if len == 0 {
                // Made just before the power went.
                self.disk.remove(&path)?;
                continue;
            }
            if len != size {
                let text = format!(
                    "index file {}: {len} bytes, but files of {size} bytes are configured",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let mut head = [0; HEADER_SIZE];
            self.disk.open(&path)?.read_at(&mut head, 0)?;
            let mut state = State::new(Header::decode(&head), false);
            state.changed = false;
            let disk = Arc::clone(&self.disk);
            files.push(Arc::new(IndexFile::new(disk, path, self.shape, state)));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(())
    }

    /// Checks files that nothing vouches for.
    fn check(&self, safe: i64) -> io::Result<()> {
        // The last run may not have been able to make its names durable.
        self.names_dirty.store(true, Ordering::Release);
        let mut newest = true;
        for file in self.every_file().iter().rev() {
            let header = file.header();
            if !newest && header.next > 1 && header.end_time <= safe {
                continue;
            }
            if file.rebuild(u64::MAX, safe)? == 0 {
                self.remove(file)?;
            } else {
                newest = false;
                self.sync_one(file)?;
            }
        }
        Ok(())
    }

    fn sync_one(&self, file: &IndexFile) -> io::Result<()> {
        let synced = file.sync();
        if synced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        synced
    }

    fn remove(&self, file: &Arc<IndexFile>) -> io::Result<()> {
        self.disk.remove(&file.path)?;
        self.names_dirty.store(true, Ordering::Release);
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|other| !Arc::ptr_eq(other, file));
        Ok(())
    }

    fn new_file(&self, full: Option<&IndexFile>, time: i64) -> io::Result<Arc<IndexFile>> {
        let header = full.map_or(Header::after(0, 0), |file| {
            let old = file.header();
            Header::after(old.end_time, old.end_phy)
        });
        let path = self.free_path(full, time);
        self.disk.create_dir(&self.root)?;
        let handle = self
            .disk
            .create(&path, self.shape.file_size(), Space::Sparse)?;
        // A newer file that is durable must never be found without the older ones. When this fails
        // the next sync says so; the file is there all the same.
        if self.sync_names().is_err() {
            self.failed.store(true, Ordering::Release);
        }
        let state = State::new(header, true);
        let file = IndexFile::new(Arc::clone(&self.disk), path, self.shape, state);
        file.keep_open(handle);
        let file = Arc::new(file);
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.push(Arc::clone(&file));
        Ok(file)
    }

    /// A name for the time that sorts behind the newest file.
    fn free_path(&self, newest: Option<&IndexFile>, time: i64) -> PathBuf {
        let mut at = time;
        loop {
            let path = self.root.join(local_name(at));
            if newest.is_none_or(|newest| newest.path < path) {
                return path;
            }
            // Several files in one millisecond, or a clock that was set back.
            let behind = newest.and_then(|newest| next_name(&newest.path));
            match behind {
                Some(path) => return path,
                None => at += 1,
            }
        }
    }

    fn newest(&self) -> Option<Arc<IndexFile>> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.last().map(Arc::clone)
    }

    fn every_file(&self) -> Vec<Arc<IndexFile>> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.clone()
    }
}

fn is_index_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.len() == NAME_LEN && name.bytes().all(|b| b.is_ascii_digit()))
}

/// The digits after those of `path`.
fn next_name(path: &Path) -> Option<PathBuf> {
    let digits = path.file_name()?.to_str()?.parse::<u64>().ok()?;
    Some(path.with_file_name(format!("{:017}", digits.checked_add(1)?)))
}

/// Local time of `ms` as a file name.
fn local_name(ms: i64) -> String {
    let seconds = ms.div_euclid(1000);
    // SAFETY: all-zero is a valid `tm` (numbers and a pointer that may be null).
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, which writes to `parts` only.
    let known = !unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) }.is_null();
    if !known {
        return format!("{:017}", ms.max(0));
    }
    format!(
        "{:04}{:02}{:02}{:02}{:02}{:02}{:03}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec,
        ms.rem_euclid(1000)
    )
}

#[cfg(test)]
mod tests {
    use super::Index;
    use crate::disk::file_disk::FileDisk;
    use std::sync::Arc;

    #[test]
    fn full_files_keep_no_buffers_and_are_read_from_disk_before_a_sync() {
        let root = std::env::temp_dir().join(format!("index-spill-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let index = Index::open(Arc::new(FileDisk::new()), root.join("index"), 7, 20, None);
        let index = index.unwrap();
        for n in 0..100u64 {
            index
                .put("T", &[format!("key{n}").as_bytes()], n * 100, 1000)
                .unwrap();
        }
        let files = index.every_file();
        let buffered: Vec<usize> = files.iter().map(|file| file.lock().buffered()).collect();
        let (newest, full) = buffered.split_last().unwrap();
        assert!(*newest > 0);
        assert_eq!(full, [0; 5]);
        for n in 0..100u64 {
            let found = index.query("T", format!("key{n}").as_bytes(), 64, 0, i64::MAX);
            assert!(found.unwrap().contains(&(n * 100)), "key{n}");
        }
        index.sync().unwrap();
        assert!(files.iter().all(|file| file.lock().buffered() == 0));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
