//! The seams of the store, each with a second form in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::seam_help::{MemoryQueues, MemorySink};
use super::store_help::{check, config, copy, killed, message, send, Folder, Made};
use roquet_core::codec::record::{NewRecord, SYS_PREPARED};
use roquet_core::commit_log::{Prepared, PutStatus};
use roquet_core::recovery::checkpoint::Checkpoint;
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::get::GetStatus;
use roquet_core::store::open::Parts;
use roquet_core::store::Store;
use std::sync::Arc;

const LIGHT: [(&str, Value); 2] = [
    ("enableLmq", Value::Bool(true)),
    ("enableMultiDispatch", Value::Bool(true)),
];

fn open(folder: &Folder, queues: &MemoryQueues) -> Arc<Store> {
    let parts = Parts {
        queues: Some(Box::new(queues.clone())),
        ..Parts::default()
    };
    let store = Store::open_with(config(&folder.0, &LIGHT), Env::system(), parts).unwrap();
    store.start().unwrap();
    store
}

fn open_files(folder: &Folder) -> Arc<Store> {
    let store = folder.open(&LIGHT);
    store.start().unwrap();
    store
}

/// Plain, delayed, light and deleted messages, and half ones that have no unit.
fn fill(store: &Store) {
    for number in 0..40 {
        send(store, number);
    }
    store.send("SCHEDULE_TOPIC_XXXX", 2, b"later", b"DELAY\x013\x02");
    for _ in 0..3 {
        let names = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02";
        let record = message("U", 7, b"in two light queues", names);
        let mut prepared = Prepared::default().in_light_queues(true);
        prepared
            .push("U", &record, store.body_max(), false)
            .unwrap();
        assert_eq!(store.put(&mut prepared).status, PutStatus::Ok);
    }
    store.send("Gone", 0, b"deleted", b"");
    store.settle();
    assert_eq!(store.delete_topic("Gone").unwrap(), 1);
    assert_eq!(store.delete_topic("Gone").unwrap(), 0);
}

/// What readers can learn of a queue.
fn seen(store: &Store, topic: &str, queue_id: i32) -> (GetStatus, Vec<Vec<u8>>, Vec<u64>) {
    let status = |offset| store.read(topic, queue_id, offset, None).status;
    let all = store.read_all(topic, queue_id);
    assert_eq!(status(10_000), {
        if all.is_empty() {
            GetStatus::NoMessageInQueue
        } else {
            GetStatus::OffsetOverflowBadly
        }
    });
    let units = store.units(topic, queue_id, 0, 100).unwrap();
    let times: Vec<i64> = [0, i64::MAX]
        .into_iter()
        .chain(
            units
                .iter()
                .filter_map(|(at, ..)| store.log().head(*at).map(|head| head.store_timestamp)),
        )
        .collect();
    let found = times.iter().flat_map(|time| {
        [false, true].map(|upper| store.offset_by_time(topic, queue_id, *time, upper).unwrap())
    });
    (status(0), all, found.collect())
}

#[test]
fn queues_in_memory_serve_what_queues_in_files_serve() {
    let (files, memory) = (Folder::new("seam-files"), Folder::new("seam-memory"));
    let stores = [open_files(&files), open(&memory, &MemoryQueues::default())];
    for store in &stores {
        fill(store);
    }
    let [list, other] = stores.each_ref().map(|store| store.queues().list());
    assert_eq!(list, other);
    assert_eq!(list.len(), 6, "{list:?}");
    for (topic, queue_id, _, max) in list {
        let [one, two] = stores.each_ref().map(|store| seen(store, &topic, queue_id));
        assert_eq!((one.0, &one.1, one.2.len()), (two.0, &two.1, two.2.len()));
        assert_eq!(one.1.len() as u64, max);
        assert_eq!(one.2[..4], two.2[..4], "before and behind all");
    }
    let code = |store: &Store| store.units("SCHEDULE_TOPIC_XXXX", 2, 0, 1).unwrap()[0].2;
    assert!(
        code(&stores[0]) > 0 && code(&stores[1]) > 0,
        "when it is due"
    );
    for store in &stores {
        store.close().unwrap();
    }
    assert!(files.path("consumequeue").exists());
    assert!(!memory.path("consumequeue").exists());
}

#[test]
fn queues_that_keep_nothing_are_made_again_from_the_log() {
    let folder = Folder::new("seam-lost");
    let store = open(&folder, &MemoryQueues::default());
    fill(&store);
    let before = store.queues().list();
    store.close().unwrap();
    for _ in 0..2 {
        let again = open(&folder, &MemoryQueues::default());
        assert_eq!(again.queues().list(), before);
        check(&again, 40);
        again.close().unwrap();
    }
    // The file form takes over where the other ended.
    let files = open_files(&folder);
    assert_eq!(files.queues().list(), before);
    assert_eq!(send(&files, 40).queue_offset, 20);
    files.close().unwrap();
}

#[test]
fn queues_that_kept_everything_are_cut_where_a_killed_log_ends() {
    let folder = Folder::new("seam-kept");
    let queues = MemoryQueues::default();
    let store = open(&folder, &queues);
    for number in 0..10 {
        send(&store, number);
    }
    store.settle();
    store.flush().unwrap();
    store.checkpoint().unwrap();
    let left = Folder::new("seam-earlier");
    copy(&folder.0, &left.0);
    for number in 10..20 {
        send(&store, number);
    }
    store.settle();
    let whole = killed(&store, &folder);
    let again = open(&whole, &queues);
    check(&again, 20);
    again.close().unwrap();
    let shorter = open(&left, &queues);
    check(&shorter, 10);
    assert_eq!(send(&shorter, 10).queue_offset, 5);
    shorter.close().unwrap();
}

#[test]
fn queues_in_memory_begin_where_the_log_begins_after_messages_expire() {
    let folder = Folder::new("seam-expired");
    let store = open(&folder, &MemoryQueues::default());
    for number in 0..400 {
        send(&store, number);
    }
    store.settle();
    store.flush().unwrap();
    assert!(store.delete_expired(u64::MAX, 2).unwrap() > 0);
    let min = store.queues().min("T", 0);
    let unit = store.units("T", 0, min.cast_signed(), 1).unwrap()[0];
    assert!(min > 0 && unit.0 >= store.log().min());
    assert_eq!(
        store.read("T", 0, 0, None).status,
        GetStatus::OffsetTooSmall
    );
    assert_eq!(store.read_all("T", 0).len() as u64, 200 - min);
    store.close().unwrap();
}

fn open_with_sink(folder: &Folder, sink: &MemorySink) -> Arc<Store> {
    let parts = Parts {
        sinks: vec![Arc::new(sink.clone())],
        ..Parts::default()
    };
    Store::open_with(config(&folder.0, &[]), Env::system(), parts).unwrap()
}

/// Where the records of a log begin.
fn starts(store: &Store) -> Vec<u64> {
    let mut found = Vec::new();
    let mut at = store.log().min();
    while at < store.log().written() {
        match store.log().head(at) {
            Some(head) if head.physical_offset.cast_unsigned() == at => {
                found.push(at);
                at += u64::from(head.total_size);
            }
            _ => at = store.log().next_file_start(at),
        }
    }
    found
}

fn places(sink: &MemorySink) -> Vec<u64> {
    sink.records().into_iter().map(|(at, _)| at).collect()
}

fn promised(folder: &Folder) -> i64 {
    let bytes = std::fs::read(folder.path("checkpoint")).unwrap();
    Checkpoint::decode(&bytes).queue_offset
}

#[test]
fn a_sink_is_offered_each_record_once_in_the_order_of_the_log() {
    let folder = Folder::new("sink-all");
    let sink = MemorySink::default();
    let store = open_with_sink(&folder, &sink);
    store.start().unwrap();
    for number in 0..300 {
        send(&store, number);
    }
    let half = NewRecord {
        sys_flag: SYS_PREPARED,
        ..message("Half", 0, b"no queue has it", b"")
    };
    store.try_send(&half).unwrap();
    store.settle();
    assert_eq!(places(&sink), starts(&store));
    assert_eq!(sink.records().last().unwrap().1, "Half");
    assert_eq!(store.queues().max("Half", 0), 0);
    check(&store, 300);
    store.flush().unwrap();
    assert!(store.delete_expired(u64::MAX, 1).unwrap() > 0);
    assert_eq!(sink.taken().cleaned_at, [store.log().min()]);
    store.close().unwrap();
    let again = open_with_sink(&folder, &sink);
    assert_eq!(sink.taken().cut_at, [0, again.log().written()]);
    again.close().unwrap();
}

#[test]
fn the_slowest_sink_decides_what_the_checkpoint_promises() {
    let folder = Folder::new("sink-lags");
    let sink = MemorySink::default();
    let store = open_with_sink(&folder, &sink);
    store.start().unwrap();
    for number in 0..10 {
        send(&store, number);
    }
    store.settle();
    store.checkpoint().unwrap();
    let ninth = places(&sink)[9].cast_signed();
    assert_eq!(promised(&folder), ninth);
    sink.taken().lags = true;
    for number in 10..20 {
        send(&store, number);
    }
    store.settle();
    store.checkpoint().unwrap();
    assert_eq!(promised(&folder), ninth, "as far as the sink is durable");
    let left = killed(&store, &folder);
    // One that kept nothing is offered what the checkpoint does not promise.
    let fresh = MemorySink::default();
    let again = open_with_sink(&left, &fresh);
    assert_eq!(places(&fresh), starts(&again)[9..]);
    check(&again, 20);
    again.start().unwrap();
    again.checkpoint().unwrap();
    assert_eq!(
        promised(&left),
        places(&fresh).last().unwrap().cast_signed()
    );
    again.close().unwrap();
}

#[test]
fn a_sink_that_is_behind_catches_up_before_the_store_is_open() {
    let folder = Folder::new("sink-behind");
    let (store, placed) = super::store_help::filled(&folder, 40);
    store.close().unwrap();
    for (position, first) in [(0, 0), (placed[25].physical_offset, 25)] {
        let sink = MemorySink::default();
        sink.taken().position = Some(position);
        let again = open_with_sink(&folder, &sink);
        assert_eq!(places(&sink), starts(&again)[first..]);
        assert_eq!(again.dispatched(), again.log().written());
        check(&again, 40);
        again.close().unwrap();
    }
}

#[test]
fn a_sink_that_refuses_a_record_holds_all_up_until_it_takes_it() {
    let folder = Folder::new("sink-refuses");
    let sink = MemorySink::default();
    let store = open_with_sink(&folder, &sink);
    assert!(store.start_stepped().unwrap());
    for number in 0..6 {
        send(&store, number);
    }
    store.flush().unwrap();
    let third = starts(&store)[3];
    sink.taken().refuses_from = Some(third);
    for _ in 0..3 {
        assert!(store.dispatch().is_err());
        assert_eq!((store.dispatched(), sink.records().len()), (third, 3));
    }
    store.checkpoint().unwrap();
    assert_eq!(promised(&folder), starts(&store)[2].cast_signed());
    sink.taken().refuses_from = None;
    while store.dispatch().unwrap() {}
    assert_eq!(places(&sink), starts(&store));
    assert_eq!(store.queues().conflicts(), 0);
    check(&store, 6);
    store.close().unwrap();
}

#[test]
fn a_reader_dispatches_what_the_queues_take_in_memory_and_leaves_the_rest() {
    let folder = Folder::new("sink-ahead");
    let sink = MemorySink::default();
    let store = open_with_sink(&folder, &sink);
    assert!(store.start_stepped().unwrap());
    assert!(!store.dispatch_ahead(), "there is nothing");
    for number in 0..6 {
        send(&store, number);
    }
    let before = store.dispatched();
    assert!(store.dispatch_ahead());
    let queues = store.queues().list();
    assert_eq!(queues.iter().map(|(.., max)| max).sum::<u64>(), 6);
    assert!(!store.dispatch_ahead(), "the queues have everything");
    // A sink that may write a file is left to the thread, and decides how far all are.
    assert_eq!((store.dispatched(), sink.records().len()), (before, 0));
    let (news, _) = store.events().take();
    assert!(!news.is_empty(), "readers hear of it");
    while store.dispatch().unwrap() {}
    assert_eq!(places(&sink), starts(&store));
    assert!(store.events().take().0.is_empty(), "once");
    assert_eq!(store.queues().conflicts(), 0);
    store.close().unwrap();
    let again = open_with_sink(&folder, &sink);
    check(&again, 6);
    again.close().unwrap();
}

#[test]
fn a_reader_dispatches_nothing_that_needs_a_file_or_is_far_behind() {
    let folder = Folder::new("sink-ahead-bounds");
    let sink = MemorySink::default();
    let store = open_with_sink(&folder, &sink);
    assert!(store.start_stepped().unwrap());
    let small = message("Small", 0, b"x", b"");
    let mut taken = 0;
    for _ in 0..300 {
        store.try_send(&small).unwrap();
        taken += u64::from(store.dispatch_ahead());
    }
    // A page of units is written by the thread.
    assert_eq!((taken, store.queues().max("Small", 0)), (204, 204));
    while store.dispatch().unwrap() {}
    assert_eq!(store.queues().max("Small", 0), 300);
    let large = vec![b'x'; 3000];
    for _ in 0..24 {
        store.try_send(&message("Large", 0, &large, b"")).unwrap();
    }
    assert!(!store.dispatch_ahead(), "the thread has much to do");
    while store.dispatch().unwrap() {}
    assert_eq!(store.queues().max("Large", 0), 24);
    store.close().unwrap();
}
