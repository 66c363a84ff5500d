//! A store on a simulated disk, driven step by step without threads, and what it promised so far.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

use roquet_core::codec::record::NewRecord;
use roquet_core::commit_log::{Prepared, PutStatus};
use roquet_core::disk::Disk;
use roquet_core::store::config::{StoreConfig, Value};
use roquet_core::store::env::Env;
use roquet_core::store::error::StoreError;
use roquet_core::store::Store;

use super::hostile;
use super::sim_disk::SimDisk;
use super::Rng;

pub const TOPICS: [&str; 2] = ["T", "topic-of-some-length"];
const HOST: [u8; 8] = [127, 0, 0, 1, 0, 0, 42, 159];
/// A record is this much longer than its body, topic and properties (spec: store §3.2).
const BODY_MAX: u64 = 4096;

/// One thing that a broker does with its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Messages that are stored together, of so many bytes each.
    Put {
        place: u8,
        len: u16,
        count: u8,
    },
    Flush,
    Dispatch,
    Checkpoint,
    /// The look at disk and log that comes once a second.
    Tend,
    /// The next file is made in the background.
    MakeNext,
    /// The oldest log file is deleted for its age, and what only it needed.
    Expire,
    /// A topic is deleted.
    Delete(u8),
    /// kill -9 and a new start.
    Kill,
    /// Orderly stop and a new start.
    Restart,
}

pub const SMALL: Step = Step::Put {
    place: 0,
    len: 40,
    count: 1,
};
pub const OTHER: Step = Step::Put {
    place: 3,
    len: 700,
    count: 1,
};
pub const LARGE: Step = Step::Put {
    place: 1,
    len: 2500,
    count: 1,
};
pub const BATCH: Step = Step::Put {
    place: 0,
    len: 300,
    count: 3,
};
/// A step as a workload draws it.
pub fn random_step(rng: &mut Rng) -> Step {
    match rng.below(21) {
        0..=5 => SMALL,
        6..=8 => OTHER,
        9 => LARGE,
        10..=11 => BATCH,
        12..=14 => Step::Flush,
        15..=16 => Step::Dispatch,
        17 => Step::Checkpoint,
        20 => Step::Delete(u8::from(rng.chance(2))),
        18 => [Step::Tend, Step::MakeNext, Step::Expire][usize::try_from(rng.below(3)).unwrap()],
        _ => [Step::Kill, Step::Restart][usize::try_from(rng.below(2)).unwrap()],
    }
}

/// One message as it went into the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Logged {
    pub topic: &'static str,
    pub queue: i32,
    pub offset: i64,
    pub body: Vec<u8>,
    pub key: String,
    /// What a producer put into a property of its own.
    pub extra: Vec<u8>,
    pub end: u64,
}

impl Logged {
    /// Bytes of the record.
    pub fn size(&self) -> usize {
        91 + self.body.len() + self.topic.len() + self.properties().len()
    }

    /// Its properties as they are stored: what ends in 0 gets a separator.
    pub fn properties(&self) -> Vec<u8> {
        let mut text = self.sent_properties();
        if text.last() == Some(&0) {
            text.push(2);
        }
        text
    }

    fn sent_properties(&self) -> Vec<u8> {
        let mut text = format!("UNIQ_KEY\u{1}{}\u{2}TAGS\u{1}t\u{2}", self.key).into_bytes();
        if !self.extra.is_empty() {
            text.extend_from_slice(b"extra\x01");
            text.extend_from_slice(&self.extra);
        }
        text
    }
}

/// What whoever recovers must find.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// Messages in the order of the log.
    pub log: Vec<Logged>,
    /// So many of them were said to be durable.
    pub durable: usize,
    /// Messages whose append was interrupted: they may be there, in this order.
    pub maybe: Vec<Logged>,
    /// Topics that were deleted, in order.
    pub deletions: Vec<Deletion>,
}

/// A topic that was deleted: its messages of before have no queue any more.
#[derive(Clone, Copy, Debug)]
pub struct Deletion {
    pub topic: &'static str,
    /// So many messages were in the log.
    pub after: usize,
    /// Whether the store said that it was done.
    pub sure: bool,
}

pub struct World {
    pub disk: SimDisk,
    pub sync_flush: bool,
    /// Whether contents try to look like what recovery looks for.
    pub hostile: bool,
    /// Planted bug: a message counts as durable as soon as it is appended.
    pub ack_before_flush: bool,
    pub promise: Promise,
    pub boot: u64,
    pub now: Arc<AtomicI64>,
    pub store: Option<Arc<Store>>,
    /// Why there is no store.
    pub trouble: Option<StoreError>,
    numbers: u64,
}

/// Settings with tiny files.
pub fn config(sync_flush: bool) -> StoreConfig {
    let flush = if sync_flush {
        "SYNC_FLUSH"
    } else {
        "ASYNC_FLUSH"
    };
    let settings = [
        ("storePathRootDir", Value::Text("/s/store".to_owned())),
        ("mappedFileSizeCommitLog", Value::Int(8192)),
        ("mappedFileSizeConsumeQueue", Value::Int(200)),
        ("maxHashSlotNum", Value::Int(7)),
        ("maxIndexNum", Value::Int(20)),
        ("maxMessageSize", Value::Int(4096)),
        ("flushDiskType", Value::Text(flush.to_owned())),
    ];
    let settings: BTreeMap<String, Value> = settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    StoreConfig::read(&settings).expect("good settings")
}

/// Opens the store on a disk; the clock moves with each look at it.
pub fn open(
    disk: &SimDisk,
    sync_flush: bool,
    boot: u64,
    now: &Arc<AtomicI64>,
) -> Result<Arc<Store>, StoreError> {
    let now = Arc::clone(now);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let env = Env {
        disk,
        clock: Arc::new(move || now.fetch_add(1, Ordering::Relaxed)),
        steady: roquet_core::store::env::steady(),
        boot,
        memory: 1 << 30,
        process: 4711,
    };
    Store::open(config(sync_flush), env)
}

impl World {
    /// A new store that is started.
    pub fn new(sync_flush: bool) -> Self {
        Self::on(SimDisk::new(), sync_flush)
    }

    /// A new store on a disk that may make trouble at once; `store` is `None` if it did.
    pub fn on(disk: SimDisk, sync_flush: bool) -> Self {
        let mut world = Self {
            disk,
            sync_flush,
            hostile: false,
            ack_before_flush: false,
            promise: Promise::default(),
            boot: 1,
            now: Arc::new(AtomicI64::new(1_700_000_000_000)),
            store: None,
            trouble: None,
            numbers: 0,
        };
        world.open();
        world
    }

    /// Goes on with a store that was recovered.
    pub fn resume(disk: SimDisk, sync_flush: bool, promise: Promise, boot: u64) -> Self {
        let mut world = Self {
            promise,
            boot,
            numbers: 1_000_000,
            ..Self::on(SimDisk::new(), sync_flush)
        };
        world.store = None;
        world.disk = disk;
        world.open();
        world
    }

    pub fn open(&mut self) -> bool {
        let opened = open(&self.disk, self.sync_flush, self.boot, &self.now)
            .and_then(|store| store.start_stepped().map(|_| store));
        (self.store, self.trouble) = match opened {
            Ok(store) => (Some(store), None),
            Err(error) => (None, Some(error)),
        };
        self.store.is_some()
    }

    /// Does one step; errors are for the checks to judge. False when there is no store any more.
    pub fn step(&mut self, step: Step) -> bool {
        let Some(store) = self.store.clone() else {
            return false;
        };
        match step {
            Step::Put { place, len, count } => {
                self.put(&store, place, len, count);
            }
            Step::Flush => {
                if let Ok(flushed) = store.flush() {
                    self.acknowledge(flushed);
                }
            }
            Step::Dispatch => while matches!(store.dispatch(), Ok(true)) {},
            Step::Checkpoint => {
                let _ = store.checkpoint();
                self.acknowledge(store.log().flushed());
            }
            Step::Tend => store.tend(),
            Step::MakeNext => {
                let _ = store.log().make_next();
            }
            Step::Delete(place) => self.delete(&store, place),
            Step::Expire => {
                let _ = store.delete_expired(u64::MAX, 1);
            }
            Step::Kill => {
                drop(store);
                self.store = None;
                if !self.disk.is_off() {
                    self.disk.release_locks();
                    return self.open();
                }
            }
            Step::Restart => {
                if store.close().is_ok() {
                    self.promise.durable = self.promise.log.len();
                }
                drop(store);
                self.store = None;
                if !self.disk.is_off() {
                    return self.open();
                }
            }
        }
        !self.disk.is_off()
    }

    fn delete(&mut self, store: &Store, place: u8) {
        let topic = TOPICS[usize::from(place) % TOPICS.len()];
        let done = store.delete_topic(topic);
        self.promise.deletions.push(Deletion {
            topic,
            after: self.promise.log.len(),
            sure: done.is_ok(),
        });
        self.acknowledge(store.log().flushed());
    }

    /// Everything that ends at or before `flushed` was said to be durable.
    pub fn acknowledge(&mut self, flushed: u64) {
        let log = &self.promise.log;
        let durable = log.partition_point(|message| message.end <= flushed);
        self.promise.durable = self.promise.durable.max(durable);
    }

    /// Puts messages; returns the status.
    pub fn put(&mut self, store: &Store, place: u8, len: u16, count: u8) -> PutStatus {
        let topic = TOPICS[usize::from(place) % TOPICS.len()];
        let queue = i32::from(place / 2);
        let mut messages = Vec::new();
        for _ in 0..count.max(1) {
            self.numbers += 1;
            let mut message = Logged {
                topic,
                queue,
                offset: 0,
                body: body(self.numbers, len),
                key: format!("k{}", self.numbers),
                extra: Vec::new(),
                end: 0,
            };
            if self.hostile {
                let ahead: usize = messages.iter().map(Logged::size).sum();
                hostile::change(
                    &mut message,
                    self.numbers,
                    store.log().written() + ahead as u64,
                );
            }
            messages.push(message);
        }
        let appended = append(store, &messages);
        for (message, placed) in messages.iter_mut().zip(&appended.placed) {
            message.offset = placed.queue_offset;
            message.end = placed.physical_offset + placed.size;
        }
        let stored = appended.placed.len();
        let rest = messages.split_off(stored);
        self.promise.log.append(&mut messages);
        if stored > 0 {
            // The bytes of an append that failed before are overwritten.
            self.promise.maybe.clear();
        }
        if self.promise.maybe.is_empty() {
            self.promise.maybe = rest;
        }
        if self.ack_before_flush {
            self.promise.durable = self.promise.log.len();
        }
        appended.status
    }
}

fn append(store: &Store, messages: &[Logged]) -> roquet_core::commit_log::Appended {
    let properties: Vec<Vec<u8>> = messages.iter().map(Logged::sent_properties).collect();
    let mut prepared = Prepared::with_capacity(1024);
    for (message, properties) in messages.iter().zip(&properties) {
        let record = NewRecord {
            topic: message.topic.as_bytes(),
            queue_id: message.queue,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: &HOST,
            store_host: &HOST,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &message.body,
            properties,
        };
        let pushed = prepared.push(message.topic, &record, BODY_MAX, true);
        pushed.expect("a message within the limits");
    }
    store.put(&mut prepared)
}

/// Bytes that belong to message `number` and look like nothing else.
fn body(number: u64, len: u16) -> Vec<u8> {
    let mut rng = Rng(number.wrapping_mul(0x5851_F42D_4C95_7F2D));
    let mut body = Vec::with_capacity(usize::from(len) + 8);
    while body.len() < usize::from(len) {
        body.extend_from_slice(&rng.next().to_be_bytes());
    }
    body.truncate(usize::from(len));
    body
}
