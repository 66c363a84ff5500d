//! Reading from a queue: statuses, next offsets and limits of Java's `getMessage` (spec: store §13).

use crate::codec::record::{self, Parsed};
use crate::commit_log::CommitLog;
use crate::consume_queue::light_queues;
use crate::consume_queue::{ConsumeQueues, Unit, UNIT_SIZE};
use crate::disk::ahead;
use crate::disk::bad_pages;
use crate::disk::segment::{Lease, Segment};
use crate::filter::Filter;
use crate::store::config::GetConfig;
use crate::store::error::StoreError;
use std::sync::Arc;

/// Units read from a queue at once.
const CHUNK: u64 = 64;
/// So many units before a record is looked at, the processor is asked to load it.
const AHEAD: usize = 6;
/// Bytes of a record that are loaded so: its front, and with a filter its end, which has the properties.
const FRONT: usize = 128;
const END: usize = 256;
/// More tag codes than this are looked up in a sorted list.
const FEW: usize = 8;

/// How a get ended; the numbers are those of the Python interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GetStatus {
    /// There are messages.
    Found = 0,
    /// Messages were looked at, none was wanted.
    NoMatchedMessage = 1,
    /// The messages are gone from the log.
    MessageWasRemoving = 2,
    /// The queue lacks the units at the offset.
    OffsetFoundNull = 3,
    /// The offset lies behind the end.
    OffsetOverflowBadly = 4,
    /// The offset is the end.
    OffsetOverflowOne = 5,
    /// The offset lies before the first message.
    OffsetTooSmall = 6,
    /// The queue has never had a message.
    NoMessageInQueue = 8,
}

/// What is wanted from a queue.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Its queue.
    pub queue_id: i32,
    /// First queue offset.
    pub offset: i64,
    /// Most messages.
    pub messages: u64,
    /// Most bytes; the first message comes in any case.
    pub bytes: u64,
    /// Tag codes that are accepted; `None` accepts every message.
    pub tag_codes: Option<&'a [i64]>,
    /// What is asked of the properties; `None` accepts every message.
    pub filter: Option<&'a Filter>,
}

/// What a get returns; the records are in the log for as long as this is held.
#[derive(Clone)]
pub struct Got {
    /// How it ended.
    pub status: GetStatus,
    /// Queue offset to go on at.
    pub next: i64,
    /// First queue offset there is.
    pub min: i64,
    /// Queue offset behind the last one.
    pub max: i64,
    /// How many records were found.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The records, in as few pieces as they lie in.
    pub parts: Vec<Lease>,
    /// Whether a slave should be asked, since the data is probably not in memory here.
    pub suggest_slave: bool,
}

/// Tells whether bytes of the log can be read without waiting for the disk.
pub type Probe = fn(&[u8]) -> bool;

/// Reads from queues.
#[derive(Clone, Copy)]
pub struct Getter<'a> {
    /// The log.
    pub log: &'a CommitLog,
    /// Its queues.
    pub queues: &'a ConsumeQueues,
    /// Limits.
    pub settings: GetConfig,
    /// Bytes of log that memory is expected to hold.
    pub hot_bytes: u64,
}

/// What the walk over the units has so far.
struct Walk<'a> {
    wanted: Wanted<'a>,
    codes: Codes<'a>,
    got: Got,
    looked_at: u64,
    skip_below: u64,
    /// Tells whether bytes that lie far back are in memory; `None` reads them wherever they are.
    probe: Option<Probe>,
    /// Whether something that was to be read is not in memory.
    absent: bool,
    /// The file at hand: most records that are looked at one after another lie in one.
    file: Option<Arc<Segment>>,
}

impl Walk<'_> {
    fn gone(&mut self) {
        if self.got.messages == 0 {
            self.got.status = GetStatus::MessageWasRemoving;
        }
    }
}

enum Codes<'a> {
    All,
    Few(&'a [i64]),
    Sorted(Vec<i64>),
}

impl<'a> Codes<'a> {
    fn new(codes: Option<&'a [i64]>) -> Self {
        match codes {
            None => Self::All,
            Some(few) if few.len() <= FEW => Self::Few(few),
            Some(many) => {
                let mut sorted = many.to_vec();
                sorted.sort_unstable();
                Self::Sorted(sorted)
            }
        }
    }

    fn accept(&self, code: i64) -> bool {
        match self {
            Self::All => true,
            Self::Few(codes) => codes.contains(&code),
            Self::Sorted(codes) => codes.binary_search(&code).is_ok(),
        }
    }
}

impl Getter<'_> {
    /// Reads messages from a queue.
    pub fn get(&self, wanted: Wanted<'_>) -> Result<Got, StoreError> {
        let got = self.look_up(wanted, None)?;
        Ok(got.unwrap_or_else(|| unreachable!("only a probe finds something absent")))
    }

    /// Reads messages from a queue; `None` when one of them would have to come from the disk.
    pub fn get_resident(
        &self,
        wanted: Wanted<'_>,
        probe: Probe,
    ) -> Result<Option<Got>, StoreError> {
        self.look_up(wanted, Some(probe))
    }

    fn look_up(&self, wanted: Wanted<'_>, probe: Option<Probe>) -> Result<Option<Got>, StoreError> {
        let (topic, queue_id) = (wanted.topic, wanted.queue_id);
        let min = self.queues.min(topic, queue_id).cast_signed();
        let max = self.queues.max(topic, queue_id).cast_signed();
        let mut got = Got {
            status: GetStatus::NoMatchedMessage,
            next: wanted.offset,
            min,
            max,
            messages: 0,
            bytes: 0,
            parts: Vec::new(),
            suggest_slave: false,
        };
        (got.status, got.next) = match wanted.offset {
            _ if max == 0 => (GetStatus::NoMessageInQueue, 0),
            offset if offset < min => (GetStatus::OffsetTooSmall, min),
            offset if offset == max => (GetStatus::OffsetOverflowOne, offset),
            offset if offset > max => (GetStatus::OffsetOverflowBadly, max),
            _ => return self.walk(wanted, got, probe),
        };
        Ok(Some(got))
    }

    fn walk(
        &self,
        wanted: Wanted<'_>,
        got: Got,
        probe: Option<Probe>,
    ) -> Result<Option<Got>, StoreError> {
        let first = wanted.offset.cast_unsigned();
        // What a client asks for must not decide how many units are looked at.
        let wanted = Wanted {
            messages: wanted.messages.min(self.settings.messages_max()),
            ..wanted
        };
        let scan = self
            .settings
            .filter_bytes
            .max(wanted.messages.saturating_mul(UNIT_SIZE))
            .div_ceil(UNIT_SIZE);
        let last = first.saturating_add(scan);
        let max_phy = self.log.written();
        let mut walk = Walk {
            codes: Codes::new(wanted.tag_codes),
            wanted,
            got,
            looked_at: 0,
            skip_below: 0,
            probe,
            absent: false,
            file: None,
        };
        let mut units = Vec::new();
        let mut at = first;
        'units: while at < last {
            units.clear();
            let count = CHUNK.min(last - at);
            self.queues
                .range(wanted.topic, wanted.queue_id, at, count, &mut units)?;
            if units.is_empty() {
                break;
            }
            self.find_file(&mut walk, &units);
            for unit in units.iter().take(AHEAD) {
                Self::load(&walk, unit);
            }
            for (index, unit) in units.iter().enumerate() {
                if let Some(later) = units.get(index + AHEAD) {
                    Self::load(&walk, later);
                }
                if !self.look(&mut walk, at, unit, max_phy) {
                    break 'units;
                }
                at += 1;
            }
        }
        if walk.absent {
            return Ok(None);
        }
        let mut got = walk.got;
        if at == first && got.messages == 0 {
            got.status = GetStatus::OffsetFoundNull;
            let next = self.queues.next_part(wanted.topic, wanted.queue_id, first);
            got.next = next.map_or(got.max, u64::cast_signed);
            // The file of these units is gone, though they are not older than the log.
            let skipped = got.next.abs_diff(wanted.offset);
            self.log.damage.count(skipped, || {
                let (topic, id) = (wanted.topic, wanted.queue_id);
                format!("queue {id} of topic {topic} lacks the file of offset {first}")
            });
        } else {
            got.next = at.cast_signed();
        }
        got.suggest_slave = max_phy.saturating_sub(walk.looked_at) > self.hot_bytes;
        Ok(Some(got))
    }

    /// Takes hold of the file that the first of some units points into, which most of them do.
    fn find_file(&self, walk: &mut Walk<'_>, units: &[Unit]) {
        let first = units.first().map(|unit| unit.physical_offset);
        walk.file = first.and_then(|at| self.log.segment_at(at));
    }

    /// The file that has the bytes of a unit, all of them written; most often the one at hand.
    fn file_of(&self, walk: &mut Walk<'_>, unit: &Unit) -> Option<Arc<Segment>> {
        let from = unit.physical_offset;
        let to = from.checked_add(u64::from(unit.size))?;
        let whole = |file: &Arc<Segment>| file.bytes(from, to).is_some();
        if to > self.log.written() {
            return None;
        }
        if !walk.file.as_ref().is_some_and(whole) {
            walk.file = Some(self.log.segment_at(from).filter(whole)?);
        }
        walk.file.clone()
    }

    /// Starts loading what will be looked at of a record, if it is in the file at hand.
    fn load(walk: &Walk<'_>, unit: &Unit) {
        let from = unit.physical_offset;
        let to = from.saturating_add(u64::from(unit.size));
        let Some(record) = walk.file.as_ref().and_then(|file| file.bytes(from, to)) else {
            return;
        };
        if !walk.codes.accept(unit.tags_code) {
            return;
        }
        ahead::load(record.get(..FRONT).unwrap_or(record));
        if walk.wanted.filter.is_some() {
            ahead::load(record.last_chunk::<END>().map_or(record, |end| end));
        }
    }

    /// Looks at one unit; false when the batch is full without it.
    fn look(&self, walk: &mut Walk<'_>, at: u64, unit: &Unit, max_phy: u64) -> bool {
        let size = u64::from(unit.size);
        if unit.is_filler() {
            walk.gone();
            if unit.is_lost() {
                self.damaged(walk, at, "its queue has no unit there");
            }
            return true;
        }
        let cold = max_phy.saturating_sub(unit.physical_offset) > self.hot_bytes;
        if self.is_full(walk, size, cold) {
            return false;
        }
        walk.looked_at = unit.physical_offset;
        if unit.physical_offset < walk.skip_below || !walk.codes.accept(unit.tags_code) {
            return true;
        }
        let Some(file) = self.file_of(walk, unit) else {
            walk.gone();
            if unit.physical_offset < self.log.min() {
                walk.skip_below = self.log.next_file_start(unit.physical_offset);
            } else {
                // No record was ever there: the unit is damaged, those behind it need not be.
                self.damaged(walk, at, "its unit points behind the log");
            }
            return true;
        };
        let (from, to) = (unit.physical_offset, unit.physical_offset + size);
        let record = file.bytes(from, to).unwrap_or_default();
        if cold && walk.probe.is_some_and(|is_resident| !is_resident(record)) {
            walk.absent = true;
            return false;
        }
        match Self::look_at(&walk.wanted, at, record, unit) {
            Look::Wanted => {}
            Look::Unwanted => return true,
            Look::Damaged(why) => {
                self.damaged(walk, at, why);
                walk.gone();
                return true;
            }
        }
        let Some(lease) = Lease::new(file, from, to) else {
            return true;
        };
        walk.got.status = GetStatus::Found;
        walk.got.messages += 1;
        walk.got.bytes += size;
        let follows = walk
            .got
            .parts
            .last_mut()
            .is_some_and(|last| last.extend(&lease));
        if !follows {
            walk.got.parts.push(lease);
        }
        true
    }

    fn is_full(&self, walk: &Walk<'_>, size: u64, cold: bool) -> bool {
        let (count, total) = (walk.got.messages, walk.got.bytes + size);
        if count == 0 {
            return false;
        }
        let (bytes_max, count_max) = if cold {
            self.settings.disk
        } else {
            self.settings.memory
        };
        count >= walk.wanted.messages.min(count_max) || total > walk.wanted.bytes.min(bytes_max)
    }
}

impl Getter<'_> {
    /// Counts a message that is passed over.
    fn damaged(&self, walk: &Walk<'_>, at: u64, why: &str) {
        let (topic, id) = (walk.wanted.topic, walk.wanted.queue_id);
        let what = || format!("offset {at} of queue {id} of topic {topic} is passed over: {why}");
        self.log.damage.count(1, what);
    }

    /// Whether the record that a unit names is there, whole, unchanged and of this place in this
    /// queue, and wanted: neither the unit nor the disk is trusted blindly, and one damaged record
    /// would cost a consumer its whole batch.
    fn look_at(wanted: &Wanted<'_>, at: u64, record: &[u8], unit: &Unit) -> Look {
        if let Some(filter) = wanted.filter {
            // The checksum covers the body only, so that what is not wanted need not be summed up.
            if let Parsed::Record { view, .. } = record::parse(record, 0, false) {
                let is_there = is_at(view.physical_offset, unit) && !bad_pages::is_bad(record);
                if is_there && !filter.matches(view.properties) {
                    return Look::Unwanted;
                }
            }
        }
        if !bad_pages::is_readable(record) {
            return Look::Damaged("the disk cannot read its record");
        }
        let Parsed::Record { view, size } = record::parse(record, 0, true) else {
            return Look::Damaged("its record is damaged");
        };
        if size != unit.size || !is_at(view.physical_offset, unit) {
            return Look::Damaged("its unit is not where a record begins");
        }
        if light_queues::is_place(&view, wanted.topic, wanted.queue_id, at) {
            Look::Wanted
        } else {
            Look::Damaged("its unit is of another place")
        }
    }
}

/// What a look at a record found.
enum Look {
    Wanted,
    Unwanted,
    Damaged(&'static str),
}

fn is_at(physical_offset: i64, unit: &Unit) -> bool {
    physical_offset.cast_unsigned() == unit.physical_offset
}
