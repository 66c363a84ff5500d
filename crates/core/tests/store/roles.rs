//! A log that changes hands while it is open: never two who append, and nothing is given out twice.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::store_help::{message, Folder, Made};
use roquet_core::commit_log::PutStatus;
use roquet_core::store::config::Value;
use roquet_core::store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

fn opened(folder: &Folder) -> Arc<Store> {
    let store = folder.open(&[]);
    store.start().unwrap();
    store
}

/// Copies all that one log has and the other lacks, in pieces of `cut` bytes.
fn copy(from: &Store, to: &Store, cut: u64) {
    from.settle();
    let mut at = to.log().written();
    while let Some(lease) = from.copyable(at, cut).unwrap() {
        at = to.replicate(at, &lease).unwrap();
    }
}

#[test]
fn a_copy_refuses_messages_and_an_own_log_refuses_copies() {
    let folder = Folder::new("roles-refuse");
    let store = opened(&folder);
    store.send("T", 0, b"before", b"");
    let end = store.follow_another().unwrap();
    assert_eq!(end, store.log().written());
    let refused = store.try_send(&message("T", 0, b"late", b""));
    assert_eq!(refused.unwrap_err(), PutStatus::ServiceNotAvailable);
    assert_eq!(store.lead().unwrap(), end);
    let refused = store.replicate(end, &[0; 8]).unwrap_err();
    assert!(refused.to_string().contains("not a copy any more"));
    assert_eq!(store.send("T", 0, b"after", b"").queue_offset, 1);
    store.close().unwrap();
}

#[test]
fn queues_go_on_behind_what_was_copied() {
    let (ours, theirs) = (Folder::new("roles-one"), Folder::new("roles-two"));
    let stores = [opened(&ours), opened(&theirs)];
    let mut sent = 0;
    for turn in 0..20_usize {
        let (leader, other) = (&stores[turn % 2], &stores[1 - turn % 2]);
        other.follow_another().unwrap();
        leader.lead().unwrap();
        for _ in 0..7 {
            assert_eq!(leader.send("T", 3, &[b'x'; 400], b"").queue_offset, sent);
            sent += 1;
        }
        let placed = leader.send(&format!("U{turn}"), 0, b"other", b"");
        assert_eq!(placed.queue_offset, 0);
        copy(leader, other, 100 + turn as u64);
    }
    for store in &stores {
        store.settle();
        assert_eq!(store.read_all("T", 3).len(), 140);
    }
    assert_eq!(stores[0].queues().list(), stores[1].queues().list());
    for store in &stores {
        store.close().unwrap();
    }
}

#[test]
fn half_a_record_is_taken_back_before_a_copy_leads() {
    for flush in ["ASYNC_FLUSH", "SYNC_FLUSH"] {
        let (ours, theirs) = (Folder::new("roles-half"), Folder::new("roles-half-of"));
        let master = opened(&ours);
        let slave = theirs.open(&[("flushDiskType", Value::Text(flush.to_owned()))]);
        slave.start().unwrap();
        slave.follow_another().unwrap();
        master.send("T", 0, &[b'x'; 500], b"");
        let whole = master.log().written();
        master.send("T", 0, &[b'y'; 500], b"");
        master.settle();
        let lease = master.copyable(0, whole + 77).unwrap().unwrap();
        assert_eq!(slave.replicate(0, &lease).unwrap(), whole + 77);
        assert_eq!(slave.lead().unwrap(), whole);
        assert_eq!(slave.send("T", 0, b"own", b"").queue_offset, 1);
        slave.flush().unwrap();
        slave.settle();
        assert_eq!(slave.read_all("T", 0).len(), 2);
        slave.close().unwrap();
        let again = opened(&theirs);
        assert_eq!(again.recovered().cut_bytes, 0);
        assert_eq!(again.read_all("T", 0).len(), 2);
        again.close().unwrap();
        master.close().unwrap();
    }
}

#[test]
fn half_a_record_is_taken_back_before_a_copy_looks_for_its_master_again() {
    for flush in ["ASYNC_FLUSH", "SYNC_FLUSH"] {
        let (ours, theirs) = (Folder::new("settle-half"), Folder::new("settle-half-of"));
        let master = opened(&ours);
        let slave = theirs.open(&[("flushDiskType", Value::Text(flush.to_owned()))]);
        slave.start().unwrap();
        slave.follow_another().unwrap();
        assert_eq!(slave.settle_copies().unwrap(), 0);
        master.send("T", 0, &[b'x'; 500], b"");
        let whole = master.log().written();
        master.send("T", 0, &[b'y'; 500], b"");
        master.settle();
        let lease = master.copyable(0, whole + 77).unwrap().unwrap();
        assert_eq!(slave.replicate(0, &lease).unwrap(), whole + 77);
        assert_eq!(slave.settle_copies().unwrap(), whole);
        assert_eq!(slave.log().written(), whole);
        assert_eq!(slave.log().flushed(), whole, "it is durable");
        assert_eq!(slave.vouched().unwrap(), whole);
        // It is a copy still, and goes on with the whole record.
        copy(&master, &slave, 4096);
        slave.settle();
        assert_eq!(slave.read_all("T", 0).len(), 2);
        assert_eq!(slave.settle_copies().unwrap(), master.log().written());
        slave.close().unwrap();
        master.close().unwrap();
    }
}

#[test]
fn a_topic_that_was_deleted_before_the_copy_leads_begins_anew() {
    let (ours, theirs) = (Folder::new("roles-gone"), Folder::new("roles-gone-of"));
    let (master, slave) = (opened(&ours), opened(&theirs));
    for _ in 0..5 {
        master.send("Gone", 0, b"x", b"");
    }
    copy(&master, &slave, 4096);
    slave.settle();
    slave.close().unwrap();
    // What the start found is a floor, but for a topic that is deleted after it.
    let slave = opened(&theirs);
    slave.follow_another().unwrap();
    slave.delete_topic("Gone").unwrap();
    master.send("T", 0, b"x", b"");
    copy(&master, &slave, 4096);
    slave.lead().unwrap();
    assert_eq!(slave.send("Gone", 0, b"new", b"").queue_offset, 0);
    assert_eq!(slave.send("T", 0, b"new", b"").queue_offset, 1);
    slave.close().unwrap();
    master.close().unwrap();
}

#[test]
fn no_message_comes_behind_the_end_that_a_change_was_told() {
    let folder = Folder::new("roles-race");
    let store = opened(&folder);
    for _ in 0..50 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for queue in 0..3 {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = store.try_send(&message("T", queue, b"racing", b""));
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            let end = store.follow_another().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert_eq!(store.log().written(), end);
            stop.store(true, Ordering::Relaxed);
        });
        store.lead().unwrap();
    }
    store.close().unwrap();
}
