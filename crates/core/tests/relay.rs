//! The relay's exchange: what goes where, what is refused, and what remains countable.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers outside of #[test].

use std::borrow::Cow;

use proptest::prelude::*;
use roquet_core::codec::command::{Encoding, Header, FLAG_ONE_WAY, FLAG_RESPONSE};
use roquet_core::codec::frame;
use roquet_core::relay::{Exchange, Limits};

const LIMITS: Limits = Limits {
    frame_size_max: 4096,
    queue_max: 2000,
    control_max: 500,
    total_max: 5000,
    pending_max: 4,
    timeout_ms: 1000,
};

fn packet(code: i32, flag: i32, opaque: i32, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let header = Header {
        code,
        flag,
        opaque,
        ext: Some(
            ext.iter()
                .map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value)))
                .collect(),
        ),
        ..Header::empty()
    };
    let mut out = Vec::new();
    frame::encode(Encoding::Binary, &header, body, &mut out).unwrap();
    out
}

fn forward(flag: i32, opaque: i32, from: &str, to: &str, size: usize) -> Vec<u8> {
    packet(
        7106,
        flag,
        opaque,
        &[("from", from), ("to", to)],
        &vec![0; size],
    )
}

/// Servers 1 and 2 of type 3 on links 11 and 12, 5 of type 4 on link 15.
fn exchange() -> Exchange {
    let mut exchange = Exchange::new(LIMITS, 2);
    for (id, kind) in [(1_i32, 3), (2, 3), (5, 4)] {
        let key = 10 + u64::from(id.cast_unsigned());
        exchange.open(key, 0);
        assert!(exchange.register(id, kind, key, (id % 2).cast_unsigned() as usize));
    }
    exchange.set_known([1, 2, 5, 9]);
    exchange
}

fn feed(exchange: &mut Exchange, key: u64, data: &[u8]) -> usize {
    let mut out = 0;
    let broken = exchange.feed(key, data, 100, &mut |_, _| out += 1);
    assert_eq!(broken, None);
    out
}

fn output(exchange: &mut Exchange, id: i32) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = exchange.take(id) {
        all.extend(piece);
    }
    all
}

/// Code and opaque of the frames in a server's queue.
fn answers(exchange: &mut Exchange, id: i32) -> Vec<(i32, i32)> {
    let bytes = output(exchange, id);
    let mut rest = bytes.as_slice();
    let mut found = Vec::new();
    while let Some(one) = frame::cut(rest, 1 << 20).unwrap() {
        let header = one.decode_header().unwrap();
        assert_ne!(header.flag & FLAG_RESPONSE, 0);
        found.push((header.code, header.opaque));
        rest = rest.get(one.size..).unwrap();
    }
    found
}

#[test]
fn a_packet_arrives_as_it_was_sent_and_wakes_its_worker_once() {
    let mut exchange = exchange();
    let one = forward(FLAG_ONE_WAY, 1, "1", "2", 10);
    let two = forward(FLAG_ONE_WAY, 2, "1", "2", 20);
    assert_eq!(
        feed(&mut exchange, 11, &[one.clone(), two.clone()].concat()),
        0
    );
    assert_eq!(exchange.ready_workers(), [0]);
    assert_eq!(exchange.take_ready(0), [2]);
    feed(&mut exchange, 11, &one);
    assert!(exchange.ready_workers().is_empty(), "its worker knows");
    assert_eq!(
        output(&mut exchange, 2),
        [one.clone(), two, one.clone()].concat()
    );
    feed(&mut exchange, 11, &one);
    assert_eq!(exchange.take_ready(0), [2]);
    assert_eq!(exchange.counters().forwarded, 4);
}

#[test]
fn a_frame_in_pieces_is_one_frame() {
    let mut exchange = exchange();
    let one = forward(FLAG_ONE_WAY, 1, "1", "2", 100);
    for byte in &one {
        feed(&mut exchange, 11, std::slice::from_ref(byte));
    }
    assert_eq!(exchange.held(11), 0);
    assert_eq!(output(&mut exchange, 2), one);
}

#[test]
fn what_cannot_go_is_answered_or_counted() {
    let mut exchange = exchange();
    for (opaque, (from, to)) in [("1", "77"), ("1", "9"), ("2", "5"), ("1", "x"), ("1", "-2")]
        .into_iter()
        .enumerate()
    {
        feed(
            &mut exchange,
            11,
            &forward(0, opaque.try_into().unwrap(), from, to, 1),
        );
    }
    exchange.drain(5, true);
    feed(&mut exchange, 11, &forward(0, 5, "1", "5", 1));
    let by_type = |kind: &str, key: &str| {
        packet(
            7107,
            0,
            6,
            &[("from", "1"), ("type", kind), ("key", key)],
            b"",
        )
    };
    feed(&mut exchange, 11, &by_type("4", "k"));
    feed(&mut exchange, 11, &by_type("3", ""));
    assert_eq!(
        answers(&mut exchange, 1),
        [
            (7201, 0),
            (7202, 1),
            (29, 2),
            (29, 3),
            (29, 4),
            (7203, 5),
            (7205, 6),
            (29, 6)
        ]
    );
    feed(&mut exchange, 11, &forward(FLAG_ONE_WAY, 9, "1", "77", 1));
    assert!(answers(&mut exchange, 1).is_empty());
    let counters = exchange.counters();
    assert_eq!((counters.refused_unknown, counters.refused_gone), (3, 1));
    assert_eq!(
        (counters.refused_invalid, counters.refused_draining),
        (4, 1)
    );
    assert_eq!(counters.unanswered, 1);
    assert_eq!(counters.forwarded, 0);
}

#[test]
fn a_full_queue_and_full_queues_are_busy_and_one_that_takes_nothing_is_closed() {
    let mut exchange = exchange();
    for opaque in 0..3 {
        feed(&mut exchange, 11, &forward(0, opaque, "1", "2", 900));
    }
    assert_eq!(answers(&mut exchange, 1), [(2, 2)]);
    // Server 1 asks on and takes no answers: its link is given up.
    let mut broken = None;
    for opaque in 3..200 {
        broken = exchange.feed(11, &forward(0, opaque, "1", "2", 900), 0, &mut |_, _| ());
        if broken.is_some() {
            break;
        }
    }
    assert!(broken.is_some());
    let (queued, pending, ..) = exchange.server(1).unwrap();
    assert!((2000..=2500).contains(&queued));
    assert_eq!(pending, 0);
}

#[test]
fn an_answer_goes_back_once_and_only_to_who_asked() {
    let mut exchange = exchange();
    feed(&mut exchange, 11, &forward(0, 40, "1", "5", 1));
    output(&mut exchange, 5);
    let answer = packet(0, FLAG_RESPONSE, 40, &[("from", "5"), ("to", "1")], b"yes");
    feed(&mut exchange, 12, &answer);
    assert_eq!(
        exchange.counters().stray_answers,
        1,
        "server 2 was not asked"
    );
    feed(&mut exchange, 15, &answer);
    feed(&mut exchange, 15, &answer);
    assert_eq!(output(&mut exchange, 1), answer);
    assert_eq!(exchange.counters().stray_answers, 2);
    assert_eq!(exchange.counters().answers, 1);
}

#[test]
fn requests_end_in_time_or_with_their_server() {
    let mut exchange = exchange();
    feed(&mut exchange, 11, &forward(0, 1, "1", "5", 1));
    let soon = packet(
        7106,
        0,
        2,
        &[("from", "1"), ("to", "5"), ("timeoutMs", "50")],
        b"",
    );
    feed(&mut exchange, 11, &soon);
    assert!(exchange.expire(149).is_empty());
    assert!(answers(&mut exchange, 1).is_empty());
    exchange.expire(150);
    assert_eq!(answers(&mut exchange, 1), [(7204, 2)]);
    assert!(exchange.unregister(5, 15));
    assert!(!exchange.unregister(5, 15));
    assert_eq!(answers(&mut exchange, 1), [(7208, 1)]);
    feed(&mut exchange, 11, &forward(0, 3, "1", "5", 1));
    assert_eq!(
        answers(&mut exchange, 1),
        [(7202, 3)],
        "configured, and away: 5 is known"
    );
}

#[test]
fn too_many_requests_and_opaques_twice_are_refused() {
    let mut exchange = exchange();
    feed(&mut exchange, 11, &forward(0, 0, "1", "5", 1));
    feed(&mut exchange, 11, &forward(0, 0, "1", "5", 1));
    for opaque in 1..5 {
        feed(&mut exchange, 11, &forward(0, opaque, "1", "5", 1));
    }
    assert_eq!(answers(&mut exchange, 1), [(29, 0), (2, 4)]);
}

#[test]
fn a_newer_link_takes_the_place_of_the_older() {
    let mut exchange = exchange();
    exchange.open(25, 0);
    feed(&mut exchange, 11, &forward(0, 1, "1", "5", 1));
    feed(&mut exchange, 15, &forward(0, 7, "5", "2", 1));
    assert!(exchange.register(5, 4, 25, 1));
    assert_eq!(answers(&mut exchange, 1), [(7208, 1)]);
    assert_eq!(
        feed(&mut exchange, 15, &forward(0, 8, "5", "2", 1)),
        1,
        "nobody's link any more"
    );
    assert!(!exchange.unregister(5, 15));
    // The answer to the older link's request must not reach the newer one.
    output(&mut exchange, 2);
    feed(
        &mut exchange,
        12,
        &packet(0, FLAG_RESPONSE, 7, &[("from", "2"), ("to", "5")], b""),
    );
    assert!(output(&mut exchange, 5).is_empty());
    assert_eq!(exchange.counters().stray_answers, 1);
    assert!(!exchange.register(6, 4, 99, 1), "there is no such link");
    assert!(!exchange.register(6, 4, 25, 2), "there is no such worker");
}

#[test]
fn to_all_reaches_the_others_of_a_type_and_says_how_many() {
    let mut exchange = exchange();
    let all = |flag| packet(7108, flag, 3, &[("from", "5"), ("type", "3")], b"news");
    feed(&mut exchange, 15, &all(0));
    assert_eq!(output(&mut exchange, 1), all(0));
    assert_eq!(output(&mut exchange, 2), all(0));
    assert_eq!(answers(&mut exchange, 5), [(0, 3)]);
    exchange.drain(1, true);
    feed(&mut exchange, 15, &all(FLAG_ONE_WAY));
    assert!(output(&mut exchange, 1).is_empty());
    assert_eq!(output(&mut exchange, 2), all(FLAG_ONE_WAY));
    assert_eq!(exchange.counters().unanswered, 1);
}

#[test]
fn silence_is_seen_and_notices_skip_the_one_they_are_about() {
    let mut exchange = exchange();
    feed(&mut exchange, 11, b"");
    assert_eq!(exchange.silent(1, 100), [5]);
    exchange.close(11);
    let mut silent = exchange.silent(1, 0);
    silent.sort_unstable();
    assert_eq!(silent, [1], "its link has gone");
    assert!(exchange.broadcast(1, b"frame", 1).is_empty());
    assert!(output(&mut exchange, 1).is_empty());
    assert_eq!(output(&mut exchange, 5), b"frame");
    assert_eq!(exchange.broadcast(1, &[0; 2501], 0).len(), 2);
    assert_eq!(exchange.queued(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever comes, in whatever pieces: no panic, and every packet is in a queue or counted.
    #[test]
    fn nothing_is_lost_uncounted(
        steps in prop::collection::vec((0..3_usize, 0..4_i32, 0..12_usize, 0..6_i32, 0..900_usize), 1..60),
        cut in 1..200_usize,
    ) {
        let mut exchange = exchange();
        let ids = ["1", "2", "5"];
        let targets = ["1", "2", "5", "9", "77", "0", "", "x", "3", "4", "2147483648", "-1"];
        for (number, (who, flag, to, code, size)) in steps.into_iter().enumerate() {
            let from = ids.get(who).copied().unwrap_or("1");
            let target = targets.get(to).copied().unwrap_or("");
            let opaque = i32::try_from(number).unwrap();
            let fields = [("from", from), ("to", target), ("type", target), ("key", "k")];
            let code = 7106 + code % 3;
            let bytes = packet(code, flag, opaque, &fields, &vec![0; size]);
            let key = [11, 12, 15].get(who).copied().unwrap_or(11);
            let routed_one = flag & FLAG_RESPONSE == 0 && code != 7108;
            let stray = flag & FLAG_RESPONSE != 0 && !target.is_empty();
            let before = exchange.counters();
            for piece in bytes.chunks(cut) {
                let _ = exchange.feed(key, piece, 0, &mut |_, _| ());
            }
            let after = exchange.counters();
            let total = |c: roquet_core::relay::Counters| {
                c.forwarded + c.stray_answers + c.refused_unknown + c.refused_gone
                    + c.refused_busy + c.refused_draining + c.refused_invalid
            };
            if routed_one || stray {
                prop_assert_eq!(total(after), total(before) + 1);
            }
            if number % 7 == 0 {
                for id in [1, 2, 5] {
                    output(&mut exchange, id);
                }
            }
        }
        for id in [1, 2, 5] {
            output(&mut exchange, id);
        }
        prop_assert_eq!(exchange.queued(), 0);
    }
}
