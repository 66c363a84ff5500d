//! Stores for tests: tiny files, a folder that goes away, and short ways to put and get.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)] // Each test uses some of it.

use roquet_core::codec::record::{self, NewRecord};
use roquet_core::commit_log::{Placed, Prepared, PutStatus};
use roquet_core::store::config::{StoreConfig, Value};
use roquet_core::store::env::Env;
use roquet_core::store::error::StoreError;
use roquet_core::store::get::{Got, Wanted};
use roquet_core::store::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A folder that goes away with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("roquet-store-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn try_open(&self, more: &[(&str, Value)]) -> Result<Arc<Store>, StoreError> {
        Store::open(config(&self.0, more), Env::system())
    }

    pub(crate) fn open(&self, more: &[(&str, Value)]) -> Arc<Store> {
        self.try_open(more).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Copies a folder: of a store that runs, it is what kill -9 leaves.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Changes bytes of a file.
pub(crate) fn damage(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Settings with tiny files: 128 KiB of log, 100 units, 500 slots.
pub(crate) fn config(root: &Path, more: &[(&str, Value)]) -> StoreConfig {
    let mut map = BTreeMap::from([
        (
            "storePathRootDir".to_owned(),
            Value::Text(root.to_str().unwrap().to_owned()),
        ),
        ("mappedFileSizeCommitLog".to_owned(), Value::Int(131_072)),
        ("mappedFileSizeConsumeQueue".to_owned(), Value::Int(2_000)),
        ("maxHashSlotNum".to_owned(), Value::Int(500)),
        ("maxIndexNum".to_owned(), Value::Int(2_000)),
    ]);
    for (name, value) in more {
        map.insert((*name).to_owned(), value.clone());
    }
    StoreConfig::read(&map).unwrap()
}

pub(crate) fn message<'a>(
    topic: &'a str,
    queue_id: i32,
    body: &'a [u8],
    properties: &'a [u8],
) -> NewRecord<'a> {
    NewRecord {
        topic: topic.as_bytes(),
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: &[127, 0, 0, 1, 0, 0, 0x30, 0x39],
        store_host: &[127, 0, 0, 1, 0, 0, 0x2A, 0x9F],
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
    }
}

pub(crate) fn wanted(topic: &str, queue_id: i32, offset: i64) -> Wanted<'_> {
    Wanted {
        topic,
        queue_id,
        offset,
        messages: 32,
        bytes: 1 << 30,
        tag_codes: None,
        filter: None,
    }
}

pub(crate) fn bodies(got: &Got) -> Vec<Vec<u8>> {
    let parts = got.parts.iter();
    parts
        .flat_map(|part| {
            record::records(part, true)
                .map(|view| view.unwrap().body.to_vec())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Short ways to use a store.
pub(crate) trait Made {
    fn try_send(&self, record: &NewRecord<'_>) -> Result<Placed, PutStatus>;
    fn send(&self, topic: &str, queue_id: i32, body: &[u8], properties: &[u8]) -> Placed;
    fn settle(&self);
    fn read(&self, topic: &str, queue_id: i32, offset: i64, tags: Option<&[i64]>) -> Got;
    fn read_all(&self, topic: &str, queue_id: i32) -> Vec<Vec<u8>>;
}

impl Made for Store {
    fn try_send(&self, record: &NewRecord<'_>) -> Result<Placed, PutStatus> {
        let topic = std::str::from_utf8(record.topic).unwrap();
        let mut prepared = Prepared::default();
        prepared.push(topic, record, self.body_max(), false)?;
        let done = self.put(&mut prepared);
        match done.status {
            PutStatus::Ok => Ok(done.placed[0]),
            status => Err(status),
        }
    }

    fn send(&self, topic: &str, queue_id: i32, body: &[u8], properties: &[u8]) -> Placed {
        self.try_send(&message(topic, queue_id, body, properties))
            .unwrap()
    }

    /// Waits until all that was sent can be read.
    fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.dispatched() < self.log().written() {
            assert!(Instant::now() < end, "dispatch does not move");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(&self, topic: &str, queue_id: i32, offset: i64, tags: Option<&[i64]>) -> Got {
        let wanted = Wanted {
            tag_codes: tags,
            filter: None,
            ..wanted(topic, queue_id, offset)
        };
        self.get(wanted).unwrap()
    }

    fn read_all(&self, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut at = i64::try_from(self.queues().min(topic, queue_id)).unwrap();
        let max = i64::try_from(self.queues().max(topic, queue_id)).unwrap();
        while at < max {
            let got = self.read(topic, queue_id, at, None);
            assert!(got.next > at, "{:?} at {at}", got.status);
            all.extend(bodies(&got));
            at = got.next;
        }
        all
    }
}

/// A started store with `count` messages of topic T in queues 0 and 1, about 1 KiB each.
pub(crate) fn filled(folder: &Folder, count: u32) -> (Arc<Store>, Vec<Placed>) {
    let store = folder.open(&[]);
    store.start().unwrap();
    let placed = (0..count).map(|number| send(&store, number)).collect();
    store.settle();
    (store, placed)
}

pub(crate) fn send(store: &Store, number: u32) -> Placed {
    let keys = format!("KEYS\x01k{number}\x02TAGS\x01A\x02");
    let queue = i32::try_from(number % 2).unwrap();
    store.send("T", queue, &body(number), keys.as_bytes())
}

pub(crate) fn body(number: u32) -> Vec<u8> {
    let mut body = number.to_string().into_bytes();
    body.resize(900, b'.');
    body
}

/// The first `count` messages are there, no more, each under its offset and its key.
pub(crate) fn check(store: &Store, count: u32) {
    for queue in 0..2 {
        let want: Vec<_> = (0..count).filter(|n| n % 2 == queue).map(body).collect();
        assert_eq!(store.read_all("T", i32::try_from(queue).unwrap()), want);
        let next = store.log().next_offset("T", i32::try_from(queue).unwrap());
        assert_eq!(next, i64::try_from(want.len()).unwrap());
    }
    for number in 0..count {
        let (found, _, _) = store
            .query("T", &format!("k{number}"), 32, 0, i64::MAX)
            .unwrap();
        assert_eq!(found.len(), 1, "key k{number}");
    }
}

/// What kill -9 leaves of a running store, in a new folder.
pub(crate) fn killed(store: &Arc<Store>, folder: &Folder) -> Folder {
    let left = Folder::new("killed");
    copy(&folder.0, &left.0);
    store.close().unwrap();
    left
}

/// Takes files and folders away; a queue that was never written out has none.
pub(crate) fn rob(folder: &Folder, names: &[&str]) {
    for path in names.iter().map(|name| folder.path(name)) {
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
}
