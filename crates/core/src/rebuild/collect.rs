//! What queues and index need of the records of one part of a log.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use super::{KEY_BYTES, UNIT_BYTES};
use crate::codec::properties;
use crate::codec::record::RecordView;
use crate::consume_queue::light_queues;
use crate::dispatch::{is_indexed, tags_code, Derived, Found};
use crate::index;

/// sysFlag bit: the record is a batch that counts as several messages.
const SYS_INNER_BATCH: i32 = 0x80;
/// The queues beside its own that a message is to be found in.
/// No queue has an offset beyond it.
const OFFSET_MAX: i64 = i64::MAX / 80;

/// The units of one queue in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRun {
    /// Topic.
    pub topic: String,
    /// Queue of the topic.
    pub queue_id: i32,
    /// First byte in the piece.
    pub at: u64,
    /// How many units there are.
    pub count: u64,
    /// Queue offset of the first.
    pub first: i64,
    /// Queue offset behind the highest.
    pub end: i64,
    /// Where the first record is in the log.
    pub first_physical: u64,
    /// Where in the log records are that begin the queue at 0.
    pub zeros: Vec<u64>,
    /// Whether each offset follows the one before it.
    pub gapless: bool,
}

/// What was found in a part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Records read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Queues, by topic and number.
    pub runs: Vec<QueueRun>,
    /// First byte of the keys in the piece, behind all units.
    pub keys_at: u64,
    /// How many keys there are.
    pub keys: u64,
    /// First and behind the last byte of the last record, and its store time.
    pub last: Option<(u64, u64, i64)>,
    /// Records that have no place in any queue that is made here: topic, reason, how many.
    pub unplaced: Vec<(String, String, u64)>,
}

#[derive(Default)]
struct Units {
    bytes: Vec<u8>,
    first: i64,
    end: i64,
    next: i64,
    first_physical: u64,
    zeros: Vec<u64>,
    gaps: bool,
}

/// Collects records in the order of the log.
pub struct Collector {
    delays: Vec<i64>,
    deleted: HashMap<String, u64>,
    queues: BTreeMap<(String, i32), Units>,
    keys: Vec<u8>,
    found: Collected,
    unplaced: BTreeMap<(String, &'static str), u64>,
}

impl Collector {
    /// Begins. `delays` are the milliseconds of each delay level; what lies before the end that
    /// `deleted` has for a topic belongs to nobody.
    pub fn new(delays: Vec<i64>, deleted: HashMap<String, u64>) -> Self {
        Self {
            delays,
            deleted,
            queues: BTreeMap::new(),
            keys: Vec::new(),
            found: Collected::default(),
            unplaced: BTreeMap::new(),
        }
    }

    /// Takes the next record.
    pub fn add(&mut self, record: &RecordView<'_>) {
        let at = record.physical_offset.cast_unsigned();
        let end = at + u64::from(record.total_size);
        self.found.records += 1;
        self.found.bytes += u64::from(record.total_size);
        self.found.last = Some((at, end, record.store_timestamp));
        let topic = String::from_utf8_lossy(record.topic).into_owned();
        let keys = Found::of(record);
        self.add_keys(&topic, record, &keys);
        let gone = self.deleted.get(&topic).is_some_and(|end| at < *end);
        if !gone && Derived::is_queued(record) {
            match refused(record) {
                Some(why) => *self.unplaced.entry((topic, why)).or_default() += 1,
                None => self.add_unit(topic, record, &keys),
            }
        }
    }

    fn add_unit(&mut self, topic: String, record: &RecordView<'_>, keys: &Found<'_>) {
        let at = record.physical_offset.cast_unsigned();
        let code = tags_code(&topic, record, keys, &self.delays);
        let offset = record.queue_offset;
        let units = self.queues.entry((topic, record.queue_id)).or_default();
        if units.bytes.is_empty() {
            units.first = offset;
            units.first_physical = at;
        } else {
            units.gaps |= offset != units.next;
        }
        if offset == 0 {
            units.zeros.push(at);
        }
        units.next = offset + 1;
        units.end = units.end.max(offset + 1);
        units.bytes.extend_from_slice(&offset.to_be_bytes());
        units.bytes.extend_from_slice(&at.to_be_bytes());
        units
            .bytes
            .extend_from_slice(&record.total_size.to_be_bytes());
        units.bytes.extend_from_slice(&code.to_be_bytes());
    }

    fn add_keys(&mut self, topic: &str, record: &RecordView<'_>, keys: &Found<'_>) {
        if !is_indexed(record) {
            return;
        }
        let tag = keys.tag();
        for key in keys.list(tag.as_deref()) {
            let hash = index::key_hash(topic, key);
            self.keys.extend_from_slice(&hash.to_be_bytes());
            self.keys
                .extend_from_slice(&record.physical_offset.to_be_bytes());
            self.keys
                .extend_from_slice(&record.store_timestamp.to_be_bytes());
        }
    }

    /// Writes the piece and says what is where in it.
    pub fn finish(mut self, piece: &mut impl Write) -> io::Result<Collected> {
        let mut at = 0;
        for ((topic, queue_id), units) in self.queues {
            piece.write_all(&units.bytes)?;
            let size = units.bytes.len() as u64;
            self.found.runs.push(QueueRun {
                topic,
                queue_id,
                at,
                count: size / UNIT_BYTES as u64,
                first: units.first,
                end: units.end,
                first_physical: units.first_physical,
                zeros: units.zeros,
                gapless: !units.gaps,
            });
            at += size;
        }
        piece.write_all(&self.keys)?;
        self.found.keys_at = at;
        self.found.keys = (self.keys.len() / KEY_BYTES) as u64;
        self.found.unplaced = self
            .unplaced
            .into_iter()
            .map(|((topic, why), count)| (topic, why.to_owned(), count))
            .collect();
        Ok(self.found)
    }
}

/// Why no unit is made for a record.
fn refused(record: &RecordView<'_>) -> Option<&'static str> {
    if record.sys_flag & SYS_INNER_BATCH != 0 {
        return Some("an inner batch, which needs a batch consume queue");
    }
    if properties::find(record.properties, light_queues::NAMED_QUEUES).is_some() {
        return Some("meant for several queues (multi-dispatch)");
    }
    let sane = (0..=OFFSET_MAX).contains(&record.queue_offset) && record.queue_id >= 0;
    (!sane).then_some("a queue number or offset that no queue has")
}
