//! Light queues: offsets given under the lock, units by the dispatcher, and what restarts make of them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::store_help::{copy, message, wanted, Folder, Made};
use roquet_core::codec::properties;
use roquet_core::codec::record::{self, Parsed};
use roquet_core::commit_log::{Prepared, PutStatus};
use roquet_core::store::config::Value;
use roquet_core::store::get::GetStatus;
use roquet_core::store::Store;
use std::sync::Arc;

const ON: [(&str, Value); 2] = [
    ("enableLmq", Value::Bool(true)),
    ("enableMultiDispatch", Value::Bool(true)),
];

fn put(store: &Store, topic: &'static str, body: &[u8], properties: &[u8]) -> PutStatus {
    let mut prepared = Prepared::default().in_light_queues(store.has_light_queues());
    if let Err(status) = prepared.push(
        topic,
        &message(topic, 1, body, properties),
        store.body_max(),
        false,
    ) {
        return status;
    }
    store.put(&mut prepared).status
}

fn names(list: &str) -> Vec<u8> {
    format!("TAGS\x01A\x02WAIT\x01true\x02INNER_MULTI_DISPATCH\x01{list}\x02INNER_MULTI_QUEUE_OFFSET\x01999\x02")
        .into_bytes()
}

/// Bodies and noted offsets of what a queue has.
fn read(store: &Store, topic: &str) -> Vec<(String, String)> {
    let got = store.get(wanted(topic, 0, 0)).unwrap();
    let mut found = Vec::new();
    for part in &got.parts {
        let mut at = 0;
        while let Parsed::Record { view, size } = record::parse(part, at, true) {
            let offsets = properties::find(view.properties, b"INNER_MULTI_QUEUE_OFFSET");
            assert_eq!(
                properties::find(view.properties, b"WAIT"),
                Some(&b"true"[..])
            );
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push((text(view.body), text(offsets.unwrap())));
            at += size as usize;
            if at >= part.len() {
                break;
            }
        }
    }
    found
}

fn some(folder: &Folder) -> Arc<Store> {
    let store = folder.open(&ON);
    store.start().unwrap();
    for (body, list) in [
        ("one", "%LMQ%a,%LMQ%b"),
        ("two", "%LMQ%b"),
        ("three", "%LMQ%a,%LMQ%a"),
        ("four", "%LMQ%a"),
    ] {
        assert_eq!(
            put(&store, "T", body.as_bytes(), &names(list)),
            PutStatus::Ok
        );
    }
    store.settle();
    store
}

fn expect_some(store: &Store) {
    let rows = |list: &[(&str, &str)]| {
        let each = list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        each.collect::<Vec<_>>()
    };
    assert_eq!(
        read(store, "%LMQ%a"),
        rows(&[("one", "0,0"), ("three", "1,1"), ("four", "2")])
    );
    assert_eq!(read(store, "%LMQ%b"), rows(&[("one", "0,0"), ("two", "1")]));
    assert_eq!(store.queues().max("T", 1), 4);
}

#[test]
fn a_message_is_in_each_light_queue_that_it_names() {
    let folder = Folder::new("light");
    let store = some(&folder);
    expect_some(&store);
    assert_eq!(store.light_queues(), 2);
    let units = store.units("%LMQ%a", 0, 0, 10).unwrap();
    let own = store.units("T", 1, 0, 10).unwrap();
    assert_eq!(units, [own[0], own[2], own[3]]);
    store.close().unwrap();
}

#[test]
fn an_append_of_several_gives_offsets_in_order() {
    let folder = Folder::new("light-many");
    let store = folder.open(&ON);
    store.start().unwrap();
    let mut prepared = Prepared::default().in_light_queues(true);
    let texts: Vec<Vec<u8>> = (0..300)
        .map(|number| match number % 3 {
            0 => names("%LMQ%a"),
            1 => b"TAGS\x01A\x02".to_vec(),
            _ => names("%LMQ%b,%LMQ%a"),
        })
        .collect();
    // More than one file of the log.
    let body = vec![b'x'; 700];
    for text in &texts {
        let record = message("T", 1, &body, text);
        prepared
            .push("T", &record, store.body_max(), false)
            .unwrap();
    }
    let done = store.put(&mut prepared);
    assert_eq!((done.status, done.placed.len()), (PutStatus::Ok, 300));
    store.settle();
    assert!(store.log().segments().len() > 1);
    let offsets: Vec<String> = read(&store, "%LMQ%a")
        .into_iter()
        .map(|(_, it)| it)
        .collect();
    let wanted: Vec<String> = (0..100)
        .flat_map(|n| [(2 * n).to_string(), format!("{n},{}", 2 * n + 1)])
        .collect();
    assert_eq!(offsets[..], wanted[..offsets.len()]);
    assert_eq!(store.queues().max("%LMQ%a", 0), 200);
    assert_eq!(store.queues().max("T", 1), 300);
    store.close().unwrap();
}

#[test]
fn what_is_no_light_queue_is_refused_and_leaves_no_trace() {
    let folder = Folder::new("light-bad");
    let store = folder.open(&ON);
    store.start().unwrap();
    for list in ["x", "%LMQ%", "%LMQ%a,x", "%LMQ%../../x", ","] {
        assert_eq!(
            put(&store, "T", b"x", &names(list)),
            PutStatus::MessageIllegal
        );
    }
    assert_eq!(
        put(&store, "%LMQ%a", b"x", b""),
        PutStatus::MessageIllegal,
        "its offsets are those of messages of other topics"
    );
    store.settle();
    assert_eq!((store.queues().list().len(), store.light_queues()), (0, 0));
    store.close().unwrap();
}

#[test]
fn without_the_settings_nothing_is_added() {
    for more in [&ON[..1], &ON[1..], &[]] {
        let folder = Folder::new("light-off");
        let store = folder.open(more);
        store.start().unwrap();
        assert_eq!(put(&store, "T", b"x", &names("%LMQ%a")), PutStatus::Ok);
        store.settle();
        assert_eq!(store.queues().list().len(), 1);
        store.close().unwrap();
    }
}

#[test]
fn lost_light_queues_are_made_again_from_the_log() {
    for clean in [true, false] {
        let folder = Folder::new("light-again");
        let store = some(&folder);
        let crashed = Folder::new("light-crashed");
        if clean {
            store.close().unwrap();
        } else {
            store.flush().unwrap();
        }
        copy(&folder.0, &crashed.0);
        for name in ["%LMQ%a", "%LMQ%b"] {
            let _ = std::fs::remove_dir_all(crashed.path("consumequeue").join(name));
        }
        let again = crashed.open(&ON);
        expect_some(&again);
        again.start().unwrap();
        assert_eq!(put(&again, "T", b"five", &names("%LMQ%b")), PutStatus::Ok);
        again.settle();
        let last = read(&again, "%LMQ%b").pop().unwrap();
        assert_eq!(last, ("five".to_owned(), "2".to_owned()));
        again.close().unwrap();
        let _ = store.close();
    }
}

#[test]
fn a_copy_of_the_log_has_the_same_light_queues() {
    let folder = Folder::new("light-master");
    let master = some(&folder);
    let other = Folder::new("light-slave");
    let slave = other.open(&ON);
    slave.start().unwrap();
    let log = master.log().lease(0, master.log().written()).unwrap();
    // In pieces that end inside records.
    let mut at = 0;
    for piece in log.chunks(37) {
        slave.replicate(at, piece).unwrap();
        at += piece.len() as u64;
    }
    slave.settle();
    expect_some(&slave);
    slave.close().unwrap();
    master.close().unwrap();
}

#[test]
fn a_light_queue_goes_with_its_last_message_and_goes_on_where_it_ended() {
    let folder = Folder::new("light-expire");
    let store = some(&folder);
    let body = vec![b'x'; 60_000];
    for _ in 0..5 {
        assert_eq!(put(&store, "T", &body, &names("%LMQ%c")), PutStatus::Ok);
    }
    store.settle();
    store.flush().unwrap();
    assert!(store.delete_expired(u64::MAX, 10).unwrap() > 0);
    assert!(!folder.path("consumequeue").join("%LMQ%a").exists());
    assert_eq!(store.queues().max("%LMQ%a", 0), 0);
    assert!(store.queues().max("%LMQ%c", 0) == 5 && store.knows_light_queue("%LMQ%a"));
    assert_eq!(put(&store, "T", b"new", &names("%LMQ%a")), PutStatus::Ok);
    store.settle();
    let got = store.get(wanted("%LMQ%a", 0, 3)).unwrap();
    assert_eq!((got.status, got.min, got.max), (GetStatus::Found, 3, 4));
    store.close().unwrap();
}

#[test]
fn offsets_of_a_queue_are_not_believed_beside_its_record() {
    let folder = Folder::new("light-lies");
    let store = some(&folder);
    store.close().unwrap();
    drop(store);
    // The unit at offset 1 names the first message.
    let file = folder.path("consumequeue/%LMQ%a/0/00000000000000000000");
    let first = std::fs::read(&file).unwrap()[..20].to_vec();
    super::store_help::damage(&file, 20, &first);
    let store = folder.open(&ON);
    let bodies: Vec<String> = read(&store, "%LMQ%a")
        .into_iter()
        .map(|(it, _)| it)
        .collect();
    assert_eq!(bodies, ["one", "four"]);
    store.close().unwrap();
}

/// What becomes of one append of messages that name these light queues.
fn put_all(store: &Store, lists: &[&str], accepted: bool) -> (PutStatus, usize) {
    let mut prepared = Prepared::default().in_light_queues(true);
    prepared.as_accepted(accepted);
    for list in lists {
        let text = names(list);
        let record = message("T", 1, b"x", &text);
        prepared
            .push("T", &record, store.body_max(), false)
            .unwrap();
    }
    let done = store.put(&mut prepared);
    (done.status, done.placed.len())
}

#[test]
fn an_append_makes_no_more_light_queues_than_there_may_be() {
    let folder = Folder::new("light-quota");
    let quota = [
        ON[0].clone(),
        ON[1].clone(),
        ("enableLmqQuota", Value::Bool(true)),
        ("maxLmqConsumeQueueNum", Value::Int(3)),
    ];
    let store = folder.open(&quota);
    store.start().unwrap();
    let full = PutStatus::LightQueuesFull;
    // The second of them has one name too many for what the first leaves.
    let lists = ["%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%c,%LMQ%d", "%LMQ%a"];
    assert_eq!(put_all(&store, &lists, false), (full, 1));
    assert_eq!(store.light_queues(), 2);
    let lists = ["%LMQ%a,%LMQ%a", "%LMQ%c", "%LMQ%c,%LMQ%b", "%LMQ%d"];
    assert_eq!(put_all(&store, &lists, false), (full, 3));
    assert_eq!(store.light_queues(), 3);
    assert_eq!(put_all(&store, &["%LMQ%d"], false), (full, 0));
    assert_eq!(
        put_all(&store, &["%LMQ%a,%LMQ%c"], false),
        (PutStatus::Ok, 1)
    );
    store.settle();
    assert_eq!(store.queues().max("T", 1), 5);
    // What was accepted before is delivered.
    assert_eq!(put_all(&store, &["%LMQ%d"], true), (PutStatus::Ok, 1));
    assert_eq!(store.light_queues(), 4);
    store.settle();
    let mut tuned = store.tuned();
    tuned.lights_max = 5;
    store.tune(tuned);
    assert_eq!(put_all(&store, &["%LMQ%e"], false), (PutStatus::Ok, 1));
    store.close().unwrap();
}
