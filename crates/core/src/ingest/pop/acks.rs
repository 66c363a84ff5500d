//! The plain acknowledgements of one read: collected, appended with one write, answered; and its
//! plain pops, collected for whoever feeds.
//!
//! An acknowledgement succeeds when its record is in the log, and only then. What is not plain, what
//! would be refused, and what the log does not take goes to the handlers, in order.

use super::super::books::Ledger;
use super::super::connection::Source;
use super::super::parked::{Needs, Parked, Waiting};
use super::super::scan;
use super::super::table::Table;
use super::super::Sink;
use super::batches::{self, Batch};
use super::pops::{self, Pop, OF_OTHERS};
use super::revive::Revive;
use super::settled::Settled;
use super::{Merge, Popping, ACK, BATCH_ACK, CHANGE, POP};
use crate::codec::command::{Header, FLAG_ONE_WAY};
use crate::codec::frame::Frame;
use crate::commit_log::Prepared;
use crate::pop::handle::Handle;
use crate::pop::is_plain;
use crate::pop::records::Ack;
use crate::store::Store;

/// The fields of an acknowledgement, which a change of the invisible time has as well.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) group: &'a str,
    pub(super) topic: &'a str,
    pub(super) queue_id: i32,
    pub(super) handle: &'a str,
    pub(super) offset: i64,
    seen: u32,
}

const REQUIRED: u32 = 0x1F;
/// What stands for the offset in the record of a batch.
const NO_OFFSET: i64 = -1;

/// Reads the fields; `None` when one is missing or odd, so that the handlers may say so.
pub(super) fn fields<'a>(header: &'a Header<'_>) -> Option<Fields<'a>> {
    let mut found = Fields::default();
    for (name, value) in header.ext.as_ref()? {
        let bit = match name.as_ref() {
            "consumerGroup" => {
                found.group = value;
                0
            }
            "topic" => {
                found.topic = value;
                1
            }
            "queueId" => {
                found.queue_id = scan::number(value)?;
                2
            }
            "extraInfo" => {
                found.handle = value;
                3
            }
            "offset" => {
                found.offset = scan::number(value)?;
                4
            }
            "liteTopic" => return None,
            _ => continue,
        };
        found.seen |= 1 << bit;
    }
    (found.seen == REQUIRED).then_some(found)
}

/// The ends of the queue that was asked for last: nothing else runs between two frames of a read.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'t> {
    topic: &'t str,
    queue_id: i32,
    lowest: i64,
    pub(super) highest: i64,
}

/// A request that was taken and is not appended yet.
struct Taken<'f> {
    frame: Frame<'f>,
    settled: Settled,
    /// How many records it is.
    records: usize,
}

pub(in crate::ingest) struct Acks<'t, 'f> {
    pub(super) table: &'t Table,
    pub(super) from: Source,
    /// How many more answers may wait for a flush or a slave.
    room: usize,
    pub(super) prepared: Prepared<'t>,
    taken: Vec<Taken<'f>>,
    merges: Vec<Merge>,
    /// Pops, which whoever settles in memory decides behind that.
    pops: Vec<Pop>,
    bounds: Option<Bounds<'t>>,
    pub(super) body: Vec<u8>,
    pub(super) properties: Vec<u8>,
}

impl<'t, 'f> Acks<'t, 'f> {
    /// `parked` answers wait for a flush or a slave already.
    pub(in crate::ingest) fn new(table: &'t Table, from: Source, parked: usize) -> Self {
        Self {
            table,
            from,
            room: table.state.parked_max.saturating_sub(parked),
            prepared: Prepared::default(),
            taken: Vec::new(),
            merges: Vec::new(),
            pops: Vec::new(),
            bounds: None,
            body: Vec::new(),
            properties: Vec::new(),
        }
    }

    /// Encodes the record of a plain acknowledgement, or keeps a plain pop; false leaves the frame to
    /// the handlers.
    pub(in crate::ingest) fn take(
        &mut self,
        store: &Store,
        (frame, whole): (&Frame<'f>, &[u8]),
        header: &Header<'_>,
    ) -> bool {
        if header.code == POP {
            let pop = pops::read(self.table, self.from, header, (frame.body, whole));
            let is_plain = pop.is_some();
            self.pops.extend(pop);
            return is_plain;
        }
        // Those that settle in memory need no room; where there is none they go with the others.
        if self.taken.len() >= self.room {
            return false;
        }
        let taken = match header.code {
            ACK => self.try_take(store, (frame, whole), header),
            BATCH_ACK => self.take_batches(store, (frame, whole), header),
            CHANGE => self.take_change(store, frame, header),
            _ => None,
        };
        taken.is_some()
    }

    fn try_take(
        &mut self,
        store: &Store,
        (frame, whole): (&Frame<'f>, &[u8]),
        header: &Header<'_>,
    ) -> Option<()> {
        let table = self.table;
        let popping = table.state.pop.as_ref()?;
        // A body means nothing here, but has a limit that the handlers know.
        if header.flag & FLAG_ONE_WAY != 0 || !frame.body.is_empty() {
            return None;
        }
        // Memory belongs to the thread of the handlers.
        if popping.merges && self.from.patient {
            return None;
        }
        let found = fields(header)?;
        let (topic, row) = table.topics.get_key_value(found.topic)?;
        if !(0..row.settle_queues).contains(&found.queue_id) {
            return None;
        }
        let bounds = self.bounds(store, topic, found.queue_id)?;
        let handle = Handle::read(found.handle)?;
        self.is_plain(popping, &handle, bounds, found.group, &[found.offset])
            .then_some(())?;
        if popping.merges {
            handle.revive_ms()?;
            let ack = ack_of(topic, &found, &handle);
            push_merge(&mut self.merges, &ack, header.opaque, whole);
            return Some(());
        }
        self.push_ack(popping, topic, &found, &handle)?;
        self.taken(frame, Settled::ack(ACK, header.opaque), 1);
        Some(())
    }

    /// Enters a request whose last `records` records are prepared.
    pub(super) fn taken(&mut self, frame: &Frame<'f>, settled: Settled, records: usize) {
        self.taken.push(Taken {
            frame: *frame,
            settled,
            records,
        });
    }

    /// Encodes the record of one acknowledged message.
    pub(super) fn push_ack(
        &mut self,
        popping: &'t Popping,
        topic: &str,
        found: &Fields<'_>,
        handle: &Handle<'_>,
    ) -> Option<()> {
        let ack = ack_of(topic, found, handle);
        self.push(popping, &ack, handle.revive_ms()?, handle.revive_queue)
    }

    /// Encodes the records of a plain batch, all or none. What may meet a checkpoint in memory is
    /// for whoever has it, or for the handlers when there are several.
    fn take_batches(
        &mut self,
        store: &Store,
        (frame, whole): (&Frame<'f>, &[u8]),
        header: &Header<'_>,
    ) -> Option<()> {
        let table = self.table;
        let popping = table.state.pop.as_ref()?;
        if header.flag & FLAG_ONE_WAY != 0 {
            return None;
        }
        let (broker, batches) = batches::read(frame.body)?;
        if popping.merges {
            let [batch] = batches.as_slice() else {
                return None;
            };
            if self.from.patient {
                return None;
            }
            self.checked(store, popping, &broker, batch)?;
            self.merges.push(Merge {
                topic: batch.topic.clone(),
                group: batch.group.clone(),
                queue_id: batch.queue_id,
                start_offset: batch.start_offset,
                pop_time_ms: batch.pop_time_ms,
                offsets: batch.offsets.clone(),
                opaques: vec![header.opaque],
                is_batch: true,
                frames: whole.to_vec(),
            });
            return Some(());
        }
        let mark = self.prepared.mark();
        for batch in &batches {
            if self.push_batch(store, popping, &broker, batch).is_none() {
                self.prepared.back_to(mark);
                return None;
            }
        }
        let settled = Settled::ack(BATCH_ACK, header.opaque);
        self.taken(frame, settled, batches.len());
        Some(())
    }

    /// The topic of a batch that a pop of its group may have given.
    fn checked(
        &mut self,
        store: &Store,
        popping: &Popping,
        broker: &str,
        batch: &Batch,
    ) -> Option<&'t str> {
        let found = self.table.topics.get_key_value(batch.topic.as_str());
        let (topic, row) =
            found.filter(|(_, row)| (0..row.settle_queues).contains(&batch.queue_id))?;
        // Whose a retry topic is takes a closer look at its name, and so does a light queue.
        if topic.starts_with(OF_OTHERS) || row.settle_queues == 0 {
            return None;
        }
        let bounds = self.bounds(store, topic, batch.queue_id)?;
        let handle = batch.handle(broker);
        handle.revive_ms()?;
        self.is_plain(popping, &handle, bounds, &batch.group, &batch.offsets)
            .then_some(topic)
    }

    fn push_batch(
        &mut self,
        store: &Store,
        popping: &'t Popping,
        broker: &str,
        batch: &Batch,
    ) -> Option<()> {
        let topic = self.checked(store, popping, broker, batch)?;
        let ack = Ack {
            topic,
            group: &batch.group,
            queue_id: batch.queue_id,
            start_offset: batch.start_offset,
            pop_time_ms: batch.pop_time_ms,
            broker,
            offset: NO_OFFSET,
            batch: Some(&batch.offsets),
        };
        let revive_ms = batch.handle(broker).revive_ms()?;
        self.push(popping, &ack, revive_ms, batch.revive_queue)
    }

    /// Whether a pop of the group may have given the messages, and all names stand as they are.
    pub(super) fn is_plain(
        &self,
        popping: &Popping,
        handle: &Handle<'_>,
        bounds: Bounds<'_>,
        group: &str,
        offsets: &[i64],
    ) -> bool {
        let is_ours = handle.broker == popping.broker
            && (0..popping.revive_queues).contains(&handle.revive_queue);
        let now_ms = self.from.now_ms;
        is_ours
            && offsets.iter().all(|offset| {
                (bounds.lowest..=bounds.highest).contains(offset)
                    && handle.could_be(*offset, now_ms, popping.delay_max_ms)
            })
            && self.table.groups.contains_key(group)
            && is_plain(group)
            && is_plain(bounds.topic)
    }

    pub(super) fn bounds(
        &mut self,
        store: &Store,
        topic: &'t str,
        queue_id: i32,
    ) -> Option<Bounds<'t>> {
        let known = self
            .bounds
            .filter(|it| it.queue_id == queue_id && it.topic == topic);
        if known.is_some() {
            return known;
        }
        let queues = store.queues();
        self.bounds = Some(Bounds {
            topic,
            queue_id,
            lowest: i64::try_from(queues.min(topic, queue_id)).ok()?,
            highest: i64::try_from(queues.max(topic, queue_id)).ok()?,
        });
        self.bounds
    }

    /// Encodes a record for the timer wheel, or, when its time has come, for the revive topic.
    fn push(
        &mut self,
        popping: &'t Popping,
        ack: &Ack<'_>,
        revive_ms: i64,
        revive_queue: i32,
    ) -> Option<()> {
        self.body.clear();
        self.properties.clear();
        ack.write_body(&mut self.body);
        ack.write_properties(revive_ms, &mut self.properties);
        let record = Revive {
            queue_id: revive_queue,
            due_ms: revive_ms,
            now_ms: self.from.now_ms,
            body: &self.body,
        };
        let state = &self.table.state;
        record.push(state, popping, &mut self.properties, &mut self.prepared)
    }

    /// Appends what was taken, and writes the answers or has them wait. What the log does not take
    /// goes to the handlers. Returns what has to be settled in memory, and the pops.
    pub(in crate::ingest) fn commit(
        &mut self,
        store: &Store,
        waiting: &mut Waiting,
        ledger: &mut Ledger,
        replies: &mut Vec<u8>,
        sink: Sink<'_>,
    ) -> (Vec<Merge>, Vec<Pop>) {
        let left = (
            std::mem::take(&mut self.merges),
            std::mem::take(&mut self.pops),
        );
        if self.taken.is_empty() {
            return left;
        }
        let taken = std::mem::take(&mut self.taken);
        let mut prepared = std::mem::take(&mut self.prepared);
        let appended = if self.from.patient {
            Some(store.put_unflushed(&mut prepared))
        } else {
            store.try_put_unflushed(&mut prepared)
        };
        store.want_flush();
        let flushed = store.log().flushed();
        let mut placed = match &appended {
            Some(appended) => appended.placed.as_slice(),
            None => &[],
        };
        let took = self.from.took();
        let state = &self.table.state;
        for request in &taken {
            // Those that are stored come first; a part of a batch is stored once more.
            let (own, rest) = placed
                .split_at_checked(request.records)
                .unwrap_or((&[], &[]));
            placed = rest;
            let Some(last) = own.last() else {
                give_back(&request.frame, ledger, sink);
                continue;
            };
            let mut needs = self.needs(request.settled.code);
            waiting.settle(&mut needs, last.end(), flushed);
            if needs.waits() {
                ledger.counters.parked += 1;
                let of = (self.from.key, self.from.now_ms);
                waiting.park(Parked::settled(of, last.end(), needs, request.settled));
            } else {
                request.settled.answer(state, took, ledger, replies);
            }
        }
        left
    }

    /// What an answer waits for: the settings say it for each of the records apart.
    fn needs(&self, code: i32) -> Needs {
        let state = &self.table.state;
        let is_free =
            |it: &Popping| it.unwaited.acks && (it.unwaited.checkpoints || code != CHANGE);
        if state.pop.as_ref().is_some_and(is_free) {
            return Needs::default();
        }
        Needs::of(state, self.from.now_ms)
    }
}

/// Leaves a request to the handlers.
fn give_back(frame: &Frame<'_>, ledger: &mut Ledger, sink: Sink<'_>) {
    if let Ok(header) = frame.decode_header() {
        ledger.counters.returned += 1;
        sink(frame, &header);
    }
}

/// The record of one acknowledged message.
fn ack_of<'a>(topic: &'a str, found: &Fields<'a>, handle: &Handle<'a>) -> Ack<'a> {
    Ack {
        topic,
        group: found.group,
        queue_id: found.queue_id,
        start_offset: handle.start_offset,
        pop_time_ms: handle.pop_time_ms,
        broker: handle.broker,
        offset: found.offset,
        batch: None,
    }
}

/// Enters an acknowledgement behind those of the same checkpoint, if they came just before.
fn push_merge(merges: &mut Vec<Merge>, ack: &Ack<'_>, opaque: i32, whole: &[u8]) {
    let is_same = |last: &&mut Merge| {
        !last.is_batch
            && last.start_offset == ack.start_offset
            && last.pop_time_ms == ack.pop_time_ms
            && last.queue_id == ack.queue_id
            && last.group == ack.group
            && last.topic == ack.topic
    };
    if let Some(last) = merges.last_mut().filter(is_same) {
        last.offsets.push(ack.offset);
        last.opaques.push(opaque);
        last.frames.extend_from_slice(whole);
        return;
    }
    merges.push(Merge {
        topic: ack.topic.to_owned(),
        group: ack.group.to_owned(),
        queue_id: ack.queue_id,
        start_offset: ack.start_offset,
        pop_time_ms: ack.pop_time_ms,
        offsets: vec![ack.offset],
        opaques: vec![opaque],
        is_batch: false,
        frames: whole.to_vec(),
    });
}
