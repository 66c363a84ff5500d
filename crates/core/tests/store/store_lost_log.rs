//! What opening does with stores of whose log no file is there.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A test may.

use super::store_help::{check, copy, filled, killed, rob, send, Folder, Made};
use super::store_recovery::{rebooted, CUT, FILE};
use roquet_core::store::error::ErrorKind;

/// A store whose queues have messages on disk, killed; its log is not there any more.
fn without_a_log(name: &str, flushed: bool) -> Folder {
    let folder = Folder::new(name);
    let store = folder.open(&[]);
    store.start_stepped().unwrap();
    for number in 0..600_i32 {
        store.send("T", number % 2, b"short", b"KEYS\x01k\x02");
    }
    assert_eq!(store.log().segments().len(), 1);
    while store.dispatch().unwrap() {}
    if flushed {
        store.flush().unwrap();
    }
    let left = killed(&store, &folder);
    std::fs::remove_file(left.path(FILE)).unwrap();
    left
}

#[test]
fn a_power_cut_may_take_the_first_file_before_it_was_durable() {
    let left = without_a_log("first", false);
    // A kill takes no file.
    let same_boot = left.try_open(&[]).err().unwrap();
    assert!(
        same_boot.text.contains("no commit-log file"),
        "{}",
        same_boot.text
    );
    let store = rebooted(&left.0, &[]).unwrap();
    let recovered = store.recovered();
    assert_eq!((recovered.end, recovered.lost_bytes), (0, 0));
    let [note] = &recovered.notes[..] else {
        panic!("{:?}", recovered.notes)
    };
    assert!(note.contains("before its first flush"), "{note}");
    check(&store, 0);
    assert!(store
        .query("T", "k3", 10, 0, i64::MAX)
        .unwrap()
        .0
        .is_empty());
    store.start().unwrap();
    for number in 0..20 {
        send(&store, number);
    }
    store.settle();
    check(&store, 20);
    store.close().unwrap();
}

#[test]
fn a_first_file_that_one_flush_covered_is_missed() {
    let left = without_a_log("flushed", true);
    let error = rebooted(&left.0, &[]).err().unwrap();
    assert!(error.text.contains("no commit-log file"), "{}", error.text);
    // Even when no queue was written out.
    std::fs::remove_dir_all(left.path("consumequeue")).unwrap();
    let error = rebooted(&left.0, &[]).err().unwrap();
    assert!(error.text.contains("no commit-log file"), "{}", error.text);
    let store = rebooted(&left.0, &[CUT]).unwrap();
    let notes = store.recovered().notes.concat();
    assert!(notes.contains("recoveryTruncateCorrupt=true"), "{notes}");
    assert!(store.recovered().lost_bytes > 0);
    store.close().unwrap();
}

const TRACES: [&str; 5] = [
    "checkpoint",
    "consumequeue",
    "index",
    "queueEnds",
    "deletedTopics",
];

/// A copy of a store with messages, and with a topic that was deleted, after a kill or a stop.
fn with_all_traces(is_killed: bool) -> Folder {
    let folder = Folder::new("traces");
    let (store, _) = filled(&folder, 50);
    store.send("Gone", 0, b"gone", b"");
    store.settle();
    store.delete_topic("Gone").unwrap();
    store.checkpoint().unwrap();
    if is_killed {
        return killed(&store, &folder);
    }
    store.close().unwrap();
    folder
}

#[test]
fn store_that_lost_its_log_begins_anew_without_a_word_only_when_nothing_else_is_left() {
    for is_killed in [false, true] {
        let whole = with_all_traces(is_killed);
        for left in 0..1 << TRACES.len() {
            let is_left = |at: usize| left >> at & 1 == 1;
            let folder = Folder::new("robbed");
            copy(&whole.0, &folder.0);
            std::fs::remove_dir_all(folder.path("commitlog")).unwrap();
            for (at, name) in TRACES.iter().enumerate() {
                assert!(folder.path(name).exists(), "{name}");
                if !is_left(at) {
                    rob(&folder, &[name]);
                }
            }
            let context = format!("killed {is_killed}, left {left:b}");
            if left == 0 {
                let store = folder.open(&[]);
                assert!(store.recovery_notes().is_empty(), "{context}");
                assert_eq!(store.last_run_stopped(), !is_killed, "{context}");
                store.close().unwrap();
                continue;
            }
            let error = folder.try_open(&[]).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Corrupt, "{context}");
            assert!(error.text.contains("no commit-log file"), "{error:?}");
            for (at, name) in TRACES.iter().enumerate().skip(2) {
                // An index and notes are named; how much a checkpoint and queues know is counted.
                assert_eq!(
                    error.text.contains(name),
                    is_left(at),
                    "{context}: {error:?}"
                );
            }
            let store = folder.open(&[CUT]);
            assert_eq!(store.recovery_notes().len(), 1, "{context}");
            store.start_stepped().unwrap();
            let next = store.send("T", 0, b"new", b"").queue_offset;
            assert_eq!(next > 0, is_left(3), "{context}: noted ends stay");
            assert_eq!(store.send("Gone", 0, b"new", b"").queue_offset, 0);
            while store.dispatch().unwrap() {}
            assert_eq!(store.read_all("Gone", 0), [b"new"]);
            store.close().unwrap();
            assert!(folder.open(&[]).recovery_notes().is_empty(), "{context}");
        }
    }
}
