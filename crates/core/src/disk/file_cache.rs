//! A bounded set of open files for queues and index (architecture §4).
//!
//! Ten thousand topics have many more queue files than a process may have descriptors. A file is
//! opened at first use and closed again when it has not been used for the longest time; whoever
//! holds the handle meanwhile keeps its descriptor alive.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::DiskFile;

/// Most descriptors that queues and index may hold, whatever the process may open.
const FILES_MAX: usize = 4096;
/// What is assumed when the limit of the process cannot be read.
const FILES_FALLBACK: usize = 256;

/// Who owns a file, and where the file starts.
type Key = (u64, u64);

struct Slot {
    file: Arc<dyn DiskFile>,
    used: bool,
}

#[derive(Default)]
struct Open {
    files: HashMap<Key, Slot>,
    /// Second-chance order: a used file goes to the back once more before it is closed.
    order: VecDeque<Key>,
}

/// The open files of one store's queues and index.
pub struct FileCache {
    open: Mutex<Open>,
    files_max: usize,
    owners: AtomicU64,
}

impl FileCache {
    /// Makes a cache of at most `files_max` (at least one) descriptors.
    pub fn new(files_max: usize) -> Self {
        Self {
            open: Mutex::new(Open::default()),
            files_max: files_max.max(1),
            owners: AtomicU64::new(0),
        }
    }

    /// Makes a cache that takes a quarter of the descriptors the process may have, at most 4,096.
    pub fn for_process() -> Self {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is a valid rlimit that outlives the call, which only writes to it.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
        let quarter = if known {
            usize::try_from(limit.rlim_cur / 4).unwrap_or(FILES_MAX)
        } else {
            FILES_FALLBACK
        };
        Self::new(quarter.min(FILES_MAX))
    }

    /// Returns a number that no other user of this cache has.
    pub fn owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the file of `owner` that starts at `base`, calling `open` when it is not open.
    pub fn get(
        &self,
        owner: u64,
        base: u64,
        open: impl FnOnce() -> io::Result<Arc<dyn DiskFile>>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(slot) = self.lock().files.get_mut(&(owner, base)) {
            slot.used = true;
            return Ok(Arc::clone(&slot.file));
        }
        // Not under the lock: opening may wait for the disk, and everybody's reads come through here.
        let file = open()?;
        self.put(owner, base, Arc::clone(&file));
        Ok(file)
    }

    /// Remembers a file that was opened or made elsewhere.
    pub fn put(&self, owner: u64, base: u64, file: Arc<dyn DiskFile>) {
        let mut open = self.lock();
        let slot = Slot { file, used: false };
        if open.files.insert((owner, base), slot).is_none() {
            open.order.push_back((owner, base));
        }
        while open.files.len() > self.files_max {
            open.close_one();
        }
        if open.order.len() > 2 * self.files_max {
            let Open { files, order } = &mut *open;
            order.retain(|key| files.contains_key(key));
        }
    }

    /// Closes a file as soon as nobody holds it.
    pub fn forget(&self, owner: u64, base: u64) {
        self.lock().files.remove(&(owner, base));
    }

    /// How many files are open here.
    pub fn len(&self) -> usize {
        self.lock().files.len()
    }

    /// Whether no file is open here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn close_one(&mut self) {
        while let Some(key) = self.order.pop_front() {
            let Some(slot) = self.files.get_mut(&key) else {
                continue;
            };
            if slot.used {
                slot.used = false;
                self.order.push_back(key);
            } else {
                self.files.remove(&key);
                return;
            }
        }
        self.files.clear();
    }
}
