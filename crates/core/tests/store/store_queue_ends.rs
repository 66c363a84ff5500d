//! Queues that lack what the log has are made again at both ends, offsets are never given out
//! twice, and a unit never serves the record of another place.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::store_help::{body, check, damage, filled, killed, rob, send, Folder, Made};
use roquet_core::store::config::Value;
use std::path::PathBuf;

const FIRST: &str = "00000000000000000000";
const SECOND: &str = "00000000000000002000";

/// A store with 150 units in each of two queues, the second of which gets nothing any more.
fn with_an_idle_queue() -> (Folder, Folder) {
    let folder = Folder::new("idle");
    let (store, _) = filled(&folder, 300);
    for number in 0..300 {
        store.send("Other", 0, &body(number), b"");
    }
    store.settle();
    store.checkpoint().unwrap();
    store.send("Other", 0, b"last", b"");
    store.settle();
    (killed(&store, &folder), folder)
}

#[test]
fn idle_queue_damaged_or_lost_after_a_kill_or_a_stop_is_made_again() {
    type Change = fn(PathBuf);
    let changes: [(&str, Change); 6] = [
        ("gone", |dir| std::fs::remove_dir_all(dir).unwrap()),
        ("first gone", |dir| {
            std::fs::remove_file(dir.join(FIRST)).unwrap();
        }),
        ("second gone", |dir| {
            std::fs::remove_file(dir.join(SECOND)).unwrap();
        }),
        ("first zeroed", |dir| {
            std::fs::write(dir.join(FIRST), [0; 2_000]).unwrap();
        }),
        ("second zeroed", |dir| {
            std::fs::write(dir.join(SECOND), [0; 2_000]).unwrap();
        }),
        ("end zeroed", |dir| {
            damage(&dir.join(SECOND), 600, &[0; 1_400]);
        }),
    ];
    for (name, change) in changes {
        let (left, stopped) = with_an_idle_queue();
        for folder in [&left, &stopped] {
            change(folder.path("consumequeue/T/1"));
            let store = folder.open(&[]);
            store.start().unwrap();
            check(&store, 300);
            assert!(
                store
                    .recovered()
                    .notes
                    .iter()
                    .any(|it| it.contains("queue 1 of topic T")),
                "{name}: {:?}",
                store.recovered()
            );
            for number in 300..310 {
                send(&store, number);
            }
            store.settle();
            check(&store, 310);
            store.close().unwrap();
        }
    }
}

#[test]
fn file_in_the_middle_of_a_long_queue_gone_or_zeroed_is_made_again() {
    let small = [("mappedFileSizeConsumeQueue", Value::Int(400))];
    for zeroed in [false, true] {
        let folder = Folder::new("middle");
        let store = folder.open(&small);
        store.start().unwrap();
        for number in 0..400 {
            send(&store, number);
        }
        store.close().unwrap();
        // 200 units are ten files.
        let path = folder.path("consumequeue/T/0/00000000000000001200");
        if zeroed {
            std::fs::write(path, [0; 400]).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        let again = folder.open(&small);
        check(&again, 400);
        again.close().unwrap();
    }
}

#[test]
fn folder_of_queues_removed_while_running_is_counted_and_made_again() {
    for kill in [false, true] {
        let folder = Folder::new("removed");
        let (store, _) = filled(&folder, 300);
        store.checkpoint().unwrap();
        rob(&folder, &["consumequeue"]);
        assert!(store.self_check().unwrap()[0].contains("is gone"));
        for number in 300..310 {
            send(&store, number);
        }
        store.send("New", 0, b"x", b"");
        store.settle();
        let left = killed(&store, &folder);
        let again = if kill { &left } else { &folder }.open(&[]);
        again.start().unwrap();
        check(&again, 310);
        assert_eq!(send(&again, 310).queue_offset, 155);
        again.close().unwrap();
    }
}

#[test]
fn unit_of_another_place_is_passed_over_and_counted() {
    let folder = Folder::new("foreign");
    let (store, _) = filled(&folder, 300);
    store.send("U", 0, b"another topic", b"");
    store.close().unwrap();
    let units = |name: &str| std::fs::read(folder.path(name)).unwrap();
    let (other_queue, other_topic) = (
        units("consumequeue/T/1/00000000000000000000"),
        units("consumequeue/U/0/00000000000000000000"),
    );
    let path = folder.path("consumequeue/T/0").join(FIRST);
    let own = std::fs::read(&path).unwrap();
    damage(&path, 20 * 5, &other_queue[..20]);
    damage(&path, 20 * 7, &other_topic[..20]);
    damage(&path, 20 * 9, &own[20 * 30..20 * 31]);
    damage(&path, 20 * 11, &[0; 20]);
    let again = folder.open(&[]);
    // What follows a unit that is none is made again.
    let lost = [5, 7, 9];
    let want: Vec<_> = (0..150)
        .filter(|at| !lost.contains(at))
        .map(|at| body(at * 2))
        .collect();
    assert!(again.read_all("T", 0) == want);
    assert_eq!(again.stats()["damaged_reads"], 3);
    assert!(again
        .last_damage()
        .0
        .contains("offset 9 of queue 0 of topic T"));
    again.close().unwrap();
}

#[test]
fn damaged_last_unit_hides_no_later_message() {
    for kill in [false, true] {
        let folder = Folder::new("tail");
        let (store, _) = filled(&folder, 300);
        store.checkpoint().unwrap();
        let left = killed(&store, &folder);
        let folder = if kill { left } else { folder };
        let path = folder.path("consumequeue/T/0").join(SECOND);
        for wrong in [1_u64 << 50, 0] {
            let unit = [&wrong.to_be_bytes()[..], &1_000_u32.to_be_bytes()].concat();
            damage(&path, 49 * 20, &unit);
            let again = folder.open(&[]);
            again.start().unwrap();
            check(&again, 300);
            again.close().unwrap();
        }
    }
}

#[test]
fn offsets_of_messages_that_were_cut_are_not_given_out_again() {
    let folder = Folder::new("cut");
    let (store, placed) = filled(&folder, 50);
    store.close().unwrap();
    damage(
        &folder.path("commitlog/00000000000000000000"),
        placed[20].physical_offset,
        &[b'#'; 100],
    );
    assert!(folder.try_open(&[]).is_err());
    let again = folder.open(&[("recoveryTruncateCorrupt", Value::Bool(true))]);
    again.start().unwrap();
    assert_eq!(again.queues().max("T", 0), 10);
    assert_eq!(again.send("T", 0, b"new", b"").queue_offset, 25);
    again.settle();
    let bodies = again.read_all("T", 0);
    assert_eq!((bodies.len(), bodies[10].as_slice()), (11, &b"new"[..]));
    again.close().unwrap();
}

#[test]
fn queue_whose_messages_have_all_expired_keeps_its_next_offset_without_its_files() {
    let folder = Folder::new("expired");
    let (store, _) = filled(&folder, 20);
    for number in 0..300 {
        store.send("Other", 0, &body(number), b"");
    }
    store.settle();
    assert!(store.delete_expired(u64::MAX, 2).unwrap() > 0);
    assert_eq!(store.queues().min("T", 0), 10);
    store.close().unwrap();
    rob(&folder, &["consumequeue/T/0"]);
    let again = folder.open(&[]);
    again.start().unwrap();
    assert_eq!(send(&again, 20).queue_offset, 10);
    again.settle();
    assert_eq!(again.read_all("T", 0), [body(20)]);
    again.close().unwrap();
}

#[test]
fn whole_store_is_opened_without_reading_more_than_its_last_file() {
    let folder = Folder::new("whole");
    let (store, _) = filled(&folder, 400);
    store.close().unwrap();
    let again = folder.open(&[]);
    assert_eq!(again.recovered().rebuilds, 0);
    assert_eq!(again.recovered().notes, Vec::<String>::new());
    assert!(again.recovered().records < 150);
    again.close().unwrap();
}

#[test]
fn queues_whose_files_were_exchanged_are_made_again_whole() {
    let folder = Folder::new("exchanged");
    let store = folder.open(&[]);
    store.start().unwrap();
    for number in 0..80 {
        send(&store, number);
    }
    for number in 0..7 {
        store.send("Other", 0, &body(number), b"");
    }
    store.close().unwrap();
    let paths = ["consumequeue/T/1", "consumequeue/Other/0"].map(|it| folder.path(it).join(FIRST));
    let [long, short] = paths.each_ref().map(|path| std::fs::read(path).unwrap());
    std::fs::write(&paths[0], short).unwrap();
    std::fs::write(&paths[1], long).unwrap();
    let again = folder.open(&[]);
    check(&again, 80);
    let other: Vec<_> = (0..7).map(body).collect();
    assert_eq!(again.read_all("Other", 0), other);
    let notes = &again.recovered().notes;
    assert!(
        notes.iter().any(|it| it.contains("queue 1 of topic T")),
        "{notes:?}"
    );
    again.close().unwrap();
}
