//! Where a record of the revive topic goes: behind the timer wheel, or there at once.

use super::Popping;
use crate::codec::record::NewRecord;
use crate::commit_log::Prepared;
use crate::ingest::table::State;
use crate::pop::records::{out_ms, push_waiting};
use crate::timer::TIMER_TOPIC;

/// A record on its way to a queue of the revive topic.
pub(super) struct Revive<'a> {
    pub(super) queue_id: i32,
    /// When it is due there, Unix milliseconds.
    pub(super) due_ms: i64,
    pub(super) now_ms: i64,
    pub(super) body: &'a [u8],
}

impl Revive<'_> {
    /// Encodes the record; `properties` get what a record that waits says. `None` when the timer
    /// wheel or the log does not take it.
    pub(super) fn push<'t>(
        &self,
        state: &'t State,
        popping: &'t Popping,
        properties: &mut Vec<u8>,
        prepared: &mut Prepared<'t>,
    ) -> Option<()> {
        let (mut topic, mut queue_id) = (popping.revive_topic.as_str(), self.queue_id);
        if self.due_ms > self.now_ms {
            if self.due_ms - self.now_ms > popping.delay_max_ms {
                return None;
            }
            let step_ms = out_ms(self.due_ms, popping.precision_ms);
            push_waiting(step_ms, topic, queue_id, properties);
            (topic, queue_id) = (TIMER_TOPIC, 0);
        }
        let record = NewRecord {
            topic: topic.as_bytes(),
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: self.now_ms,
            born_host: &state.store_host,
            store_host: &state.store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: self.body,
            properties,
        };
        prepared
            .push(topic, &record, state.body_max as u64, false)
            .ok()
    }
}
