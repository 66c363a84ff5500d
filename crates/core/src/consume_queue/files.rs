//! All consume queues of a store, in files as RocketMQ has them.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::queue::{Put, Queue, Shared};
use super::{load, QueueStore, Unit, UnitPut, UNIT_SIZE};
use crate::disk::file_cache::FileCache;
use crate::disk::Disk;

/// Longest topic name the log can hold (spec: store §3.5).
const TOPIC_BYTES_MAX: usize = 255;

/// With more dirty queues than this, the whole disk is written back before each is synced.
const MANY_DIRTY: usize = 256;

pub(super) type Topics = HashMap<String, Vec<(i32, Arc<Queue>)>>;

/// Consume queues in files.
pub struct FileQueues {
    pub(super) shared: Arc<Shared>,
    root: PathBuf,
    topics: RwLock<Topics>,
    dirty: Mutex<Vec<Arc<Queue>>>,
    /// Folders with new names that the next sync must make durable.
    dirs: Mutex<BTreeSet<PathBuf>>,
    repair_from: Option<u64>,
}

impl FileQueues {
    /// Loads every queue under `root`; `file_size` is rounded up to whole units.
    ///
    /// Fails with `InvalidData` when a queue file has another length than configured.
    pub fn open(
        disk: Arc<dyn Disk>,
        root: impl Into<PathBuf>,
        file_size: u64,
        cache: Arc<FileCache>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            disk,
            cache,
            file_size: file_size.max(1).div_ceil(UNIT_SIZE) * UNIT_SIZE,
            failed: AtomicBool::new(false),
            buffered: AtomicUsize::new(0),
        });
        let root = root.into();
        let found = load::load_all(&shared, &root)?;
        Ok(Self {
            shared,
            root,
            topics: RwLock::new(found.topics),
            dirty: Mutex::new(found.dirty),
            dirs: Mutex::default(),
            repair_from: found.repair_from,
        })
    }

    fn remove(&self, queue: &Queue) -> io::Result<()> {
        let mut state = queue.lock();
        state.gone = true;
        queue.remove_files(&mut state, |_| true)?;
        state.written = state.max;
        queue.drop_tail(&mut state);
        // A topic of this name may soon have files of the same names.
        self.shared.disk.sync_dir_if_there(&queue.dir)?;
        self.shared.disk.remove_dir(&queue.dir).or_else(in_use)
    }

    fn take_old(&self, topic: &str, end: u64) -> Vec<(i32, Arc<Queue>)> {
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let Some(queues) = topics.get_mut(topic) else {
            return Vec::new();
        };
        let is_old = |queue: &Queue| queue.lock().last.is_none_or(|last| last.end() <= end);
        let (old, kept): (Vec<_>, Vec<_>) = std::mem::take(queues)
            .into_iter()
            .partition(|(_, queue)| is_old(queue));
        if kept.is_empty() {
            topics.remove(topic);
        } else {
            *queues = kept;
        }
        old
    }

    pub(super) fn queue(&self, topic: &str, queue_id: i32) -> Option<Arc<Queue>> {
        let topics = self.read_topics();
        let queues = topics.get(topic)?;
        let at = queues.binary_search_by_key(&queue_id, |(id, _)| *id).ok()?;
        queues.get(at).map(|(_, queue)| Arc::clone(queue))
    }

    fn new_queue(&self, topic: &str, queue_id: i32) -> io::Result<Arc<Queue>> {
        check_topic(topic)?;
        if queue_id < 0 {
            return Err(invalid(&format!("queue id {queue_id} of topic {topic}")));
        }
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let queues = topics.entry(topic.to_owned()).or_default();
        match queues.binary_search_by_key(&queue_id, |(id, _)| *id) {
            Ok(at) => queues
                .get(at)
                .map(|(_, queue)| Arc::clone(queue))
                .ok_or_else(|| invalid(topic)),
            Err(at) => {
                let dir = self.root.join(topic).join(queue_id.to_string());
                let owner = self.shared.cache.owner();
                let shared = Arc::clone(&self.shared);
                let queue = Arc::new(Queue::new(
                    shared,
                    dir,
                    owner,
                    super::queue::State::default(),
                ));
                queues.insert(at, (queue_id, Arc::clone(&queue)));
                Ok(queue)
            }
        }
    }

    pub(super) fn every_queue(&self) -> Vec<Arc<Queue>> {
        let topics = self.read_topics();
        let queues = topics.values().flatten();
        queues.map(|(_, queue)| Arc::clone(queue)).collect()
    }

    fn read_topics(&self) -> std::sync::RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueStore for FileQueues {
    // Once a message: the call through the set costs a twentieth of a put otherwise.
    #[inline]
    fn put(&self, topic: &str, queue_id: i32, offset: u64, unit: Unit) -> io::Result<UnitPut> {
        loop {
            let queue = match self.queue(topic, queue_id) {
                Some(queue) => queue,
                None => self.new_queue(topic, queue_id)?,
            };
            let (put, news) = queue.put(offset, unit)?;
            if news {
                lock(&self.dirty).push(queue);
            }
            match put {
                Put::Added => return Ok(UnitPut::Added),
                Put::Repeat => return Ok(UnitPut::Repeat),
                Put::Conflict => return Ok(UnitPut::Conflict),
                Put::Gone => {}
            }
        }
    }

    fn takes_in_memory(&self, topic: &str, queue_id: i32, offset: u64) -> bool {
        let queue = self.queue(topic, queue_id);
        queue.map_or(offset == 0, |queue| queue.takes_in_memory(offset))
    }

    fn repair_from(&self) -> Option<u64> {
        self.repair_from
    }

    fn range(
        &self,
        topic: &str,
        queue_id: i32,
        from: u64,
        units_max: u64,
        out: &mut Vec<Unit>,
    ) -> io::Result<()> {
        match self.queue(topic, queue_id) {
            Some(queue) => queue.range(from, units_max, out),
            None => Ok(()),
        }
    }

    fn min(&self, topic: &str, queue_id: i32) -> u64 {
        self.queue(topic, queue_id).map_or(0, |queue| {
            let state = queue.lock();
            state.min.min(state.max)
        })
    }

    fn max(&self, topic: &str, queue_id: i32) -> u64 {
        let queue = self.queue(topic, queue_id);
        queue.map_or(0, |queue| queue.lock().max)
    }

    fn last(&self, topic: &str, queue_id: i32) -> Option<Unit> {
        self.queue(topic, queue_id)?.lock().last
    }

    fn span(&self, topic: &str, queue_id: i32) -> (u64, u64) {
        self.span_of(topic, queue_id)
    }

    fn head(&self, topic: &str, queue_id: i32) -> io::Result<Option<(u64, u64)>> {
        self.head_of(topic, queue_id)
    }

    fn self_check(&self) -> Vec<String> {
        self.missing_files()
    }

    fn next_part(&self, topic: &str, queue_id: i32, offset: u64) -> Option<u64> {
        let queue = self.queue(topic, queue_id)?;
        let state = queue.lock();
        let at = offset.saturating_mul(UNIT_SIZE);
        let next = state.files.iter().find(|base| **base > at)?;
        Some(next / UNIT_SIZE)
    }

    fn list(&self) -> Vec<(String, i32, u64, u64)> {
        let topics = self.read_topics();
        let mut rows: Vec<_> = topics
            .iter()
            .flat_map(|(topic, queues)| {
                queues.iter().map(|(id, queue)| {
                    let state = queue.lock();
                    (topic.clone(), *id, state.min.min(state.max), state.max)
                })
            })
            .collect();
        rows.sort_unstable();
        rows
    }

    fn position(&self) -> u64 {
        let ends = self.every_queue().into_iter().map(|queue| {
            let last = queue.lock().last;
            last.map_or(0, |unit| unit.end())
        });
        ends.max().unwrap_or(0)
    }

    fn truncate(&self, phy: u64) -> io::Result<()> {
        for queue in self.every_queue() {
            if queue.truncate(phy)? {
                lock(&self.dirty).push(queue);
            }
        }
        Ok(())
    }

    fn correct_min(&self, min_phy: u64) -> io::Result<()> {
        for queue in self.every_queue() {
            queue.correct_min(min_phy)?;
        }
        Ok(())
    }

    fn delete_expired(&self, min_phy: u64) -> io::Result<usize> {
        let mut deleted = 0;
        for queue in self.every_queue() {
            let (files, news) = queue.delete_expired(min_phy)?;
            deleted += files;
            if news {
                lock(&self.dirty).push(queue);
            }
        }
        Ok(deleted)
    }

    fn delete_old(&self, topic: &str, end: u64) -> io::Result<usize> {
        let queues = self.take_old(topic, end);
        if queues.is_empty() {
            return Ok(0);
        }
        for (_, queue) in &queues {
            self.remove(queue)?;
        }
        let dir = self.root.join(topic);
        self.shared.disk.remove_dir(&dir).or_else(in_use)?;
        // There is no folder as long as no queue has been written out.
        self.shared.disk.sync_dir_if_there(&self.root)?;
        Ok(queues.len())
    }

    fn drop_queue(&self, topic: &str, queue_id: i32) -> io::Result<()> {
        let taken = {
            let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
            let queues = topics.get_mut(topic);
            let at = queues
                .as_ref()
                .and_then(|queues| queues.binary_search_by_key(&queue_id, |(id, _)| *id).ok());
            queues.zip(at).map(|(queues, at)| queues.remove(at).1)
        };
        match taken {
            Some(queue) => self.remove(&queue),
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut dirs = std::mem::take(&mut *lock(&self.dirs));
        let mut pending = std::mem::take(&mut *lock(&self.dirty));
        if pending.len() > MANY_DIRTY {
            for queue in &pending {
                queue.write_early();
            }
            self.shared.disk.write_back(&self.root);
        }
        while let Some(queue) = pending.pop() {
            if let Err(error) = queue.sync(&mut dirs) {
                queue.lock().listed = true;
                pending.push(queue);
                lock(&self.dirty).append(&mut pending);
                lock(&self.dirs).append(&mut dirs);
                return Err(error);
            }
        }
        // Nearest to the root last, so that no name is durable before what it names.
        for dir in dirs.iter().rev() {
            self.shared.watch(self.shared.disk.sync_dir_if_there(dir))?;
        }
        if self.shared.failed.load(Ordering::Acquire) {
            let text = "an earlier sync of the consume queues failed";
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

/// Refuses a topic that cannot be a folder inside the store (CVE-2019-17572).
pub(crate) fn check_topic(topic: &str) -> io::Result<()> {
    let bad = topic.is_empty()
        || topic.len() > TOPIC_BYTES_MAX
        || topic == "."
        || topic == ".."
        || topic.contains(['/', '\0']);
    if bad {
        let shown: String = topic.escape_debug().take(80).collect();
        return Err(invalid(&format!("topic `{shown}` cannot have a queue")));
    }
    Ok(())
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// A folder with somebody else's files in it stays.
fn in_use(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => Ok(()),
        _ => Err(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
