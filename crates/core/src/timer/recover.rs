//! Opening the files of the timers, and mending what a crash left.
//!
//! The timer log is trusted up to the first bytes that are no unit, or a unit whose message the
//! commit log does not have any more. The wheel is trusted after an orderly stop only; otherwise it
//! is made anew from the log. Messages of the timer topic behind the last unit enter the wheel again.

use super::census::Census;
use super::enqueue::{file, place, timer_record};
use super::wheel::Wheel;
use super::{
    snapshot, State, TimerCheckpoint, TimerCheckpointFile, TimerConfig, TimerLog, TimerRecovered,
    Unit, TIMER_TOPIC,
};
use crate::disk::segment::make_folder;
use crate::store::error::StoreError;
use crate::store::Store;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How far a clock may have been set back since Java wrote its numbers.
const CLOCK_BACK_MS: i64 = 86_400_000;
/// Units looked at, from the last one back, for one whose message is still there.
const LOOK_BACK: usize = 20_000;

pub(super) fn open(
    store: &Store,
    config: &TimerConfig,
) -> Result<(State, TimerRecovered), StoreError> {
    let root = &store.config.root;
    let folder = root.join("config");
    make_folder(store.env.disk.as_ref(), &folder)?;
    let (file, found) = TimerCheckpointFile::open(store.env.disk.as_ref(), &folder)?;
    let found = found.filter(|found| is_plausible(store, found));
    let (mut state, has_wheel) = load(store, config, file, found.unwrap_or_default())?;
    let whole = has_wheel && was_whole(config, found, &state.wheel);
    let from = if whole {
        state.saved.log_position.cast_unsigned()
    } else {
        0
    };
    let written = store.log().written();
    let mut recovered = TimerRecovered {
        cut_bytes: state.log.find_end(from, |_, unit| {
            unit.physical_offset.cast_unsigned() + u64::from(unit.size.cast_unsigned()) <= written
        })?,
        ..TimerRecovered::default()
    };
    find_queue_offset(store, &mut state, &mut recovered);
    let trusted = whole && recovered.cut_bytes == 0 && within_log(&state);
    state.other_steps = known_steps(found);
    if let Some(other_ms) = other_steps(config, found) {
        let end = store.queues().max(TIMER_TOPIC, 0).cast_signed();
        // Of several changes the longest steps count for all: late by a step, never early.
        let longest_ms = state
            .other_steps
            .map_or(other_ms, |(_, ms)| ms.max(other_ms));
        state.other_steps = Some((end, longest_ms));
        snapshot::remove_all(store.env.disk.as_ref(), root)?;
        recovered.rebuilt_units = Some(refile(store, &mut state, config, other_ms)?);
    } else if !trusted {
        let (mut units, mut damaged) = rebuild(store, &mut state, config);
        if let Some(at) = damaged {
            recovered.cut_bytes += state.log.find_end(at, |here, _| here < at)?;
            find_queue_offset(store, &mut state, &mut recovered);
            (units, damaged) = rebuild(store, &mut state, config);
            debug_assert_eq!(damaged, None);
        }
        recovered.rebuilt_units = Some(units);
    }
    snapshot::remove_beyond(store.env.disk.as_ref(), root, state.log.end())?;
    if state.read_ms == 0 {
        let times = state.wheel.used().map(|(time, _)| time);
        state.read_ms = times.min().unwrap_or(state.write_ms).min(state.write_ms);
    }
    begin(&mut state, config)?;
    let made_anew = recovered.rebuilt_units.is_some_and(|units| units > 0);
    let mended = made_anew || recovered.cut_bytes > 0 || recovered.replayed > 0;
    state.changed = mended || !state.filed.is_empty();
    Ok((state, recovered))
}

/// Whether the numbers can be what Java left, where no checksum of ours vouches for them: damage that
/// names a time or an offset to come would pass over messages that wait.
fn is_plausible(store: &Store, found: &TimerCheckpoint) -> bool {
    let end = store.queues().max(TIMER_TOPIC, 0).cast_signed();
    let latest_ms = (store.env.clock)().saturating_add(CLOCK_BACK_MS);
    found.known.is_some() || (found.read_ms <= latest_ms && found.queue_offset <= end)
}

/// Opens the files; nothing is mended yet. The second value tells whether there was a wheel.
fn load(
    store: &Store,
    config: &TimerConfig,
    checkpoint_file: TimerCheckpointFile,
    saved: TimerCheckpoint,
) -> Result<(State, bool), StoreError> {
    let (disk, root) = (&store.env.disk, &store.config.root);
    let folder = root.join("timerlog");
    let log = TimerLog::open(Arc::clone(disk), folder, config.log_file_size)?;
    let path = root.join("timerwheel");
    let (wheel, found) = Wheel::open(disk.as_ref(), &path, config.slots, config.precision_ms)?;
    let read_ms = config.floor(saved.read_ms);
    let state = State {
        wheel,
        log,
        checkpoint_file,
        saved,
        read_ms,
        write_ms: config.floor((store.env.clock)()).max(read_ms),
        queue_offset: 0,
        replay_until: 0,
        firing: None,
        late: None,
        filed: HashSet::new(),
        other_steps: None,
        metrics: HashMap::new(),
        rebuilt: None,
        snapshot: (0, None),
        lags: false,
        changed: true,
        flushed_ms: 0,
    };
    Ok((state, found))
}

/// Notes that from now on the files change: only an orderly stop leaves them whole again.
fn begin(state: &mut State, config: &TimerConfig) -> Result<(), StoreError> {
    let mut begun = state.saved;
    begun.known = Some(state.known(config, false));
    begun.read_ms = state.read_ms;
    begun.version[2] += 1;
    if state.filed.is_empty() {
        begun.queue_offset = state.queue_offset;
        begun.log_position = state.log.end().cast_signed();
    }
    state.checkpoint_file.write(&begun)?;
    state.saved = begun;
    Ok(())
}

/// The messages that earlier runs with other steps left, as the last run knew them.
fn known_steps(found: Option<TimerCheckpoint>) -> Option<(i64, i64)> {
    let [until, steps_ms] = found.and_then(|found| found.known)?.other_steps;
    (until > 0 && steps_ms > 0).then_some((until, steps_ms))
}

/// Milliseconds of a step of the last run, if they were others.
fn other_steps(config: &TimerConfig, found: Option<TimerCheckpoint>) -> Option<i64> {
    let known = found.and_then(|found| found.known)?;
    let steps_ms = known.precision_ms;
    (steps_ms > 0 && steps_ms != config.precision_ms).then_some(steps_ms)
}

/// Whether wheel and log are as the last run left them on purpose. What Java left has no such mark.
fn was_whole(config: &TimerConfig, found: Option<TimerCheckpoint>, wheel: &Wheel) -> bool {
    let known = found.and_then(|found| found.known);
    known.is_some_and(|known| {
        let is_ours = known.whole && known.precision_ms == config.precision_ms;
        is_ours && known.wheel_sum == wheel.sum()
    })
}

/// Whether no slot that is still to fire leads behind the end of the log.
fn within_log(state: &State) -> bool {
    let end = state.log.end().cast_signed();
    let mut open = state
        .wheel
        .used()
        .filter(|(time, _)| *time >= state.read_ms);
    open.all(|(_, slot)| slot.last < end)
}

/// Finds the message of the timer topic that comes next.
///
/// Behind the checkpoint some messages may have their unit already, and others not: those that were
/// due at once have none. A log that lost units makes messages enter once more; those whose time had
/// been passed at the checkpoint have fired.
fn find_queue_offset(store: &Store, state: &mut State, recovered: &mut TimerRecovered) {
    let first = store.queues().min(TIMER_TOPIC, 0).cast_signed();
    let end = store.queues().max(TIMER_TOPIC, 0).cast_signed().max(first);
    let saved = state.saved;
    let known_until = saved.known.map_or(0, |known| known.replay_until);
    state.filed.clear();
    let has_all = state.log.end().cast_signed() >= saved.log_position;
    if has_all && saved != TimerCheckpoint::default() {
        state.queue_offset = saved.queue_offset.clamp(first, end);
        let from = saved.log_position.cast_unsigned();
        let behind = state.log.units_from(from);
        state.filed = behind.map(|(_, unit)| unit.physical_offset).collect();
        state.replay_until = known_until.min(end);
        return;
    }
    let logged = last_logged(store, &state.log).map_or(first, |offset| offset + 1);
    state.queue_offset = logged.clamp(first, end);
    state.replay_until = saved.queue_offset.max(known_until).min(end);
    recovered.replayed = (state.replay_until - state.queue_offset)
        .max(0)
        .cast_unsigned();
}

/// The queue offset of the last unit's message that is still there.
fn last_logged(store: &Store, log: &TimerLog) -> Option<i64> {
    let mut at = log.end();
    for _ in 0..LOOK_BACK {
        let (position, unit) = log.before(at)?;
        let physical = u64::try_from(unit.physical_offset).ok()?;
        if let Some(lease) = timer_record(store, physical, unit.size.cast_unsigned(), None) {
            return super::enqueue::whole(&lease).map(|view| view.queue_offset);
        }
        at = position;
    }
    None
}

/// Makes the wheel anew from the units of the log that did not fire; returns how many those are.
///
/// Units have no checksum, but each names the one before it in its slot, they are in the order of time
/// and of their messages, none was written in the future, and none waits longer than a turn. The first
/// that breaks this is returned: nothing from there on counts.
fn rebuild(store: &Store, state: &mut State, config: &TimerConfig) -> (u64, Option<u64>) {
    state.wheel.clear();
    let mut census = Census::default();
    let (mut units, mut before) = (0, None::<Unit>);
    let mut lasts: HashMap<i64, i64> = HashMap::new();
    let min = state.log.min().cast_signed();
    let turn_ms = config
        .slots
        .cast_signed()
        .saturating_mul(config.precision_ms);
    for (at, unit) in state.log.units() {
        let time_ms = unit.slot_ms();
        let step = time_ms.div_euclid(config.precision_ms);
        // What is open lies within one turn, so the wheel itself knows its last unit.
        let known = if state.read_ms > 0 && time_ms >= state.read_ms {
            state.wheel.get(time_ms).map(|slot| slot.last)
        } else {
            lasts.insert(step, at.cast_signed())
        };
        let chained = unit.previous == known.unwrap_or(-1) || unit.previous < min;
        let ordered = before.is_none_or(|before| {
            // A request to cancel may stand in two slots.
            let twins = before.cancels && unit.cancels;
            let follows = before.physical_offset < unit.physical_offset
                || (twins && before.physical_offset == unit.physical_offset);
            follows && before.written_ms <= unit.written_ms
        });
        let is_open = time_ms >= state.read_ms;
        let other = state.wheel.occupant(time_ms);
        let is_taken = state.read_ms > 0 && other.is_some_and(|slot| slot.step != step);
        let possible = unit.written_ms <= state.write_ms
            && i64::from(unit.wait_ms) <= turn_ms
            && time_ms % config.precision_ms == 0
            && !(is_open && is_taken);
        if !chained || !ordered || !possible {
            return (units, Some(at));
        }
        before = Some(unit);
        if !is_open {
            continue;
        }
        state.wheel.chain(&unit, at);
        census.add(&unit, store);
        units += 1;
    }
    state.rebuilt = Some(census);
    (units, None)
}

/// Writes the log anew with the open units: chains of another precision do not fit the slots, and
/// a later recovery must not take them for chains of this one.
///
/// The time that a message names is one step early, of the steps it was stored with; a slot must not
/// fire sooner than it would have with those.
fn refile(
    store: &Store,
    state: &mut State,
    config: &TimerConfig,
    old_ms: i64,
) -> Result<u64, StoreError> {
    state.wheel.clear();
    let mut census = Census::default();
    let read_ms = state.read_ms - state.read_ms.rem_euclid(old_ms);
    let open: Vec<Unit> = state
        .log
        .units()
        .map(|(_, unit)| unit)
        .filter(|unit| unit.slot_ms() >= read_ms)
        .collect();
    state.log.find_end(0, |_, _| false)?;
    let mut units = 0;
    for mut unit in open {
        // What is overdue fires with the next slot, and what is beyond the window waits in turns: so
        // all open slots lie within one turn of the wheel, and none is another's.
        let wanted = later(config, unit.slot_ms(), old_ms).max(state.write_ms);
        let place = place(config, wanted, state.write_ms);
        unit.rolls |= place.rolls;
        unit.written_ms = state.write_ms;
        unit.wait_ms = i32::try_from(place.slot_ms - state.write_ms).unwrap_or(i32::MAX);
        let filed = file(state, config, unit)?;
        debug_assert!(filed, "two times in one slot");
        census.add(&unit, store);
        units += u64::from(filed);
    }
    state.rebuilt = Some(census);
    state.log.sync()?;
    Ok(units)
}

/// The first slot that fires no sooner than a slot of another precision would.
pub(super) fn later(config: &TimerConfig, slot_ms: i64, old_ms: i64) -> i64 {
    let earliest = slot_ms + old_ms - config.precision_ms;
    config.floor(earliest + config.precision_ms - 1)
}
