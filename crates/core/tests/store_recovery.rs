//! What opening does with stores that were killed, damaged or robbed of files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A test may.

mod store_help;

use roquet_core::checkpoint::Checkpoint;
use roquet_core::commit_log::Placed;
use roquet_core::store::Store;
use roquet_core::store_config::Value;
use roquet_core::store_env::Env;
use roquet_core::store_error::{ErrorKind, StoreError};
use std::path::Path;
use std::sync::Arc;
use store_help::{config, copy, damage, Folder, Made};

const FILE: &str = "commitlog/00000000000000000000";
const CUT: (&str, Value) = ("recoveryTruncateCorrupt", Value::Bool(true));

/// A started store with `count` messages of topic T in queues 0 and 1, about 1 KiB each.
fn filled(folder: &Folder, count: u32) -> (Arc<Store>, Vec<Placed>) {
    let store = folder.open(&[]);
    store.start().unwrap();
    let placed = (0..count).map(|number| send(&store, number)).collect();
    store.settle();
    (store, placed)
}

fn send(store: &Store, number: u32) -> Placed {
    let keys = format!("KEYS\x01k{number}\x02TAGS\x01A\x02");
    let queue = i32::try_from(number % 2).unwrap();
    store.send("T", queue, &body(number), keys.as_bytes())
}

fn body(number: u32) -> Vec<u8> {
    let mut body = number.to_string().into_bytes();
    body.resize(900, b'.');
    body
}

/// The first `count` messages are there, no more, each under its offset and its key.
fn check(store: &Store, count: u32) {
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
fn killed(store: &Arc<Store>, folder: &Folder) -> Folder {
    let left = Folder::new("killed");
    copy(&folder.0, &left.0);
    store.close().unwrap();
    left
}

/// Takes files and folders away; a queue that was never written out has none.
fn rob(folder: &Folder, names: &[&str]) {
    for path in names.iter().map(|name| folder.path(name)) {
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Opens as after a reboot.
fn rebooted(root: &Path, more: &[(&str, Value)]) -> Result<Arc<Store>, StoreError> {
    let env = Env {
        boot: 1,
        ..Env::system()
    };
    Store::open(config(root, more), env)
}

#[test]
fn after_a_kill_everything_is_there() {
    let folder = Folder::new("kill");
    let (store, _) = filled(&folder, 400);
    assert_eq!(store.log().segments().len(), 4);
    let left = killed(&store, &folder);
    let store = left.open(&[]);
    check(&store, 400);
    store.start().unwrap();
    for number in 400..500 {
        send(&store, number);
    }
    store.settle();
    check(&store, 500);
    store.close().unwrap();
}

#[test]
fn a_checkpoint_bounds_the_work() {
    let folder = Folder::new("bound");
    let (store, _) = filled(&folder, 400);
    store.checkpoint().unwrap();
    for number in 400..410 {
        send(&store, number);
    }
    let left = killed(&store, &folder);
    let store = left.open(&[]);
    assert!(store.recovered().records < 150, "{:?}", store.recovered());
    check(&store, 410);
    store.close().unwrap();
}

#[test]
fn a_torn_tail_is_cut_for_good() {
    let folder = Folder::new("torn");
    let (store, placed) = filled(&folder, 50);
    let left = killed(&store, &folder);
    let last = placed[49];
    damage(&left.path(FILE), last.physical_offset + 500, &[0; 600]);
    let store = left.open(&[]);
    check(&store, 49);
    assert_eq!(store.log().written(), last.physical_offset);
    assert!(store.recovered().cut_bytes > 0);
    store.start().unwrap();
    assert_eq!(send(&store, 49).physical_offset, last.physical_offset);
    store.close().unwrap();
    let bytes = std::fs::read(left.path(FILE)).unwrap();
    assert_eq!(bytes.len(), 131_072);
    let end = usize::try_from(last.physical_offset + last.size).unwrap();
    assert!(bytes[end..].iter().all(|byte| *byte == 0));
    check(&left.open(&[]), 50);
}

#[test]
fn damage_with_valid_records_behind_it_is_an_error() {
    let folder = Folder::new("middle");
    let (store, placed) = filled(&folder, 50);
    let left = killed(&store, &folder);
    let hurt = placed[20].physical_offset;
    for (name, folder) in [("closed", &folder), ("killed", &left)] {
        damage(&folder.path(FILE), hurt + 100, b"#");
        let error = folder.try_open(&[]).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{name}");
        assert!(error.text.contains(FILE), "{}", error.text);
        assert!(
            error.text.contains(&format!("offset {hurt} (checksum)")),
            "{}",
            error.text
        );
        assert!(
            error.text.contains("recoveryTruncateCorrupt"),
            "{}",
            error.text
        );
        // Nothing was changed: healed, it opens whole.
        damage(&folder.path(FILE), hurt + 100, b".");
        let store = folder.open(&[]);
        check(&store, 50);
        store.close().unwrap();
        damage(&folder.path(FILE), hurt + 100, b"#");
        let store = folder.open(&[CUT]);
        check(&store, 20);
        assert!(store.recovered().lost_bytes > 0);
        store.close().unwrap();
    }
}

#[test]
fn a_power_cut_may_leave_a_hole_that_was_never_durable() {
    let folder = Folder::new("hole");
    let store = folder.open(&[("flushIntervalCommitLog", Value::Int(60_000))]);
    store.start().unwrap();
    let placed: Vec<_> = (0..50).map(|number| send(&store, number)).collect();
    store.settle();
    store.checkpoint().unwrap();
    for number in 50..60 {
        send(&store, number);
    }
    let left = killed(&store, &folder);
    let hole = placed[49].physical_offset + placed[49].size;
    damage(&left.path(FILE), hole, &[0; 512]);
    let same_boot = left.try_open(&[]).err().unwrap();
    assert_eq!(same_boot.kind, ErrorKind::Corrupt);
    let store = rebooted(&left.0, &[]).unwrap();
    check(&store, 50);
    assert_eq!(
        (store.log().written(), store.recovered().lost_bytes),
        (hole, 0)
    );
    store.close().unwrap();

    let again = killed_with_hole_below_the_checkpoint();
    assert_eq!(
        rebooted(&again.0, &[]).err().unwrap().kind,
        ErrorKind::Corrupt
    );
}

fn killed_with_hole_below_the_checkpoint() -> Folder {
    let folder = Folder::new("hole2");
    let (store, placed) = filled(&folder, 50);
    store.checkpoint().unwrap();
    let left = killed(&store, &folder);
    damage(&left.path(FILE), placed[10].physical_offset, &[0; 512]);
    left
}

#[test]
fn queues_and_index_come_back_without_anything_else() {
    for gone in [
        &["checkpoint"][..],
        &["consumequeue", "index", "checkpoint"],
        &["consumequeue"],
    ] {
        let folder = Folder::new("gone");
        let (store, _) = filled(&folder, 400);
        store.checkpoint().unwrap();
        let left = killed(&store, &folder);
        rob(&left, gone);
        let store = left.open(&[]);
        check(&store, 400);
        store.close().unwrap();
        check(&left.open(&[]), 400);
    }
}

#[test]
fn one_missing_queue_is_found_by_its_next_message() {
    let folder = Folder::new("queue");
    let (store, _) = filled(&folder, 400);
    store.checkpoint().unwrap();
    send(&store, 400);
    send(&store, 401);
    let left = killed(&store, &folder);
    std::fs::remove_dir_all(left.path("consumequeue/T/1")).unwrap();
    let store = left.open(&[]);
    assert_eq!(store.recovered().rebuilds, 1);
    check(&store, 402);
    store.close().unwrap();
}

#[test]
fn files_that_are_not_right_are_errors_and_stay() {
    let folder = Folder::new("files");
    let (store, _) = filled(&folder, 400);
    store.close().unwrap();
    let middle = folder.path("commitlog/00000000000000131072");
    let aside = folder.path("aside");
    std::fs::rename(&middle, &aside).unwrap();
    let error = folder.try_open(&[]).err().unwrap();
    assert!(
        error.text.contains("begins at offset 131072"),
        "{}",
        error.text
    );
    std::fs::rename(&aside, &middle).unwrap();

    let stray = folder.path("commitlog/foo.tmp");
    std::fs::write(&stray, b"x").unwrap();
    assert_eq!(folder.try_open(&[]).err().unwrap().kind, ErrorKind::Corrupt);
    std::fs::remove_file(&stray).unwrap();

    let log = folder.path("commitlog");
    std::fs::rename(&log, &aside).unwrap();
    let error = folder.try_open(&[]).err().unwrap();
    assert!(error.text.contains("no commit-log file"), "{}", error.text);
    std::fs::remove_dir_all(&log).unwrap();
    std::fs::rename(&aside, &log).unwrap();

    let other = folder.try_open(&[("mappedFileSizeCommitLog", Value::Int(65_536))]);
    assert!(other
        .err()
        .unwrap()
        .text
        .contains("mappedFileSizeCommitLog"));

    // A file that was being made when the power went holds nothing and is short.
    std::fs::write(folder.path("commitlog/00000000000000524288"), b"").unwrap();
    let store = folder.open(&[]);
    check(&store, 400);
    store.close().unwrap();
}

#[test]
fn a_deleted_topic_stays_deleted_and_starts_again_at_0() {
    let folder = Folder::new("topic");
    let (store, _) = filled(&folder, 100);
    store.send("Other", 0, b"x", b"");
    assert_eq!(store.delete_topic("T").unwrap(), 2);
    assert_eq!(store.delete_topic("T").unwrap(), 0);
    assert_eq!(store.log().next_offset("T", 0), 0);
    let left = killed(&store, &folder);
    let store = left.open(&[]);
    assert_eq!(store.queues().list(), [("Other".to_owned(), 0, 0, 1)]);
    store.start().unwrap();
    assert_eq!(store.send("T", 0, b"again", b"").queue_offset, 0);
    store.settle();
    assert_eq!(store.read_all("T", 0), [b"again"]);
    store.close().unwrap();
}

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
            _ => store_help::damage(&path, 20, &[0; 1_980]),
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
    store_help::damage(&folder.path("deletedTopics"), 20, &[9]);
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

#[test]
fn a_topic_made_anew_keeps_its_new_queues_when_all_is_rebuilt() {
    let folder = Folder::new("anew");
    let (store, _) = filled(&folder, 100);
    store.delete_topic("T").unwrap();
    for number in 0..30 {
        send(&store, number);
    }
    store.send("T", 7, b"x", b"");
    let left = killed(&store, &folder);
    rob(&left, &["consumequeue", "index", "checkpoint"]);
    let store = left.open(&[]);
    for queue in 0..2 {
        assert_eq!(store.log().next_offset("T", queue), 15);
        let first = store.units("T", queue, 0, 1).unwrap()[0].0;
        assert!(first > 90_000, "{first}");
    }
    assert_eq!(store.log().next_offset("T", 7), 1);
    store.close().unwrap();
}

#[test]
fn folders_take_turns() {
    let folder = Folder::new("turns");
    let paths = format!(
        "{},{}",
        folder.path("a").display(),
        folder.path("b").display()
    );
    let more = [("storePathCommitLog", Value::Text(paths))];
    let store = folder.open(&more);
    store.start().unwrap();
    for number in 0..400 {
        send(&store, number);
    }
    store.close().unwrap();
    for name in [
        "a/00000000000000000000",
        "b/00000000000000131072",
        "a/00000000000000262144",
    ] {
        assert!(folder.path(name).exists(), "{name}");
    }
    check(&folder.open(&more), 400);
}

#[test]
fn the_checkpoint_is_what_java_expects() {
    let folder = Folder::new("checkpoint");
    let (store, placed) = filled(&folder, 50);
    store.close().unwrap();
    let bytes = std::fs::read(folder.path("checkpoint")).unwrap();
    assert_eq!(bytes.len(), 4096);
    let found = Checkpoint::decode(&bytes);
    let last = placed[49].physical_offset;
    assert_eq!(found.queue_offset, i64::try_from(last).unwrap());
    assert!(found.queue_time > 1_600_000_000_000);
    assert_eq!(
        (found.log_time, found.index_time),
        (found.queue_time, found.queue_time)
    );
    assert_eq!(found.known.unwrap().flushed, last + placed[49].size);
    assert!(!folder.path("abort").exists());
    assert!(folder.path("abort.bak").exists());
    // The file made ahead and never used is gone, as after Java's orderly stop.
    assert_eq!(
        std::fs::read_dir(folder.path("commitlog")).unwrap().count(),
        1
    );
}
