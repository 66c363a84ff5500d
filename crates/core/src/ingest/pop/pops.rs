//! Plain pops: read here, decided by whoever feeds, who knows how far each group is.
//!
//! Every rule is asked there. Here it is only told which pops are of the common kind: one topic of
//! its own name, no order, every message or those with certain tags.

use super::{Popping, POP};
use crate::codec::command::{Header, FLAG_ONE_WAY};
use crate::ingest::connection::Source;
use crate::ingest::scan;
use crate::ingest::table::{Table, TopicRow};
use crate::pop::is_plain;

/// Retry topics, dead letters and light queues begin so: whose their messages are is judged one by
/// one.
pub(super) const OF_OTHERS: char = '%';

/// A plain pop. Times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pop {
    /// Correlation number.
    pub opaque: i32,
    /// Topic.
    pub topic: String,
    /// Group.
    pub group: String,
    /// Queue; below 0 for all of them.
    pub queue_id: i32,
    /// Messages wanted.
    pub messages: i32,
    /// How long they are invisible.
    pub invisible_ms: i64,
    /// How long it may wait for a message.
    pub poll_ms: i64,
    /// When its client sent it; 0: not known.
    pub born_ms: i64,
    /// Tag expression; empty for every message.
    pub expression: String,
    /// The request, for the handlers.
    pub frame: Vec<u8>,
}

const REQUIRED: u32 = 0x7F;

/// Reads a pop; `None` when anything about it is not plain.
pub(in crate::ingest) fn read(
    table: &Table,
    from: Source,
    header: &Header<'_>,
    (body, whole): (&[u8], &[u8]),
) -> Option<Pop> {
    let popping = table.state.pop.as_ref()?;
    // What the handlers know of groups belongs to their thread.
    let serves = popping.pops && from.pulls && !from.patient;
    if header.code != POP || !serves || header.flag & FLAG_ONE_WAY != 0 || !body.is_empty() {
        return None;
    }
    let mut pop = fields(header)?;
    pop.opaque = header.opaque;
    let row = table.topics.get(pop.topic.as_str())?;
    is_common(popping, &pop, row.settle_queues).then_some(())?;
    table.groups.get(pop.group.as_str())?;
    pop.frame = whole.to_vec();
    Some(pop)
}

/// Whether a pop that was decided, perhaps long after it was read, is one that the table covers.
pub(super) fn covers(table: &Table, topic: &str, group: &str) -> bool {
    let is_row = |row: &TopicRow| row.settle_queues > 0;
    table.topics.get(topic).is_some_and(is_row)
        && table.groups.contains_key(group)
        && has_plain_names(topic, group)
}

fn has_plain_names(topic: &str, group: &str) -> bool {
    !topic.starts_with(OF_OTHERS) && is_plain(topic) && is_plain(group)
}

fn is_common(popping: &Popping, pop: &Pop, queues: i32) -> bool {
    pop.queue_id < queues
        && pop.messages > 0
        && (0..=popping.delay_max_ms).contains(&pop.invisible_ms)
        && has_plain_names(&pop.topic, &pop.group)
}

fn fields(header: &Header<'_>) -> Option<Pop> {
    let mut pop = Pop::default();
    let mut seen = 0;
    for (name, value) in header.ext.as_ref()? {
        let bit = match name.as_ref() {
            "consumerGroup" => {
                pop.group = value.to_string();
                0
            }
            "topic" => {
                pop.topic = value.to_string();
                1
            }
            "queueId" => {
                pop.queue_id = scan::number(value)?;
                2
            }
            "maxMsgNums" => {
                pop.messages = scan::number(value)?;
                3
            }
            "invisibleTime" => {
                pop.invisible_ms = scan::number(value)?;
                4
            }
            "pollTime" => {
                pop.poll_ms = scan::number(value)?;
                5
            }
            "initMode" => {
                // Where a new group begins, which is for the handlers.
                scan::number::<i32>(value)?;
                6
            }
            other => {
                optional(&mut pop, other, value)?;
                continue;
            }
        };
        seen |= 1 << bit;
    }
    (seen == REQUIRED).then_some(pop)
}

fn optional(pop: &mut Pop, name: &str, value: &str) -> Option<()> {
    match name {
        "bornTime" => pop.born_ms = scan::number(value)?,
        "exp" => value.clone_into(&mut pop.expression),
        "expType" => matches!(value, "" | "TAG").then_some(())?,
        "order" => (value == "false").then_some(())?,
        _ => {}
    }
    Some(())
}

#[cfg(test)]
#[path = "../tests/pops.rs"]
mod tests;
