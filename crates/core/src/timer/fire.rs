//! From the wheel to where messages were meant for.

use super::census::traffic;
use super::enqueue::{count, out_ms, timer_record, whole, CANCEL_KEY, OUT_MS, REAL_TOPIC, ROLLS};
use super::{add, Eras, Slot, State, TimerConfig, Timers, TIMER_TOPIC};
use crate::codec::properties::{entries, find, push, UNIQ_KEY};
use crate::codec::record::{NewRecord, RecordView};
use crate::commit_log::{Prepared, PutStatus};
use crate::disk::segment::Lease;
use crate::store::error::StoreError;
use std::collections::HashSet;

const REAL_QUEUE: &[u8] = b"REAL_QID";
const ENQUEUED_MS: &[u8] = b"TIMER_ENQUEUE_MS";
const DEQUEUED_MS: &[u8] = b"TIMER_DEQUEUE_MS";
/// Longest properties that a record can have.
const PROPERTIES_MAX: usize = 32_767;
/// Messages and bytes appended with one hold of the log's lock, so that senders need not wait long.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 256 << 10;
/// No limit on the body of a message that was taken before.
const BODY_MAX: u64 = 1 << 40;
/// Batches of one step.
const BATCHES: usize = 32;

/// One message that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    physical_offset: i64,
    size: u32,
    /// When it entered the wheel; the largest number when it did not.
    entered_ms: i64,
    rolls: bool,
}

impl Due {
    /// A message that was due before it could enter the wheel.
    pub(super) fn at_once(physical_offset: i64, size: u32) -> Self {
        Self {
            physical_offset,
            size,
            entered_ms: i64::MAX,
            rolls: false,
        }
    }
}

/// The slot that fires, and how far that is.
pub(super) struct Firing {
    due: Vec<Due>,
    next: usize,
    cancelled: HashSet<Vec<u8>>,
}

impl Firing {
    /// Messages that were due before they could enter the wheel, and the keys of those among them
    /// that are cancelled.
    pub(super) fn late(due: Vec<Due>, cancelled: HashSet<Vec<u8>>) -> Self {
        Self {
            due,
            next: 0,
            cancelled,
        }
    }

    /// Cancels what was not stored yet.
    pub(super) fn cancel(&mut self, key: Vec<u8>) {
        self.cancelled.insert(key);
    }

    fn is_done(&self) -> bool {
        self.next >= self.due.len()
    }
}

/// What a due message becomes.
struct Copy {
    lease: Lease,
    topic: String,
    queue_id: i32,
    properties: Vec<u8>,
    rolls: bool,
    was_late: bool,
}

enum Made {
    Copy(Copy),
    Cancelled,
    Unreadable,
    /// The unit does not fit its message.
    Damaged,
}

impl Timers {
    /// Fires slots that the clock has passed; true when there may be more.
    pub(super) fn fire(&self, state: &mut State) -> Result<bool, StoreError> {
        for _ in 0..BATCHES {
            let firing = match state.firing.take() {
                Some(firing) => Some(firing),
                None => self.next_slot(state)?,
            };
            let Some(mut firing) = firing else {
                return Ok(false);
            };
            let slot_ms = state.next_ms();
            let Some(goes_on) = self.fire_batch(state, &mut firing, Some(slot_ms)) else {
                self.start_over(state)?;
                return Ok(false);
            };
            if !goes_on || !firing.is_done() {
                state.firing = Some(firing);
                if !goes_on {
                    return Ok(false);
                }
                continue;
            }
            state.read_ms = slot_ms + self.config.precision_ms;
            state.changed = true;
            if firing.due.iter().any(|one| one.rolls) {
                // The next slots may hold requests to cancel what has to enter first.
                state.enters_until = self.store.log().whole();
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Stores messages that were due before they entered the wheel; false while some wait.
    pub(super) fn fire_late(&self, state: &mut State) -> bool {
        while let Some((from, mut firing)) = state.late.take() {
            let goes_on = self.fire_batch(state, &mut firing, None).unwrap_or(false);
            if !firing.is_done() {
                state.late = Some((from, firing));
            }
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Moves on to the next slot that holds something; `None` when the clock has passed none, or
    /// messages have to enter first.
    fn next_slot(&self, state: &mut State) -> Result<Option<Firing>, StoreError> {
        debug_assert_eq!(state.read_ms % self.config.precision_ms, 0);
        // While messages enter once more, the slots do not hold all that they should.
        let has_all = state.queue_offset >= state.replay_until && !state.waits;
        while has_all && state.next_ms() < state.write_ms {
            let slot_ms = state.next_ms();
            if let Some(slot) = state.wheel.get(slot_ms) {
                let Some(firing) = self.walk(state, slot) else {
                    self.start_over(state)?;
                    return Ok(None);
                };
                return Ok(Some(firing));
            }
            state.read_ms = slot_ms + self.config.precision_ms;
        }
        Ok(None)
    }

    /// Collects the chain of a slot, oldest first; `None` when it leads to what is no unit of it, or
    /// is not as long as the slot says.
    fn walk(&self, state: &State, slot: Slot) -> Option<Firing> {
        let Slot { step, last, .. } = slot;
        let mut due = Vec::new();
        let mut cancelled = HashSet::new();
        let mut at = last;
        let mut first = last;
        let mut count = 0;
        while at >= state.log.min().cast_signed() {
            let unit = state.log.read(at.cast_unsigned()).filter(|unit| {
                unit.slot_ms().div_euclid(self.config.precision_ms) == step && unit.previous < at
            })?;
            let one = Due {
                physical_offset: unit.physical_offset,
                size: unit.size.cast_unsigned(),
                entered_ms: unit.written_ms,
                rolls: unit.rolls,
            };
            // What fired while the clock stood ahead stays in its slot.
            let has_fired = state.fired.covers(unit.slot_ms(), at);
            if (!unit.cancels || unit.rolls) && !has_fired {
                due.push(one);
            }
            // One that goes on to another turn still finds what is in this slot.
            if unit.cancels {
                match self.cancel_key(one) {
                    Some(key) => drop(cancelled.insert(key)),
                    None if self.should_be_there(one) => return None,
                    None => {}
                }
            }
            count += if unit.cancels { -1 } else { 1 };
            first = at;
            at = unit.previous;
        }
        // One whose begin was removed with its messages cannot be told.
        if at < 0 && (count, first) != (slot.count, slot.first) {
            return None;
        }
        due.reverse();
        Some(Firing {
            due,
            next: 0,
            cancelled,
        })
    }

    fn cancel_key(&self, one: Due) -> Option<Vec<u8>> {
        let lease = self.lease(one)?;
        let view = whole(&lease)?;
        Some(keyed(&view, find(view.properties, CANCEL_KEY)?))
    }

    fn lease(&self, one: Due) -> Option<Lease> {
        let at = u64::try_from(one.physical_offset).ok()?;
        timer_record(&self.store, at, one.size, None)
    }

    /// Whether the log has not lost what stood there to the removal of its first files.
    fn should_be_there(&self, one: Due) -> bool {
        let at = u64::try_from(one.physical_offset).ok();
        at.is_none_or(|at| at >= self.store.log().min())
    }

    /// Stores the next few messages of a slot, or of those that were late; false when the store takes
    /// none at the moment, `None` when a unit of the slot does not fit its message.
    fn fire_batch(
        &self,
        state: &mut State,
        firing: &mut Firing,
        slot_ms: Option<i64>,
    ) -> Option<bool> {
        let rest = firing.due.get(firing.next..).unwrap_or_default();
        let from = (slot_ms, state.eras);
        let (copies, looked) = self.copies(rest, &firing.cancelled, from)?;
        let (settled, goes_on) = self.put(state, &copies);
        // Those that were cancelled or unreadable stand between the copies.
        firing.next += copies.get(settled).map_or(looked, |(index, _)| *index);
        if !goes_on {
            add(&self.counters.waits, 1);
        }
        Some(goes_on)
    }

    /// Makes what is to be stored of the first messages: (index, copy) of each, and how many were
    /// looked at; `None` when a unit of the slot is damaged.
    fn copies(
        &self,
        due: &[Due],
        cancelled: &HashSet<Vec<u8>>,
        from: (Option<i64>, Eras),
    ) -> Option<(Vec<(usize, Copy)>, usize)> {
        let mut copies = Vec::with_capacity(BATCH.min(due.len()));
        let mut bytes = 0;
        for (index, one) in due.iter().enumerate() {
            if copies.len() >= BATCH || bytes >= BATCH_BYTES {
                return Some((copies, index));
            }
            match self.copy(*one, cancelled, from) {
                Made::Copy(copy) => {
                    bytes += one.size as usize;
                    copies.push((index, copy));
                }
                Made::Cancelled => add(&self.counters.cancelled, 1),
                Made::Unreadable => add(&self.counters.unreadable, 1),
                Made::Damaged => return None,
            }
        }
        Some((copies, due.len()))
    }

    fn copy(
        &self,
        one: Due,
        cancelled: &HashSet<Vec<u8>>,
        (slot_ms, eras): (Option<i64>, Eras),
    ) -> Made {
        let lease = self.lease(one);
        let Some((lease, view)) = lease.as_ref().and_then(|it| Some((it, whole(it)?))) else {
            // Is it the message that is damaged, reading the topic again leaves it out.
            return match slot_ms {
                Some(_) if self.should_be_there(one) => Made::Damaged,
                _ => Made::Unreadable,
            };
        };
        if slot_ms.is_some_and(|slot_ms| self.is_early(&view, one, slot_ms, eras)) {
            return Made::Damaged;
        }
        if !one.rolls && !cancelled.is_empty() && cancelled.contains(&key_of(&self.config, &view)) {
            return Made::Cancelled;
        }
        let Some((topic, queue_id)) = target(&view, one.rolls) else {
            return Made::Unreadable;
        };
        let properties = self.stamped(&view, one, eras);
        Made::Copy(Copy {
            lease: lease.clone(),
            topic,
            queue_id,
            properties,
            rolls: one.rolls,
            was_late: one.entered_ms == i64::MAX,
        })
    }

    /// Whether the slot is before the one that the message names. One that rolls has a slot of its
    /// turn, and one of other steps may have a slot a little earlier.
    fn is_early(&self, view: &RecordView<'_>, one: Due, slot_ms: i64, eras: Eras) -> bool {
        !one.rolls
            && !eras.cover(view.queue_offset)
            && out_ms(view.properties).is_some_and(|out_ms| self.config.floor(out_ms) > slot_ms)
    }

    /// The properties with the times that Java adds; as they were when there is no room for them.
    ///
    /// A copy for another turn names its time in the steps of today, as all that is stored today.
    fn stamped(&self, view: &RecordView<'_>, one: Due, eras: Eras) -> Vec<u8> {
        let moved = out_ms(view.properties)
            .filter(|_| one.rolls)
            .and_then(|it| eras.moved(self.config.precision_ms, it, view.queue_offset));
        let mut text = Vec::with_capacity(view.properties.len() + 96);
        let mut rolls = 0_u64;
        for (name, value) in entries(view.properties) {
            if name == ROLLS {
                let number = std::str::from_utf8(value).ok();
                rolls = number.and_then(|it| it.parse().ok()).unwrap_or(0);
            }
            if let Some(out_ms) = moved.filter(|_| name == OUT_MS) {
                push(&mut text, OUT_MS, out_ms.to_string().as_bytes());
                continue;
            }
            let replaced =
                name == ENQUEUED_MS || name == DEQUEUED_MS || (one.rolls && name == ROLLS);
            if !replaced {
                push(&mut text, name, value);
            }
        }
        let now = (self.store.env.clock)();
        push(
            &mut text,
            ENQUEUED_MS,
            one.entered_ms.to_string().as_bytes(),
        );
        if one.rolls {
            let rolls = rolls.saturating_add(1);
            push(&mut text, ROLLS, rolls.to_string().as_bytes());
        }
        push(&mut text, DEQUEUED_MS, now.to_string().as_bytes());
        if text.len() > PROPERTIES_MAX {
            return view.properties.to_vec();
        }
        text
    }

    /// Appends the copies with one write: how many of them are settled, and whether the store takes
    /// more.
    fn put(&self, state: &mut State, copies: &[(usize, Copy)]) -> (usize, bool) {
        let mut prepared =
            Prepared::with_capacity(BATCH_BYTES).in_light_queues(self.store.has_light_queues());
        prepared.as_accepted(true);
        let mut refused = HashSet::new();
        for (number, (_, copy)) in copies.iter().enumerate() {
            // A body that was taken once is delivered, whatever the limit is now.
            let pushed = whole(&copy.lease)
                .map(|view| prepared.push(&copy.topic, &record(&view, copy), BODY_MAX, false));
            if !matches!(pushed, Some(Ok(()))) {
                refused.insert(number);
            }
        }
        if prepared.is_empty() {
            add(&self.counters.refused, refused.len() as u64);
            return (copies.len(), true);
        }
        let done = self.store.put(&mut prepared);
        state.changed = true;
        let mut placed = done.placed.len();
        let mut settled = 0;
        for (number, (_, copy)) in copies.iter().enumerate() {
            if refused.contains(&number) {
                add(&self.counters.refused, 1);
            } else if placed > 0 {
                placed -= 1;
                self.settle(state, copy);
            } else {
                break;
            }
            settled += 1;
        }
        // A record that no file can hold would hold up its slot for good.
        if settled < copies.len() && done.status == PutStatus::MessageIllegal {
            add(&self.counters.refused, 1);
            return (settled + 1, true);
        }
        (settled, settled == copies.len())
    }

    fn settle(&self, state: &mut State, copy: &Copy) {
        let counter = if copy.rolls {
            &self.counters.rolled
        } else {
            &self.counters.fired
        };
        add(counter, 1);
        let Some(view) = whole(&copy.lease) else {
            return;
        };
        if let Some(row) = traffic(state, view.properties).filter(|_| !copy.rolls) {
            row.fired += 1;
        }
        if !copy.was_late {
            // What its filing added: a request to cancel took one off.
            let cancels = find(view.properties, CANCEL_KEY).is_some();
            count(state, view.properties, if cancels { 1 } else { -1 });
        }
    }
}

/// What a request to cancel and its message have in common. The topic belongs to it, so that who may
/// send to one topic cancels nothing of another.
pub(super) fn keyed(view: &RecordView<'_>, key: &[u8]) -> Vec<u8> {
    let topic = find(view.properties, REAL_TOPIC).unwrap_or_default();
    [topic, b"\0", key].concat()
}

/// The key by which a request cancels a message.
pub(super) fn key_of(config: &TimerConfig, view: &RecordView<'_>) -> Vec<u8> {
    let unique = find(view.properties, UNIQ_KEY).unwrap_or_default();
    if !config.key_has_topic {
        return keyed(view, unique);
    }
    let topic = find(view.properties, REAL_TOPIC).unwrap_or_default();
    keyed(view, &[topic, b"+", unique].concat())
}

fn record<'a>(view: &RecordView<'a>, copy: &'a Copy) -> NewRecord<'a> {
    NewRecord {
        topic: copy.topic.as_bytes(),
        queue_id: copy.queue_id,
        flag: view.flag,
        sys_flag: view.sys_flag,
        born_timestamp: view.born_timestamp,
        born_host: view.born_host,
        store_host: view.store_host,
        reconsume_times: view.reconsume_times,
        prepared_transaction_offset: 0,
        body: view.body,
        properties: &copy.properties,
    }
}

/// Where a message goes: to the topic it was meant for, or for another turn.
pub(super) fn target(view: &RecordView<'_>, rolls: bool) -> Option<(String, i32)> {
    if rolls {
        return Some((TIMER_TOPIC.to_owned(), 0));
    }
    let topic = std::str::from_utf8(find(view.properties, REAL_TOPIC)?).ok()?;
    let queue = std::str::from_utf8(find(view.properties, REAL_QUEUE)?).ok()?;
    let queue = queue.parse().ok().filter(|queue: &i32| *queue >= 0)?;
    Some((topic.to_owned(), queue))
}
