//! Plain pulls: by offset, of a known group, with a tag expression.

use std::fmt::Write;

use super::scan;
use super::send::response;
use super::table::{Choice, State, Table};
use crate::codec::command::Header;
use crate::codec::error::CodecError;
use crate::codec::frame;
use crate::codec::projection::{self, Projection};
use crate::store::get::{GetStatus, Got};

/// PULL_MESSAGE.
pub const PULL: i32 = 11;
/// LITE_PULL_MESSAGE.
pub const LITE_PULL: i32 = 361;

/// Response code of a pull that finds nothing and may wait.
pub const NOT_FOUND: i32 = 19;
/// Response code of one that should come again at once.
const RETRY_IMMEDIATELY: i32 = 20;
/// Response code of one that is told another offset.
const OFFSET_MOVED: i32 = 21;

const COMMIT_OFFSET: i32 = 0x1;
const SUSPEND: i32 = 0x2;
const SUBSCRIPTION: i32 = 0x4;

/// Bytes of one answer at most, except for a single longer message, whatever the settings of the
/// store allow: no client takes a frame of more than 16 MiB.
pub const BYTES_MAX: u64 = (16 << 20) - (64 << 10);

/// A pull that the table admits.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Group that pulls.
    pub group: &'a str,
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// First queue offset wanted.
    pub offset: i64,
    /// Messages wanted, at least 1; the store's settings bound them.
    pub messages: u64,
    /// Offset to commit, if any.
    pub commit: Option<i64>,
    /// How long it may wait for a message, in milliseconds; `None` when it may not.
    pub suspend_ms: Option<i64>,
    /// Which messages it wants.
    pub choice: &'a Choice,
    /// Which fields of them it wants; `None` for whole records.
    pub projection: Option<Projection<'a>>,
    /// What the answer says about the topic.
    pub topic_sys_flag: i32,
    /// What the answer says about the group.
    pub group_sys_flag: i32,
}

#[derive(Default)]
struct Fields<'a> {
    group: &'a str,
    topic: &'a str,
    queue_id: i32,
    offset: i64,
    messages: i32,
    sys_flag: i32,
    commit: i64,
    suspend_ms: i64,
    version: i64,
    expression: &'a str,
    kind: &'a str,
    projection: Option<Projection<'a>>,
    seen: u32,
}

const REQUIRED: u32 = 0x1FF;

fn fields<'a>(header: &'a Header<'_>) -> Option<Fields<'a>> {
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
            "queueOffset" => {
                found.offset = scan::number(value)?;
                3
            }
            "maxMsgNums" => {
                found.messages = scan::number(value)?;
                4
            }
            "sysFlag" => {
                found.sys_flag = scan::number(value)?;
                5
            }
            "commitOffset" => {
                found.commit = scan::number(value)?;
                6
            }
            "suspendTimeoutMillis" => {
                found.suspend_ms = scan::number(value)?;
                7
            }
            "subVersion" => {
                found.version = scan::number(value)?;
                8
            }
            other => {
                optional(&mut found, other, value)?;
                continue;
            }
        };
        found.seen |= 1 << bit;
    }
    (found.seen == REQUIRED).then_some(found)
}

fn optional<'a>(found: &mut Fields<'a>, name: &str, value: &'a str) -> Option<()> {
    match name {
        "subscription" => found.expression = value,
        "expressionType" => found.kind = value,
        "maxMsgBytes" | "requestSource" => drop(scan::number::<i32>(value)?),
        projection::FIELD => found.projection = Some(Projection::parse(value)?),
        "liteTopic" => return None,
        _ => {}
    }
    Some(())
}

/// Reads a pull; `None` when it is odd or the table does not cover it.
pub fn read<'a>(table: &'a Table, header: &'a Header<'_>) -> Option<Request<'a>> {
    let found = fields(header)?;
    let topic = table.topics.get(found.topic)?;
    let group = table.groups.get(found.group)?;
    if !(0..topic.read_queues).contains(&found.queue_id) || found.offset < 0 {
        return None;
    }
    let choice = if found.sys_flag & SUBSCRIPTION != 0 {
        brought(table, &found)?
    } else {
        let subscription = group.subscriptions.get(found.topic)?;
        if subscription.version < found.version {
            return None;
        }
        &subscription.choice
    };
    let commits = found.sys_flag & COMMIT_OFFSET != 0 && found.commit >= 0;
    Some(Request {
        group: found.group,
        topic: found.topic,
        queue_id: found.queue_id,
        offset: found.offset,
        messages: u64::from(found.messages.max(1).unsigned_abs()),
        commit: commits.then_some(found.commit),
        suspend_ms: (found.sys_flag & SUSPEND != 0).then_some(found.suspend_ms),
        choice,
        projection: found.projection,
        topic_sys_flag: topic.sys_flag,
        group_sys_flag: group.sys_flag,
    })
}

/// Which messages a pull wants that brings its own expression.
fn brought<'a>(table: &'a Table, found: &Fields<'_>) -> Option<&'a Choice> {
    let kind = if found.kind.is_empty() {
        "TAG"
    } else {
        found.kind
    };
    if kind == "TAG" && matches!(found.expression, "" | "*") {
        return Some(&Choice::EVERY);
    }
    table.expressions.get(kind)?.get(found.expression)
}

/// The response code of a read that began at `offset` (spec: wire §10.3).
pub fn code_of(status: GetStatus, offset: i64) -> i32 {
    match status {
        GetStatus::Found => 0,
        GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => RETRY_IMMEDIATELY,
        GetStatus::NoMessageInQueue if offset == 0 => NOT_FOUND,
        GetStatus::OffsetFoundNull | GetStatus::OffsetOverflowOne => NOT_FOUND,
        GetStatus::NoMessageInQueue
        | GetStatus::OffsetOverflowBadly
        | GetStatus::OffsetTooSmall => OFFSET_MOVED,
    }
}

/// The name of a status: the remark of its answer.
fn name_of(status: GetStatus) -> &'static str {
    match status {
        GetStatus::Found => "FOUND",
        GetStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
        GetStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
        GetStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
        GetStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        GetStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
        GetStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
        GetStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
    }
}

/// Appends the answer to a pull; the records follow it, `body_size` bytes.
pub fn write_answer(
    state: &State,
    opaque: i32,
    request: &Request<'_>,
    got: &Got,
    body_size: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let mut text = String::with_capacity(80);
    let mut ends = [0; 5];
    let topic_flag = i64::from(request.topic_sys_flag);
    let group_flag = i64::from(request.group_sys_flag);
    let values = [got.next, got.min, got.max, topic_flag, group_flag];
    for (end, value) in ends.iter_mut().zip(values) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{value}");
        *end = text.len();
    }
    let names = [
        "nextBeginOffset",
        "minOffset",
        "maxOffset",
        "topicSysFlag",
        "groupSysFlag",
    ];
    let mut start = 0;
    let fields = names.iter().zip(ends).map(|(name, end)| {
        let value = text.get(start..end).unwrap_or_default();
        start = end;
        (*name, value)
    });
    let obeyed = request
        .projection
        .as_ref()
        .map(|_| (projection::FIELD, projection::OBEYED));
    let fields = std::iter::once(("suggestWhichBrokerId", "0"))
        .chain(fields)
        .chain(obeyed);
    let header = response(
        state,
        code_of(got.status, request.offset),
        opaque,
        Some(name_of(got.status)),
    );
    frame::encode_start(state.encoding, &header, Some(fields), body_size, out)
}
