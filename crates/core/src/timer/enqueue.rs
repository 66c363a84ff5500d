//! From the timer topic into the wheel.

use super::census::traffic;
use super::unit::Unit;
use super::{add, fire, snapshot, State, TimerConfig, Timers, TIMER_TOPIC};
use crate::codec::properties::find;
use crate::codec::record::{parse, Parsed, RecordView};
use crate::disk::segment::Lease;
use crate::java_hash;
use crate::store::error::StoreError;
use crate::store::Store;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// The time at which a message is due, less one step.
pub(super) const OUT_MS: &[u8] = b"TIMER_OUT_MS";
/// The time that was asked for, of messages that name a point in time.
const DELIVER_MS: &[u8] = b"TIMER_DELIVER_MS";
/// The key of the message to cancel.
pub(super) const CANCEL_KEY: &[u8] = b"TIMER_DEL_UNIQKEY";
/// How many turns a message has made.
pub(super) const ROLLS: &[u8] = b"TIMER_ROLL_TIMES";
pub(super) const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
/// How late a message may enter the wheel and still be taken for one that rolled.
const LATE_MS: i64 = 3_600_000;
/// Messages looked at in one step.
const BATCH: u64 = 512;

/// Where a message belongs in the wheel.
pub(super) struct Place {
    pub(super) slot_ms: i64,
    pub(super) rolls: bool,
}

/// What was due before it could enter the wheel.
#[derive(Default)]
struct Late {
    due: Vec<fire::Due>,
    cancelled: HashSet<Vec<u8>>,
}

impl Timers {
    /// Files the next messages of the timer topic; true when there may be more.
    pub(super) fn enqueue(&self, state: &mut State) -> Result<bool, StoreError> {
        if !self.fire_late(state) {
            // A request to cancel may be behind those that wait.
            state.lags = true;
            return Ok(false);
        }
        // All that was stored before the clock passed the next slots, and what went on to another
        // turn, enters before they fire: a request to cancel may be among it.
        state.lags = self.store.dispatched() < state.enters_until;
        let units = self
            .store
            .units(TIMER_TOPIC, 0, state.queue_offset, BATCH)?;
        if units.is_empty() {
            return Ok(self.jump(state));
        }
        let begin = (state.queue_offset, state.log.mark());
        let mut late = Late::default();
        let mut taken = 0;
        let mut waits = false;
        let mut done = Ok(());
        for (physical_offset, size, _) in units {
            let offset = state.queue_offset + taken;
            let lease = timer_record(&self.store, physical_offset, size, Some(offset));
            let Some(lease) = lease else {
                add(&self.counters.unreadable, 1);
                taken += 1;
                continue;
            };
            match self.enqueue_one(state, &lease, offset, &mut late) {
                Ok(true) => taken += 1,
                Ok(false) => {
                    waits = true;
                    break;
                }
                Err(error) => {
                    // Those before it are filed, and must not be once more.
                    done = Err(error);
                    break;
                }
            }
        }
        let Late { due, cancelled } = late;
        state.late = (!due.is_empty()).then(|| (begin, fire::Firing::late(due, cancelled)));
        state.queue_offset += taken;
        state.lags |= taken.cast_unsigned() >= BATCH;
        state.changed |= taken > 0;
        add(&self.counters.enqueued, taken.cast_unsigned());
        // A request to cancel what is in the next slots may be behind it. While messages enter once
        // more none of them fires, so that no slot would ever become free.
        state.waits = waits && state.firing.is_some();
        if waits && !state.waits {
            self.gather(state)?;
            return Ok(true);
        }
        done.map(|()| taken > 0)
    }

    /// Goes over messages that were deleted with their files; true when it did.
    fn jump(&self, state: &mut State) -> bool {
        let first = self.store.queues().min(TIMER_TOPIC, 0).cast_signed();
        let jumps = state.queue_offset < first;
        if jumps {
            let gone = (first - state.queue_offset).cast_unsigned();
            add(&self.counters.unreadable, gone);
            state.queue_offset = first;
            state.changed = true;
        }
        jumps
    }

    /// Files one message; false when its slot is not free yet.
    fn enqueue_one(
        &self,
        state: &mut State,
        lease: &Lease,
        offset: i64,
        late: &mut Late,
    ) -> Result<bool, StoreError> {
        let Some(view) = whole(lease) else {
            add(&self.counters.unreadable, 1);
            return Ok(true);
        };
        let Some(out_ms) = out_ms(view.properties) else {
            add(&self.counters.unreadable, 1);
            return Ok(true);
        };
        let moved = state.eras.moved(self.config.precision_ms, out_ms, offset);
        let out_ms = moved.unwrap_or(out_ms);
        if offset < state.replay_until && self.has_fired(state, &view, out_ms) {
            return Ok(true);
        }
        let fires = self.dequeues.load(Ordering::Relaxed);
        let cancel_key = find(view.properties, CANCEL_KEY);
        let cancels = cancel_key.is_some();
        if fires && self.has_passed(state, out_ms) {
            let Some(key) = cancel_key else {
                let due = fire::Due::at_once(view.physical_offset, view.total_size);
                late.due.push(due);
                enters(state, &view, out_ms, offset);
                return Ok(true);
            };
            // What a late request is to cancel is late itself, in the slot that fires now or next, in
            // a later one since the steps changed, or was delivered.
            let key = fire::keyed(&view, key);
            if let Some(firing) = &mut state.firing {
                firing.cancel(key.clone());
            }
            late.cancelled.insert(key);
        }
        let unit = Unit {
            previous: -1,
            rolls: false,
            cancels,
            written_ms: state.write_ms,
            wait_ms: 0,
            physical_offset: view.physical_offset,
            size: i32::try_from(view.total_size).unwrap_or(i32::MAX),
            topic_hash: java_hash::hash(find(view.properties, REAL_TOPIC).unwrap_or_default()),
        };
        let unit = placed(&self.config, state, out_ms, unit);
        let mut units = vec![unit];
        if cancels && !unit.rolls {
            self.add_twins(state, &view, offset, &mut units);
        }
        // All or none: what waits for a slot is met again.
        let is_free = |unit: &Unit| is_free(state, &self.config, unit.slot_ms());
        if !units.iter().all(is_free) {
            return Ok(false);
        }
        if !cancels {
            enters(state, &view, out_ms, offset);
        }
        for unit in units {
            file(state, &self.config, unit)?;
            count(state, view.properties, if cancels { -1 } else { 1 });
        }
        Ok(true)
    }

    /// Adds units of a request to cancel for each slot where a message of before a change of the
    /// steps may wait: its request names the time in the steps of today, which lead to another one.
    ///
    /// After a crash between the units the start cuts all of them and reads the request again.
    fn add_twins(&self, state: &State, view: &RecordView<'_>, offset: i64, units: &mut Vec<Unit>) {
        let (Some(due_ms), Some(unit)) =
            (number(view.properties, DELIVER_MS), units.first().copied())
        else {
            return;
        };
        let precision_ms = self.config.precision_ms;
        for time_ms in state.eras.slots_before(precision_ms, due_ms, offset) {
            if self.has_passed(state, time_ms) {
                continue;
            }
            let twin = placed(&self.config, state, time_ms, unit);
            let is_same = |it: &Unit| (it.slot_ms(), it.rolls) == (twin.slot_ms(), twin.rolls);
            if !units.iter().any(is_same) {
                units.push(twin);
            }
        }
    }
}

impl Timers {
    /// Whether the slot of a time fired already or is about to. One that the clock alone has passed
    /// takes more: after a pause, a request to cancel still finds its message there.
    fn has_passed(&self, state: &State, out_ms: i64) -> bool {
        let slot_ms = self.config.floor(out_ms);
        slot_ms < state.read_ms || (slot_ms <= state.next_ms() && state.firing.is_some())
    }

    /// Whether a message that is met once more was settled before: its slot was passed, or so many
    /// turns ago that a younger copy of it waits.
    fn has_fired(&self, state: &State, view: &RecordView<'_>, out_ms: i64) -> bool {
        // One that did not roll is due within a window: then its slot was passed as well.
        let rolled_by = view.store_timestamp + self.config.window_ms() + LATE_MS;
        let until_ms = state.fired.until(view.physical_offset).max(state.read_ms);
        self.config.floor(out_ms) < until_ms || rolled_by < until_ms
    }

    /// Takes the read time back to the clock's step, and lets what was gathered as overdue wait in
    /// slots of its own again.
    ///
    /// Slots between the two have fired, and take what enters from now on: what is in them by now is
    /// told by its place in the commit log.
    pub(super) fn set_back(&self, state: &mut State, write_ms: i64) -> Result<(), StoreError> {
        let late = state.late.as_ref().map(|((from, _), _)| *from);
        // Those that were due at once may have to wait now.
        let mut refills = late.is_some() || state.gathers();
        if write_ms < state.read_ms {
            let fired_until = late.unwrap_or(state.queue_offset).max(state.replay_until);
            let below = self.place_of(fired_until)?;
            let log_end = state.log.end().cast_signed();
            state.fired.add(state.read_ms, below, log_end);
            // Else what waits behind the read time has its slots for itself.
            refills |= state.fired.latest() - write_ms > self.config.reach_ms();
            state.read_ms = write_ms;
            add(&self.counters.set_backs, 1);
        }
        state.write_ms = write_ms;
        // A slot of which a part is stored fires again, at its time.
        state.firing = None;
        state.changed = true;
        if refills {
            self.refill(state)?;
        }
        self.save(state, false)
    }

    /// A place in the commit log: all messages of the timer topic from an offset on are behind it.
    fn place_of(&self, offset: i64) -> Result<i64, StoreError> {
        // In this order: what is stored meanwhile is behind it.
        let dispatched = self.store.dispatched();
        let first = self.store.queues().min(TIMER_TOPIC, 0).cast_signed();
        let units = self.store.units(TIMER_TOPIC, 0, offset.max(first), 1)?;
        let place = units.first().map_or(dispatched, |(place, _, _)| *place);
        Ok(place.cast_signed())
    }

    /// Starts over from the timer topic: a chain of the log led to what is no unit, or to one that does
    /// not fit its message.
    pub(super) fn start_over(&self, state: &mut State) -> Result<(), StoreError> {
        add(&self.counters.broken_chains, 1);
        self.refill(state)
    }

    /// Starts over where a message waits for its slot: what is overdue waits in the slot of now
    /// together, so that no two times have the same place.
    fn gather(&self, state: &mut State) -> Result<(), StoreError> {
        self.refill(state)?;
        state.gathered_ms = state.write_ms;
        Ok(())
    }

    /// Empties wheel and log, and has all of the timer topic enter once more.
    fn refill(&self, state: &mut State) -> Result<(), StoreError> {
        snapshot::remove_all(self.store.env.disk.as_ref(), &self.store.config.root)?;
        state.snapshot.1 = None;
        // All that waits is counted again as it enters.
        state.metrics.clear();
        state.log.find_end(0, |_, _| false)?;
        state.fired.cut_log(0);
        state.wheel.clear();
        state.gathered_ms = 0;
        // What was due at once enters once more as well: its place in the log is gone.
        if let Some(((from, _), _)) = state.late.take() {
            state.queue_offset = from;
        }
        state.replay_until = state.replay_until.max(state.queue_offset);
        state.queue_offset = self.store.queues().min(TIMER_TOPIC, 0).cast_signed();
        state.changed = true;
        Ok(())
    }
}

/// Appends a unit to its slot's chain; false when the slot still belongs to a time that did not fire.
pub(super) fn file(
    state: &mut State,
    config: &TimerConfig,
    mut unit: Unit,
) -> Result<bool, StoreError> {
    let time_ms = unit.slot_ms();
    if !is_free(state, config, time_ms) {
        return Ok(false);
    }
    unit.previous = state.wheel.get(time_ms).map_or(-1, |slot| slot.last);
    let at = state.log.append(&unit)?;
    state.wheel.chain(&unit, at);
    Ok(true)
}

/// Whether the place of a time holds nothing of another time that did not fire.
fn is_free(state: &State, config: &TimerConfig, time_ms: i64) -> bool {
    let same = state.wheel.get(time_ms);
    let other = state.wheel.occupant(time_ms).filter(|_| same.is_none());
    other.is_none_or(|slot| slot.step.saturating_mul(config.precision_ms) < state.read_ms)
}

/// A unit as it is filed for a time. No turn goes further than one from what was gathered, however
/// long it takes until all have entered.
fn placed(config: &TimerConfig, state: &State, time_ms: i64, unit: Unit) -> Unit {
    let from_ms = if state.gathers() {
        state.gathered_ms
    } else {
        unit.written_ms
    };
    let place = place(config, time_ms.max(state.next_ms()), from_ms);
    Unit {
        rolls: place.rolls,
        wait_ms: i32::try_from(place.slot_ms - unit.written_ms).unwrap_or(i32::MAX),
        ..unit
    }
}

/// Where a message goes: its own slot, or a turn when that is beyond the window (spec: store §16.4).
pub(super) fn place(config: &TimerConfig, out_ms: i64, write_ms: i64) -> Place {
    let window = config.window_ms();
    let wait = out_ms - write_ms;
    if wait < window {
        return Place {
            slot_ms: config.floor(out_ms),
            rolls: false,
        };
    }
    // The last turn is not made much shorter than the others.
    let turn = if wait - window < window / 3 {
        window / 2
    } else {
        window
    };
    Place {
        slot_ms: config.floor(write_ms + turn),
        rolls: true,
    }
}

pub(super) fn out_ms(properties: &[u8]) -> Option<i64> {
    number(properties, OUT_MS)
}

fn number(properties: &[u8], name: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(find(properties, name)?).ok()?;
    text.parse().ok().filter(|time| *time > 0)
}

/// Leases a record of the timer topic after proving that it is one, and the one at that offset.
pub(super) fn timer_record(
    store: &Store,
    physical_offset: u64,
    size: u32,
    queue_offset: Option<i64>,
) -> Option<Lease> {
    let lease = store.log().lease(physical_offset, u64::from(size))?;
    let view = whole(&lease)?;
    let proven = view.topic == TIMER_TOPIC.as_bytes()
        && view.queue_id == 0
        && view.physical_offset.cast_unsigned() == physical_offset
        && queue_offset.is_none_or(|offset| offset == view.queue_offset);
    proven.then_some(lease)
}

pub(super) fn whole(lease: &Lease) -> Option<RecordView<'_>> {
    match parse(lease, 0, true) {
        Parsed::Record { view, size } if size as usize == lease.len() => Some(view),
        _ => None,
    }
}

/// Counts a message as traffic of its topic, unless it was counted before: a further turn has a count
/// of turns, and what enters once more after damage was there.
fn enters(state: &mut State, view: &RecordView<'_>, out_ms: i64, offset: i64) {
    if offset < state.replay_until || find(view.properties, ROLLS).is_some() {
        return;
    }
    if let Some(row) = traffic(state, view.properties) {
        row.enters(out_ms - view.born_timestamp);
    }
}

/// Counts waiting messages of a topic.
pub(super) fn count(state: &mut State, properties: &[u8], more: i64) {
    let Some(Ok(topic)) = find(properties, REAL_TOPIC).map(std::str::from_utf8) else {
        return;
    };
    let time = state.write_ms;
    match state.metrics.get_mut(topic) {
        Some(row) => *row = (row.0 + more, time),
        None => {
            state.metrics.insert(topic.to_owned(), (more, time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{out_ms, place, TimerConfig};

    /// A wheel of 100 slots of a second, of which 60 are a turn.
    fn config() -> TimerConfig {
        TimerConfig {
            slots: 1000,
            window: 60,
            ..TimerConfig::default()
        }
    }

    #[test]
    fn messages_within_the_window_have_their_own_slot_and_others_a_turn() {
        let config = config();
        // Waiting this long, from when on, in which slot, and whether it is a turn.
        for (wait, from, slot, rolls) in [
            (0, 500_000, 500_000, false),
            (1, 500_000, 500_000, false),
            (1_999, 500_000, 501_000, false),
            (-5_000, 500_000, 495_000, false),
            (59_999, 500_000, 559_000, false),
            // Half a turn, as long as less than a third of one would be left.
            (60_000, 500_000, 530_000, true),
            (60_001, 500_000, 530_000, true),
            (79_999, 500_000, 530_000, true),
            (80_000, 500_000, 560_000, true),
            (80_001, 500_000, 560_000, true),
            (1 << 40, 500_000, 560_000, true),
            (60_000, 500_700, 530_000, true),
            (80_000, 500_700, 560_000, true),
        ] {
            let found = place(&config, from + wait, from);
            assert_eq!((found.slot_ms, found.rolls), (slot, rolls), "{wait} {from}");
        }
    }

    #[test]
    fn window_that_the_wheel_cannot_hold_is_all_of_it_but_what_is_spare() {
        let most = 1000 - super::super::SPARE_SLOTS;
        for (window, slots) in [
            (0, most),
            (1, most),
            (2, 2),
            (most - 1, most - 1),
            (most, most),
            (most + 1, most),
            (u64::MAX, most),
        ] {
            let config = TimerConfig { window, ..config() };
            assert_eq!(config.window_ms(), slots.cast_signed() * 1000, "{window}");
        }
    }

    #[test]
    fn time_that_is_no_number_above_zero_is_none() {
        for (text, time) in [
            ("1", Some(1)),
            ("1700000000000", Some(1_700_000_000_000)),
            ("0", None),
            ("-1", None),
            ("x", None),
            ("", None),
            ("9223372036854775808", None),
        ] {
            let properties = format!("A\x01b\x02TIMER_OUT_MS\x01{text}\x02");
            assert_eq!(out_ms(properties.as_bytes()), time, "{text}");
        }
        assert_eq!(out_ms(b"A\x01b\x02"), None);
    }
}
