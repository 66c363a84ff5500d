//! Which pops are plain.

use super::{read, Pop, POP};
use crate::codec::command::{Header, FLAG_ONE_WAY};
use crate::ingest::connection::{Peer, Source};
use crate::ingest::pop::{Popping, Unwaited};
use crate::ingest::table::{GroupRow, Table, TopicRow};
use std::borrow::Cow;
use std::time::Instant;

fn plain() -> [(&'static str, &'static str); 10] {
    [
        ("consumerGroup", "g"),
        ("topic", "T"),
        ("queueId", "-1"),
        ("maxMsgNums", "32"),
        ("invisibleTime", "1000"),
        ("pollTime", "7"),
        ("bornTime", "5"),
        ("initMode", "0"),
        ("exp", "a || b"),
        ("order", "false"),
    ]
}

fn table() -> Table {
    let mut table = Table::default();
    let row = TopicRow {
        settle_queues: 4,
        ..TopicRow::default()
    };
    for name in ["T", "%RETRY%g_T", "%DLQ%g", "%LMQ%g", "T\u{e4}"] {
        table.topics.insert(name.into(), row);
    }
    for name in ["g", "g\""] {
        table.groups.insert(name.into(), GroupRow::default());
    }
    table.state.pop = Some(Popping {
        broker: "b".into(),
        revive_topic: "R".into(),
        revive_queues: 8,
        delay_max_ms: 1000,
        precision_ms: 100,
        deleted_ms: i64::MIN,
        merges: false,
        pops: true,
        unwaited: Unwaited::default(),
    });
    table
}

fn source() -> Source {
    Source {
        key: 1,
        peer: Peer::default(),
        pulls: true,
        passing: false,
        busy: false,
        patient: false,
        now_ms: 5,
        began: Instant::now(),
    }
}

fn header<'a>(fields: &[(&'a str, &'a str)]) -> Header<'a> {
    let borrowed = |&(name, value): &(&'a str, &'a str)| (name.into(), Cow::Borrowed(value));
    Header {
        code: POP,
        opaque: 9,
        ext: Some(fields.iter().map(borrowed).collect()),
        ..Header::empty()
    }
}

/// Reads the plain pop with one field replaced or added.
fn with(name: &str, value: &str) -> Option<Pop> {
    let mut fields: Vec<_> = plain().into_iter().filter(|it| it.0 != name).collect();
    fields.push((name, value));
    read(&table(), source(), &header(&fields), (b"", b"frame"))
}

#[test]
fn a_plain_pop_is_read() {
    let pop = read(&table(), source(), &header(&plain()), (b"", b"frame"));
    let wanted = Pop {
        opaque: 9,
        topic: "T".into(),
        group: "g".into(),
        queue_id: -1,
        messages: 32,
        invisible_ms: 1000,
        poll_ms: 7,
        born_ms: 5,
        expression: "a || b".into(),
        frame: b"frame".to_vec(),
    };
    assert_eq!(pop, Some(wanted));
    for (name, value) in [
        ("queueId", "3"),
        ("invisibleTime", "0"),
        ("expType", "TAG"),
        ("expType", ""),
        ("attemptId", "one"),
    ] {
        assert!(with(name, value).is_some(), "{name} {value}");
    }
}

#[test]
fn pops_that_are_not_plain_are_for_the_processors() {
    for (name, value) in [
        ("topic", "other"),
        ("topic", "%RETRY%g_T"),
        ("topic", "%DLQ%g"),
        ("topic", "%LMQ%g"),
        ("topic", "T\u{e4}"),
        ("consumerGroup", "other"),
        ("consumerGroup", "g\""),
        ("queueId", "4"),
        ("queueId", "x"),
        ("maxMsgNums", "0"),
        ("maxMsgNums", "2147483648"),
        ("invisibleTime", "-1"),
        ("invisibleTime", "1001"),
        ("bornTime", ""),
        ("expType", "SQL92"),
        ("order", "true"),
        ("order", "False"),
    ] {
        assert_eq!(with(name, value), None, "{name} {value}");
    }
    for missing in 0..plain().len() {
        let mut fields = plain().to_vec();
        let (name, _) = fields.remove(missing);
        let optional = matches!(name, "bornTime" | "exp" | "order");
        let pop = read(&table(), source(), &header(&fields), (b"", b""));
        assert_eq!(pop.is_some(), optional, "{name}");
    }
}

#[test]
fn pops_are_read_only_where_whoever_feeds_decides() {
    let header = header(&plain());
    let one_way = Header {
        flag: FLAG_ONE_WAY,
        ..header.clone()
    };
    assert_eq!(read(&table(), source(), &one_way, (b"", b"")), None);
    assert_eq!(read(&table(), source(), &header, (b"body", b"")), None);
    let of_thread = Source {
        patient: true,
        ..source()
    };
    assert_eq!(read(&table(), of_thread, &header, (b"", b"")), None);
    let of_fast_port = Source {
        pulls: false,
        ..source()
    };
    assert_eq!(read(&table(), of_fast_port, &header, (b"", b"")), None);
    let mut table = table();
    if let Some(popping) = &mut table.state.pop {
        popping.pops = false;
    }
    assert_eq!(read(&table, source(), &header, (b"", b"")), None);
    table.state.pop = None;
    assert_eq!(read(&table, source(), &header, (b"", b"")), None);
}
