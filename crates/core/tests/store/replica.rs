//! A log that is copied piece by piece: the same bytes, at any cut, and nothing that is no log.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::common::sim_disk::SimDisk;
use super::common::Rng;
use super::store_help::{message, Folder, Made};
use roquet_core::commit_log::PutStatus;
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::error::ErrorKind;
use roquet_core::store::Store;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A store with about three files of messages.
fn master(folder: &Folder) -> Arc<Store> {
    let store = folder.open(&[]);
    store.start().unwrap();
    for number in 0..600_i32 {
        let body = vec![b'x'; 100 + usize::try_from(number).unwrap() % 700];
        store.send("T", number % 3, &body, b"TAGS\x01A\x02");
    }
    store.settle();
    store
}

/// Copies everything in pieces of the lengths of `cuts`, in turn.
fn copy_all(from: &Store, to: &Store, start: u64, cuts: &[u64]) -> u64 {
    let mut at = start;
    for cut in cuts.iter().cycle() {
        match from.copyable(at, *cut).unwrap() {
            Some(lease) => at = to.replicate(at, &lease).unwrap(),
            None => return at,
        }
    }
    unreachable!("a cycle has no end")
}

fn files(folder: &Folder) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(folder.path("commitlog"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn the_same_bytes_whatever_the_cuts() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    for cuts in [&[32_768][..], &[1, 7, 88, 3, 4_000], &[35, 36, 37]] {
        let theirs = Folder::new("replica-slave");
        let slave = theirs.open(&[]);
        slave.start().unwrap();
        assert_eq!(copy_all(&master, &slave, 0, cuts), master.log().written());
        slave.settle();
        assert_eq!(slave.read_all("T", 1), master.read_all("T", 1));
        assert_eq!(slave.queues().list(), master.queues().list());
        slave.close().unwrap();
        let (here, there) = (files(&ours), files(&theirs));
        for (name, bytes) in &there {
            let own = &here.iter().find(|(other, _)| other == name).unwrap().1;
            assert!(own == bytes, "{name} differs");
        }
        // It goes on as a master, with offsets that nobody has used.
        let again = theirs.open(&[]);
        again.start().unwrap();
        assert_eq!(again.send("T", 1, b"next", b"").queue_offset, 200);
        again.close().unwrap();
    }
    master.close().unwrap();
}

#[test]
fn a_log_that_ends_inside_a_record() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[]);
    slave.start().unwrap();
    let lease = master.copyable(0, 5_001).unwrap().unwrap();
    slave.replicate(0, &lease).unwrap();
    let whole = slave.log().whole();
    assert!(whole < 5_001 && slave.log().written() == 5_001);
    assert_eq!(
        slave.try_send(&message("T", 0, b"own", b"")),
        Err(PutStatus::ServiceNotAvailable),
        "nothing else may follow half a record"
    );
    slave.close().unwrap();
    let again = theirs.open(&[]);
    again.start().unwrap();
    assert_eq!(
        again.log().written(),
        whole,
        "half a record is cut by the start"
    );
    assert_eq!(
        copy_all(&master, &again, whole, &[9_000]),
        master.log().written()
    );
    again.settle();
    assert_eq!(again.read_all("T", 2), master.read_all("T", 2));
    again.close().unwrap();
    master.close().unwrap();
}

fn on_disk(disk: &SimDisk, boot: u64) -> Arc<Store> {
    let env = Env {
        disk: Arc::new(disk.clone()),
        boot,
        ..Env::system()
    };
    Store::open(super::store_help::config(Path::new("/s"), &[]), env).unwrap()
}

#[test]
fn rocketmq_10666_what_a_slave_cut_stays_cut_when_the_power_goes() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let piece = |from, size| master.copyable(from, size).unwrap().unwrap();
    let mut ends = BTreeSet::new();
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let disk = SimDisk::new();
        let slave = on_disk(&disk, 1);
        slave.start_stepped().unwrap();
        slave.replicate(0, &piece(0, 5_001)).unwrap();
        let whole = slave.log().whole();
        assert_eq!(slave.flush().unwrap(), 5_001, "half a record is durable");
        slave.replicate(5_001, &piece(5_001, 40_000)).unwrap();
        let image = disk.after_power_loss(&mut rng);
        let cut = on_disk(&image, 2);
        let end = cut.log().written();
        assert!(end == cut.log().whole() && end >= whole, "seed {seed}");
        // The power goes again at once: the cut was durable before anything was served.
        let again = on_disk(&image.after_power_loss(&mut rng), 3);
        assert_eq!(again.log().written(), end, "seed {seed}");
        again.start_stepped().unwrap();
        copy_all(&master, &again, end, &[9_000]);
        assert_eq!(again.log().written(), master.log().written());
        while again.dispatch().unwrap() {}
        for queue in 0..3 {
            assert_eq!(again.read_all("T", queue), master.read_all("T", queue));
        }
        ends.insert(end);
    }
    assert!(ends.len() > 2, "the power left always the same: {ends:?}");
    master.close().unwrap();
}

#[test]
fn a_flush_inside_a_record_does_not_end_the_dispatch() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[("flushDiskType", Value::Text("SYNC_FLUSH".to_owned()))]);
    slave.start_stepped().unwrap();
    let piece = |from, size| master.copyable(from, size).unwrap().unwrap();
    slave.replicate(0, &piece(0, 5_001)).unwrap();
    let whole = slave.log().whole();
    assert_eq!(slave.flush().unwrap(), 5_001);
    assert_eq!(slave.copy_limit(), whole);
    slave.replicate(5_001, &piece(5_001, 9_000)).unwrap();
    assert!(slave.log().whole() > 5_001);
    assert_eq!(slave.copy_limit(), whole, "the rest is not durable");
    while slave.dispatch().unwrap() {}
    assert_eq!(slave.dispatched(), whole);
    slave.flush().unwrap();
    while slave.dispatch().unwrap() {}
    assert_eq!(slave.dispatched(), slave.log().whole());
    slave.close().unwrap();
    master.close().unwrap();
}

#[test]
fn an_empty_log_begins_with_a_later_file() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let start = master.log().written() / 131_072 * 131_072;
    assert!(start > 0);
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[]);
    slave.start().unwrap();
    let piece = master.copyable(start, 100).unwrap().unwrap();
    let wrong = slave.replicate(start + 1, &piece).unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::Usage);
    assert!(wrong.text.contains("mappedFileSizeCommitLog"), "{wrong}");
    assert_eq!(
        copy_all(&master, &slave, start, &[32_768]),
        master.log().written()
    );
    assert_eq!(slave.log().min(), start);
    slave.settle();
    let last = slave.queues().max("T", 0);
    assert_eq!(last, master.queues().max("T", 0));
    slave.close().unwrap();
    let again = theirs.open(&[]);
    assert_eq!(again.log().min(), start);
    assert_eq!(again.queues().max("T", 0), last);
    again.close().unwrap();
    master.close().unwrap();
}

#[test]
fn what_is_no_log_is_refused_before_it_is_written() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[]);
    slave.start().unwrap();
    let good = master.copyable(0, 4_000).unwrap().unwrap().to_vec();
    slave.replicate(0, &good).unwrap();
    let end = slave.log().written();
    let half = &good[usize::try_from(slave.log().whole()).unwrap()..];
    let gap = slave.replicate(end + 1, b"x").unwrap_err();
    assert!(gap.text.contains("do not follow"), "{gap}");
    let whole = usize::try_from(slave.log().whole()).unwrap();
    let rest = master.copyable(end, 2_000).unwrap().unwrap().to_vec();
    let first = u32::from_be_bytes(good[whole..whole + 4].try_into().unwrap()) as usize;
    let next = whole + first - good.len();
    for (at, byte, what) in [
        (next + 4, 0, "magic"),
        (next, 0xff, "length"),
        (next + 3, 1, "length"),
        (next + 35, 0xee, "elsewhere"),
    ] {
        let mut bad = rest.clone();
        bad[at] = byte;
        bad[next + 1] = if what == "length" { 0 } else { bad[next + 1] };
        bad[next + 2] = if what == "length" { 0 } else { bad[next + 2] };
        let refused = slave.replicate(end, &bad).unwrap_err();
        assert!(refused.text.contains(what), "{refused} for {what}");
        assert_eq!(slave.log().written(), whole as u64, "the half record goes");
        slave.replicate(whole as u64, half).unwrap();
    }
    assert_eq!(slave.stats()["refused_copies"], 4);
    slave.replicate(end, &rest).unwrap();
    slave.close().unwrap();
    master.close().unwrap();
}

#[test]
fn files_of_another_length_are_noticed() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[("mappedFileSizeCommitLog", Value::Int(65_536))]);
    slave.start().unwrap();
    let mut at = 0;
    let refused = loop {
        let piece = master.copyable(at, 32_768).unwrap().unwrap();
        match slave.replicate(at, &piece) {
            Ok(end) => at = end,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind, ErrorKind::Usage);
    assert!(at < 131_072);
    slave.close().unwrap();
    master.close().unwrap();
}

#[test]
fn a_topic_made_anew_begins_anew_on_the_copy() {
    let ours = Folder::new("replica-master");
    let master = ours.open(&[]);
    master.start().unwrap();
    for _ in 0..5 {
        master.send("T", 0, b"old", b"");
        master.send("T", 1, b"old", b"");
    }
    master.settle();
    master.delete_topic("T").unwrap();
    master.send("T", 0, b"new", b"");
    master.settle();
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[]);
    slave.start().unwrap();
    copy_all(&master, &slave, 0, &[1_000]);
    slave.settle();
    assert_eq!(slave.read_all("T", 0), [b"new".to_vec()]);
    assert_eq!(slave.queues().max("T", 0), 1);
    assert_eq!(slave.take_renewed(), ["T"]);
    assert!(slave.take_renewed().is_empty(), "it is told once");
    slave.close().unwrap();
    master.close().unwrap();
}

#[test]
fn a_deletion_of_the_master_takes_the_queues_of_the_copy_and_nothing_newer() {
    let ours = Folder::new("replica-master");
    let master = ours.open(&[]);
    master.start().unwrap();
    for topic in ["gone", "renewed", "kept"] {
        master.send(topic, 0, b"old", b"");
        master.send(topic, 1, b"old", b"");
    }
    master.settle();
    let theirs = Folder::new("replica-slave");
    let slave = theirs.open(&[]);
    slave.start().unwrap();
    let at = copy_all(&master, &slave, 0, &[1_000]);
    slave.settle();
    master.delete_topic("gone").unwrap();
    master.send("kept", 0, b"new", b"");
    master.delete_topic("renewed").unwrap();
    let deletions = master.deletions();
    let end = |name: &str| deletions.iter().find(|row| row.0 == name).unwrap().1;
    let gone = vec![
        ("gone".to_owned(), 1),
        ("renewed".to_owned(), end("renewed")),
    ];
    let late = slave.follow_deletions(gone).unwrap();
    assert_eq!(late, ["renewed"], "not copied so far yet");
    assert_eq!(slave.read_all("renewed", 0), [b"old".to_vec()]);
    master.send("renewed", 0, b"new", b"");
    master.settle();
    copy_all(&master, &slave, at, &[1_000]);
    slave.settle();
    for _ in 0..2 {
        let late = slave.follow_deletions(deletions.clone()).unwrap();
        assert!(late.is_empty());
    }
    assert_eq!(slave.queues().max("gone", 0), 0);
    assert_eq!(slave.queues().max("gone", 1), 0);
    let check = |store: &Store| {
        assert!(store.read_all("gone", 0).is_empty());
        assert_eq!(store.read_all("renewed", 0), [b"new".to_vec()]);
        assert!(store.read_all("renewed", 1).is_empty());
        assert_eq!(
            store.read_all("kept", 0),
            [b"old".to_vec(), b"new".to_vec()]
        );
    };
    check(&slave);
    slave.close().unwrap();
    master.close().unwrap();
    // The note outlives the queues: they are made again from the log without the former messages.
    std::fs::remove_dir_all(theirs.path("consumequeue")).unwrap();
    let again = theirs.open(&[]);
    again.start().unwrap();
    again.settle();
    check(&again);
    again.close().unwrap();
}

#[test]
fn a_damaged_record_is_refused_and_copied_again_whatever_the_cuts() {
    let ours = Folder::new("replica-master");
    let master = master(&ours);
    let good = master.copyable(0, 20_000).unwrap().unwrap().to_vec();
    // In a body, a length of the topic, and the CRC itself: of the first record, and of a later one.
    let size = |at: usize| u32::from_be_bytes(good[at..at + 4].try_into().unwrap()) as usize;
    let later = (0..10).fold(0, |at, _| at + size(at));
    for cuts in [20_000, 777, 40, 7] {
        for damaged in [100, 8, later + 90, later + 11] {
            let theirs = Folder::new("replica-slave");
            let slave = theirs.open(&[]);
            slave.start().unwrap();
            let mut bad = good.clone();
            bad[damaged] ^= 1;
            let mut at = 0;
            let refused = loop {
                let piece = &bad[at..(at + cuts).min(bad.len())];
                match slave.replicate(at as u64, piece) {
                    Ok(end) => at = usize::try_from(end).unwrap(),
                    Err(error) => break error,
                }
            };
            assert!(refused.text.contains("is damaged"), "{refused}");
            let whole = slave.log().whole();
            assert!(whole <= damaged as u64, "cuts {cuts}, damage at {damaged}");
            assert_eq!(slave.log().written(), whole);
            assert_eq!(slave.vouched().unwrap(), whole);
            assert_eq!(slave.stats()["refused_copies"], 1);
            assert_eq!(
                copy_all(&master, &slave, whole, &[9_000]),
                master.log().written()
            );
            slave.settle();
            assert_eq!(slave.read_all("T", 0), master.read_all("T", 0));
            slave.close().unwrap();
        }
    }
    master.close().unwrap();
}
