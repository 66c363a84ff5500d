//! Other times for the return of a message: the new checkpoint, then the end of the old one.
//!
//! Invariant: both records are appended together, the checkpoint first. Is only that one stored, the
//! message may come twice, and is never lost.

use super::acks::{fields, Acks};
use super::pops::OF_OTHERS;
use super::revive::Revive;
use super::settled::Settled;
use super::CHANGE;
use crate::codec::command::{Header, FLAG_ONE_WAY};
use crate::codec::frame::Frame;
use crate::ingest::scan;
use crate::pop::handle::Handle;
use crate::pop::records::Checkpoint;
use crate::store::Store;

/// How far a pop time may run ahead of the clock so that no two of a message are equal.
const SAME_MS_MAX: i64 = 1000;

/// Reads the new time; `None` when there is none, or when it comes with something that is not plain.
fn invisible_ms(header: &Header<'_>) -> Option<i64> {
    let mut found = None;
    for (name, value) in header.ext.as_ref()? {
        match name.as_ref() {
            "invisibleTime" => found = Some(scan::number(value)?),
            "suspend" => (value == "false").then_some(())?,
            _ => {}
        }
    }
    found
}

impl<'f> Acks<'_, 'f> {
    /// Encodes the records of a plain change, both or none. Checkpoints in memory are for the
    /// handlers.
    pub(super) fn take_change(
        &mut self,
        store: &Store,
        frame: &Frame<'f>,
        header: &Header<'_>,
    ) -> Option<()> {
        let table = self.table;
        let popping = table.state.pop.as_ref().filter(|it| !it.merges)?;
        if header.flag & FLAG_ONE_WAY != 0 || !frame.body.is_empty() {
            return None;
        }
        let found = fields(header)?;
        let wanted_ms = invisible_ms(header)?;
        if !(0..=popping.delay_max_ms).contains(&wanted_ms) {
            return None;
        }
        let (topic, row) = table.topics.get_key_value(found.topic)?;
        // With accounts the messages of such topics are judged one by one.
        let is_judged = table.accounts.is_some() && topic.starts_with(OF_OTHERS);
        if is_judged || !(0..row.settle_queues).contains(&found.queue_id) {
            return None;
        }
        let bounds = self.bounds(store, topic, found.queue_id)?;
        let handle = Handle::read(found.handle)?;
        let is_there = found.offset < bounds.highest && handle.pop_time_ms > popping.deleted_ms;
        (is_there && self.is_plain(popping, &handle, bounds, found.group, &[found.offset]))
            .then_some(())?;
        let now_ms = self.from.now_ms;
        let checkpoint = Checkpoint {
            topic,
            group: found.group,
            queue_id: found.queue_id,
            start_offset: found.offset,
            diffs: &[0],
            pop_time_ms: popped_ms(&handle, found.offset, now_ms),
            invisible_ms: wanted_ms,
            broker: handle.broker,
        };
        let mark = self.prepared.mark();
        self.body.clear();
        self.properties.clear();
        checkpoint.write_body(&mut self.body);
        checkpoint.write_properties(&mut self.properties);
        let record = Revive {
            queue_id: handle.revive_queue,
            due_ms: checkpoint.due_ms(),
            now_ms,
            body: &self.body,
        };
        record.push(
            &table.state,
            popping,
            &mut self.properties,
            &mut self.prepared,
        )?;
        let ended = self.push_ack(popping, topic, &found, &handle);
        if ended.is_none() {
            self.prepared.back_to(mark);
            return None;
        }
        let settled = Settled {
            code: CHANGE,
            opaque: header.opaque,
            changed: [
                checkpoint.pop_time_ms,
                wanted_ms,
                i64::from(handle.revive_queue),
            ],
        };
        self.taken(frame, settled, 2);
        Some(())
    }
}

/// The pop time of the new checkpoint: were all of it equal to the old one's, the end of that would
/// be the end of both.
fn popped_ms(handle: &Handle<'_>, offset: i64, now_ms: i64) -> i64 {
    if handle.start_offset == offset {
        return now_ms.max((handle.pop_time_ms + 1).min(now_ms + SAME_MS_MAX));
    }
    now_ms
}
