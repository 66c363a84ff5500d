//! A store on a real disk: put, get, events, close, open again.

use super::store_help::{Folder, Made};
use roquet_core::store::error::ErrorKind;
use roquet_core::store::get::GetStatus;

#[test]
fn put_get_close_open() {
    let folder = Folder::new("basic");
    let store = folder.open(&[]);
    store.start().unwrap();
    for number in 0..100 {
        let placed = store.send(
            "T",
            number % 2,
            format!("body {number}").as_bytes(),
            b"TAGS\x01A\x02",
        );
        assert_eq!(placed.queue_offset, i64::from(number / 2));
    }
    store.settle();
    let got = store.read("T", 1, 10, None);
    assert_eq!(got.status, GetStatus::Found);
    assert_eq!((got.next, got.min, got.max, got.messages), (42, 0, 50, 32));
    let bodies = super::store_help::bodies(&got);
    assert_eq!(bodies[0], b"body 21");
    assert_eq!(store.log().next_offset("T", 0), 50);
    store.close().unwrap();
    store.close().unwrap();
    assert_eq!(
        store
            .get(super::store_help::wanted("T", 0, 0))
            .err()
            .unwrap()
            .kind,
        ErrorKind::Closed
    );
    assert!(!folder.path("abort").exists());

    let again = folder.open(&[]);
    assert_eq!(again.queues().max("T", 0), 50);
    again.start().unwrap();
    assert_eq!(again.send("T", 0, b"more", b"").queue_offset, 50);
    again.settle();
    assert_eq!(
        super::store_help::bodies(&again.read("T", 0, 49, None)),
        [&b"body 98"[..], b"more"]
    );
    again.close().unwrap();
}

#[test]
fn one_process_at_a_time() {
    let folder = Folder::new("lock");
    let store = folder.open(&[]);
    assert_eq!(folder.try_open(&[]).err().unwrap().kind, ErrorKind::Locked);
    store.close().unwrap();
    folder.open(&[]).close().unwrap();
}

#[test]
fn statuses_and_next_offsets() {
    let folder = Folder::new("status");
    let store = folder.open(&[]);
    store.start().unwrap();
    assert_eq!(
        store.read("T", 0, 7, None).status,
        GetStatus::NoMessageInQueue
    );
    assert_eq!(store.read("T", 0, 7, None).next, 0);
    for tag in ["A", "B", "A"] {
        store.send("T", 0, b"x", format!("TAGS\x01{tag}\x02").as_bytes());
    }
    store.settle();
    let cases = [
        (-1, GetStatus::OffsetTooSmall, 0),
        (3, GetStatus::OffsetOverflowOne, 3),
        (9, GetStatus::OffsetOverflowBadly, 3),
        (0, GetStatus::Found, 3),
    ];
    for (offset, status, next) in cases {
        let got = store.read("T", 0, offset, None);
        assert_eq!((got.status, got.next), (status, next), "offset {offset}");
    }
    let b = i64::from(roquet_core::java_hash::hash(b"B"));
    let got = store.read("T", 0, 0, Some(&[b]));
    assert_eq!(
        (got.status, got.next, got.messages),
        (GetStatus::Found, 3, 1)
    );
    let none = store.read("T", 0, 0, Some(&[1]));
    assert_eq!((none.status, none.next), (GetStatus::NoMatchedMessage, 3));
    store.close().unwrap();
}
