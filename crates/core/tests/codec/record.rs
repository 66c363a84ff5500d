//! Records: the vector of the spec, round trips, and damage of every kind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use roquet_core::codec::host;
use roquet_core::codec::properties::entries;
use roquet_core::codec::record::{
    blank, encode, parse, patch, records, NewRecord, Parsed, RecordHead, Why, MAGIC_V1, MAGIC_V2,
};

/// Spec: wire §21.
const VECTOR: &str = "00000077daa320a73610a6860000000000000000000000000000000500000000000003e8\
    000000000000018bcfe568000a0000090000c3500000018bcfe568017f00000100002a9f0000000000000000\
    000000000000000568656c6c6f05546573745400124b455953016b310254414753015461674102";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(digit(pair[0]) * 16 + digit(pair[1])).unwrap())
        .collect()
}

struct Sample {
    born: Vec<u8>,
    store: Vec<u8>,
}

impl Sample {
    fn new(born: &str, store: &str) -> Self {
        Self {
            born: host::encode(born.parse().unwrap()),
            store: host::encode(store.parse().unwrap()),
        }
    }

    fn record<'a>(
        &'a self,
        topic: &'a [u8],
        body: &'a [u8],
        properties: &'a [u8],
    ) -> NewRecord<'a> {
        NewRecord {
            topic,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1_700_000_000_000,
            born_host: &self.born,
            store_host: &self.store,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties,
        }
    }
}

fn v4() -> Sample {
    Sample::new("10.0.0.9:50000", "127.0.0.1:10911")
}

fn one(buf: &[u8]) -> roquet_core::codec::record::RecordView<'_> {
    match parse(buf, 0, true) {
        Parsed::Record { view, size } => {
            assert_eq!(size as usize, buf.len());
            view
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn properties_that_end_in_0_get_a_separator_and_keep_their_pairs() {
    let sample = v4();
    for text in [
        &b"a\x01b\0"[..],
        b"a\x01b\x02c\x01\0\0",
        b"a\x01b\x02\0",
        b"\0",
    ] {
        let mut out = Vec::new();
        let record = sample.record(b"TestT", b"hello", text);
        assert_eq!(encode(&record, &mut out).unwrap(), record.size());
        let stored = one(&out).properties;
        assert_eq!(stored, [text, b"\x02"].concat());
        let pairs = |text| {
            entries(text)
                .map(|it| format!("{it:?}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(pairs(stored), pairs(text));
    }
    for text in [&b""[..], b"a\x01b", b"a\x01\0b", b"a\x01b\x02"] {
        let mut out = Vec::new();
        encode(&sample.record(b"TestT", b"hello", text), &mut out).unwrap();
        assert_eq!(one(&out).properties, text);
    }
}

#[test]
fn properties_that_end_in_0_have_one_byte_less_room() {
    let sample = v4();
    for (size, last, is_taken) in [
        (32_767, b'x', true),
        (32_768, b'x', false),
        (32_766, 0, true),
        (32_767, 0, false),
    ] {
        let mut text = vec![b'x'; size];
        text[size - 1] = last;
        let mut out = Vec::new();
        let done = encode(&sample.record(b"T", b"", &text), &mut out);
        assert_eq!(done.is_ok(), is_taken, "{size} {last}");
        assert_eq!(out.is_empty(), !is_taken);
    }
}

#[test]
fn vector_of_the_spec() {
    let sample = v4();
    let record = sample.record(b"TestT", b"hello", b"KEYS\x01k1\x02TAGS\x01TagA\x02");
    let mut out = Vec::new();
    assert_eq!(encode(&record, &mut out).unwrap(), 119);
    assert!(patch(&mut out, 5, 1000, 1_700_000_000_001));
    assert_eq!(out, unhex(VECTOR));
    let view = one(&out);
    assert_eq!((view.queue_offset, view.physical_offset), (5, 1000));
    assert_eq!(view.store_timestamp, 1_700_000_000_001);
    assert_eq!((view.topic, view.body), (&b"TestT"[..], &b"hello"[..]));
    assert_eq!(view.magic, MAGIC_V1);
    let head = RecordHead::read(&out).unwrap();
    assert_eq!(head.store_timestamp, view.store_timestamp);
    assert_eq!((head.queue_offset, head.physical_offset), (5, 1000));
}

#[test]
fn long_topics_take_the_long_form_and_hosts_their_family() {
    let sample = Sample::new("[2001:db8::1]:1", "[::1]:10911");
    for (length, magic) in [(127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)] {
        let topic = vec![b'%'; length];
        // The address-family bits of the sender are replaced by the true ones.
        let mut record = sample.record(&topic, b"", b"");
        record.sys_flag = 0x301;
        let mut out = Vec::new();
        assert_eq!(encode(&record, &mut out).unwrap(), record.size());
        assert!(patch(&mut out, 1, 2, 3));
        let view = one(&out);
        assert_eq!(view.magic, magic);
        assert_eq!(view.topic, topic);
        assert_eq!(view.sys_flag, 0x331);
        assert_eq!(
            (
                view.queue_offset,
                view.physical_offset,
                view.store_timestamp
            ),
            (1, 2, 3)
        );
        assert_eq!(RecordHead::read(&out).unwrap().store_timestamp, 3);
    }
    let mut record = sample.record(b"t", b"", b"");
    let four = v4();
    record.born_host = &four.born;
    record.store_host = &four.store;
    record.sys_flag = 0x30;
    let mut out = Vec::new();
    encode(&record, &mut out).unwrap();
    assert_eq!(one(&out).sys_flag, 0);
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let sample = v4();
    let long = vec![b'x'; 32_768];
    let mut out = b"before".to_vec();
    assert!(encode(&sample.record(&long[..256], b"", b""), &mut out).is_err());
    assert!(encode(&sample.record(b"t", b"", &long), &mut out).is_err());
    let mut record = sample.record(b"t", b"", b"");
    record.born_host = b"127.0.0.1";
    assert!(encode(&record, &mut out).is_err());
    assert_eq!(out, b"before");
}

#[test]
fn the_end_of_a_file() {
    assert_eq!(blank(77), [0, 0, 0, 77, 0xCB, 0xD4, 0x31, 0x94]);
    assert_eq!(parse(&blank(77), 0, true), Parsed::Blank { size: 77 });
    assert_eq!(parse(&[0; 500], 3, true), Parsed::End);
    assert_eq!(parse(&[0; 3], 0, true), Parsed::End);
    assert_eq!(parse(b"", 0, true), Parsed::End);
    assert_eq!(parse(b"abc", 17, true), Parsed::End);
}

#[test]
fn damage_is_named() {
    let good = unhex(VECTOR);
    let why = |buf: &[u8]| match parse(buf, 0, true) {
        Parsed::Broken { size, why } => (size, why),
        other => panic!("{other:?}"),
    };
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(why(&with(4, 0)), (None, Why::Magic));
    assert_eq!(why(&with(0, 0xFF)), (None, Why::Length));
    assert_eq!(why(&with(90, b'H')), (None, Why::Checksum));
    assert_eq!(why(&with(84, 0x80)), (Some(119), Why::Sum));
    assert_eq!(why(&with(93, 0xFF)), (Some(119), Why::Sum));
    assert_eq!(why(&with(100, 1)), (Some(119), Why::Sum));
    assert_eq!(why(&good[..118]), (None, Why::Length));
    assert_eq!(why(&with(3, 0x76)), (Some(118), Why::Sum));
    assert_eq!(why(&with(3, 20)), (None, Why::Length));
    assert!(matches!(
        parse(&with(90, b'H'), 0, false),
        Parsed::Record { .. }
    ));
}

#[test]
fn records_follow_each_other_and_end_at_the_first_error() {
    let mut buf = unhex(VECTOR);
    buf.extend(unhex(VECTOR));
    assert_eq!(records(&buf, true).flatten().count(), 2);
    buf.push(7);
    let found: Vec<_> = records(&buf, true).collect();
    assert_eq!(found.len(), 3);
    assert_eq!(found[2], Err((238, Why::Length)));
    buf.truncate(119);
    buf.extend([0; 9]);
    assert_eq!(records(&buf, true).last(), Some(Err((119, Why::Magic))));
}

proptest! {
    #[test]
    fn round_trip(
        topic in proptest::collection::vec(any::<u8>(), 0..=255),
        body in proptest::collection::vec(any::<u8>(), 0..300),
        properties in proptest::collection::vec(any::<u8>(), 0..100),
        numbers in any::<(i32, i32, i32, i64, i32, i64)>(),
        six in any::<(bool, bool)>(),
        patched in any::<(i64, i64, i64)>(),
    ) {
        let pick = |six| if six { "[::1]:9" } else { "1.2.3.4:9" };
        let sample = Sample::new(pick(six.0), pick(six.1));
        let mut record = sample.record(&topic, &body, &properties);
        (record.queue_id, record.flag, record.sys_flag, record.born_timestamp,
            record.reconsume_times, record.prepared_transaction_offset) = numbers;
        let mut out = Vec::new();
        prop_assert_eq!(encode(&record, &mut out).unwrap(), out.len());
        prop_assert!(patch(&mut out, patched.0, patched.1, patched.2));
        let view = one(&out);
        let ending: &[u8] = if properties.last() == Some(&0) { &[2] } else { &[] };
        let stored = [&properties, ending].concat();
        prop_assert_eq!((view.topic, view.body, view.properties), (&topic[..], &body[..], &stored[..]));
        prop_assert_eq!((view.queue_offset, view.physical_offset, view.store_timestamp), patched);
        prop_assert_eq!((view.queue_id, view.flag, view.born_timestamp), (numbers.0, numbers.1, numbers.3));
        prop_assert_eq!((view.born_host, view.store_host), (&sample.born[..], &sample.store[..]));
        prop_assert_eq!(view.sys_flag & !0x30, numbers.2 & !0x30);
    }

    #[test]
    fn mutated_bytes_never_panic(changes in proptest::collection::vec(any::<(u8, u8)>(), 1..8), cut in 0..120usize) {
        let mut bytes = unhex(VECTOR);
        for (at, value) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut);
        for check_crc in [true, false] {
            if let Parsed::Record { view, size } = parse(&bytes, 0, check_crc) {
                prop_assert!(size as usize <= bytes.len());
                prop_assert!(view.body.len() + view.topic.len() + view.properties.len() + 91 <= bytes.len());
            }
        }
        let _ = RecordHead::read(&bytes);
        patch(&mut bytes, 1, 2, 3);
    }
}
