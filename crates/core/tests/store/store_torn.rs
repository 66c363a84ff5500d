//! What a power cut or a kill may have left unfinished is cut, and nothing else: whatever producers
//! put into their messages. A log of which no file is left is missed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A test may.

use super::store_help::{
    check, config, copy, damage, filled, killed, message, rob, send, Folder, Made,
};
use super::store_recovery::{rebooted, CUT};
use roquet_core::codec::record::{self, NewRecord};
use roquet_core::commit_log::{Placed, Prepared, PutStatus};
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::error::ErrorKind;
use roquet_core::store::Store;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILE: &str = "commitlog/00000000000000000000";

fn sync() -> (&'static str, Value) {
    ("flushDiskType", Value::Text("SYNC_FLUSH".to_owned()))
}

fn open(
    root: &Path,
    boot: Option<u64>,
) -> Result<Arc<Store>, roquet_core::store::error::StoreError> {
    let mut env = Env::system();
    env.boot = boot.unwrap_or(env.boot);
    Store::open(config(root, &[sync()]), env)
}

fn acknowledged(store: &Store) {
    let end = Instant::now() + Duration::from_secs(20);
    while store.log().flushed() < store.log().written() {
        assert!(Instant::now() < end, "nothing is flushed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn zeros(count: usize) -> Vec<u8> {
    let mut properties = b"p\x01".to_vec();
    properties.resize(2 + count, 0);
    properties
}

#[test]
fn acknowledged_record_with_zeros_in_a_property_survives_a_power_cut() {
    for count in [1, 511, 1_023, 5_000] {
        let folder = Folder::new("zeros");
        let store = folder.open(&[sync()]);
        store.start().unwrap();
        let mut want = Vec::new();
        for number in 0..21_u8 {
            let body = vec![number; 50];
            let properties = if number == 1 {
                zeros(count)
            } else {
                Vec::new()
            };
            store.send("T", 0, &body, &properties);
            acknowledged(&store);
            want.push(body);
        }
        // The note of a thread that looks once a second may be as late as it likes.
        let left = killed(&store, &folder);
        let again = open(&left.0, Some(1)).unwrap();
        assert_eq!(again.read_all("T", 0), want, "{count} zeros");
        assert_eq!(again.recovered().cut_bytes, 0);
        again.close().unwrap();
    }
}

#[test]
fn copied_record_with_zeros_in_a_property_survives_a_power_cut() {
    let (from, to) = (Folder::new("from"), Folder::new("to"));
    let master = from.open(&[sync()]);
    let slave = to.open(&[sync()]);
    master.start().unwrap();
    slave.start().unwrap();
    for number in 0..5_u8 {
        master.send("T", 0, &[number; 40], &zeros(1_023));
    }
    acknowledged(&master);
    let mut at = 0;
    while let Some(piece) = master.copyable(at, 700).unwrap() {
        at = slave.replicate(at, &piece).unwrap();
        slave.vouched().unwrap();
    }
    let left = killed(&slave, &to);
    let again = open(&left.0, Some(1)).unwrap();
    assert_eq!(again.read_all("T", 0).len(), 5);
    again.close().unwrap();
    master.close().unwrap();
}

#[test]
fn record_torn_in_its_properties_is_cut_after_a_power_cut_and_said() {
    let folder = Folder::new("torn-properties");
    let store = folder.open(&[sync()]);
    store.start().unwrap();
    store.send("T", 0, b"first", b"");
    acknowledged(&store);
    let properties = [b"p\x01".to_vec(), vec![b'x'; 3_000]].concat();
    let torn = store.send("T", 0, b"second", &properties);
    acknowledged(&store);
    let left = killed(&store, &folder);
    // As if the power had gone within the flush of the second message.
    let mut image = std::fs::read(left.path("checkpoint")).unwrap();
    forget_flush(&mut image, torn.physical_offset);
    std::fs::write(left.path("checkpoint"), image).unwrap();
    damage(&left.path(FILE), 1_536, &[0; 512]);
    let again = open(&left.0, Some(1)).unwrap();
    assert_eq!(again.read_all("T", 0), [b"first"]);
    let recovered = again.recovered();
    assert_eq!(recovered.end, torn.physical_offset);
    assert_eq!(recovered.cut_bytes, torn.size);
    let said = format!(
        "{} bytes of the log from offset {} to {} were cut",
        torn.size,
        torn.physical_offset,
        torn.end()
    );
    assert!(
        recovered.notes[0].starts_with(&said),
        "{:?}",
        recovered.notes
    );
    again.close().unwrap();
}

/// Has a checkpoint say that the log is durable up to `flushed` only.
fn forget_flush(image: &mut [u8], flushed: u64) {
    use roquet_core::recovery::checkpoint::{Checkpoint, Known};
    let mut checkpoint = Checkpoint::decode(image);
    let boot = checkpoint.known.unwrap().boot;
    checkpoint.known = Some(Known { flushed, boot });
    let bytes = checkpoint.encode();
    image[..bytes.len()].copy_from_slice(&bytes);
}

/// A body with whole records in it that stand where they say, hours apart.
fn forged(at: u64) -> Vec<u8> {
    let mut bytes = vec![b'.'; 100];
    for number in 0..2 {
        let from = bytes.len();
        let new = NewRecord {
            born_timestamp: 1,
            ..message("T", 0, b"forged", b"")
        };
        record::encode(&new, &mut bytes).unwrap();
        let offset = (at + 88 + from as u64).cast_signed();
        record::patch(
            &mut bytes[from..],
            number,
            offset,
            1_600_000_000_000 + number * 9_000_000,
        );
    }
    bytes.resize(9_000, b'.');
    bytes
}

fn with_forged() -> (Folder, Placed) {
    let folder = Folder::new("forged");
    let store = folder.open(&[sync()]);
    store.start().unwrap();
    store.send("T", 0, b"first", b"");
    acknowledged(&store);
    let body = forged(store.log().written());
    let placed = store.send("T", 0, &body, b"");
    acknowledged(&store);
    (killed(&store, &folder), placed)
}

#[test]
fn unfinished_record_with_forged_records_in_its_body_is_cut() {
    for (boot, lost) in [
        (None, 4_096..12_288),
        (Some(1), 4_096..12_288),
        (Some(1), 0..512),
    ] {
        let (left, placed) = with_forged();
        let mut image = std::fs::read(left.path("checkpoint")).unwrap();
        forget_flush(&mut image, placed.physical_offset);
        std::fs::write(left.path("checkpoint"), image).unwrap();
        let (from, to): (u64, u64) = (lost.start, lost.end);
        let from = from.max(placed.physical_offset);
        let size = usize::try_from(to - from).unwrap();
        damage(&left.path(FILE), from, &vec![0; size]);
        let again = open(&left.0, boot).unwrap();
        assert_eq!(again.read_all("T", 0), [b"first"], "{boot:?} {from}..{to}");
        assert_eq!(again.log().written(), placed.physical_offset);
        again.close().unwrap();
    }
}

#[test]
fn durable_record_with_forged_records_and_damage_is_refused_when_records_follow() {
    let folder = Folder::new("forged-middle");
    let store = folder.open(&[sync()]);
    store.start().unwrap();
    let body = forged(store.log().written());
    let placed = store.send("T", 0, &body, b"");
    store.send("T", 0, b"behind", b"");
    acknowledged(&store);
    store.checkpoint().unwrap();
    let left = killed(&store, &folder);
    damage(&left.path(FILE), 8_000, b"#");
    for boot in [None, Some(1)] {
        let error = open(&left.0, boot).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        let behind = format!("but one follows at offset {}", placed.end());
        assert!(error.text.contains(&behind), "{}", error.text);
    }
}

/// Where a record is, and its part of which no length and no sum tells.
struct Last {
    at: u64,
    from: u64,
    to: u64,
    end: u64,
}

/// A store that was killed with one message in front of a last one.
fn killed_behind(topic: &str, properties: &[u8], is_flushed: bool) -> (Folder, Last) {
    let folder = Folder::new("last");
    let store = folder.open(&[]);
    store.start_stepped().unwrap();
    store.send(topic, 0, b"first", b"");
    let placed = store.send(topic, 0, b"last", properties);
    if is_flushed {
        store.flush().unwrap();
    }
    // Behind the topic is the length of the properties.
    let to = placed.end() - 2 * u64::from(properties.is_empty());
    let size = if properties.is_empty() {
        topic.len()
    } else {
        properties.len()
    };
    let last = Last {
        at: placed.physical_offset,
        from: to - size as u64,
        to,
        end: placed.end(),
    };
    (killed(&store, &folder), last)
}

#[test]
fn last_record_that_a_kill_left_unfinished_anywhere_is_cut_and_said() {
    // Their length as a number ends in a 0 byte, so that it is right when half of it is missing.
    let properties = [b"KEYS\x01".to_vec(), vec![b'k'; 250], b"\x02".to_vec()].concat();
    for (topic, properties) in [("Topic", &properties[..]), ("Topic", b"")] {
        let (folder, last) = killed_behind(topic, properties, false);
        let image = std::fs::read(folder.path(FILE)).unwrap();
        for from in (last.from..last.to).step_by(25).chain([last.to - 1]) {
            let again = Folder::new("unfinished");
            copy(&folder.0, &again.0);
            let missing = vec![0; usize::try_from(last.end - from).unwrap()];
            damage(&again.path(FILE), from, &missing);
            let store = again.open(&[]);
            assert_eq!(store.read_all(topic, 0), [b"first"], "{from}");
            let notes = store.recovery_notes().concat();
            assert!(notes.contains("were cut: a part is missing"), "{notes}");
            assert_eq!(store.log().written(), last.at);
            store.close().unwrap();
        }
        let store = folder.open(&[]);
        assert_eq!(store.read_all(topic, 0).len(), 2, "the whole one stays");
        assert!(store.recovery_notes().is_empty());
        store.close().unwrap();
        assert_eq!(std::fs::read(folder.path(FILE)).unwrap(), image);
    }
}

#[test]
fn acknowledged_record_whose_properties_end_in_0_survives_a_kill_before_its_flush() {
    let light = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02p\x01\0";
    let settings = [
        ("enableLmq", Value::Bool(true)),
        ("enableMultiDispatch", Value::Bool(true)),
    ];
    for properties in [&b"p\x01\0"[..], &zeros(5_000), b"\0", light] {
        let folder = Folder::new("ends-in-0");
        let store = folder.open(&settings);
        store.start_stepped().unwrap();
        // As a batch: all in one append.
        let mut batch = Prepared::default().in_light_queues(true);
        for body in [&b"one"[..], b"two", b"three"] {
            let record = message("T", 0, body, properties);
            batch.push("T", &record, store.body_max(), true).unwrap();
        }
        assert_eq!(store.put(&mut batch).status, PutStatus::Ok);
        let left = killed(&store, &folder);
        let again = left.open(&settings);
        let found = again.read_all("T", 0);
        assert_eq!(found, [&b"one"[..], b"two", b"three"], "{properties:?}");
        assert_eq!(again.recovered().cut_bytes, 0);
        again.close().unwrap();
    }
}

#[test]
fn record_whose_properties_leave_no_room_to_be_whole_is_refused() {
    let folder = Folder::new("no-room");
    let store = folder.open(&[]);
    store.start_stepped().unwrap();
    let full = zeros(32_765);
    let refused = store.try_send(&message("T", 0, b"", &full)).unwrap_err();
    assert_eq!(refused, PutStatus::PropertiesTooLong);
    assert!(store.try_send(&message("T", 0, b"", &full[1..])).is_ok());
    store.close().unwrap();
}

/// Takes the separator away that ends the properties of a last record, as Java would have stored it.
fn as_java(folder: &Folder, last: &Last, properties: u16) {
    let path = folder.path(FILE);
    let size = u32::try_from(last.end - last.at).unwrap() - 1;
    damage(&path, last.at, &size.to_be_bytes());
    let at = last.end - u64::from(properties) - 2;
    damage(&path, at, &(properties - 1).to_be_bytes());
    damage(&path, last.end - 1, &[0]);
}

#[test]
fn whole_record_of_java_that_ends_in_0_is_believed_where_a_flush_or_java_tells_of_it() {
    // What a slave of a Java master noted as flushed, a log that Java wrote last, and neither.
    for (is_flushed, is_java, left) in [(true, false, 2), (false, true, 2), (false, false, 1)] {
        let (folder, last) = killed_behind("T", b"p\x01\0\x02", is_flushed);
        as_java(&folder, &last, 4);
        if is_java {
            use roquet_core::recovery::checkpoint::Checkpoint;
            let path = folder.path("checkpoint");
            let mut checkpoint = Checkpoint::decode(&std::fs::read(&path).unwrap());
            checkpoint.known = None;
            std::fs::write(&path, checkpoint.encode()).unwrap();
        }
        let store = folder.open(&[]);
        let case = format!("flushed {is_flushed}, java {is_java}");
        assert_eq!(store.read_all("T", 0).len(), left, "{case}");
        assert_eq!(store.recovery_notes().len(), 2 - left, "{case}");
        // What it believed it goes on believing, also when it is killed at once.
        let killed_again = killed(&store, &folder);
        let again = killed_again.open(&[]);
        assert_eq!(again.read_all("T", 0).len(), left, "{case}");
        again.close().unwrap();
    }
}

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

/// Opens a store without a log in the two ways that there are; `left` says which traces it has.
fn judge(folder: &Folder, left: u32, context: &str) {
    let is_left = |at: usize| left >> at & 1 == 1;
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

/// A copy of a store without its log, and with the traces that are bits of `left`.
fn robbed(whole: &Folder, left: u32) -> Folder {
    let folder = Folder::new("robbed");
    copy(&whole.0, &folder.0);
    std::fs::remove_dir_all(folder.path("commitlog")).unwrap();
    for (at, name) in TRACES.iter().enumerate() {
        assert!(folder.path(name).exists(), "{name}");
        if left >> at & 1 == 0 {
            rob(&folder, &[name]);
        }
    }
    folder
}

#[test]
fn store_that_lost_its_log_begins_anew_without_a_word_only_when_nothing_else_is_left() {
    for is_killed in [false, true] {
        let whole = with_all_traces(is_killed);
        for left in 1..1 << TRACES.len() {
            let context = format!("killed {is_killed}, left {left:b}");
            judge(&robbed(&whole, left), left, &context);
        }
        let folder = robbed(&whole, 0);
        let store = folder.open(&[]);
        assert!(store.recovery_notes().is_empty(), "killed {is_killed}");
        assert_eq!(store.last_run_stopped(), !is_killed);
        store.close().unwrap();
    }
}
