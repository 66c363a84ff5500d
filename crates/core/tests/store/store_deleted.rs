//! Deleted topics stay away, lost queues come back, and recovery leaves nothing in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::store_help::{check, copy, filled, killed, rob, Folder, Made};
use roquet_core::store::config::Value;
use roquet_core::store::Store;

#[test]
fn a_queue_that_was_lost_after_an_orderly_stop_is_made_again() {
    for (number, damage) in ["gone", "zeroed", "cut short"].into_iter().enumerate() {
        let folder = Folder::new("lost-queue");
        let (store, _) = filled(&folder, 250);
        store.close().unwrap();
        // 125 units are two files of 100 units.
        let name = ["00000000000000000000", "00000000000000002000"][number % 2];
        let path = folder.path("consumequeue/T/0").join(name);
        match damage {
            "gone" => std::fs::remove_dir_all(folder.path("consumequeue/T/0")).unwrap(),
            "zeroed" => std::fs::write(&path, [0; 2_000]).unwrap(),
            _ => super::store_help::damage(&path, 20, &[0; 1_980]),
        }
        let again = folder.open(&[]);
        again.start().unwrap();
        check(&again, 250);
        again.close().unwrap();
    }
}

fn topics(store: &Store) -> Vec<String> {
    let rows = store.queues().list().into_iter();
    let mut topics: Vec<String> = rows.map(|row| row.0).collect();
    topics.dedup();
    topics
}

#[test]
fn a_deleted_topic_does_not_come_back_with_the_log() {
    let folder = Folder::new("deleted-last");
    let (store, _) = filled(&folder, 30);
    store.send("gone", 0, b"last in the log", b"KEYS\x01k\x02");
    store.settle();
    assert_eq!(store.delete_topic("gone").unwrap(), 1);
    let killed = killed(&store, &folder);
    store.close().unwrap();
    // After an orderly stop, after a kill, and when nothing but log and note is left.
    for name in ["", "checkpoint", "consumequeue"] {
        for folder in [&folder, &killed] {
            rob(
                folder,
                &[name, "abort"].map(|it| if name.is_empty() { "none" } else { it }),
            );
            let again = folder.open(&[]);
            again.start().unwrap();
            again.settle();
            assert_eq!(again.queues().max("gone", 0), 0, "without {name:?}");
            assert!(
                !topics(&again).contains(&"gone".to_owned()),
                "without {name:?}"
            );
            check(&again, 30);
            again.close().unwrap();
        }
    }
    let again = folder.open(&[]);
    again.start().unwrap();
    assert_eq!(again.send("gone", 0, b"new", b"").queue_offset, 0);
    again.settle();
    again.close().unwrap();
    assert_eq!(folder.open(&[]).read_all("gone", 0), [b"new"]);
}

#[test]
fn a_deletion_that_was_interrupted_is_finished() {
    let folder = Folder::new("half-deleted");
    let (store, _) = filled(&folder, 10);
    store.send("gone", 3, b"x", b"");
    store.settle();
    store.checkpoint().unwrap();
    let before = Folder::new("half-deleted");
    copy(&folder.0, &before.0);
    store.delete_topic("gone").unwrap();
    // The note was written, the kill came before the queues went.
    std::fs::copy(folder.path("deletedTopics"), before.path("deletedTopics")).unwrap();
    let again = before.open(&[]);
    assert_eq!(topics(&again), ["T"]);
    check(&again, 10);
    store.close().unwrap();
}

#[test]
fn a_damaged_note_of_deletions_hides_nothing() {
    let folder = Folder::new("note");
    let (store, _) = filled(&folder, 10);
    store.delete_topic("gone").unwrap();
    store.close().unwrap();
    super::store_help::damage(&folder.path("deletedTopics"), 20, &[9]);
    let again = folder.open(&[]);
    assert_eq!(again.stats()["deleted_topics_damaged"], 1);
    check(&again, 10);
}

/// How much of the log's files this process has in its memory, in KiB.
#[cfg(target_os = "linux")]
fn resident_kib(folder: &Folder) -> u64 {
    let log = folder.path("commitlog").to_str().unwrap().to_owned();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut total = 0;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            inside = line.contains(&log);
        } else if inside && first == "Rss:" {
            total += words.next().unwrap().parse::<u64>().unwrap();
        }
    }
    total
}

#[test]
#[cfg(target_os = "linux")]
fn an_idle_store_does_not_keep_what_recovery_read() {
    let folder = Folder::new("resident");
    let size = ("mappedFileSizeCommitLog", Value::Int(64 << 20));
    let store = folder.open(std::slice::from_ref(&size));
    store.start().unwrap();
    for _ in 0..200 {
        store.send("T", 0, &vec![b'x'; 50_000], b"");
    }
    store.settle();
    store.close().unwrap();
    // The empty rest of the file is all data to the disk, as after a copy.
    let log = folder.path("commitlog/00000000000000000000");
    std::fs::write(&log, std::fs::read(&log).unwrap()).unwrap();
    rob(&folder, &["checkpoint"]);
    for run in 0..3 {
        let again = folder.open(std::slice::from_ref(&size));
        again.start().unwrap();
        let found = resident_kib(&folder);
        assert!(found <= 512, "start {run}: {found} KiB of the log");
        again.close().unwrap();
    }
}
