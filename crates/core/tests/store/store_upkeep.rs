//! Files that come and go, limits of a get, and what dispatch writes for special messages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::store_help::{bodies, message, wanted, Folder, Made};
use roquet_core::codec::record::{self, NewRecord, SYS_COMMIT, SYS_PREPARED, SYS_ROLLBACK};
use roquet_core::commit_log::{Prepared, PutStatus};
use roquet_core::store::config::Value;
use roquet_core::store::get::{GetStatus, Getter, Wanted};
use roquet_core::store::Store;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn file_count(folder: &Folder) -> usize {
    std::fs::read_dir(folder.path("commitlog")).unwrap().count()
}

#[test]
fn the_next_file_is_there_before_it_is_needed() {
    let folder = Folder::new("ahead");
    let store = folder.open(&[]);
    store.start().unwrap();
    store.send("T", 0, &vec![b'x'; 70_000], b"");
    let end = Instant::now() + Duration::from_secs(20);
    while file_count(&folder) < 2 {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.log().segments().len(), 1);
    let placed = store.send("T", 0, &vec![b'x'; 70_000], b"");
    assert_eq!(placed.physical_offset, 131_072);
    store.settle();
    assert_eq!(store.read_all("T", 0).len(), 2);
    store.close().unwrap();
}

/// A store with 600 messages in five files.
fn five_files(folder: &Folder) -> Arc<Store> {
    let store = folder.open(&[]);
    store.start().unwrap();
    for number in 0..600 {
        let keys = format!("KEYS\x01k{number}\x02");
        store.send("T", 0, &[b'x'; 900], keys.as_bytes());
    }
    store.settle();
    store.flush().unwrap();
    store
}

#[test]
fn old_files_go_and_their_readers_stay() {
    let folder = Folder::new("expire");
    let store = five_files(&folder);
    let lease = store.log().record(0).unwrap();
    assert_eq!(store.delete_expired(0, 10).unwrap(), 0);
    assert_eq!(store.delete_expired(u64::MAX, 2).unwrap(), 2);
    assert_eq!(store.log().min(), 2 * 131_072);
    assert_eq!(lease.len(), 1_000);
    assert!(store.log().record(0).is_none());
    let min = i64::try_from(store.queues().min("T", 0)).unwrap();
    assert!(min > 200);
    let first = store.read("T", 0, min, None);
    assert_eq!(first.status, GetStatus::Found);
    assert!(first.parts[0].from() >= 2 * 131_072);
    let early = store.read("T", 0, 5, None);
    assert_eq!((early.status, early.next), (GetStatus::OffsetTooSmall, min));
    assert!(store.earliest_store_time().is_some());
    // Never the last one.
    assert_eq!(store.delete_expired(u64::MAX, 100).unwrap(), 2);
    assert_eq!(store.delete_expired(u64::MAX, 100).unwrap(), 0);
    store.close().unwrap();
    let again = folder.open(&[]);
    again.start().unwrap();
    assert_eq!(again.log().min(), 4 * 131_072);
    assert_eq!(again.send("T", 0, b"x", b"").queue_offset, 600);
    again.close().unwrap();
}

#[test]
fn a_batch_stays_in_one_file() {
    let folder = Folder::new("glued");
    let store = folder.open(&[]);
    store.start().unwrap();
    store.send("T", 0, &vec![b'x'; 100_000], b"");
    let body = [b'y'; 15_000];
    let mut batch = Prepared::default();
    for _ in 0..3 {
        batch
            .push("T", &message("T", 0, &body, b""), store.body_max(), true)
            .unwrap();
    }
    let done = store.put(&mut batch);
    assert_eq!(done.status, PutStatus::Ok);
    assert_eq!(done.placed[0].physical_offset, 131_072);
    assert_eq!(
        done.placed
            .iter()
            .map(|p| p.queue_offset)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    // Without glue the same messages use what room there is.
    let mut loose = Prepared::default();
    for _ in 0..6 {
        loose
            .push("T", &message("T", 1, &body, b""), store.body_max(), false)
            .unwrap();
    }
    let done = store.put(&mut loose);
    let files: Vec<_> = done
        .placed
        .iter()
        .map(|p| p.physical_offset / 131_072)
        .collect();
    assert_eq!(files, [1, 1, 1, 1, 1, 2]);
    // What no file can hold is refused, alone.
    let mut long = Prepared::default();
    long.push(
        "T",
        &message("T", 2, &vec![b'z'; 140_000], b""),
        store.body_max(),
        false,
    )
    .unwrap();
    assert_eq!(store.put(&mut long).status, PutStatus::MessageIllegal);
    store.settle();
    assert_eq!(store.read_all("T", 0).len(), 4);
    assert_eq!(store.read_all("T", 1).len(), 6);
    store.close().unwrap();
    assert_eq!(folder.open(&[]).read_all("T", 1).len(), 6);
}

#[test]
fn limits_of_a_get() {
    let folder = Folder::new("limits");
    let store = folder.open(&[]);
    store.start().unwrap();
    for _ in 0..100 {
        store.send("T", 0, &[b'x'; 901], b"TAGS\x01A\x02");
    }
    store.settle();
    let all = store.read("T", 0, 0, None);
    assert_eq!((all.messages, all.bytes, all.parts.len()), (32, 32_000, 1));
    let mut few = wanted("T", 0, 0);
    few.messages = 3;
    assert_eq!(store.get(few).unwrap().messages, 3);
    let mut small = wanted("T", 0, 0);
    small.bytes = 2_500;
    assert_eq!(store.get(small).unwrap().messages, 2);
    small.bytes = 1;
    assert_eq!(
        (
            store.get(small).unwrap().messages,
            store.get(small).unwrap().next
        ),
        (1, 1)
    );
    let codes: Vec<i64> = (0..20).collect();
    assert_eq!(store.read("T", 0, 0, Some(&codes)).next, 100);
    store.close().unwrap();

    let cold = folder.open(&[("accessMessageInMemoryMaxRatio", Value::Int(0))]);
    let got = cold.read("T", 0, 0, None);
    assert_eq!(got.messages, 8);
    assert!(got.suggest_slave);
    // It was written a moment ago, so it is in memory all the same.
    let again = cold.get_resident(wanted("T", 0, 0)).unwrap().unwrap();
    assert_eq!((again.messages, again.next), (8, got.next));
    assert!(again.suggest_slave);
}

/// As if memory held only the first bytes of the log.
fn begins_early(record: &[u8]) -> bool {
    const RESIDENT: i64 = 20_000;
    record::records(record, false).all(|view| view.unwrap().physical_offset < RESIDENT)
}

#[test]
fn only_what_lies_far_back_and_on_the_disk_is_not_read_without_waiting() {
    let folder = Folder::new("absent");
    let store = folder.open(&[("accessMessageInMemoryMaxRatio", Value::Int(0))]);
    store.start().unwrap();
    for _ in 0..40 {
        store.send("T", 0, &[7; 1000], b"");
    }
    store.settle();
    let getter = |hot_bytes| Getter {
        log: store.log(),
        queues: store.queues(),
        settings: store.tuned().get,
        hot_bytes,
    };
    let all = store.log().written();
    let mut answers = Vec::new();
    for offset in 0..40 {
        let wanted = Wanted {
            messages: 1,
            ..wanted("T", 0, offset)
        };
        let hot = getter(all).get_resident(wanted, |_| false).unwrap();
        assert_eq!(hot.unwrap().messages, 1, "what is recent is not asked for");
        let cold = getter(0).get_resident(wanted, begins_early).unwrap();
        answers.push(cold.map(|got| got.next));
        assert_eq!(getter(0).get(wanted).unwrap().next, offset + 1);
    }
    let there = answers.iter().take_while(|next| next.is_some()).count();
    assert!((10..30).contains(&there));
    let offsets = 1..=i64::try_from(there).unwrap();
    assert!(answers.iter().flatten().copied().eq(offsets));
    // A batch of which one is not in memory is read as a whole by who may wait.
    let near = wanted("T", 0, i64::try_from(there).unwrap() - 1);
    assert!(getter(0)
        .get_resident(near, begins_early)
        .unwrap()
        .is_none());
    store.close().unwrap();
}

#[test]
fn transaction_types_and_their_offsets() {
    let folder = Folder::new("trans");
    let store = folder.open(&[]);
    store.start().unwrap();
    for (flag, want) in [
        (SYS_PREPARED, 0),
        (0, 0),
        (SYS_ROLLBACK, 0),
        (SYS_COMMIT, 1),
        (0, 2),
    ] {
        let record = NewRecord {
            sys_flag: flag,
            ..message("T", 0, b"x", b"KEYS\x01k\x02")
        };
        assert_eq!(store.try_send(&record).unwrap().queue_offset, want);
    }
    store.settle();
    assert_eq!(store.queues().max("T", 0), 3);
    // Prepared ones are in the index, rolled-back ones are not.
    assert_eq!(store.query("T", "k", 32, 0, i64::MAX).unwrap().0.len(), 4);
    store.close().unwrap();
}

#[test]
fn delayed_messages_carry_their_time() {
    let folder = Folder::new("delay");
    let store = folder.open(&[]);
    store.start().unwrap();
    let topic = "SCHEDULE_TOPIC_XXXX";
    let tags = i64::from(roquet_core::java_hash::hash(b"A"));
    let cases: [(&[u8], Option<i64>); 6] = [
        (b"DELAY\x013\x02TAGS\x01A\x02", Some(10_000)),
        (b"DELAY\x0199\x02", Some(7_200_000)),
        (b"DELAY\x010\x02TAGS\x01A\x02", None),
        (b"DELAY\x01-1\x02TAGS\x01A\x02", None),
        (b"DELAY\x01x\x02TAGS\x01A\x02", None),
        (b"TAGS\x01A\x02", None),
    ];
    for (properties, _) in cases {
        store.send(topic, 2, b"x", properties);
    }
    store.settle();
    let units = store.units(topic, 2, 0, 10).unwrap();
    for ((at, _, code), (properties, delay)) in units.iter().zip(cases) {
        let time = store.log().head(*at).unwrap().store_timestamp;
        assert_eq!(
            *code,
            delay.map_or(tags, |delay| time + delay),
            "{properties:?}"
        );
    }
    store.close().unwrap();
}

#[test]
fn a_unit_that_lies_is_not_believed() {
    let folder = Folder::new("lie");
    let store = folder.open(&[]);
    store.start().unwrap();
    for number in 0..3 {
        store.send("T", 0, format!("{number}").as_bytes(), b"");
    }
    store.close().unwrap();
    let path = folder.path("consumequeue/T/0/00000000000000000000");
    super::store_help::damage(&path, 20 + 7, &[200]);
    let again = folder.open(&[]);
    // The messages behind it are not lost with it, and it is counted.
    let got = again.read("T", 0, 0, None);
    assert_eq!(bodies(&got), [b"0", b"2"]);
    let next = again.read("T", 0, 1, None);
    assert_eq!(
        (next.status, bodies(&next)),
        (GetStatus::Found, vec![b"2".to_vec()])
    );
    assert_eq!(again.stats()["damaged_reads"], 2);
    again.close().unwrap();
}
