//! Stored messages as clients of gRPC read them: what `proxy/services/convert.py` makes of a record
//! whose delivery needs no further step.
//!
//! A message that needs one (a tag that only has the code of a wanted one, a body that a client of
//! remoting has compressed, too many deliveries, an address of IPv6, a text that is no UTF-8) is not
//! shown here, and the whole pop is left to the front.

mod popped;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use md5::{Digest, Md5};

use super::fields::Written;
use crate::codec::host;
use crate::codec::properties::pairs;
use crate::codec::record::{records, RecordView, SYS_COMPRESSED};
use crate::ingest::pop::give::Batch;
use crate::store::get::Got;

/// `Code.OK`.
const OK: u64 = 20_000;
/// `DigestType.MD5`.
const MD5: u64 = 2;
const IDENTITY: u64 = 1;
const GZIP: u64 = 2;
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const PRIORITY_MAX: u64 = i32::MAX as u64;
/// Digits of the longest number that is read in a property.
const DIGITS_MAX: usize = 15;
/// Properties that make a message a delayed one.
const DELAYS: [&str; 4] = [
    "DELAY",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
];

/// What a receive says of all its messages. Times are Unix milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The topic as the client named it.
    pub topic: &'a str,
    /// Tags that it wants; none: every message.
    pub tags: &'a [String],
    /// Deliveries that a message may have; those with more are dead.
    pub attempts_max: i32,
    /// Names that no user's property has.
    pub reserved: &'a HashSet<String>,
    /// When it was popped.
    pub pop_time_ms: i64,
    /// How long the messages are invisible.
    pub invisible_ms: i64,
    /// Queue of the revive topic.
    pub revive_queue: i32,
    /// The broker's name.
    pub broker: &'a str,
}

/// Id and receipt handle of a message.
pub type Named = (String, String);

/// The part of an answer that stands before the messages, framed.
pub fn begun() -> Vec<u8> {
    let mut status = Written::default();
    status.number(1, OK).text(2, "OK");
    let mut part = Written::default();
    part.message(1, &status.0);
    framed(&part)
}

/// The part of an answer that stands behind the messages, framed: when they were delivered.
pub fn ended(now_ms: i64) -> Vec<u8> {
    let mut part = Written::default();
    part.message(3, &millis(now_ms).0);
    framed(&part)
}

impl View<'_> {
    /// The messages of a queue, framed each as a part of an answer; `named` hears of each.
    pub fn show(&self, batch: &Batch, got: &Got, named: &mut Vec<Named>) -> Option<Vec<u8>> {
        let size = usize::try_from(got.bytes).ok()?;
        let mut out = Vec::with_capacity(size + 512 * batch.diffs.len());
        for part in &got.parts {
            for record in records(part, false) {
                self.message(
                    (batch.start, batch.queue_id),
                    &record.ok()?,
                    named,
                    &mut out,
                )?;
            }
        }
        Some(out)
    }

    /// Adds a message whose checkpoint begins at `start` of a queue.
    pub(super) fn message(
        &self,
        (start, queue_id): (i64, i32),
        record: &RecordView<'_>,
        named: &mut Vec<Named>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let found = Properties::read(std::str::from_utf8(record.properties).ok()?);
        let tag = found.get("TAGS");
        let is_wanted = self.tags.is_empty()
            || tag.is_some_and(|tag| self.tags.iter().any(|wanted| wanted == tag));
        if !is_wanted || record.reconsume_times >= self.attempts_max {
            return None;
        }
        let encoding = match record.sys_flag & SYS_COMPRESSED {
            0 => IDENTITY,
            _ if record.body.starts_with(GZIP_MAGIC) => GZIP,
            _ => return None,
        };
        let handle = self.handle((start, queue_id), record);
        let id = match found.get("UNIQ_KEY") {
            Some(id) => id.to_owned(),
            None => offset_id(record)?,
        };
        let system = self.system(record, &found, (&id, &handle), encoding)?;
        let mut front = Written::default();
        front.message(1, &name(self.topic).0);
        for (name, value) in found.0 {
            if !self.reserved.contains(name) {
                let mut entry = Written::default();
                // Both are there in an entry, whatever they hold.
                entry
                    .message(1, name.as_bytes())
                    .message(2, value.as_bytes());
                front.message(2, &entry.0);
            }
        }
        front.message(3, &system.0);
        front_of(&front, record.body, out)?;
        named.push((id, handle));
        Some(())
    }

    fn handle(&self, (start, queue_id): (i64, i32), record: &RecordView<'_>) -> String {
        format!(
            "{} {} {} {} 0 {} {} {} {}",
            start,
            self.pop_time_ms,
            self.invisible_ms,
            self.revive_queue,
            self.broker,
            queue_id,
            record.queue_offset,
            record.physical_offset,
        )
    }

    fn system(
        &self,
        record: &RecordView<'_>,
        found: &Properties<'_>,
        (id, handle): (&str, &str),
        encoding: u64,
    ) -> Option<Written> {
        let mut out = Written::default();
        out.text(1, found.get("TAGS").unwrap_or_default());
        for key in found.get("KEYS").unwrap_or_default().split(' ') {
            out.text(2, key);
        }
        let mut digest = Written::default();
        digest.number(1, MD5).text(2, &checksum(record.body));
        out.text(3, id)
            .message(4, &digest.0)
            .number(5, encoding)
            .number(6, found.kind())
            .message(7, &millis(record.born_timestamp).0);
        match found.get("__BORNHOST") {
            Some(host) => out.text(8, host),
            None => out.text(8, address(record.born_host)?.rsplit_once(':')?.0),
        };
        out.message(9, &millis(record.store_timestamp).0)
            .text(10, &address(record.store_host)?);
        if let Some(due) = found.number("TIMER_DELIVER_MS") {
            out.message(11, &millis(i64::try_from(due).ok()?).0);
        }
        out.text(12, handle)
            .number(13, u64::try_from(record.queue_id).ok()?)
            .given(14, u64::try_from(record.queue_offset).ok()?)
            .message(15, &millis(self.invisible_ms).0)
            .given(16, u64::try_from(record.reconsume_times + 1).ok()?)
            .text(17, found.get("__SHARDINGKEY").unwrap_or_default())
            .text(18, found.get("TRACE_CONTEXT").unwrap_or_default());
        if let Some(origin) = found.get("DLQ_ORIGIN_TOPIC") {
            let mut dead = Written::default();
            let id = found.get("DLQ_ORIGIN_MESSAGE_ID").unwrap_or_default();
            dead.text(1, origin).text(2, id);
            out.message(20, &dead.0);
        }
        out.text(21, found.get("__LITE_TOPIC").unwrap_or_default());
        let priority = found.number("_SYS_MSG_PRIORITY_");
        if let Some(priority) = priority.filter(|it| *it <= PRIORITY_MAX) {
            out.given(22, priority);
        }
        Some(out)
    }
}

/// Properties, each once: of two with one name the later counts.
struct Properties<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Properties<'a> {
    /// Of so many pairs and more, repeats are found by hashing: a sender chooses how many there are.
    const MANY: usize = 32;

    fn read(text: &'a str) -> Self {
        let mut found: Vec<(&str, &str)> = Vec::with_capacity(16);
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (name, value) in pairs(text) {
            let count = found.len();
            let known = if count < Self::MANY {
                found.iter().position(|(known, _)| *known == name)
            } else {
                if places.is_empty() {
                    places.extend(found.iter().enumerate().map(|(at, pair)| (pair.0, at)));
                }
                places.get(name).copied()
            };
            if let Some(pair) = known.and_then(|at| found.get_mut(at)) {
                pair.1 = value;
            } else {
                found.push((name, value));
                if count >= Self::MANY {
                    places.insert(name, count);
                }
            }
        }
        Self(found)
    }

    fn get(&self, wanted: &str) -> Option<&'a str> {
        let mut all = self.0.iter();
        all.find(|(name, _)| *name == wanted)
            .map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = self.get(name)?;
        let is_plain = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse().ok())?
    }

    /// Number of the type of a message, of which the first that fits counts.
    fn kind(&self) -> u64 {
        let has = |name: &str| self.get(name).is_some();
        if self.get("TRAN_MSG") == Some("true") {
            4
        } else if DELAYS.into_iter().any(has) {
            3
        } else if has("__SHARDINGKEY") {
            2
        } else if has("_SYS_MSG_PRIORITY_") {
            6
        } else if has("__LITE_TOPIC") {
            5
        } else {
            1
        }
    }
}

/// Frames a part that holds a message; its body comes last.
fn front_of(front: &Written, body: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let size_of_body = if body.is_empty() {
        0
    } else {
        1 + size_of(body.len()) + body.len()
    };
    let size = front.0.len() + size_of_body;
    let framed = u32::try_from(1 + size_of(size) + size).ok()?;
    out.push(0);
    out.extend_from_slice(&framed.to_be_bytes());
    let mut start = Written(std::mem::take(out));
    start.begin(2, size);
    start.0.extend_from_slice(&front.0);
    if !body.is_empty() {
        start.message(4, body);
    }
    *out = start.0;
    Some(())
}

/// Bytes that a length takes.
fn size_of(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    (bits as usize).div_ceil(7)
}

fn framed(part: &Written) -> Vec<u8> {
    let mut out = vec![0; 1];
    let size = u32::try_from(part.0.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&part.0);
    out
}

fn name(text: &str) -> Written {
    let mut resource = Written::default();
    resource.text(2, text);
    resource
}

/// A Timestamp or Duration; the second half is never negative.
fn millis(amount: i64) -> Written {
    let (seconds, rest) = (amount.div_euclid(1000), amount.rem_euclid(1000));
    let mut out = Written::default();
    out.number(1, seconds.cast_unsigned());
    out.number(2, (rest * 1_000_000).cast_unsigned());
    out
}

fn checksum(body: &[u8]) -> String {
    let mut text = String::with_capacity(32);
    for byte in Md5::digest(body) {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// `ip:port` of a stored host of IPv4.
fn address(stored: &[u8]) -> Option<String> {
    let mut text = String::new();
    host::write_text(stored, &mut text).ok()?;
    (stored.len() == host::V4_SIZE).then_some(text)
}

/// The id of a message whose producer gave it none.
fn offset_id(record: &RecordView<'_>) -> Option<String> {
    let mut text = String::with_capacity(32);
    for byte in record.store_host {
        write!(text, "{byte:02X}").ok()?;
    }
    write!(text, "{:016X}", record.physical_offset).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::Properties;

    #[test]
    fn each_property_counts_once_with_its_last_value_however_many_there_are() {
        for count in [1, 2, 31, 32, 33, 34, 8_000] {
            let names: Vec<_> = (0..count).map(|number| format!("{number:x}")).collect();
            let text = |value: &str| {
                let pair = |name: &String| format!("{name}\u{1}{value}{name}\u{2}");
                names.iter().map(pair).collect::<Vec<_>>().concat()
            };
            let twice = text("a") + &text("b");
            let read = Properties::read(&twice).0;
            let values = names.iter().map(|name| format!("b{name}"));
            let wanted: Vec<_> = names.iter().map(String::as_str).zip(values).collect();
            assert!(read
                .into_iter()
                .eq(wanted.iter().map(|(n, v)| (*n, v.as_str()))));
        }
    }
}
