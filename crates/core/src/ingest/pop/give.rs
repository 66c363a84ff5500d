//! Messages for a plain pop, once it is decided where it reads: read, their checkpoints stored, the
//! answer written.
//!
//! Invariant: a message is in the answer only when the checkpoint that names it is in the log, or
//! when the caller keeps it in memory ([`Wish::merges`]), which cannot fail. Until the checkpoints
//! are appended nothing has changed anywhere, so that the handlers can still begin anew.

use std::fmt::Write;
use std::time::Instant;

use super::revive::Revive;
use super::{Popping, POP};
use crate::codec::frame;
use crate::commit_log::Prepared;
use crate::ingest::answered::{between, Kind};
use crate::ingest::books::Ledger;
use crate::ingest::parked::Needs;
use crate::ingest::pull::BYTES_MAX;
use crate::ingest::send::response;
use crate::ingest::table::State;
use crate::pop::records::Checkpoint;
use crate::store::get::{GetStatus, Got, Wanted};
use crate::store::Store;

/// Size and queue offset of a record lie there.
const SIZE_AT: std::ops::Range<usize> = 0..4;
const OFFSET_AT: std::ops::Range<usize> = 20..28;

/// A queue that a pop visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether it is one of the retry topic: it is visited for what is left of the pop, and must
    /// have no message, since each of those has to be judged and shown in another way.
    pub of_retry: bool,
    /// The queue.
    pub queue_id: i32,
    /// Where the group goes on; below 0 when that is not known yet.
    pub offset: i64,
}

/// What a pop wants, and where. Times are Unix milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Correlation number of the request.
    pub opaque: i32,
    /// Group.
    pub group: &'a str,
    /// Topic.
    pub topic: &'a str,
    /// Topic of the messages redelivered to the group.
    pub retry_topic: &'a str,
    /// Whether that one comes first; else it is visited only with room left.
    pub retry_first: bool,
    /// The queues in order.
    pub places: &'a [Place],
    /// Messages wanted.
    pub messages: u64,
    /// Tag codes; `None` takes every message.
    pub codes: Option<&'a [i64]>,
    /// How long they are invisible.
    pub invisible_ms: i64,
    /// Now.
    pub now_ms: i64,
    /// When the request came: before now if the pop has waited for a message.
    pub since_ms: i64,
    /// Queue of the revive topic that the checkpoints go to.
    pub revive_queue: i32,
    /// Whether the caller keeps the checkpoints in memory.
    pub merges: bool,
    /// Whether the caller has the pop wait when there is nothing at all.
    pub waits: bool,
}

/// Messages of one queue that are given.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The queue.
    pub queue_id: i32,
    /// Where reading began.
    pub start: i64,
    /// Distances of the messages from there.
    pub diffs: Vec<i64>,
    /// Where the group goes on.
    pub next: i64,
}

/// What was given.
#[derive(Debug, Default)]
pub struct Given {
    /// By queue, in the order of the visits.
    pub batches: Vec<Batch>,
    /// Queues without a wanted message, and where the group goes on there.
    pub passed: Vec<(i32, i64)>,
    /// Messages that are left.
    pub rest: i64,
    /// The answer; empty when there is nothing, and the pop is to wait ([`Wish::waits`]).
    pub reply: Vec<u8>,
}

/// What was read.
#[derive(Default)]
struct Found {
    gots: Vec<(Batch, Got)>,
    passed: Vec<(i32, i64)>,
    rest: i64,
    misses: u64,
    bytes: u64,
}

/// How another front than that of frames shows what was read of a queue; `None` when somebody has to
/// look at a message, which leaves the whole pop to the handlers.
pub type Show<'a> = &'a mut dyn FnMut(&Batch, &Got) -> Option<Vec<u8>>;

/// Gives messages; `None` when there are none and the pop does not wait, or when the handlers have
/// to look, and nothing has changed then. With `show` the answer is what that returned for each queue.
pub(in crate::ingest) fn give(
    state: &State,
    store: &Store,
    wish: &Wish<'_>,
    ledger: &mut Ledger,
    show: Option<Show<'_>>,
) -> Option<Given> {
    let began = Instant::now();
    let popping = state.pop.as_ref().filter(|popping| popping.pops)?;
    // A flush or a slave is waited for by the handlers.
    if !wish.merges && !popping.unwaited.checkpoints && Needs::of(state, 0).waits() {
        return None;
    }
    let mut found = find(store, wish)?;
    // What was sent just now is in the log, and may not be in its queue.
    if found.gots.is_empty() && store.dispatch_ahead() {
        found = find(store, wish)?;
    }
    if wish.waits && found.gots.is_empty() && found.passed.is_empty() {
        if let Some(first) = wish.places.first() {
            let of = (wish.group, wish.topic, first.queue_id);
            ledger.books.missed(of, found.misses);
        }
        return Some(Given::default());
    }
    if found.gots.is_empty() || found.bytes > BYTES_MAX {
        return None;
    }
    // What cannot be shown is found out before anything changes.
    let mut shown = match show {
        Some(show) => {
            let parts = found.gots.iter().map(|(batch, got)| show(batch, got));
            Some(parts.collect::<Option<Vec<_>>>()?)
        }
        None => None,
    };
    if !wish.merges {
        let stored = keep(state, popping, store, wish, &found.gots)?;
        if let Some(parts) = &mut shown {
            parts.truncate(stored);
        }
        for (batch, _) in found.gots.drain(stored..) {
            found.rest += i64::try_from(batch.diffs.len()).unwrap_or(0);
        }
        if found.gots.is_empty() {
            return None;
        }
    }
    for (_, got) in &found.gots {
        found.rest += behind(got);
    }
    let reply = match shown {
        Some(parts) => parts.concat(),
        None => write_answer(state, wish, &found)?,
    };
    let took = began.elapsed();
    let waited = between(wish.since_ms, wish.now_ms);
    let mut misses = found.misses;
    for (batch, got) in &found.gots {
        let of = (wish.group, wish.topic, batch.queue_id);
        ledger.books.popped(of, got, misses, took);
        misses = 0;
    }
    ledger.counters.pops += 1;
    ledger.answered.add(Kind::plain(POP, 0), took + waited);
    Some(Given {
        batches: found.gots.into_iter().map(|(batch, _)| batch).collect(),
        passed: found.passed,
        rest: found.rest,
        reply,
    })
}

/// Messages behind those that a read found or passed over.
fn behind(got: &Got) -> i64 {
    (got.max - got.next).max(0)
}

/// Visits the queues; `None` when the handlers have to look.
fn find(store: &Store, wish: &Wish<'_>) -> Option<Found> {
    let mut found = Found::default();
    let mut room = wish.messages;
    for place in wish.places {
        if place.of_retry && !wish.retry_first && room == 0 {
            continue;
        }
        if place.offset < 0 {
            return None;
        }
        let topic = if place.of_retry {
            wish.retry_topic
        } else {
            wish.topic
        };
        if room == 0 {
            let max = i64::try_from(store.queues().max(topic, place.queue_id)).ok()?;
            found.rest += (max - place.offset).max(0);
            continue;
        }
        let wanted = Wanted {
            topic,
            queue_id: place.queue_id,
            offset: place.offset,
            messages: room,
            bytes: BYTES_MAX,
            tag_codes: wish.codes,
            filter: None,
        };
        // What is not in memory is read while others have their turn.
        let got = store.get_resident(wanted).ok().flatten()?;
        match got.status {
            GetStatus::Found if !place.of_retry => {
                room = room.saturating_sub(got.messages);
                found.bytes += got.bytes;
                found.gots.push((batch(place, &got)?, got));
                continue;
            }
            GetStatus::OffsetOverflowOne => {}
            GetStatus::NoMessageInQueue if place.offset == 0 => {}
            GetStatus::NoMatchedMessage if !place.of_retry => {
                if got.next > place.offset {
                    found.passed.push((place.queue_id, got.next));
                }
                found.rest += behind(&got);
            }
            _ => return None,
        }
        found.misses += 1;
    }
    Some(found)
}

fn batch(place: &Place, got: &Got) -> Option<Batch> {
    let mut diffs = Vec::with_capacity(usize::try_from(got.messages).ok()?);
    let read = got.next - place.offset;
    if u64::try_from(read) == Ok(got.messages) {
        diffs.extend(0..read);
    } else {
        for part in &got.parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let size = u32::from_be_bytes(rest.get(SIZE_AT)?.try_into().ok()?);
                let offset = i64::from_be_bytes(rest.get(OFFSET_AT)?.try_into().ok()?);
                diffs.push(offset - place.offset);
                rest = rest.get(usize::try_from(size).ok().filter(|size| *size > 0)?..)?;
            }
        }
    }
    Some(Batch {
        queue_id: place.queue_id,
        start: place.offset,
        diffs,
        next: got.next,
    })
}

/// Appends the checkpoints; returns how many of them are in the log. `None` when the log is busy,
/// took none, or cannot have them.
fn keep(
    state: &State,
    popping: &Popping,
    store: &Store,
    wish: &Wish<'_>,
    gots: &[(Batch, Got)],
) -> Option<usize> {
    let mut prepared = Prepared::default();
    let (mut body, mut properties) = (Vec::new(), Vec::new());
    for (batch, _) in gots {
        let checkpoint = Checkpoint {
            topic: wish.topic,
            group: wish.group,
            queue_id: batch.queue_id,
            start_offset: batch.start,
            diffs: &batch.diffs,
            pop_time_ms: wish.now_ms,
            invisible_ms: wish.invisible_ms,
            broker: &popping.broker,
        };
        body.clear();
        properties.clear();
        checkpoint.write_body(&mut body);
        checkpoint.write_properties(&mut properties);
        let record = Revive {
            queue_id: wish.revive_queue,
            due_ms: checkpoint.due_ms(),
            now_ms: wish.now_ms,
            body: &body,
        };
        record.push(state, popping, &mut properties, &mut prepared)?;
    }
    let stored = store.try_put_unflushed(&mut prepared)?.placed.len();
    store.want_flush();
    (stored > 0).then_some(stored)
}

fn write_answer(state: &State, wish: &Wish<'_>, found: &Found) -> Option<Vec<u8>> {
    let (mut starts, mut offsets) = (String::new(), String::new());
    for (batch, _) in &found.gots {
        let queue_id = batch.queue_id;
        let separator = if starts.is_empty() { "" } else { ";" };
        // Writing to a string cannot fail.
        let _ = write!(starts, "{separator}0 {queue_id} {}", batch.start);
        let _ = write!(offsets, "{separator}0 {queue_id}");
        for (index, diff) in batch.diffs.iter().enumerate() {
            let before = if index == 0 { ' ' } else { ',' };
            let _ = write!(offsets, "{before}{}", batch.start + diff);
        }
    }
    let fields = [
        ("popTime", wish.now_ms.to_string()),
        ("invisibleTime", wish.invisible_ms.to_string()),
        ("reviveQid", wish.revive_queue.to_string()),
        ("restNum", found.rest.to_string()),
        ("startOffsetInfo", starts),
        ("msgOffsetInfo", offsets),
    ];
    let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
    let size = found.gots.iter().map(|(_, got)| got.bytes).sum::<u64>();
    let size = usize::try_from(size).ok()?;
    let header = response(state, 0, wish.opaque, Some("FOUND"));
    let mut reply = Vec::with_capacity(size + 1024);
    frame::encode_start(state.encoding, &header, Some(fields), size, &mut reply).ok()?;
    for (_, got) in &found.gots {
        for part in &got.parts {
            reply.extend_from_slice(part);
        }
    }
    Some(reply)
}

#[cfg(test)]
#[path = "../tests/give.rs"]
mod tests;
