//! Copies of messages that were popped and not acknowledged, for another try of their group.
//!
//! The broker decides where they go and who may have them; here they are read, given their
//! properties and encoded. Only what is plain is copied, byte for byte as `broker/pop` does it:
//! at the first message that is not, the caller goes on in its own way, so that copies keep the
//! order of their checkpoint.

use std::collections::HashSet;

use crate::codec::properties;
use crate::codec::record::{self, NewRecord, Parsed, RecordView};
use crate::codec::record::{SYS_BORN_HOST_V6, SYS_COMPRESSED, SYS_STORE_HOST_V6};
use crate::commit_log::Prepared;
use crate::disk::segment::Lease;
use crate::store::error::StoreError;
use crate::store::Store;

/// When a message was popped for the first time, Unix milliseconds.
const FIRST_POP_TIME: &[u8] = b"1ST_POP_TIME";
/// The group that a copy is for.
const ORIGIN_GROUP: &[u8] = b"ORIGIN_GROUP";
/// What makes a copy, or its place in light queues, a matter of rules.
const RULED: [&[u8]; 3] = [
    b"INNER_MULTI_DISPATCH",
    b"INNER_MULTI_QUEUE_OFFSET",
    b"LMQ_ORIGIN_TOPIC",
];
/// Bits of a flag that say how the bytes of a message are to be read: compression and its kind,
/// several tags, hosts.
const PLAIN_FLAGS: i32 =
    SYS_COMPRESSED | SYS_MULTI_TAGS | SYS_COMPRESSION | SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6;
const SYS_MULTI_TAGS: i32 = 0x2;
const SYS_COMPRESSION: i32 = 0x700;
/// Bytes read for one append, of which the first message may be longer.
const COPIED_AT_ONCE: usize = 1 << 20;
/// More properties than these are not compared with each other here.
const COMPARED_MAX: usize = 64;

/// What the copies of one checkpoint's messages have in common.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The topic that was popped from.
    pub topic: &'a str,
    /// Its queue.
    pub queue_id: i32,
    /// Whether that is a retry topic: its messages say whose they are.
    pub of_retry: bool,
    /// The group that popped.
    pub group: &'a str,
    /// When it did, Unix milliseconds.
    pub pop_time_ms: i64,
    /// The topic of the copies.
    pub to_topic: &'a str,
    /// Its queue.
    pub to_queue: i32,
    /// This broker's host, in the form of records.
    pub host: &'a [u8],
    /// Tries in vain that this one counts for: none when the consumer suspended the message.
    pub tries: i32,
    /// Most of them that a copy may count; one that would have more is left to the caller.
    pub tries_max: i32,
    /// Properties of messages that are left to the caller.
    pub left: HashSet<&'a [u8]>,
}

impl Wish<'_> {
    /// The tries in vain and the properties of a message's copy; `None` when it is not plain.
    pub fn copy_of(&self, message: &RecordView<'_>, out: &mut Vec<u8>) -> Option<i32> {
        let tries = message.reconsume_times.checked_add(self.tries)?;
        if message.sys_flag & !PLAIN_FLAGS != 0 || tries > self.tries_max {
            return None;
        }
        let said = self.said(message.properties)?;
        // The first pop of a message is this one, whatever its sender says of another.
        let is_first = message.reconsume_times == 0;
        if (is_first && said.first_pop) || (self.of_retry && !said.group) {
            return None;
        }
        out.clear();
        out.extend_from_slice(message.properties);
        if !said.first_pop {
            properties::push(out, FIRST_POP_TIME, self.pop_time_ms.to_string().as_bytes());
        }
        if !said.group {
            properties::push(out, ORIGIN_GROUP, self.group.as_bytes());
        }
        Some(tries)
    }

    /// What the properties say; `None` when they would not be written again as they stand.
    fn said(&self, text: &[u8]) -> Option<Said> {
        std::str::from_utf8(text).ok()?;
        let mut said = Said::default();
        let mut names: [&[u8]; COMPARED_MAX] = [b""; COMPARED_MAX];
        let mut bytes = 0;
        for (number, (name, value)) in properties::entries(text).enumerate() {
            let is_ruled = RULED.contains(&name) || self.left.contains(name);
            if is_ruled || names.get(..number)?.contains(&name) {
                return None;
            }
            *names.get_mut(number)? = name;
            bytes += name.len() + value.len() + 2;
            said.first_pop |= name == FIRST_POP_TIME;
            if name == ORIGIN_GROUP {
                (value == self.group.as_bytes()).then_some(())?;
                said.group = true;
            }
        }
        (bytes == text.len()).then_some(said)
    }
}

/// Which properties of a copy a message has.
#[derive(Default)]
struct Said {
    first_pop: bool,
    group: bool,
}

/// Encodes copies of the messages at `offsets` in their order, up to the first that is not plain.
/// What is not read whole is not plain.
pub fn prepare<'t>(
    store: &Store,
    wish: &Wish<'t>,
    offsets: &[i64],
    prepared: &mut Prepared<'t>,
) -> Result<(), StoreError> {
    store.usable()?;
    let (body_max, mut text) = (store.body_max(), Vec::new());
    let mut read = 0;
    for offset in offsets {
        let Some(record) = message(store, wish, *offset) else {
            break;
        };
        read += record.len();
        if read > COPIED_AT_ONCE && !prepared.is_empty() {
            break;
        }
        if push(wish, *offset, &record, body_max, &mut text, prepared).is_none() {
            break;
        }
    }
    Ok(())
}

/// The record at an offset of the queue.
fn message(store: &Store, wish: &Wish<'_>, offset: i64) -> Option<Lease> {
    let mut units = Vec::with_capacity(1);
    let at = u64::try_from(offset).ok()?;
    let queues = store.queues();
    queues
        .range(wish.topic, wish.queue_id, at, 1, &mut units)
        .ok()?;
    let unit = units.first().filter(|unit| !unit.is_filler())?;
    let record = store.log().record(unit.physical_offset)?;
    (record.len() as u64 == u64::from(unit.size)).then_some(record)
}

fn push<'t>(
    wish: &Wish<'t>,
    offset: i64,
    bytes: &[u8],
    body_max: u64,
    text: &mut Vec<u8>,
    prepared: &mut Prepared<'t>,
) -> Option<()> {
    let Parsed::Record { view, .. } = record::parse(bytes, 0, true) else {
        return None;
    };
    let is_it = view.topic == wish.topic.as_bytes()
        && view.queue_id == wish.queue_id
        && view.queue_offset == offset;
    if !is_it {
        return None;
    }
    let copy = NewRecord {
        topic: wish.to_topic.as_bytes(),
        queue_id: wish.to_queue,
        flag: view.flag,
        sys_flag: view.sys_flag,
        born_timestamp: view.born_timestamp,
        born_host: wish.host,
        store_host: wish.host,
        reconsume_times: wish.copy_of(&view, text)?,
        prepared_transaction_offset: 0,
        body: view.body,
        properties: text,
    };
    prepared.push(wish.to_topic, &copy, body_max, false).ok()
}

#[cfg(test)]
mod tests {
    use super::Wish;
    use crate::codec::record::RecordView;
    use std::collections::HashSet;

    fn wish(of_retry: bool) -> Wish<'static> {
        Wish {
            topic: "T",
            queue_id: 0,
            of_retry,
            group: "g",
            pop_time_ms: 7,
            to_topic: "%RETRY%g_T",
            to_queue: 0,
            host: &[1; 8],
            tries: 1,
            tries_max: 3,
            left: HashSet::from([&b"HOOK"[..]]),
        }
    }

    fn message(properties: &[u8]) -> RecordView<'_> {
        RecordView {
            total_size: 0,
            magic: 0,
            body_crc: 0,
            queue_id: 0,
            flag: 0,
            queue_offset: 0,
            physical_offset: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: &[2; 8],
            store_timestamp: 0,
            store_host: &[3; 8],
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"",
            topic: b"T",
            properties,
        }
    }

    fn copied(wish: &Wish<'_>, message: &RecordView<'_>) -> Option<(i32, String)> {
        let mut text = b"rest".to_vec();
        let tries = wish.copy_of(message, &mut text)?;
        Some((tries, String::from_utf8(text).unwrap()))
    }

    #[test]
    fn a_first_copy_says_when_it_was_popped_and_by_whom() {
        let all = "KEYS\u{1}k\u{2}1ST_POP_TIME\u{1}7\u{2}ORIGIN_GROUP\u{1}g\u{2}";
        let found = copied(&wish(false), &message(b"KEYS\x01k\x02"));
        assert_eq!(found, Some((1, all.into())));
        let bare = "1ST_POP_TIME\u{1}7\u{2}ORIGIN_GROUP\u{1}g\u{2}";
        assert_eq!(copied(&wish(false), &message(b"")), Some((1, bare.into())));
    }

    #[test]
    fn a_later_copy_keeps_what_the_first_says() {
        let text = b"1ST_POP_TIME\x015\x02ORIGIN_GROUP\x01g\x02K\x01v\x02";
        let again = RecordView {
            reconsume_times: 1,
            ..message(text)
        };
        let same = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!(copied(&wish(true), &again), Some((2, same)));
        let bare = RecordView {
            reconsume_times: 1,
            ..message(b"ORIGIN_GROUP\x01g\x02")
        };
        let more = "ORIGIN_GROUP\u{1}g\u{2}1ST_POP_TIME\u{1}7\u{2}";
        assert_eq!(copied(&wish(true), &bare), Some((2, more.into())));
    }

    #[test]
    fn tries_count_up_to_the_groups_limit() {
        let tried = |reconsume_times| RecordView {
            reconsume_times,
            ..message(b"1ST_POP_TIME\x015\x02")
        };
        assert_eq!(copied(&wish(false), &tried(2)).unwrap().0, 3);
        assert_eq!(copied(&wish(false), &tried(3)), None);
        assert_eq!(copied(&wish(false), &tried(i32::MAX)), None);
        let suspended = Wish {
            tries: 0,
            ..wish(false)
        };
        assert_eq!(copied(&suspended, &tried(3)).unwrap().0, 3);
    }

    #[test]
    fn what_rules_judge_or_what_would_be_written_otherwise_is_left() {
        for text in [
            &b"1ST_POP_TIME\x015\x02"[..],
            b"ORIGIN_GROUP\x01other\x02",
            b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02",
            b"INNER_MULTI_QUEUE_OFFSET\x010\x02",
            b"LMQ_ORIGIN_TOPIC\x01T\x02",
            b"HOOK\x011\x02",
            b"a\x011\x02a\x012\x02",
            b"a\x011",
            b"a\x01\x02",
            b"\x011\x02",
            b"a\x011\x02b",
            b"a\x01\xff\x02",
        ] {
            assert_eq!(copied(&wish(false), &message(text)), None, "{text:?}");
        }
        let many: Vec<u8> = (0..65)
            .flat_map(|number| format!("p{number}\u{1}1\u{2}").into_bytes())
            .collect();
        assert_eq!(copied(&wish(false), &message(&many)), None);
        let few = many.strip_suffix(b"p64\x011\x02").unwrap();
        assert!(copied(&wish(false), &message(few)).is_some());
    }

    #[test]
    fn a_retry_topics_message_must_say_whose_it_is() {
        assert_eq!(copied(&wish(true), &message(b"K\x01v\x02")), None);
    }

    #[test]
    fn flags_beyond_the_form_of_the_bytes_are_left() {
        for (flag, is_plain) in [
            (0x1, true),
            (0x2, true),
            (0x300, true),
            (0x30, true),
            (0x4, false),
            (0x8, false),
            (0x40, false),
            (0x80, false),
            (1 << 31, false),
        ] {
            let flagged = RecordView {
                sys_flag: flag,
                ..message(b"")
            };
            assert_eq!(copied(&wish(false), &flagged).is_some(), is_plain, "{flag}");
        }
    }
}
