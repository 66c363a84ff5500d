//! What opening does with stores that were killed, damaged or robbed of files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A test may.

use super::store_help::{body, check, config, damage, filled, killed, rob, send, Folder, Made};
use roquet_core::recovery::checkpoint::Checkpoint;
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::error::{ErrorKind, StoreError};
use roquet_core::store::Store;
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "commitlog/00000000000000000000";
pub(super) const CUT: (&str, Value) = ("recoveryTruncateCorrupt", Value::Bool(true));

/// Opens as after a reboot.
pub(super) fn rebooted(root: &Path, more: &[(&str, Value)]) -> Result<Arc<Store>, StoreError> {
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
fn nats_7549_damage_with_valid_records_behind_it_is_an_error() {
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
        for queue in 0..2 {
            let want: Vec<_> = (0..20).filter(|n| n % 2 == queue).map(body).collect();
            let queue = i32::try_from(queue).unwrap();
            assert!(store.read_all("T", queue) == want, "{name}");
            // The offsets of what was cut are not given out again.
            assert_eq!(store.log().next_offset("T", queue), 25, "{name}");
        }
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
fn one_missing_queue_is_made_again_after_a_kill() {
    let folder = Folder::new("queue");
    let (store, _) = filled(&folder, 400);
    store.checkpoint().unwrap();
    send(&store, 400);
    send(&store, 401);
    let left = killed(&store, &folder);
    std::fs::remove_dir_all(left.path("consumequeue/T/1")).unwrap();
    let store = left.open(&[]);
    let notes = &store.recovered().notes;
    assert!(notes[0].contains("queue 1 of topic T"), "{notes:?}");
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

#[test]
fn a_checkpoint_that_names_a_record_inside_a_body_says_nothing() {
    let folder = Folder::new("inner");
    let (store, placed) = filled(&folder, 300);
    let size = usize::try_from(placed[0].size).unwrap();
    let inner = std::fs::read(folder.path(FILE)).unwrap()[..size].to_vec();
    let outer = store.send("U", 0, &inner, b"").physical_offset;
    store.settle();
    store.checkpoint().unwrap();
    let left = killed(&store, &folder);
    let base = outer / 131_072 * 131_072;
    let file = std::fs::read(left.path(&format!("commitlog/{base:020}"))).unwrap();
    let begin = usize::try_from(outer - base).unwrap();
    let within = file[begin..].windows(size).position(|it| it == inner);
    let named = outer + u64::try_from(within.unwrap()).unwrap();
    let path = left.path("checkpoint");
    let mut checkpoint = Checkpoint::decode(&std::fs::read(&path).unwrap());
    assert!(base > 0);
    for (at, is_known) in [(outer, true), (named, false)] {
        let again = Folder::new("again");
        super::store_help::copy(&left.0, &again.0);
        checkpoint.queue_offset = i64::try_from(at).unwrap();
        damage(&again.path("checkpoint"), 0, &checkpoint.encode());
        let store = again.open(&[]);
        // Either its file is enough, or all of the log is read: nothing is known of the units.
        assert_eq!(store.recovered().records < 301, is_known);
        check(&store, 300);
        store.close().unwrap();
    }
}

#[test]
fn units_behind_the_checkpoint_are_made_again_after_a_kill_whatever_they_say() {
    let folder = Folder::new("units");
    let (store, _) = filled(&folder, 50);
    store.checkpoint().unwrap();
    for number in 50..60 {
        send(&store, number);
    }
    store.settle();
    let left = killed(&store, &folder);
    let queue = left.path("consumequeue/T/0/00000000000000000000");
    let units = std::fs::read(&queue).unwrap();
    // The units of messages 54 and 56 are those of two older ones, and behind the last stands one.
    for at in [27, 30] {
        damage(&queue, at * 20, &units[10 * 20..12 * 20]);
    }
    let store = left.open(&[]);
    check(&store, 60);
    assert_eq!(store.recovered().rebuilds, 0);
    store.close().unwrap();
}
