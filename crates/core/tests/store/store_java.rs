//! Stores that Java 5.5.0 wrote: opened, read whole, continued; and rebuilt from the log alone,
//! where Java's own queue files say what must come out.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A test may.

use super::store_help::{copy, Folder, Made};
use roquet_core::codec::record::{self, Parsed};
use roquet_core::consume_queue::Unit;
use roquet_core::store::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// (topic, queue) to what Java wrote into its queue.
type Queues = BTreeMap<(String, i32), Vec<Unit>>;

fn vectors(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors/store")
        .join(name)
}

fn java_queues(store: &Path) -> Queues {
    let mut queues = Queues::new();
    for topic in std::fs::read_dir(store.join("consumequeue")).unwrap() {
        let topic = topic.unwrap().path();
        for queue in std::fs::read_dir(&topic).unwrap() {
            let queue = queue.unwrap().path();
            let bytes = std::fs::read(queue.join("00000000000000000000")).unwrap();
            let units = bytes.chunks(20).map_while(Unit::decode).collect();
            let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            queues.insert((name(&topic), name(&queue).parse().unwrap()), units);
        }
    }
    queues
}

fn our_queues(store: &Store) -> Queues {
    let list = store.queues().list();
    list.into_iter()
        .map(|(topic, queue_id, min, max)| {
            let mut units = Vec::new();
            store
                .queues()
                .range(&topic, queue_id, min, max - min, &mut units)
                .unwrap();
            ((topic, queue_id), units)
        })
        .collect()
}

/// Every unit leads to a whole record with the right topic, queue and offset.
fn check_records(store: &Store, queues: &Queues) {
    for ((topic, queue_id), units) in queues {
        for (offset, unit) in units.iter().enumerate() {
            let lease = store.log().record(unit.physical_offset).unwrap();
            let Parsed::Record { view, size } = record::parse(&lease, 0, true) else {
                panic!("no record at {}", unit.physical_offset);
            };
            assert_eq!((size, view.topic), (unit.size, topic.as_bytes()));
            let place = (view.queue_id, view.queue_offset);
            assert_eq!(place, (*queue_id, i64::try_from(offset).unwrap()));
        }
        let all = store.read_all(topic, *queue_id);
        assert_eq!(all.len(), units.len(), "{topic}-{queue_id}");
    }
}

/// Sends to every queue and to a new one, and reads that back after a restart.
fn go_on(folder: &Folder, store: &std::sync::Arc<Store>, queues: &Queues) {
    store.start().unwrap();
    for ((topic, queue_id), units) in queues {
        let placed = store.send(topic, *queue_id, b"ours", b"KEYS\x01mine\x02");
        assert_eq!(placed.queue_offset, i64::try_from(units.len()).unwrap());
    }
    store.send("New", 0, b"ours", b"");
    store.close().unwrap();
    let again = folder.open(&[]);
    for ((topic, queue_id), units) in queues {
        let all = again.read_all(topic, *queue_id);
        assert_eq!(all.len(), units.len() + 1);
        assert_eq!(all.last().unwrap(), b"ours");
        let (found, _, _) = again.query(topic, "mine", 32, 0, i64::MAX).unwrap();
        assert!(!found.is_empty(), "{topic}");
    }
    assert_eq!(again.recovered().cut_bytes, 0);
    again.close().unwrap();
}

#[test]
fn a_store_that_java_closed() {
    let folder = Folder::new("java-clean");
    copy(&vectors("clean"), &folder.0);
    let want = java_queues(&folder.0);
    assert_eq!(want[&("GoldenTopic".to_owned(), 3)].len(), 10);
    let store = folder.open(&[]);
    assert_eq!(our_queues(&store), want);
    check_records(&store, &want);
    let (found, _, _) = store
        .query("GoldenTopic", "key-7", 32, 0, i64::MAX)
        .unwrap();
    assert_eq!(found, [0x7E4]);
    let (found, _, _) = store
        .query("GoldenTopic", "T#TagBatch", 32, 0, i64::MAX)
        .unwrap();
    assert_eq!(found, [0x16AB, 0x177E, 0x1851, 0x1924, 0x19F7]);
    go_on(&folder, &store, &want);
}

#[test]
fn a_store_that_java_was_writing() {
    let folder = Folder::new("java-running");
    copy(&vectors("running"), &folder.0);
    let want = java_queues(&folder.0);
    let store = folder.open(&[]);
    assert_eq!(our_queues(&store), want);
    check_records(&store, &want);
    assert!(store.recovered().records > 30);
    go_on(&folder, &store, &want);
}

#[test]
fn everything_comes_back_from_the_log_alone() {
    for name in ["clean", "running"] {
        let folder = Folder::new("java-log");
        copy(&vectors(name).join("commitlog"), &folder.path("commitlog"));
        let want = java_queues(&vectors(name));
        let store = folder.open(&[]);
        assert_eq!(our_queues(&store), want, "{name}");
        let (found, _, _) = store
            .query("GoldenTopic", "key-7", 32, 0, i64::MAX)
            .unwrap();
        assert_eq!(found, [0x7E4]);
        go_on(&folder, &store, &want);
    }
}
