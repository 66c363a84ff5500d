//! Opening a store: its lock, and the parts that are derived from its log.

use crate::commit_log::{CommitLog, LogConfig, NextOffsets};
use crate::consume_queue::{ConsumeQueues, QueueStore};
use crate::disk::file_cache::FileCache;
use crate::disk::Disk;
use crate::dispatch::{own_sinks, Derived, DispatchSink, Followers, LastRecord, Progress};
use crate::index::Index;
use crate::recovery::checkpoint::Checkpoint;
use crate::recovery::deleted::Deleted;
use crate::recovery::Recovered;
use crate::store::config::StoreConfig;
use crate::store::env::Env;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::health::Health;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Parts of a store that have another form than the settings say.
#[derive(Default)]
pub struct Parts {
    /// Where units are kept; `None` for files.
    pub queues: Option<Box<dyn QueueStore>>,
    /// What follows the log beside queues and index.
    pub sinks: Vec<Arc<dyn DispatchSink>>,
}

pub(crate) fn lock(disk: &dyn Disk, root: &Path) -> Result<Box<dyn Send + Sync>, StoreError> {
    let path = root.join("lock");
    disk.lock(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            let text = format!("another process uses the store in {}", root.display());
            return StoreError::new(ErrorKind::Locked, text);
        }
        StoreError::io("lock", &path, &error)
    })
}

pub(crate) fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    let found = disk.read_front(path, 0);
    let found = found.map_err(|error| StoreError::io("read", path, &error))?;
    Ok(found.is_some())
}

pub(crate) fn open_log(
    config: &StoreConfig,
    env: &Env,
    health: &Arc<Health>,
) -> Result<Arc<CommitLog>, StoreError> {
    let settings = LogConfig {
        folders: config.commit_log.clone(),
        read_only: config.commit_log_read_only.clone(),
        file_size: config.commit_file_size,
        sync_flush: config.sync_flush,
        warm: config.warm,
    };
    let (disk, clock) = (Arc::clone(&env.disk), Arc::clone(&env.clock));
    CommitLog::open(disk, settings, clock, Arc::clone(health)).map(Arc::new)
}

pub(crate) fn open_derived(
    config: &StoreConfig,
    disk: Arc<dyn Disk>,
    clean: bool,
    checkpoint: Option<Checkpoint>,
    queues: Option<Box<dyn QueueStore>>,
) -> Result<Derived, StoreError> {
    let queues = match queues {
        Some(other) => ConsumeQueues::of(other),
        None => ConsumeQueues::open(
            Arc::clone(&disk),
            config.root.join("consumequeue"),
            config.queue_file_size,
            Arc::new(FileCache::for_process()),
        )?,
    };
    let deleted = Deleted::open(Arc::clone(&disk), &config.root)?;
    let index = if config.index {
        let safe = checkpoint.map_or(0, |checkpoint| checkpoint.index_time);
        Some(Index::open(
            disk,
            config.root.join("index"),
            config.index_slots,
            config.index_entries,
            (!clean).then_some(safe),
        )?)
    } else {
        None
    };
    Ok(Derived {
        queues,
        index,
        delays: config.delays.clone(),
        deleted,
        light_queues: config.light_queues,
        renewed: Mutex::default(),
    })
}

/// The sinks of a store and where each goes on: those that every store has behind what recovery has
/// read, others where they say, or else where the checkpoint does.
pub(crate) fn all_sinks(
    derived: &Arc<Derived>,
    others: Vec<Arc<dyn DispatchSink>>,
    own: Progress,
    checkpoint: Checkpoint,
) -> Result<Followers, StoreError> {
    let mut all: Followers = own_sinks(derived)
        .into_iter()
        .map(|sink| (sink, own))
        .collect();
    for sink in others {
        sink.truncate(own.position)?;
        let promised = checkpoint.queue_offset.cast_unsigned();
        let position = sink.position().unwrap_or(promised);
        let behind = Progress {
            position,
            last: LastRecord::default(),
        };
        all.push((sink, if position < own.position { behind } else { own }));
    }
    Ok(all)
}

/// Where each queue goes on: behind its units, and behind all that it is known to have had.
pub(crate) fn next_offsets(queues: &ConsumeQueues, recovered: &Recovered) -> NextOffsets {
    let mut next = recovered.floors.clone();
    for (topic, queue_id, _, max) in queues.list() {
        let max = max.cast_signed().max(next.get(&topic, queue_id));
        next.set(&topic, queue_id, max);
    }
    next
}
