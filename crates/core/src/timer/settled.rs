//! Whether the slots that count as fired have fired, for a checkpoint that nothing vouches for.
//!
//! Java's `timercheck` has no checksum. Were its read time damaged, everything due before it would
//! count as delivered and never be. What fired has left a copy, in the queue that it was meant for
//! or, for another turn, in the timer topic. Slots fire in order: so where the last slot with
//! messages before the read time has left its copies, all did; where it has none, the read time is
//! wrong, and the slots before it are looked at in turn.
//!
//! A message of which nobody can tell counts as delivered: its record is gone, its queue is, or too
//! much has been stored there since.

use super::enqueue::{timer_record, whole, CANCEL_KEY};
use super::fire::{key_of, keyed, target};
use super::{TimerConfig, TimerLog, Unit};
use crate::codec::properties::{find, UNIQ_KEY};
use crate::codec::record::RecordView;
use crate::store::error::StoreError;
use crate::store::Store;
use std::collections::{HashMap, HashSet};

/// Slots that are looked at.
const SLOTS_MAX: usize = 4_096;
/// Messages of one slot that are looked for.
const MESSAGES_MAX: usize = 10_000;
/// Messages of one queue that are looked at for one slot.
const LOOKS_MAX: u64 = 100_000;
const PIECE: u64 = 1_024;

/// What a message and its copy have in common.
type Identity = (i64, Vec<u8>);
/// The messages that a slot should have stored in each queue.
type Wanted = HashMap<(String, i32), HashSet<Identity>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Fired,
    /// Not all of its copies are there.
    Partly,
    NotFired,
    Unknown,
}

/// The time of the next slot to fire, Unix milliseconds, for a checkpoint that says `read_ms`. `lasts`
/// are the steps before that and the last unit of each.
///
/// It is not beyond the clock unless slots fired there: messages that enter before it fire at once.
pub(super) fn read_time(
    store: &Store,
    log: &TimerLog,
    config: &TimerConfig,
    lasts: &HashMap<i64, i64>,
    read_ms: i64,
) -> Result<i64, StoreError> {
    let mut steps: Vec<(i64, i64)> = lasts.iter().map(|(step, at)| (*step, *at)).collect();
    steps.sort_unstable_by(|one, other| other.cmp(one));
    let mut first_ms = read_ms;
    let mut bound_ms = config.floor((store.env.clock)());
    for (step, last) in steps.into_iter().take(SLOTS_MAX) {
        let slot_ms = step.saturating_mul(config.precision_ms);
        match look(store, log, config, (slot_ms, last))? {
            Slot::Fired => {
                bound_ms = bound_ms.max(slot_ms + config.precision_ms);
                break;
            }
            Slot::Partly => return Ok(slot_ms),
            Slot::NotFired => first_ms = slot_ms,
            Slot::Unknown => {}
        }
    }
    Ok(first_ms.min(bound_ms))
}

fn look(
    store: &Store,
    log: &TimerLog,
    config: &TimerConfig,
    (slot_ms, last): (i64, i64),
) -> Result<Slot, StoreError> {
    let wanted = wanted(store, log, config, last);
    let (mut there, mut missing) = (false, false);
    for ((topic, queue_id), mut ids) in wanted {
        let count = ids.len();
        let is_whole = find_copies(store, (&topic, queue_id), slot_ms, &mut ids)?;
        there |= ids.len() < count;
        missing |= is_whole && !ids.is_empty();
    }
    Ok(match (there, missing) {
        (true, true) => Slot::Partly,
        (true, false) => Slot::Fired,
        (false, true) => Slot::NotFired,
        (false, false) => Slot::Unknown,
    })
}

/// What a slot, whose chain ends at `last`, should have stored.
fn wanted(store: &Store, log: &TimerLog, config: &TimerConfig, last: i64) -> Wanted {
    let mut cancelled: HashSet<Vec<u8>> = HashSet::new();
    let mut units: Vec<Unit> = Vec::new();
    let mut at = last;
    while let Some(unit) = u64::try_from(at).ok().and_then(|at| log.read(at)) {
        units.push(unit);
        if unit.previous >= at || units.len() >= MESSAGES_MAX {
            break;
        }
        at = unit.previous;
    }
    let record = |unit: &Unit| {
        let at = u64::try_from(unit.physical_offset).ok()?;
        timer_record(store, at, unit.size.cast_unsigned(), None)
    };
    for lease in units.iter().filter(|it| it.cancels).filter_map(record) {
        if let Some(view) = whole(&lease) {
            let key = find(view.properties, CANCEL_KEY).unwrap_or_default();
            cancelled.insert(keyed(&view, key));
        }
    }
    let mut wanted = Wanted::new();
    for unit in units.iter().filter(|it| it.rolls || !it.cancels) {
        let Some(lease) = record(unit) else { continue };
        let Some(view) = whole(&lease) else { continue };
        let is_cancelled = !unit.rolls && cancelled.contains(&key_of(config, &view));
        if let Some(queue) = target(&view, unit.rolls).filter(|_| !is_cancelled) {
            wanted.entry(queue).or_default().insert(identity(&view));
        }
    }
    wanted
}

/// Takes out of `ids` those of which a queue has a copy that was stored after the slot's time; false
/// when nobody can tell of the rest.
fn find_copies(
    store: &Store,
    (topic, queue_id): (&str, i32),
    slot_ms: i64,
    ids: &mut HashSet<Identity>,
) -> Result<bool, StoreError> {
    let queues = store.queues();
    let (min, end) = (queues.min(topic, queue_id), queues.max(topic, queue_id));
    if end == 0 {
        return Ok(false);
    }
    let from = store.offset_by_time(topic, queue_id, slot_ms, false)?;
    let mut at = from.max(min);
    let last = end.min(at + LOOKS_MAX);
    while at < last && !ids.is_empty() {
        let units = store.units(topic, queue_id, at.cast_signed(), PIECE)?;
        if units.is_empty() {
            break;
        }
        for (place, size, _) in &units {
            let lease = store.log().lease(*place, u64::from(*size));
            if let Some(view) = lease.as_ref().and_then(whole) {
                if view.store_timestamp >= slot_ms {
                    ids.remove(&identity(&view));
                }
            }
        }
        at += units.len() as u64;
    }
    Ok(at >= end)
}

fn identity(view: &RecordView<'_>) -> Identity {
    let key = find(view.properties, UNIQ_KEY).unwrap_or_default();
    (view.born_timestamp, key.to_vec())
}
