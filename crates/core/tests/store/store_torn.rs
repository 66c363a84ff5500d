//! What a power cut or a kill may have left unfinished is cut, and nothing else: whatever producers
//! put into their messages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::store_help::{config, damage, killed, message, Folder, Made};
use roquet_core::codec::record::{self, NewRecord};
use roquet_core::commit_log::Placed;
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
