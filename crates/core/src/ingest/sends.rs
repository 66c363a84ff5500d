//! The plain sends of one read: collected, appended with one write, answered.

use std::time::Duration;

use super::answered::{Kind, Way};
use super::books::Ledger;
use super::connection::Source;
use super::parked::{Needs, Parked, Sent, Waiting};
use super::scan::{self, Half, Scanned};
use super::send::{self, write_answer, Answer};
use super::table::{State, Table};
use super::Sink;
use crate::codec::batch;
use crate::codec::command::{Header, FLAG_ONE_WAY};
use crate::codec::frame::Frame;
use crate::codec::record::NewRecord;
use crate::commit_log::{Appended, Placed, Prepared};
use crate::store::Store;

/// Room for records beyond this is not kept for the next ones.
const ROOM_MAX: usize = 1 << 20;

/// A send that was taken and is not appended yet.
struct Taken<'t, 'f> {
    frame: Frame<'f>,
    /// Request code.
    code: i32,
    topic: &'t str,
    /// The topic that a half message is for.
    half_of: Option<&'t str>,
    opaque: i32,
    queue_id: i32,
    one_way: bool,
    waits: bool,
    /// How many records it is: more than one may be for a batch.
    records: usize,
    /// Where its unique key ends among the keys; it starts where the one before ends.
    key_end: usize,
}

pub(super) struct Sends<'t, 'f> {
    table: &'t Table,
    from: Source,
    prepared: Prepared<'t>,
    taken: Vec<Taken<'t, 'f>>,
    unique_keys: String,
    properties: Vec<u8>,
    others: Vec<i64>,
}

/// Where sends are refused, and counted.
pub(super) struct Refused<'r> {
    pub(super) replies: &'r mut Vec<u8>,
    pub(super) ledger: &'r mut Ledger,
}

impl<'t, 'f> Sends<'t, 'f> {
    /// Collects sends; `room` is that of earlier records.
    pub(super) fn new(table: &'t Table, from: Source, room: Vec<u8>) -> Self {
        Self {
            table,
            from,
            prepared: Prepared::reusing(room),
            taken: Vec::new(),
            unique_keys: String::new(),
            properties: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Encodes the record of a plain send, or those of a batch, or refuses it when too many answers wait already; false
    /// leaves the frame to the processors.
    pub(super) fn take(
        &mut self,
        frame: &Frame<'f>,
        header: &Header<'_>,
        parked: usize,
        refused: &mut Refused<'_>,
    ) -> bool {
        self.try_take(frame, header, parked, refused).is_some()
    }

    fn try_take(
        &mut self,
        frame: &Frame<'f>,
        header: &Header<'_>,
        parked: usize,
        refused: &mut Refused<'_>,
    ) -> Option<()> {
        let state = &self.table.state;
        let is_send = matches!(
            header.code,
            send::SEND_SHORT | send::SEND | send::SEND_BATCH
        );
        if !is_send || !state.sends || frame.body.is_empty() || frame.body.len() > state.body_max {
            return None;
        }
        let request = send::read(header)?;
        let (topic, row) = self.table.topics.get_key_value(request.topic)?;
        if request.queue_id >= row.send_queues {
            return None;
        }
        let scanned = scan::plain_properties(request.properties, &state.stamps, &state.special)?;
        if !request.batch && scanned.unique_key.is_none() {
            return None;
        }
        // Only together: the processors refuse the one without the other, or take it as it is.
        if request.prepared && scanned.half.is_none() || request.batch && scanned.half.is_some() {
            return None;
        }
        let half = match scanned.half {
            Some(half) => Some((half, state.halves.as_deref()?)),
            None => None,
        };
        let one_way = header.flag & FLAG_ONE_WAY != 0;
        let waits = scanned.wait && !one_way;
        if waits && Needs::of(state, 0).waits() && parked + self.taken.len() >= state.parked_max {
            let remark = &state.busy_remark;
            send::write_busy(state, header.opaque, remark, refused.replies).ok()?;
            refused.ledger.counters.refused += 1;
            let kind = Kind::plain(header.code, send::SYSTEM_BUSY);
            refused.ledger.answered.add(kind, self.from.took());
            return Some(());
        }
        let peer = self.from.peer;
        let record = NewRecord {
            topic: topic.as_bytes(),
            queue_id: request.queue_id,
            flag: request.flag,
            sys_flag: request.sys_flag | row.add_sys_flag,
            born_timestamp: request.born_timestamp,
            born_host: peer.host()?,
            store_host: &state.store_host,
            reconsume_times: request.reconsume_times,
            prepared_transaction_offset: 0,
            body: frame.body,
            properties: &[],
        };
        let records = if request.batch {
            // A batch's own properties mean nothing to its messages, but this one to processors.
            scanned.delay.is_none().then_some(())?;
            self.push_batch(topic, record)?
        } else {
            self.push(topic, record, request.properties, &scanned, half)?
        };
        self.unique_keys
            .push_str(scanned.unique_key.unwrap_or_default());
        self.taken.push(Taken {
            frame: *frame,
            code: header.code,
            topic: counted_as(state, topic, &scanned, half.map(|(_, waiting)| waiting))?,
            half_of: half.map(|_| &**topic),
            opaque: header.opaque,
            queue_id: request.queue_id,
            one_way,
            waits,
            records,
            key_end: self.unique_keys.len(),
        });
        Some(())
    }

    fn push(
        &mut self,
        topic: &'t str,
        record: NewRecord<'_>,
        properties: &str,
        scanned: &Scanned<'_>,
        half: Option<(Half, &'t str)>,
    ) -> Option<usize> {
        let state = &self.table.state;
        let mut stored = std::mem::take(&mut self.properties);
        stored.clear();
        scan::stored_properties(properties, scanned, &state.stamps, &mut stored);
        let mut record = record;
        let mut place = Some(topic);
        if let Some(level) = scanned.delay {
            scan::push_real(topic, record.queue_id, &mut stored);
            record.queue_id = level - 1;
            place = waiting_room(state, level);
        }
        if let Some((half, waiting)) = half {
            scan::push_transaction_id(scanned, half, &mut stored);
            scan::push_real(topic, record.queue_id, &mut stored);
            record.queue_id = 0;
            place = Some(waiting);
        }
        let pushed = place.and_then(|place| {
            record.topic = place.as_bytes();
            record.properties = &stored;
            let body_max = state.body_max as u64;
            self.prepared.push(place, &record, body_max, false).ok()
        });
        self.properties = stored;
        pushed.map(|()| 1)
    }

    /// Encodes the messages of a batch, all or none.
    fn push_batch(&mut self, topic: &'t str, mut record: NewRecord<'_>) -> Option<usize> {
        let mark = self.prepared.mark();
        let state = &self.table.state;
        let (body_max, batch_max) = (state.body_max as u64, state.batch_max);
        let mut records = 0;
        for element in batch::elements(record.body) {
            let plain = element.ok().filter(|element| {
                records < batch_max && scan::plain_in_a_batch(element.properties)
            });
            let pushed = plain.and_then(|element| {
                record.flag = element.flag;
                record.body = element.body;
                record.properties = element.properties;
                let glued = records > 0;
                self.prepared.push(topic, &record, body_max, glued).ok()
            });
            if pushed.is_none() {
                self.prepared.back_to(mark);
                return None;
            }
            records += 1;
        }
        Some(records)
    }

    /// Appends what was taken, and writes or parks the answers. What the log does not take goes
    /// to the processors, in order; tells whether there was any.
    pub(super) fn commit(
        &mut self,
        store: &Store,
        waiting: &mut Waiting,
        ledger: &mut Ledger,
        replies: &mut Vec<u8>,
        sink: Sink<'_>,
    ) -> bool {
        if self.taken.is_empty() {
            return false;
        }
        let taken = std::mem::take(&mut self.taken);
        let mut prepared = std::mem::take(&mut self.prepared);
        let keys = std::mem::take(&mut self.unique_keys);
        let appended = self.append(store, &mut prepared);
        let placed = match &appended {
            Some(appended) => appended.placed.as_slice(),
            None => &[],
        };
        let flushed = store.log().flushed();
        let took = self.from.took();
        let mut key_start = 0;
        let mut left = placed;
        let mut done = 0;
        for send in &taken {
            // The records of a batch are there together or not at all.
            let Some((own, rest)) = left.split_at_checked(send.records) else {
                break;
            };
            let [place, others @ ..] = own else { break };
            left = rest;
            done += 1;
            let unique_key = keys
                .get(key_start..send.key_end)
                .filter(|key| !key.is_empty());
            key_start = send.key_end;
            self.others.clear();
            let offset = |place: &Placed| place.physical_offset.cast_signed();
            self.others.extend(others.iter().map(offset));
            let end = others.last().unwrap_or(place).end();
            let answer = Answer {
                opaque: send.opaque,
                queue_id: send.queue_id,
                queue_offset: place.queue_offset,
                physical_offset: offset(place),
                others: &self.others,
                unique_key,
            };
            let mut needs = Needs::default();
            if send.waits {
                needs = Needs::of(&self.table.state, self.from.now_ms);
                waiting.settle(&mut needs, end, flushed);
            }
            let answered = (!needs.waits()).then_some(took);
            count(ledger, send, own, answered);
            if needs.waits() {
                let sent = Sent {
                    key: self.from.key,
                    code: send.code,
                    topic: send.topic,
                    at_ms: self.from.now_ms,
                };
                ledger.counters.parked += 1;
                waiting.park(Parked::new(&sent, end, needs, &answer));
                continue;
            }
            let mut kind = Kind::plain(send.code, needs.code);
            if send.one_way {
                kind.way = Way::OneWay;
            } else {
                // A header of this size always fits its length.
                let _ = write_answer(&self.table.state, &answer, needs.code, replies);
            }
            ledger.answered.add(kind, took);
        }
        self.prepared = Prepared::reusing(prepared.into_bytes());
        let returned = taken.get(done..).unwrap_or_default();
        give_back(returned, ledger, sink);
        !returned.is_empty()
    }

    /// Appends at once, or behind another writer where that may take its time.
    fn append(&self, store: &Store, prepared: &mut Prepared<'_>) -> Option<Appended> {
        if self.from.patient {
            return Some(store.put_unflushed(prepared));
        }
        store.try_put_unflushed(prepared)
    }

    /// The room of the records, for the next ones.
    pub(super) fn into_room(self) -> Vec<u8> {
        let room = self.prepared.into_bytes();
        if room.capacity() > ROOM_MAX {
            return Vec::new();
        }
        room
    }
}

/// The topic that a send counts for: half messages and delayed ones count where they wait.
fn counted_as<'t>(
    state: &'t State,
    topic: &'t str,
    scanned: &Scanned<'_>,
    half: Option<&'t str>,
) -> Option<&'t str> {
    match scanned.delay {
        Some(level) => waiting_room(state, level),
        None => Some(half.unwrap_or(topic)),
    }
}

/// The topic in which messages of a delay level wait.
fn waiting_room(state: &State, level: i32) -> Option<&str> {
    let delays = state.delays.as_ref()?;
    (level <= delays.highest).then_some(delays.topic.as_str())
}

/// Leaves sends to the processors.
fn give_back(sends: &[Taken<'_, '_>], ledger: &mut Ledger, sink: Sink<'_>) {
    for send in sends {
        if let Ok(header) = send.frame.decode_header() {
            ledger.counters.returned += 1;
            sink(&send.frame, &header);
        }
    }
}

/// Counts a send that is stored, and what it took when it is answered as well.
fn count(ledger: &mut Ledger, send: &Taken<'_, '_>, own: &[Placed], took: Option<Duration>) {
    ledger.counters.sends += 1;
    if let Some(topic) = send.half_of {
        ledger.opened(topic);
    }
    let put = ledger.put(send.topic, send.queue_id);
    put.messages += own.len() as u64;
    put.bytes += own.iter().map(|place| place.size).sum::<u64>();
    if let Some(took) = took {
        put.sent(took);
    }
}
