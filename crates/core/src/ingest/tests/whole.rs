//! A whole ingest over a real store: what is stored together, and when a round of held pulls ends.

use super::accounts::{Accounts, Names, Rights, White, PUBLISH};
use super::table::{Choice, GroupRow, Subscription, TopicRow};
use super::{pull, send, Ingest, Outbound, Read};
use crate::codec::command::{Encoding, Header};
use crate::codec::frame;
use crate::codec::record::{RecordHead, BLANK_SIZE};
use crate::store::config::{StoreConfig, Value};
use crate::store::env::Env;
use crate::store::get::Wanted;
use crate::store::Store;
use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

const HOST: [u8; 8] = [127, 0, 0, 1, 0, 0, 0, 1];
const NOW_MS: i64 = 1_700_000_000_000;
const FILE: u64 = 8 << 20;
/// Bytes after which a round ends.
const TURN: usize = 8 << 20;

struct Made {
    store: Arc<Store>,
    folder: PathBuf,
    ingest: Ingest,
}

impl Made {
    fn new(name: &str) -> Self {
        let name = format!("roquet-whole-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let text = folder.to_str().unwrap().to_owned();
        let file_size = i64::try_from(FILE).unwrap();
        let settings = BTreeMap::from([
            ("storePathRootDir".to_owned(), Value::Text(text)),
            ("mappedFileSizeCommitLog".to_owned(), Value::Int(file_size)),
        ]);
        let store = Store::open(StoreConfig::read(&settings).unwrap(), Env::system()).unwrap();
        store.start().unwrap();
        // Appends may wait for a file that is being made.
        let mut ingest = Ingest::sharing(Arc::default(), 32 << 20, 1, true);
        {
            let mut table = ingest.table();
            table.state.sends = true;
            table.state.pulls = true;
            table.state.body_max = 8 << 20;
            table.state.batch_max = 10;
            table.state.store_host = HOST.to_vec();
            table.state.pulling.holds_max = 100;
            table.state.pulling.hold_ms_max = 60_000;
            let row = TopicRow {
                send_queues: 1,
                read_queues: 1,
                ..TopicRow::default()
            };
            table.topics.insert("T".into(), row);
            let subscription = Subscription {
                version: 0,
                choice: Choice::EVERY,
            };
            let group = GroupRow {
                sys_flag: 0,
                subscriptions: HashMap::from([("T".to_owned(), subscription)]),
            };
            table.groups.insert("g".into(), group);
        }
        for key in 1..=9 {
            ingest.open(key, &HOST, true);
        }
        Self {
            store,
            folder,
            ingest,
        }
    }

    /// Feeds frames that the ingest itself takes.
    fn feed(&mut self, key: u64, data: &[u8]) {
        let sink = &mut |_: &frame::Frame<'_>, header: &Header<'_>| {
            panic!("code {} is for the processors", header.code)
        };
        let fed = self.ingest.feed(&self.store, key, data, NOW_MS, sink);
        assert!(fed.broken.is_none());
        while self.store.dispatched() < self.store.log().written() {
            std::thread::yield_now();
        }
    }

    /// Where the message at an offset of the queue is in the log.
    fn place(&self, offset: i64) -> u64 {
        let wanted = Wanted {
            topic: "T",
            queue_id: 0,
            offset,
            messages: 1,
            bytes: pull::BYTES_MAX,
            tag_codes: None,
            filter: None,
        };
        let got = self.store.get(wanted).unwrap();
        let head = RecordHead::read(&got.parts[0]).unwrap();
        head.physical_offset.cast_unsigned()
    }

    /// Serves pulls that are due for as long as `spare` says; returns to whom what was written.
    fn serve(&mut self, mut spare: impl FnMut() -> bool) -> Vec<Outbound> {
        let left = &mut |_: u64, _: &frame::Frame<'_>, header: &Header<'_>| {
            panic!("code {} is for the processors", header.code)
        };
        self.ingest.serve(&self.store, NOW_MS, &mut spare, left)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = self.store.close();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn framed(code: i32, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let borrowed = |&(name, value): &_| (Cow::Borrowed(name), Cow::Borrowed(value));
    let header = Header {
        code,
        opaque: 7,
        ext: Some(fields.iter().map(borrowed).collect()),
        ..Header::empty()
    };
    let mut out = Vec::new();
    frame::encode(Encoding::Json, &header, body, &mut out).unwrap();
    out
}

/// A send, or a batch.
fn sent(code: i32, body: &[u8]) -> Vec<u8> {
    let is_batch = if code == send::SEND_BATCH {
        "true"
    } else {
        "false"
    };
    let fields = [
        ("a", "pg"),
        ("b", "T"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", "0"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", "UNIQ_KEY\u{1}U\u{2}"),
        ("m", is_batch),
    ];
    framed(code, &fields, body)
}

/// The same, signed by the account that [`guard`] makes.
fn signed(of: &str, secret: &[u8]) -> Vec<u8> {
    let fields = [
        ("AccessKey", of),
        ("a", "pg"),
        ("b", "T"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", "0"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", "UNIQ_KEY\u{1}U\u{2}"),
    ];
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(secret).unwrap();
    for (_, value) in fields {
        mac.update(value.as_bytes());
    }
    mac.update(b"body");
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let all: Vec<_> = [("Signature", &*signature)]
        .into_iter()
        .chain(fields)
        .collect();
    framed(send::SEND_SHORT, &all, b"body")
}

/// Has everybody need an account, of which there is one that may publish.
fn guard(ingest: &Ingest) {
    let topics = Names::new(HashMap::from([("T".into(), PUBLISH)]), HashMap::new(), 0);
    let rights = Rights {
        topics,
        ..Rights::default()
    };
    let mut accounts = Accounts::default();
    accounts.add("user", b"secret", White::default(), rights);
    ingest.table().set_accounts(accounts);
}

fn batch(bodies: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for body in bodies {
        let size = u32::try_from(22 + body.len()).unwrap();
        out.extend(size.to_be_bytes());
        out.extend([0; 12]);
        out.extend((size - 22).to_be_bytes());
        out.extend(*body);
        out.extend([0; 2]);
    }
    sent(send::SEND_BATCH, &out)
}

fn pulled(offset: i64) -> Vec<u8> {
    let fields = [
        ("consumerGroup", "g"),
        ("topic", "T"),
        ("queueId", "0"),
        ("queueOffset", &offset.to_string()),
        ("maxMsgNums", "32"),
        ("sysFlag", "2"),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", "30000"),
        ("subVersion", "0"),
    ];
    framed(pull::PULL, &fields, b"")
}

#[test]
fn a_batch_stays_in_one_file_and_the_send_before_it_where_it_has_room() {
    let mut made = Made::new("batch");
    let one = sent(send::SEND_SHORT, &[1; 1000]);
    let two = batch(&[&[2; 1000], &[3; 1000]]);
    let begin = made.store.log().written();
    made.feed(1, &one);
    let alone = made.store.log().written() - begin;
    made.feed(1, &two);
    let both = made.store.log().written() - begin - alone;
    // Room is left for one message and half of the batch.
    let left = alone + both / 2 + 200 + BLANK_SIZE as u64;
    let filler = FILE - begin - 2 * alone - both - left + 1000;
    made.feed(
        1,
        &sent(send::SEND_SHORT, &vec![4; usize::try_from(filler).unwrap()]),
    );
    assert_eq!(made.store.log().written(), FILE - left);
    made.feed(1, &[one, two].concat());
    let places = [4, 5, 6].map(|offset| made.place(offset));
    assert_eq!(places, [FILE - left, FILE, FILE + both / 2]);
}

#[test]
fn a_round_of_held_pulls_answers_one_at_least_and_goes_on_while_there_is_time() {
    let mut made = Made::new("time");
    for key in 1..=4 {
        made.feed(key, &pulled(0));
    }
    assert_eq!(
        (made.ingest.held_pulls(), made.serve(|| true).len()),
        (4, 0)
    );
    made.feed(9, &sent(send::SEND_SHORT, b"body"));
    made.ingest.arrived("T", 0, 1);
    assert_eq!(made.serve(|| false).len(), 1);
    let mut asked = 0;
    let answered = made.serve(|| {
        asked += 1;
        asked < 2
    });
    assert_eq!((answered.len(), asked), (2, 2));
    assert!(made.ingest.has_due());
    let answered = made.serve(|| true);
    assert_eq!((answered.len(), made.ingest.held_pulls()), (1, 0));
    assert!(!made.ingest.has_due());
}

#[test]
fn a_round_of_held_pulls_ends_behind_the_bytes_that_one_turn_may_write() {
    let mut made = Made::new("bytes");
    // What an answer has beside the body.
    made.feed(1, &pulled(0));
    made.feed(9, &sent(send::SEND_SHORT, b"x"));
    made.ingest.arrived("T", 0, 1);
    let [(_, answer)] = made.serve(|| true).try_into().unwrap();
    let more = answer.len() - 1;
    for key in 1..=4 {
        made.feed(key, &pulled(1));
    }
    // Two of them are just what one turn may write.
    made.feed(9, &sent(send::SEND_SHORT, &vec![1; TURN / 2 - more]));
    made.ingest.arrived("T", 0, 2);
    let answered = made.serve(|| true);
    let sizes: Vec<usize> = answered.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(sizes, [TURN / 2; 3]);
    assert_eq!(made.serve(|| true).len(), 1);
}

#[test]
fn signed_sends_of_several_connections_are_appended_together_once_each_has_proven_its_account() {
    let mut made = Made::new("together");
    guard(&made.ingest);
    let (good, bad) = (signed("user", b"secret"), signed("user", b"other"));
    let pull = pulled(0);
    let together = |made: &mut Made, of: [&[u8]; 3]| {
        let reads: Vec<_> = (1..)
            .zip(of)
            .map(|(key, data)| Read { key, data })
            .collect();
        let before = made.store.log().written();
        let fed = made.ingest.feed_together(&made.store, &reads, NOW_MS);
        let ends: Vec<bool> = fed.ends.iter().map(Option::is_some).collect();
        (ends, made.store.log().written() - before, fed.replies)
    };
    let (ends, stored, _) = together(&mut made, [&good, &good, &good]);
    assert_eq!((ends, stored), (vec![false; 3], 0), "nobody has proven one");
    for key in 1..=3 {
        made.feed(key, &good);
    }
    let (ends, stored, replies) = together(&mut made, [&good, &good, &good]);
    let size = stored / 3;
    assert_eq!((ends, size * 3), (vec![true; 3], stored));
    assert!(size > 0 && !replies.is_empty());
    // What is not permitted or no send is looked at by itself, and stored by nobody here.
    let (ends, stored, _) = together(&mut made, [&good, &bad, &pull]);
    assert_eq!((ends, stored), (vec![true, false, false], size));
    made.ingest.table().set_accounts(Accounts::default());
    let (ends, stored, replies) = together(&mut made, [&good, &good, &good]);
    assert_eq!((ends, stored), (vec![false; 3], 0), "the account has gone");
    assert!(replies.is_empty());
}
