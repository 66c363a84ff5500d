//! Opening the files of the timers, and mending what a crash left.
//!
//! The wheel is trusted after an orderly stop only; otherwise it is made anew from the timer log, in
//! one pass over its files. The log is trusted up to the checkpoint, as far as the checksums of its
//! files are right, each unit continues the chain of its slot, and the commit log has its message.
//! What is behind the checkpoint is cut, and its messages enter the wheel again.
//!
//! A checkpoint that Java wrote has no checksum. Then the log is trusted as far as its chains are
//! right, its last unit says which message comes next, and the copies of what fired say how far the
//! wheel had turned (`settled`).

use super::census::Census;
use super::clock::steady::SteadyClock;
use super::enqueue::{file, out_ms, place, timer_record, whole};
use super::eras::later;
use super::sums::{FileSum, Noted};
use super::wheel::Wheel;
use super::{
    settled, snapshot, Eras, Fired, Known, State, TimerCheckpoint, TimerCheckpointFile,
    TimerConfig, TimerLog, TimerRecovered, Unit, TIMER_TOPIC,
};
use crate::disk::segment::make_folder;
use crate::store::error::StoreError;
use crate::store::Store;
use std::collections::HashMap;
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
    let known = found.and_then(|found| found.known);
    let noted = noted(&file, found);
    let (mut state, has_wheel) = load(store, config, file, found.unwrap_or_default())?;
    state.eras = known.map_or_else(Eras::default, |known| known.eras);
    state.fired = known.map_or_else(Fired::default, |known| known.fired);
    state.gathered_ms = known.map_or(0, |known| known.gathered_ms);
    state.fired.cut(store.log().written().cast_signed());
    let mut recovered = TimerRecovered::default();
    let other_ms = known
        .map(|known| known.precision_ms)
        .filter(|steps_ms| *steps_ms > 0 && *steps_ms != config.precision_ms);
    let whole = has_wheel && was_whole(config, known, &state.wheel);
    if let Some(other_ms) = other_ms {
        let first = store.queues().min(TIMER_TOPIC, 0).cast_signed();
        let end = store.queues().max(TIMER_TOPIC, 0).cast_signed();
        let units = open_units(store, &mut state, noted.as_ref(), other_ms, &mut recovered)?;
        find_queue_offset(store, &mut state, &mut recovered);
        state.eras.end(end, other_ms, first);
        snapshot::remove_all(store.env.disk.as_ref(), root)?;
        recovered.rebuilt_units = Some(refile(store, &mut state, config, (units, other_ms))?);
    } else {
        let trusted = whole && take_whole(store, &mut state, noted.as_ref(), &mut recovered)?;
        if !trusted {
            rebuild(store, &mut state, config, noted.as_ref(), &mut recovered)?;
        }
        find_queue_offset(store, &mut state, &mut recovered);
    }
    snapshot::remove_beyond(store.env.disk.as_ref(), root, state.log.end())?;
    if state.read_ms == 0 {
        let times = state.wheel.used().map(|(time, _)| time);
        state.read_ms = times.min().unwrap_or(state.write_ms).min(state.write_ms);
    }
    state.fired.cut_log(state.log.end().cast_signed());
    begin(&mut state, config)?;
    let made_anew = recovered.rebuilt_units.is_some_and(|units| units > 0);
    state.changed = made_anew || recovered.cut_bytes > 0 || recovered.replayed > 0;
    Ok((state, recovered))
}

/// What a checkpoint with a block of ours says of the timer log.
fn noted(file: &TimerCheckpointFile, found: Option<TimerCheckpoint>) -> Option<Noted> {
    let found = found?;
    let log = found.known?.log;
    let end = found.log_position.cast_unsigned();
    Some(Noted {
        closed: file.sums().to_vec(),
        // Without a checksum no file has this one's place.
        mark: log.map_or(FileSum::empty(end), |(base, sum)| FileSum {
            base,
            end,
            sum,
        }),
    })
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
    let size = config.log_file_size;
    let mut log = TimerLog::open(Arc::clone(disk), folder.clone(), size)?;
    if log.lacks_front(store.log().min()) {
        // What is left may be whole: nothing in it tells of the messages before.
        log = TimerLog::anew(Arc::clone(disk), folder, size)?;
    }
    let path = root.join("timerwheel");
    let (wheel, found) = Wheel::open(disk.as_ref(), &path, config.slots, config.precision_ms)?;
    let read_ms = config.floor(saved.read_ms);
    let state = State {
        wheel,
        log,
        checkpoint_file,
        saved,
        read_ms,
        gathered_ms: 0,
        write_ms: config.floor((store.env.clock)()).max(read_ms),
        queue_offset: 0,
        replay_until: 0,
        firing: None,
        late: None,
        eras: Eras::default(),
        fired: Fired::default(),
        clock: SteadyClock::default(),
        metrics: HashMap::new(),
        traffic: HashMap::new(),
        rebuilt: None,
        snapshot: (0, None),
        lags: false,
        waits: false,
        enters_until: store.log().whole(),
        changed: true,
        flushed_ms: 0,
    };
    Ok((state, found))
}

/// Notes that from now on the files change: only an orderly stop leaves them whole again.
fn begin(state: &mut State, config: &TimerConfig) -> Result<(), StoreError> {
    let mut begun = state.saved;
    let mark = state.log.mark();
    begun.known = Some(state.known(config, false, mark));
    begun.read_ms = state.read_ms;
    begun.version[2] += 1;
    begun.queue_offset = state.queue_offset;
    begun.log_position = mark.end.cast_signed();
    state.checkpoint_file.write(&begun, state.log.closed())?;
    state.saved = begun;
    Ok(())
}

/// Whether wheel and log are as the last run left them on purpose. What Java left has no such mark.
fn was_whole(config: &TimerConfig, known: Option<Known>, wheel: &Wheel) -> bool {
    known.is_some_and(|known| {
        let is_ours = known.whole && known.precision_ms == config.precision_ms;
        is_ours && known.wheel_sum == wheel.sum()
    })
}

/// Takes the log as an orderly stop left it; false when it is not that. A chain that was damaged
/// since is found when its slot fires.
fn take_whole(
    store: &Store,
    state: &mut State,
    noted: Option<&Noted>,
    recovered: &mut TimerRecovered,
) -> Result<bool, StoreError> {
    let Some(noted) = noted else { return Ok(false) };
    let written = store.log().written();
    let keep = |_: u64, unit: &Unit| has_message(unit, written);
    let cut = state.log.find_end(noted.mark.end, keep)?;
    recovered.cut_bytes += cut;
    let trusted = cut == 0 && state.log.end() == noted.mark.end && within_log(state);
    if trusted {
        state.log.take_closed(noted.closed.clone());
    }
    Ok(trusted)
}

fn has_message(unit: &Unit, written: u64) -> bool {
    let size = u64::from(unit.size.cast_unsigned());
    unit.physical_offset.cast_unsigned() + size <= written
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
/// A log that lost units, or whose end nothing vouches for, makes messages enter once more; those
/// whose time had been passed at the checkpoint have fired.
fn find_queue_offset(store: &Store, state: &mut State, recovered: &mut TimerRecovered) {
    let first = store.queues().min(TIMER_TOPIC, 0).cast_signed();
    let end = store.queues().max(TIMER_TOPIC, 0).cast_signed().max(first);
    let saved = state.saved;
    let known_until = saved.known.map_or(0, |known| known.replay_until);
    let has_all = state.log.end().cast_signed() == saved.log_position;
    if has_all && saved.known.is_some() {
        state.queue_offset = saved.queue_offset.clamp(first, end);
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

/// Makes the wheel anew from the units of the log that did not fire.
fn rebuild(
    store: &Store,
    state: &mut State,
    config: &TimerConfig,
    noted: Option<&Noted>,
    recovered: &mut TimerRecovered,
) -> Result<(), StoreError> {
    let mut until = noted.map_or(u64::MAX, |noted| noted.mark.end);
    let mut has_asked = noted.is_some() || state.read_ms == 0;
    loop {
        let mut pass = Pass::new(store, state, config, noted.is_some());
        let State { wheel, log, .. } = state;
        let scanned = log.scan(0, until, |at, unit| pass.take(wheel, at, unit))?;
        // What is in the wheel by now may come from damaged units: once more, without that file.
        let damaged = noted.and_then(|noted| scanned.sums.first_other(noted));
        if let Some(base) = damaged.filter(|base| *base < until) {
            until = base;
            continue;
        }
        recovered.cut_bytes += log.end_at(scanned)?;
        if !has_asked {
            has_asked = true;
            let read_ms = settled::read_time(store, log, config, &pass.lasts, state.read_ms)?;
            if read_ms != state.read_ms {
                state.read_ms = read_ms;
                state.write_ms = config.floor((store.env.clock)()).max(read_ms);
                continue;
            }
        }
        recovered.rebuilt_units = Some(pass.units);
        state.rebuilt = Some(pass.census);
        return Ok(());
    }
}

/// One pass over the log.
///
/// Each unit names the one before it in its slot, they are in the order of time and of their messages,
/// none was written in the future, and none waits longer than a turn. Nothing counts from the first
/// one on that breaks this.
struct Pass<'a> {
    store: &'a Store,
    config: &'a TimerConfig,
    written: u64,
    /// The first position of the log, the read time and the time of the wheel.
    from: (i64, i64, i64),
    turn_ms: i64,
    fired: Fired,
    /// Whether checksums show what is damaged: then the times of writing need not, and they go back
    /// when the clock is set back.
    has_sums: bool,
    census: Census,
    units: u64,
    before: Option<Unit>,
    /// The last unit of each step before the read time.
    lasts: HashMap<i64, i64>,
}

impl<'a> Pass<'a> {
    fn new(store: &'a Store, state: &mut State, config: &'a TimerConfig, has_sums: bool) -> Self {
        state.wheel.clear();
        let slots = config.slots.cast_signed();
        Self {
            store,
            config,
            written: store.log().written(),
            from: (state.log.min().cast_signed(), state.read_ms, state.write_ms),
            turn_ms: slots.saturating_mul(config.precision_ms),
            fired: state.fired,
            has_sums,
            census: Census::default(),
            units: 0,
            before: None,
            lasts: HashMap::new(),
        }
    }

    /// Takes the next unit into the wheel, if it did not fire; false for one that cannot be there.
    fn take(&mut self, wheel: &mut Wheel, at: u64, unit: &Unit) -> bool {
        let (min, read_ms, write_ms) = self.from;
        let time_ms = unit.slot_ms();
        let step = time_ms.div_euclid(self.config.precision_ms);
        let is_open = time_ms >= read_ms;
        let other = wheel.occupant(time_ms);
        // What is open lies within one turn, so the wheel itself knows its last unit.
        let last = if read_ms > 0 && is_open {
            let same = other.filter(|slot| slot.step == step);
            same.map(|slot| slot.last)
        } else {
            self.lasts.get(&step).copied()
        };
        let chained = unit.previous == last.unwrap_or(-1) || unit.previous < min;
        let ordered = self.before.is_none_or(|before| {
            // A request to cancel may stand in several slots.
            let twins = before.cancels && unit.cancels;
            let follows = before.physical_offset < unit.physical_offset
                || (twins && before.physical_offset == unit.physical_offset);
            follows && (self.has_sums || before.written_ms <= unit.written_ms)
        });
        let is_taken = read_ms > 0 && other.is_some_and(|slot| slot.step != step);
        let possible = (self.has_sums || unit.written_ms <= write_ms)
            && i64::from(unit.wait_ms) <= self.turn_ms
            && time_ms % self.config.precision_ms == 0
            && !(is_open && is_taken);
        if !chained || !ordered || !possible || !has_message(unit, self.written) {
            return false;
        }
        self.before = Some(*unit);
        if !(read_ms > 0 && is_open) {
            self.lasts.insert(step, at.cast_signed());
        }
        if is_open {
            wheel.chain(unit, at);
            if !self.fired.covers(time_ms, at.cast_signed()) {
                self.census.add(unit, self.store);
            }
            self.units += 1;
        }
        true
    }
}

/// The units that did not fire, of a log with slots of other steps.
fn open_units(
    store: &Store,
    state: &mut State,
    noted: Option<&Noted>,
    old_ms: i64,
    recovered: &mut TimerRecovered,
) -> Result<Vec<Unit>, StoreError> {
    let fired = state.fired;
    let read_ms = state.read_ms - state.read_ms.rem_euclid(old_ms);
    let written = store.log().written();
    let mut until = noted.map_or(u64::MAX, |noted| noted.mark.end);
    loop {
        let mut units = Vec::new();
        let scanned = state.log.scan(0, until, |at, unit| {
            let has_message = has_message(unit, written);
            let has_fired = fired.covers(unit.slot_ms(), at.cast_signed());
            if has_message && unit.slot_ms() >= read_ms && !has_fired {
                units.push(*unit);
            }
            has_message
        })?;
        let damaged = noted.and_then(|noted| scanned.sums.first_other(noted));
        if let Some(base) = damaged.filter(|base| *base < until) {
            until = base;
            continue;
        }
        recovered.cut_bytes += state.log.end_at(scanned)?;
        return Ok(units);
    }
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
    (open, old_ms): (Vec<Unit>, i64),
) -> Result<u64, StoreError> {
    state.wheel.clear();
    let mut census = Census::default();
    state.log.find_end(0, |_, _| false)?;
    state.fired.cut_log(0);
    let lowest_ms = lowest(state, config, old_ms);
    let mut units = 0;
    for mut unit in open {
        let moved = later(config.precision_ms, unit.slot_ms(), old_ms);
        let wanted = moved.max(lowest_ms);
        let place = place(config, wanted, state.write_ms);
        let is_last = unit.rolls
            && !unit.cancels
            && is_own_slot(store, state, config, (&unit, place.slot_ms));
        unit.rolls = place.rolls || (unit.rolls && !is_last);
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

/// Whether a slot is the one that the unit's message names, and not one of a turn before: other steps
/// may have made the two one, and a request to cancel waits there.
fn is_own_slot(
    store: &Store,
    state: &State,
    config: &TimerConfig,
    (unit, slot_ms): (&Unit, i64),
) -> bool {
    let at = unit.physical_offset.cast_unsigned();
    let lease = timer_record(store, at, unit.size.cast_unsigned(), None);
    let named = lease.as_ref().and_then(|lease| {
        let view = whole(lease)?;
        let out_ms = out_ms(view.properties)?;
        let moved = state
            .eras
            .moved(config.precision_ms, out_ms, view.queue_offset);
        Some(moved.unwrap_or(out_ms))
    });
    named.is_some_and(|named| config.floor(named) <= slot_ms)
}

/// The first slot that a unit is filed in again.
///
/// What is overdue keeps its slot, where a request to cancel that enters again finds it. But all open
/// slots must lie within one turn of the wheel, so that none is another's: after a longer pause what
/// is overdue fires with the next slot, as do its requests.
fn lowest(state: &mut State, config: &TimerConfig, old_ms: i64) -> i64 {
    if state.gathers() {
        state.gathered_ms = later(config.precision_ms, state.gathered_ms, old_ms);
    }
    if state.write_ms - state.read_ms > config.reach_ms() {
        state.gathered_ms = state.gathered_ms.max(state.write_ms);
    }
    state.next_ms()
}
