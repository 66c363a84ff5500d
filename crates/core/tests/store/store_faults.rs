//! A store on a disk that fails, fills up or loses power; no threads, each step is called.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::common::sim_disk::{Fault, Op, SimDisk};
use super::store_help::{config, message, Made};
use roquet_core::commit_log::PutStatus;
use roquet_core::disk::Disk;
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::error::{ErrorKind, StoreError};
use roquet_core::store::events::Watcher;
use roquet_core::store::get::GetStatus;
use roquet_core::store::Store;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

const SMALL: (&str, Value) = ("mappedFileSizeCommitLog", Value::Int(8_192));
const LOG: &str = "/s/commitlog/00000000000000000000";

fn sync_flush() -> (&'static str, Value) {
    ("flushDiskType", Value::Text("SYNC_FLUSH".to_owned()))
}

fn try_open(disk: &SimDisk, more: &[(&str, Value)]) -> Result<Arc<Store>, StoreError> {
    try_open_in(7, disk, more)
}

fn try_open_in(
    boot: u64,
    disk: &SimDisk,
    more: &[(&str, Value)],
) -> Result<Arc<Store>, StoreError> {
    let time = AtomicI64::new(1_700_000_000_000);
    let env = Env {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(move || time.fetch_add(1, Ordering::Relaxed)),
        boot,
        ..Env::system()
    };
    Store::open(config(Path::new("/s"), more), env)
}

fn open(disk: &SimDisk, more: &[(&str, Value)]) -> Arc<Store> {
    let store = try_open(disk, more).unwrap();
    assert!(store.start_stepped().unwrap());
    store
}

/// Opens what a power loss has left.
fn reopen(disk: &SimDisk, seed: u64) -> Arc<Store> {
    let after = disk.after_power_loss(&mut super::common::Rng(seed));
    try_open_in(8, &after, &[SMALL]).unwrap()
}

fn put(store: &Store, body: &[u8]) -> Result<i64, PutStatus> {
    let placed = store.try_send(&message("T", 0, body, b"KEYS\x01k\x02"))?;
    Ok(placed.queue_offset)
}

fn drain(store: &Store) {
    while store.dispatch().unwrap() {}
}

fn fail(op: Op, nth: u64, errno: i32, sticky: bool) -> Fault {
    Fault {
        op: Some(op),
        nth,
        sticky,
        errno,
    }
}

#[test]
fn zeros_go_ahead_of_small_messages_that_are_synced_one_by_one() {
    let writes = |disk: &SimDisk, store: &Store, body: usize| {
        let before = disk.count(Op::Write);
        put(store, &vec![7; body]).unwrap();
        disk.count(Op::Write) - before
    };
    let file = || ("mappedFileSizeCommitLog", Value::Int(256 << 10));
    let disk = SimDisk::new();
    let store = open(&disk, &[file(), sync_flush()]);
    assert_eq!(writes(&disk, &store, 1_000), 2);
    assert_eq!(writes(&disk, &store, 1_000), 1);
    for _ in 0..4 {
        // Too long to be worth it, beyond the zeros.
        assert_eq!(writes(&disk, &store, 20_000), 1);
    }
    assert_eq!(writes(&disk, &store, 1_000), 2);
    store.flush().unwrap();
    drain(&store);
    let after = disk.after_power_loss(&mut super::common::Rng(1));
    let again = try_open_in(8, &after, &[file(), sync_flush()]).unwrap();
    assert_eq!(again.log().written(), store.log().written());
    assert_eq!(again.read_all("T", 0).len(), 7);

    let disk = SimDisk::new();
    let store = open(&disk, &[file()]);
    assert_eq!(
        writes(&disk, &store, 1_000),
        1,
        "nothing is synced one by one"
    );
}

#[test]
fn a_flush_in_place_is_news_only_for_those_who_wait() {
    let disk = SimDisk::new();
    let store = open(&disk, &[SMALL, sync_flush()]);
    let news = |store: &Store| {
        put(store, b"x").unwrap();
        let end = store.flush_in_place().unwrap();
        assert_eq!(end, store.log().written());
        readable(store.events().fd())
    };
    assert!(!news(&store));
    // Who began to wait meanwhile asks for a flush, of which there is nothing left to do.
    store.flush().unwrap();
    assert!(readable(store.events().fd()));
    store.events().take();
    store.flush().unwrap();
    assert!(!readable(store.events().fd()));
    store.events().set_flush_awaited(true);
    assert!(news(&store));
    store.events().take();
    store.events().set_flush_awaited(false);
    assert!(!news(&store));
    put(&store, b"x").unwrap();
    store.flush().unwrap();
    assert!(readable(store.events().fd()));
}

fn readable(fd: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[test]
fn a_failed_sync_ends_all_promises() {
    let disk = SimDisk::new();
    let store = open(&disk, &[SMALL]);
    put(&store, b"safe").unwrap();
    let flushed = store.flush().unwrap();
    put(&store, b"lost").unwrap();
    drain(&store);
    disk.set_fault(Some(fail(Op::Sync, 0, libc::EIO, false)));
    assert_eq!(store.flush().unwrap_err().kind, ErrorKind::Io);
    assert_eq!(disk.count(Op::Sync), 1);
    // The disk would say yes now; nobody asks it again.
    assert!(store.flush().is_err());
    assert!(store.checkpoint().is_err());
    assert_eq!(disk.count(Op::Sync), 1);
    assert_eq!(store.log().flushed(), flushed);
    assert_eq!(put(&store, b"more"), Err(PutStatus::ServiceNotAvailable));
    let (taken, why) = store.writable();
    assert!(!taken && why.contains("cannot sync"), "{why}");
    let (_, failure) = store.events().take();
    assert!(failure.unwrap().contains(LOG));
    assert_eq!(store.read_all("T", 0), [&b"safe"[..], b"lost"]);
    assert!(store.close().is_err());

    let again = reopen(&disk, 1);
    assert_eq!(again.read_all("T", 0)[0], b"safe");
}

#[test]
fn messages_shown_after_a_failed_sync_and_a_kill_outlive_a_power_loss() {
    let disk = SimDisk::new();
    let store = open(&disk, &[SMALL]);
    put(&store, b"safe").unwrap();
    store.flush().unwrap();
    store.checkpoint().unwrap();
    put(&store, b"unsure").unwrap();
    drain(&store);
    disk.set_fault(Some(fail(Op::Sync, 0, libc::EIO, false)));
    assert!(store.flush().is_err());
    assert!(store.close().is_err());
    disk.release_locks();
    // The kernel takes the pages for written: only what is written again is synced.
    let again = open(&disk, &[SMALL]);
    drain(&again);
    assert_eq!(again.read_all("T", 0), [&b"safe"[..], b"unsure"]);
    for seed in 0..8 {
        let after = reopen(&disk, seed);
        assert_eq!(after.read_all("T", 0), [&b"safe"[..], b"unsure"], "{seed}");
    }
}

#[test]
fn a_full_disk_refuses_clearly_and_passes() {
    let disk = SimDisk::new();
    let store = open(&disk, &[SMALL]);
    let mut sent = 0;
    put(&store, &[b'x'; 500]).unwrap();
    disk.set_capacity(Some(0));
    let status = loop {
        match put(&store, &[b'x'; 500]) {
            Ok(_) => sent += 1,
            Err(status) => break status,
        }
    };
    assert_eq!((status, sent), (PutStatus::CreateFileFailed, 12));
    // A short message still fits into the old file.
    assert_eq!(put(&store, b"short"), Ok(13));
    assert_eq!(store.dispatch().map_err(|error| error.kind), Ok(true));
    assert_eq!(store.read("T", 0, 0, None).status, GetStatus::Found);
    assert!(store.flush().is_ok());
    disk.set_capacity(None);
    assert_eq!(put(&store, &[b'y'; 500]), Ok(14));
    drain(&store);
    assert_eq!(store.read_all("T", 0).len(), 15);
    store.close().unwrap();
    assert_eq!(open(&disk, &[SMALL]).read_all("T", 0).len(), 15);
}

#[test]
fn a_write_that_fails_leaves_no_trace() {
    for (errno, lasting) in [(libc::ENOSPC, false), (libc::EIO, true)] {
        let disk = SimDisk::new();
        let store = open(&disk, &[SMALL]);
        put(&store, b"first").unwrap();
        let end = store.log().written();
        disk.set_fault(Some(fail(Op::Write, 0, errno, false)));
        assert_eq!(put(&store, b"lost"), Err(PutStatus::ServiceNotAvailable));
        assert_eq!(disk.faults_hit(), 1);
        assert_eq!(store.log().written(), end);
        assert_eq!(store.log().next_offset("T", 0), 1);
        if lasting {
            assert_eq!(put(&store, b"second"), Err(PutStatus::ServiceNotAvailable));
        } else {
            assert_eq!(put(&store, b"second"), Ok(1));
        }
        drain(&store);
        assert_eq!(store.read_all("T", 0).len(), if lasting { 1 } else { 2 });
    }
}

#[test]
fn queues_that_cannot_be_written_wait_for_space() {
    let disk = SimDisk::new();
    let store = open(&disk, &[]);
    for _ in 0..300 {
        put(&store, b"x").unwrap();
    }
    disk.set_fault(Some(fail(Op::Create, 0, libc::ENOSPC, true)));
    let mut seen = 0;
    let error = loop {
        match store.dispatch() {
            Ok(true) => seen += 1,
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
        assert!(seen < 1_000);
    };
    assert_eq!(error.unwrap().kind, ErrorKind::DiskFull);
    let behind = store.queues().max("T", 0);
    assert!(behind > 0 && behind < 300, "{behind}");
    assert_eq!(store.read("T", 0, 0, None).status, GetStatus::Found);
    disk.set_fault(None);
    drain(&store);
    assert_eq!(store.read_all("T", 0).len(), 300);
    store.close().unwrap();
}

#[test]
fn lack_of_descriptors_at_a_checkpoint_passes() {
    let disk = SimDisk::new();
    let store = open(&disk, &[]);
    put(&store, b"x").unwrap();
    drain(&store);
    disk.set_fault(Some(fail(Op::Create, 0, libc::EMFILE, true)));
    assert_eq!(
        store.checkpoint().unwrap_err().kind,
        ErrorKind::NoDescriptor
    );
    disk.set_fault(None);
    put(&store, b"y").unwrap();
    store.checkpoint().unwrap();
}

#[test]
fn a_topic_is_not_deleted_when_the_disk_has_no_room_for_the_note() {
    let disk = SimDisk::new();
    let store = open(&disk, &[SMALL]);
    put(&store, b"kept").unwrap();
    drain(&store);
    disk.set_capacity(Some(0));
    let refused = store.delete_topic("T").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::DiskFull);
    assert_eq!(store.read_all("T", 0), [b"kept"]);
    assert_eq!(put(&store, b"more"), Ok(1));
    disk.set_capacity(None);
    assert_eq!(store.delete_topic("T").unwrap(), 1);
    assert_eq!(put(&store, b"new"), Ok(0));
    store.close().unwrap();
}

#[test]
fn what_is_not_durable_is_not_shown_with_sync_flush() {
    let disk = SimDisk::new();
    let store = open(&disk, &[sync_flush()]);
    put(&store, b"x").unwrap();
    assert!(!store.dispatch().unwrap());
    assert_eq!(store.queues().max("T", 0), 0);
    store.flush().unwrap();
    assert!(store.dispatch().unwrap());
    assert_eq!(store.read_all("T", 0), [b"x"]);
}

#[test]
fn every_error_while_opening_and_writing_is_clean() {
    for nth in 0.. {
        let disk = SimDisk::new();
        disk.set_fault(Some(Fault {
            op: None,
            nth,
            sticky: false,
            errno: libc::EIO,
        }));
        let acknowledged = script(&disk);
        let clean = disk.faults_hit() == 0;
        disk.set_fault(None);
        let store = reopen(&disk, nth);
        let found = store.read_all("T", 0);
        assert!(found.len() >= acknowledged, "fault {nth}: {acknowledged}");
        for (number, body) in found.iter().enumerate() {
            assert_eq!(body, &body_of(number), "fault {nth}");
        }
        let next = store.log().next_offset("T", 0);
        assert_eq!(next, i64::try_from(found.len()).unwrap(), "fault {nth}");
        if clean {
            assert_eq!(found.len(), 40);
            break;
        }
        assert!(nth < 2_000);
    }
}

fn body_of(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); 400]
}

/// Writes 40 messages and stops at the first trouble; returns how many are surely durable.
fn script(disk: &SimDisk) -> usize {
    let Ok(store) = try_open(disk, &[SMALL]) else {
        return 0;
    };
    if store.start_stepped().is_err() {
        return 0;
    }
    let mut durable = 0;
    for number in 0..40 {
        if put(&store, &body_of(number)).is_err() {
            break;
        }
        if number % 5 == 4 && store.flush().is_ok() {
            durable = number + 1;
        }
        if number % 10 == 9 && (store.dispatch().is_err() || store.checkpoint().is_err()) {
            break;
        }
        if number % 16 == 15 {
            // An error here is met again by the append.
            let _ = store.log().make_next();
        }
    }
    // Errors have been counted by the disk; what matters is what it holds.
    if store.close().is_ok() {
        durable = durable.max(store.read_durable());
    }
    durable
}

trait Durable {
    fn read_durable(&self) -> usize;
}

impl Durable for Store {
    /// Messages in the queue, all durable after an orderly close.
    fn read_durable(&self) -> usize {
        usize::try_from(self.queues().max("T", 0)).unwrap()
    }
}

/// Makes the disk say that so many per cent of it are in use.
fn fill_to(disk: &SimDisk, store: &Store, percent: u64) {
    let (free, total) = disk.space(Path::new("/s")).unwrap();
    disk.set_capacity(Some(((total - free) * 100).div_ceil(percent)));
    assert_eq!(store.disk_fill(), percent);
    store.tend();
}

#[test]
fn nothing_is_taken_above_the_level_of_a_full_disk() {
    for (level, full) in [(None, 90), (Some(100), 90), (Some(60), 60), (Some(0), 35)] {
        let disk = SimDisk::new();
        // What is in use is counted from now on.
        disk.set_capacity(Some(1 << 40));
        let given = level.map(|level| ("diskSpaceWarningLevelRatio", Value::Int(level)));
        let settings: Vec<_> = given.into_iter().chain([SMALL]).collect();
        let store = open(&disk, &settings);
        put(&store, b"first").unwrap();
        for (used, taken) in [
            (full - 1, true),
            (full, true),
            (full + 1, false),
            (full, true),
        ] {
            fill_to(&disk, &store, used);
            assert_eq!(store.writable().0, taken, "{level:?} at {used} %");
            let done = put(&store, b"more");
            assert_eq!(done.is_ok(), taken, "{level:?} at {used} %");
            if let Err(status) = done {
                assert_eq!(status, PutStatus::ServiceNotAvailable);
                assert_eq!(store.writable().1, "the disk is full");
            }
        }
        drain(&store);
        assert_eq!(store.read_all("T", 0).len(), 4);
    }
}

#[test]
fn levels_count_within_the_bounds_of_java() {
    for (given, want) in [
        (None, [90, 85, 75]),
        (Some(0), [35, 30, 10]),
        (Some(50), [50, 50, 50]),
        (Some(100), [90, 85, 95]),
    ] {
        let names = [
            "diskSpaceWarningLevelRatio",
            "diskSpaceCleanForciblyRatio",
            "diskMaxUsedSpaceRatio",
        ];
        let settings: Vec<_> = given
            .into_iter()
            .flat_map(|level| names.map(|name| (name, Value::Int(level))))
            .collect();
        let stats = open(&SimDisk::new(), &settings).stats();
        let levels = ["disk_full_level", "disk_clean_level", "disk_used_level"];
        assert_eq!(levels.map(|name| stats[name]), want, "{given:?}");
    }
}

#[test]
fn the_newest_store_time_is_known_after_every_start() {
    let disk = SimDisk::new();
    let store = open(&disk, &[SMALL]);
    assert_eq!(store.stats()["newest_store_time"], 0);
    for _ in 0..3 {
        put(&store, b"x").unwrap();
    }
    drain(&store);
    let newest = store.stats()["newest_store_time"];
    assert!(newest > 1_700_000_000_000);
    store.close().unwrap();
    let again = open(&disk, &[SMALL]);
    assert_eq!(again.stats()["newest_store_time"], newest);
    drop(again);
    // Not closed: as after a kill.
    assert_eq!(open(&disk, &[SMALL]).stats()["newest_store_time"], newest);
}

/// Panics on the flush thread, as a defect there would.
struct Panics;

impl Watcher for Panics {
    fn flushed(&self, _offset: u64) {
        panic!("planted");
    }
}

#[test]
fn a_store_whose_thread_panics_takes_no_more_messages() {
    let disk = SimDisk::new();
    let store = try_open(&disk, &[sync_flush()]).unwrap();
    store.watch(Arc::new(Panics));
    store.start().unwrap();
    store.send("T", 0, b"the flush of this one panics", b"");
    while store.writable().0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let refused = store.writable().1;
    assert!(
        refused.contains("the thread store-flush has panicked: planted"),
        "{refused}"
    );
    let kept = store.try_send(&message("T", 0, b"later", b""));
    assert_eq!(kept, Err(PutStatus::ServiceNotAvailable));
    assert!(store.flush().is_err(), "nothing becomes durable any more");
    assert!(store.close().is_err());
}
