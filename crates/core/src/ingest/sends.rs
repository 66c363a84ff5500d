//! The plain sends of one read, or of several connections: collected, appended with one write,
//! answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answered::{Kind, Way};
use super::books::Ledger;
use super::connection::Source;
use super::parked::{Needs, Parked, Sent, Waiting};
use super::scan::{self, Half, Scanned};
use super::send::{self, write_answer, Answer};
use super::table::{State, Table};
use super::{next, Ingest, Sink};
use crate::codec::batch;
use crate::codec::command::{Header, FLAG_ONE_WAY, FLAG_RESPONSE};
use crate::codec::frame::Frame;
use crate::codec::record::NewRecord;
use crate::commit_log::{Appended, Placed, Prepared};
use crate::store::Store;

/// Room for records beyond this is not kept for the next ones.
const ROOM_MAX: usize = 1 << 20;

/// A send that was taken and is not appended yet.
struct Taken<'t, 'f> {
    from: Source,
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
    /// How many bytes of answers there are behind each of `taken`, once they are appended.
    ends: Vec<usize>,
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
            ends: Vec::new(),
            unique_keys: String::new(),
            properties: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Encodes the record of a plain send, or those of a batch, or refuses it when too many answers wait already; false
    /// leaves the frame to the handlers.
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
        let is_send = send::is_send(header.code);
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
        // Only together: the handlers refuse the one without the other, or take it as it is.
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
            // A batch's own properties mean nothing to its messages, but this one to handlers.
            scanned.delay.is_none().then_some(())?;
            self.push_batch(topic, record)?
        } else {
            self.push(topic, record, request.properties, &scanned, half)?
        };
        self.unique_keys
            .push_str(scanned.unique_key.unwrap_or_default());
        self.taken.push(Taken {
            from: self.from,
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
    /// to the handlers, in order; tells whether there was any.
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
        let now = Instant::now();
        let (mut key_start, mut left, mut done) = (0, placed, 0);
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
            let took = now.saturating_duration_since(send.from.began);
            let mut needs = Needs::default();
            if send.waits {
                needs = Needs::of(&self.table.state, send.from.now_ms);
                waiting.settle(&mut needs, end, flushed);
            }
            let answered = (!needs.waits()).then_some(took);
            count(ledger, send, own, answered);
            if needs.waits() {
                let sent = Sent {
                    key: send.from.key,
                    code: send.code,
                    topic: send.topic,
                    at_ms: send.from.now_ms,
                };
                ledger.counters.parked += 1;
                waiting.park(Parked::new(&sent, end, needs, &answer));
                self.ends.push(replies.len());
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
            self.ends.push(replies.len());
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

/// Leaves sends to the handlers.
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

/// What one connection has sent.
#[derive(Clone, Copy, Debug)]
pub struct Read<'d> {
    /// The connection.
    pub key: u64,
    /// All that was read of it.
    pub data: &'d [u8],
}

/// What came of reads of several connections.
#[derive(Debug, Default)]
pub struct Together {
    /// Answers, one connection's behind the other's.
    pub replies: Vec<u8>,
    /// Where the answers of each read end; `None`: it was not looked at and has to be fed.
    pub ends: Vec<Option<usize>>,
}

impl Ingest {
    /// Appends the sends of several connections with one write, as far as each of them has sent one
    /// plain send and nothing else. The others are left as they are, and nothing of them is noted. Where
    /// peers need an account, one was proven on the connection before, and the send is permitted too.
    pub fn feed_together(&mut self, store: &Store, reads: &[Read<'_>], now_ms: i64) -> Together {
        let shared = Arc::clone(&self.shared);
        // Held until the answers are made: a change of the table waits for that.
        let table = shared.read();
        let mut out = Together {
            replies: Vec::new(),
            ends: vec![None; reads.len()],
        };
        let parked = self.waiting.len() + self.shared.parked_beside(self.summed);
        let waits = Needs::of(&table.state, 0).waits();
        if !table.is_on() || waits && parked + reads.len() > table.state.parked_max {
            return out;
        }
        let mut sends: Option<Sends<'_, '_>> = None;
        let mut taken = Vec::new();
        for (index, read) in reads.iter().enumerate() {
            let Some(from) = self.source_of_one(&table, read.key, now_ms) else {
                continue;
            };
            let Ok(Some((frame, header))) = next(read.data, self.frame_size_max) else {
                continue;
            };
            // Before anything is hashed: what is no send is looked at by itself.
            if frame.size != read.data.len()
                || header.flag & FLAG_RESPONSE != 0
                || !send::is_send(header.code)
            {
                continue;
            }
            let trusted = table.trusts(from.peer);
            if !table.permits(&header, frame.body, trusted, from.peer) {
                continue;
            }
            let sends = sends
                .get_or_insert_with(|| Sends::new(&table, from, std::mem::take(&mut self.room)));
            sends.from = from;
            let mut refused = Refused {
                replies: &mut out.replies,
                ledger: &mut self.ledger,
            };
            if sends.take(&frame, &header, parked, &mut refused) {
                taken.push(index);
            }
        }
        let Some(mut sends) = sends else { return out };
        let before = self.ledger.counters.sends;
        let (waiting, ledger) = (&mut self.waiting, &mut self.ledger);
        // What the log does not take has no end: it is fed, and goes to the handlers then.
        sends.commit(store, waiting, ledger, &mut out.replies, &mut |_, _| {});
        for (index, end) in taken.into_iter().zip(&sends.ends) {
            if let Some(place) = out.ends.get_mut(index) {
                *place = Some(*end);
            }
        }
        self.room = sends.into_room();
        if self.ledger.counters.sends > before {
            store.want_flush();
        }
        self.sum_up();
        out
    }

    /// Where the one frame of a connection comes from; `None` when it has to go its own way.
    fn source_of_one(&self, table: &Table, key: u64, now_ms: i64) -> Option<Source> {
        let connection = self.connections.get(&key)?;
        let fits = connection.kept.is_empty() && !connection.passing;
        // Only a whole feed notes that an account is proven.
        let known = connection.proven || table.trusts(connection.peer);
        (fits && known).then(|| Source {
            key,
            peer: connection.peer,
            pulls: connection.pulls,
            passing: false,
            busy: connection.busy,
            patient: self.apart,
            now_ms,
            began: Instant::now(),
        })
    }
}
