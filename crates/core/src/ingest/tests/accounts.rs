//! Accounts: what is signed and allowed, and the peers that need no account.

use super::{Accounts, Names, Rights, White, PUBLISH, SUBSCRIBE};
use crate::codec::command::Header;
use base64::Engine;
use hmac::{KeyInit, Mac};
use std::borrow::Cow;

const SECRET: &[u8] = &[b's'; 8];
const HOST: [u8; 8] = [10, 0, 0, 9, 0, 0, 1, 1];

fn named(exact: &[(&str, u8)], prefixes: &[(&str, u8)], others: u8) -> Names {
    let boxed = |of: &[(&str, u8)]| {
        of.iter()
            .map(|(name, bits)| ((*name).into(), *bits))
            .collect()
    };
    Names::new(boxed(exact), boxed(prefixes), others)
}

fn accounts() -> Accounts {
    let mut found = Accounts::default();
    let rights = Rights {
        unlimited: false,
        topics: named(&[("T", PUBLISH), ("S", SUBSCRIBE)], &[], 0),
        groups: named(&[("g", SUBSCRIBE)], &[], 0),
    };
    found.add("RocketMQ", SECRET, White::default(), rights);
    found
}

fn signed(code: i32, fields: &[(&'static str, &'static str)], body: &[u8]) -> Header<'static> {
    let mut fields = fields.to_vec();
    fields.push(("AccessKey", "RocketMQ"));
    fields.sort_unstable();
    let mut mac = hmac::Hmac::<sha1::Sha1>::new_from_slice(SECRET).unwrap();
    for (_, value) in &fields {
        mac.update(value.as_bytes());
    }
    mac.update(body);
    let text = super::STANDARD.encode(mac.finalize().into_bytes());
    let mut header = Header::empty();
    header.code = code;
    let mut ext: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)))
        .collect();
    ext.insert(0, (Cow::Borrowed("Signature"), Cow::Owned(text)));
    header.ext = Some(ext);
    header
}

#[test]
fn what_is_signed_and_allowed_is_permitted_and_nothing_else() {
    let accounts = accounts();
    let host = Some(HOST.as_slice());
    let send = signed(310, &[("b", "T"), ("i", "p")], b"body");
    assert!(accounts.permit(&send, b"body", host));
    assert!(!accounts.permit(&send, b"bodY", host));
    assert!(!accounts.permit(&signed(310, &[("b", "S")], b""), b"", host));
    assert!(!accounts.permit(&signed(310, &[("b", "other")], b""), b"", host));
    assert!(accounts.permit(&signed(320, &[("b", "T")], b"many"), b"many", host));
    assert!(accounts.permit(&signed(10, &[("topic", "T")], b""), b"", host));
    // Which field names the topic depends on the code.
    assert!(!accounts.permit(&signed(10, &[("b", "T")], b""), b"", host));
    let pull = [("topic", "S"), ("consumerGroup", "g")];
    assert!(accounts.permit(&signed(11, &pull, b""), b"", host));
    assert!(accounts.permit(&signed(361, &pull, b""), b"", host));
    let other = [("topic", "S"), ("consumerGroup", "h")];
    assert!(!accounts.permit(&signed(11, &other, b""), b"", host));
    let write_only = [("topic", "T"), ("consumerGroup", "g")];
    assert!(!accounts.permit(&signed(11, &write_only, b""), b"", host));
    // Requests that are never answered here.
    assert!(!accounts.permit(&signed(25, &[("topic", "T")], b""), b"", host));
}

#[test]
fn requests_of_pop_need_the_right_to_read_and_a_topic_of_its_own_name() {
    let accounts = accounts();
    for code in [200_050, 200_051, 200_053] {
        let permits = |topic, group| {
            let fields = [("topic", topic), ("consumerGroup", group)];
            accounts.permit(&signed(code, &fields, b""), b"", None)
        };
        assert!(permits("S", "g"), "{code}");
        for (topic, group) in [("S", "h"), ("T", "g"), ("%RETRY%g_S", "g")] {
            assert!(!permits(topic, group), "{code} {topic} {group}");
        }
    }
}

#[test]
fn each_message_of_a_batch_of_acknowledgements_has_to_be_allowed() {
    let accounts = accounts();
    let row = |topic: &str, group: &str| {
        let of = format!(r#""c":"{group}","t":"{topic}""#);
        format!(r#"{{"b":"AQ==",{of},"it":1,"pt":5,"q":1,"r":"0","rq":3,"so":7}}"#)
    };
    let permits = |rows: &[String]| {
        let body = format!(r#"{{"acks":[{}],"brokerName":"b"}}"#, rows.join(","));
        let header = signed(200_151, &[], body.as_bytes());
        accounts.permit(&header, body.as_bytes(), None)
    };
    assert!(permits(&[row("S", "g")]));
    assert!(permits(&[row("S", "g"), row("S", "g")]));
    for (topic, group) in [("T", "g"), ("S", "h"), ("other", "g"), ("%RETRY%g", "g")] {
        assert!(!permits(&[row(topic, group)]), "{topic} {group}");
        assert!(!permits(&[row("S", "g"), row(topic, group)]));
    }
    assert!(!permits(&["{}".to_owned()]));
    let body = format!(r#"{{"acks":[{}],"brokerName":"b"}}"#, row("S", "g"));
    let other = signed(200_151, &[], b"another body");
    assert!(!accounts.permit(&other, body.as_bytes(), None));
}

#[test]
fn odd_fields_are_left_to_the_processors() {
    let accounts = accounts();
    let good = signed(310, &[("b", "T")], b"");
    assert!(accounts.permit(&good, b"", None));
    let mut twice = good.clone();
    twice.ext.as_mut().unwrap().push(("b".into(), "T".into()));
    assert!(!accounts.permit(&twice, b"", None));
    assert!(!accounts.permit(&signed(310, &[("b", "T"), ("é", "x")], b""), b"", None));
    for text in [
        "",
        "AAAA",
        "no base64 at all",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAB=",
    ] {
        let mut bad = good.clone();
        bad.ext.as_mut().unwrap()[0].1 = text.into();
        assert!(!accounts.permit(&bad, b"", None), "{text}");
    }
    let mut unknown = good.clone();
    unknown
        .ext
        .as_mut()
        .unwrap()
        .retain(|(name, _)| name != "AccessKey");
    assert!(!accounts.permit(&unknown, b"", None));
    assert!(!accounts.permit(&Header::empty(), b"", None));
    let large = vec![0; super::BODY_MAX + 1];
    assert!(!accounts.permit(&signed(310, &[("b", "T")], &large), &large, None));
}

#[test]
fn fields_are_signed_in_the_order_of_their_names_however_they_came() {
    let accounts = accounts();
    let names = ["", "A", "Acc", "AccessKez", "Z", "a", "ba", "bb", "c"];
    let mut fields = vec![("b", "T")];
    fields.extend(names.map(|name| (name, name)));
    let mut send = signed(310, &fields, b"body");
    assert!(accounts.permit(&send, b"body", None));
    if let Some(ext) = send.ext.as_mut() {
        ext.reverse();
    }
    assert!(accounts.permit(&send, b"body", None));
}

#[test]
fn white_lists_are_those_of_addresses() {
    let ranges = vec![(10, 10), (0, 3), (0, 0), (0, 255)];
    let white = White {
        everyone: false,
        ranges: vec![ranges],
    };
    let mut accounts = Accounts::new(vec![white.clone()]);
    accounts.add("RocketMQ", SECRET, white, Rights::default());
    let within: [u8; 20] = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 3, 0, 7, 0, 0, 0, 1,
    ];
    let (beside, v6) = ([10, 4, 0, 9, 0, 0, 1, 1], [0; 20]);
    let mut plain = Header::empty();
    plain.code = 310;
    plain.ext = Some(vec![("AccessKey".into(), "RocketMQ".into())]);
    for (host, good) in [
        (HOST.as_slice(), true),
        (&within, true),
        (&beside, false),
        (&v6, false),
    ] {
        assert_eq!(accounts.trusts(Some(host)), good);
        assert_eq!(accounts.permit(&plain, b"", Some(host)), good);
    }
    assert!(!accounts.trusts(None));
    let everyone = White {
        everyone: true,
        ..White::default()
    };
    assert!(Accounts::new(vec![everyone]).trusts(None));
    assert_eq!(format!("{accounts:?}"), "Accounts(1)");
}

#[test]
fn rights_are_those_of_the_name_or_else_the_default() {
    let both = PUBLISH | SUBSCRIBE;
    let topics = [
        ("none", 0),
        ("pub", PUBLISH),
        ("sub", SUBSCRIBE),
        ("both", both),
    ];
    let groups = [("none", 0), ("sub", SUBSCRIBE), ("pub", PUBLISH)];
    for default in [0, PUBLISH, SUBSCRIBE, both] {
        let rights = Rights {
            unlimited: false,
            topics: named(&topics, &[], default),
            groups: named(&groups, &[], default),
        };
        for (name, bits) in topics.into_iter().chain([("other", default)]) {
            for wanted in [PUBLISH, SUBSCRIBE] {
                let allowed = bits & wanted == wanted;
                assert_eq!(rights.topic(name, wanted), allowed, "{name} {wanted}");
            }
        }
        for (name, bits) in groups.into_iter().chain([("other", default)]) {
            let retry = format!("%RETRY%{name}");
            let allowed = bits & SUBSCRIBE == SUBSCRIBE;
            assert_eq!(rights.group(name), allowed, "{name}");
            assert_eq!(rights.group(&retry), allowed, "{name}");
            // Whoever may read as a group may also send back to it, and nobody else.
            for wanted in [PUBLISH, SUBSCRIBE] {
                assert_eq!(rights.topic(&retry, wanted), allowed, "{name}");
            }
        }
    }
}

#[test]
fn unlimited_rights_are_those_of_the_requests_answered_here() {
    let mut found = Accounts::default();
    let rights = Rights {
        unlimited: true,
        ..Rights::default()
    };
    found.add("RocketMQ", SECRET, White::default(), rights);
    let fields = [("b", "any"), ("topic", "any"), ("consumerGroup", "any")];
    for code in [10, 11, 310, 320, 361] {
        assert!(
            found.permit(&signed(code, &fields, b""), b"", None),
            "{code}"
        );
    }
    for code in [0, 12, 25, 34, 36, 311, 319, 321, 360, 362] {
        assert!(
            !found.permit(&signed(code, &fields, b""), b"", None),
            "{code}"
        );
    }
}

#[test]
fn body_as_long_as_allowed_is_looked_at() {
    let accounts = accounts();
    for (len, allowed) in [(super::BODY_MAX, true), (super::BODY_MAX + 1, false)] {
        let body = vec![7; len];
        let send = signed(310, &[("b", "T")], &body);
        assert_eq!(accounts.permit(&send, &body, None), allowed);
    }
    assert_eq!(super::BODY_MAX, 262_144);
}

#[test]
fn each_part_of_an_address_lies_within_its_range() {
    let four = White {
        everyone: false,
        ranges: vec![
            vec![(1, 1), (1, 1), (1, 1), (1, 1)],
            vec![(10, 12), (0, 255), (3, 3), (5, 9)],
        ],
    };
    for (parts, within) in [
        ([1, 1, 1, 1], true),
        ([10, 0, 3, 5], true),
        ([12, 255, 3, 9], true),
        ([9, 0, 3, 5], false),
        ([13, 0, 3, 5], false),
        ([10, 0, 2, 5], false),
        ([10, 0, 4, 5], false),
        ([10, 0, 3, 4], false),
        ([10, 0, 3, 10], false),
        ([1, 1, 1, 2], false),
    ] {
        assert_eq!(four.matches(&parts), within, "{parts:?}");
    }
    assert!(!four.matches(&[]));
    assert!(!four.matches(&[10, 0, 3]));
    assert!(!four.matches(&[10, 0, 3, 5, 0, 0, 0, 0]));
    let eight = White {
        everyone: false,
        ranges: vec![vec![(0, 65_535); 8]],
    };
    let v6: [u8; 20] = [
        0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1,
    ];
    assert_eq!(super::parts(Some(&v6)), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 9]);
    assert!(eight.matches(&super::parts(Some(&v6))));
    assert!(!eight.matches(&super::parts(Some(&HOST))));
    assert_eq!(super::parts(Some(&HOST)), [10, 0, 0, 9]);
    assert!(super::parts(Some(&HOST[..7])).is_empty());
}

#[test]
fn white_list_of_one_account_is_its_own() {
    let everyone = White {
        everyone: true,
        ..White::default()
    };
    let mut found = Accounts::new(Vec::new());
    found.add("RocketMQ", SECRET, everyone, Rights::default());
    found.add("other", SECRET, White::default(), Rights::default());
    let mut plain = Header::empty();
    for (key, allowed) in [("RocketMQ", true), ("other", false), ("nobody", false)] {
        plain.ext = Some(vec![("AccessKey".into(), key.into())]);
        assert_eq!(found.permit(&plain, b"", Some(&HOST)), allowed, "{key}");
    }
    assert!(!found.trusts(Some(&HOST)));
}

#[test]
fn rights_of_a_name_are_its_own_or_those_of_its_longest_prefix() {
    let both = PUBLISH | SUBSCRIBE;
    let names = named(
        &[("orders", 0), ("é", SUBSCRIBE)],
        &[
            ("or", PUBLISH),
            ("orders-", both),
            ("orders-x", 0),
            ("é-", both),
        ],
        SUBSCRIBE,
    );
    for (name, bits) in [
        ("orders", 0),
        ("order", PUBLISH),
        ("or", PUBLISH),
        ("o", SUBSCRIBE),
        ("", SUBSCRIBE),
        ("orders-", both),
        ("orders-1", both),
        ("orders-x", 0),
        ("orders-xy", 0),
        ("é-1", both),
        ("oé", SUBSCRIBE),
        ("orders\u{e9}", PUBLISH),
        ("other", SUBSCRIBE),
    ] {
        assert_eq!(names.bits(name), bits, "{name}");
    }
    assert_eq!(Names::default().bits("any"), 0);
}
