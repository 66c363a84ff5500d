//! Messages of any delay: the timer wheel of RocketMQ 5.x (spec: store §16).
//!
//! A send with a timer property is stored in the timer topic. The engine reads that queue in order
//! and files each message under the step of time at which it is due: a unit in the timer log, chained
//! to a slot of the wheel. When the clock has passed a slot, its messages are stored once more, where
//! they were meant for. Times beyond the window wait in turns.
//!
//! Invariants, with `read` the time of the next slot to fire and `write` the clock's step:
//! * every message of the timer topic before the queue offset either fired, was cancelled, or hangs
//!   in a slot at or after `read`;
//! * a slot fires only when it is before `write`, hence never before the time that was asked for;
//! * `read` is not beyond `write`: when the clock is set back `read` goes back with it, and what fired
//!   already is remembered (`fired`);
//! * `read` moves only when everything of its slot is stored, and is made durable only after that is:
//!   after a crash a message can be delivered twice, but none is forgotten;
//! * all that has not fired lies within one turn of the wheel. When the clock is too far beyond `read`
//!   for that, what is overdue waits in one slot together (`gathered`), and `read` stays where it is
//!   until that slot has fired: it tells what fired before;
//! * durable in this order: commit log, timer log, wheel, checkpoint. What follows never names
//!   something that does not precede it.
//!
//! After anything but an orderly stop the wheel is made anew from the timer log, and what the timer
//! log lacks from the timer topic.

mod census;
mod checkpoint;
mod clock;
mod enqueue;
mod eras;
mod fire;
mod log;
mod recover;
mod settled;
mod snapshot;
mod sums;
mod thread;
mod unit;
mod wheel;

pub use census::{Mended, TopicTraffic, DELAYS_S};
pub use checkpoint::{Known, TimerCheckpoint, TimerCheckpointFile, JAVA_SIZE};
pub use clock::fired::Fired;
pub use eras::Eras;
pub use log::TimerLog;
pub use sums::FileSum;
pub use thread::TimerThread;
pub use unit::{Unit, UNIT_SIZE};
pub use wheel::{Slot, Wheel, SLOTS, SLOT_SIZE};

use crate::store::error::StoreError;
use crate::store::health::hold;
use crate::store::Store;
use census::Census;
use clock::steady::SteadyClock;
use fire::Firing;
use snapshot::Snapshot;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The topic that waiting messages are stored in; it has one queue.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Slots that a turn leaves free at the end of the wheel.
const SPARE_SLOTS: u64 = 60;

/// What does not change while the engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerConfig {
    /// Bytes of a file of the timer log (`mappedFileSizeTimerLog`).
    pub log_file_size: u64,
    /// Slots of the wheel.
    pub slots: u64,
    /// Milliseconds of a step (`timerPrecisionMs`).
    pub precision_ms: i64,
    /// Steps that a message may wait in one turn (`timerRollWindowSlot`).
    pub window: u64,
    /// Milliseconds between two checkpoints (`timerFlushIntervalMs`).
    pub flush_ms: i64,
    /// Whether a cancelling key begins with the topic (`appendTopicForTimerDeleteKey`).
    pub key_has_topic: bool,
}

impl Default for TimerConfig {
    fn default() -> Self {
        Self {
            log_file_size: 100 << 20,
            slots: SLOTS,
            precision_ms: 1000,
            window: 2 * 86_400,
            flush_ms: 1000,
            key_has_topic: false,
        }
    }
}

impl TimerConfig {
    /// How long a message may wait in one turn, milliseconds.
    fn window_ms(&self) -> i64 {
        let most = self.slots.saturating_sub(SPARE_SLOTS);
        let window = if (2..=most).contains(&self.window) {
            self.window
        } else {
            most
        };
        window.cast_signed().saturating_mul(self.precision_ms)
    }

    /// How far the clock may be beyond the first slot that did not fire, milliseconds, while all that
    /// enters still has a place of its own in the wheel.
    fn reach_ms(&self) -> i64 {
        let turn_ms = self.slots.cast_signed().saturating_mul(self.precision_ms);
        turn_ms - self.window_ms() - self.precision_ms
    }

    fn floor(&self, time_ms: i64) -> i64 {
        time_ms - time_ms.rem_euclid(self.precision_ms)
    }
}

/// Counters that only grow, and gauges.
#[derive(Default)]
pub struct TimerCounters {
    /// Messages that entered the wheel or were due at once.
    pub enqueued: AtomicU64,
    /// Messages stored where they were meant for.
    pub fired: AtomicU64,
    /// Messages whose turn was renewed.
    pub rolled: AtomicU64,
    /// Messages cancelled.
    pub cancelled: AtomicU64,
    /// Messages whose record is gone, damaged or says nothing of its time: not delivered.
    pub unreadable: AtomicU64,
    /// Messages that cannot be stored where they were meant for: not delivered.
    pub refused: AtomicU64,
    /// Times that due messages had to wait because the store took none.
    pub waits: AtomicU64,
    /// Chains of units that ended at damage.
    pub broken_chains: AtomicU64,
    /// Time of the next slot to fire.
    pub read_ms: AtomicI64,
    /// The clock's step.
    pub write_ms: AtomicI64,
    /// Offset of the next message to enter the wheel.
    pub queue_offset: AtomicI64,
    /// How far the clock is ahead of the time that has passed, ms; 0 while it is believed.
    pub clock_lead_ms: AtomicI64,
    /// Times that the read time went back with the clock.
    pub set_backs: AtomicU64,
}

/// How the start found the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerRecovered {
    /// The wheel was made anew from this many units.
    pub rebuilt_units: Option<u64>,
    /// Bytes cut off the timer log.
    pub cut_bytes: u64,
    /// Messages of the timer topic that enter the wheel once more.
    pub replayed: u64,
}

struct State {
    wheel: Wheel,
    log: TimerLog,
    checkpoint_file: TimerCheckpointFile,
    saved: TimerCheckpoint,
    read_ms: i64,
    /// The slot in which everything waits that is due before it; means nothing up to the read time.
    gathered_ms: i64,
    write_ms: i64,
    queue_offset: i64,
    /// Messages before this offset were settled or filed before a loss of the timer log.
    replay_until: i64,
    firing: Option<Firing>,
    /// Messages that were due before they could enter the wheel, and where their batch began: in the
    /// timer topic and in the log.
    late: Option<((i64, FileSum), Firing)>,
    /// Messages that name times in other steps than these.
    eras: Eras,
    /// What fired while the clock stood ahead.
    fired: Fired,
    clock: SteadyClock,
    metrics: HashMap<String, (i64, i64)>,
    traffic: HashMap<String, TopicTraffic>,
    /// Waiting messages by topic as the start counted them, where it made the wheel anew.
    rebuilt: Option<Census>,
    /// When the last snapshot was made, and of how much of the timer log.
    snapshot: (i64, Option<u64>),
    /// Whether messages have to enter the wheel first: no slot fires then, since a request to cancel
    /// may be among them.
    lags: bool,
    /// Whether a message waits for its slot until the one that fires is done: no other fires then.
    waits: bool,
    /// What stands before this offset of the commit log enters the wheel before a slot fires.
    enters_until: u64,
    changed: bool,
    flushed_ms: i64,
}

impl State {
    /// Time of the slot that fires next: none between the read time and this one holds anything.
    fn next_ms(&self) -> i64 {
        self.read_ms.max(self.gathered_ms)
    }

    /// Whether what is overdue waits in one slot.
    fn gathers(&self) -> bool {
        self.gathered_ms > self.read_ms
    }

    /// What the checkpoint says beyond Java's numbers, with the log up to `mark`.
    fn known(&self, config: &TimerConfig, whole: bool, mark: FileSum) -> Known {
        Known {
            whole,
            precision_ms: config.precision_ms,
            replay_until: self.replay_until,
            eras: self.eras,
            fired: self.fired,
            gathered_ms: if self.gathers() { self.gathered_ms } else { 0 },
            wheel_sum: if whole { self.wheel.sum() } else { 0 },
            log: Some((mark.base, mark.sum)),
        }
    }
}

/// The engine. Every method may be called from any thread.
pub struct Timers {
    store: Arc<Store>,
    config: TimerConfig,
    state: Mutex<State>,
    enqueues: AtomicBool,
    dequeues: AtomicBool,
    /// Milliseconds between two snapshots of the wheel; 0: none are made.
    snapshot_ms: AtomicI64,
    /// What happened so far.
    pub counters: TimerCounters,
    /// What the start found.
    pub recovered: TimerRecovered,
    trouble: Mutex<Option<String>>,
}

impl Timers {
    /// Loads or makes the files below the store's root, and recovers them.
    pub fn open(store: Arc<Store>, config: TimerConfig) -> Result<Self, StoreError> {
        if config.precision_ms <= 0 || config.slots < 4 || config.log_file_size < 128 {
            return Err(StoreError::usage(
                "the timer wheel's settings are too small",
            ));
        }
        let (state, recovered) = recover::open(&store, &config)?;
        let timers = Self {
            store,
            config,
            state: Mutex::new(state),
            enqueues: AtomicBool::new(true),
            dequeues: AtomicBool::new(true),
            snapshot_ms: AtomicI64::new(0),
            counters: TimerCounters::default(),
            recovered,
            trouble: Mutex::new(None),
        };
        timers.show(&hold(&timers.state));
        Ok(timers)
    }

    /// Has messages enter the wheel, or not (`timerStopEnqueue`).
    pub fn set_enqueues(&self, on: bool) {
        self.enqueues.store(on, Ordering::Relaxed);
    }

    /// Has due slots fire, or not (`timerStopDequeue`).
    pub fn set_dequeues(&self, on: bool) {
        self.dequeues.store(on, Ordering::Relaxed);
    }

    /// Has snapshots of the wheel made each so many milliseconds (`timerWheelSnapshotFlush`,
    /// `timerWheelSnapshotIntervalMs`); 0 for none.
    pub fn set_snapshots(&self, every_ms: i64) {
        self.snapshot_ms.store(every_ms, Ordering::Relaxed);
    }

    /// Does a bounded amount of what is to be done; true when there may be more at once.
    pub fn step(&self) -> Result<bool, StoreError> {
        self.store.usable()?;
        let env = &self.store.env;
        let mut held = hold(&self.state);
        let state = &mut *held;
        let now = state.clock.look((env.clock)(), (env.steady)());
        let write_ms = self.config.floor(now);
        if write_ms < state.read_ms || (state.gathers() && write_ms < state.gathered_ms) {
            self.set_back(state, write_ms)?;
        }
        if write_ms > state.write_ms {
            state.enters_until = self.store.log().whole();
        }
        state.write_ms = write_ms;
        let mut more = false;
        (state.lags, state.waits) = (false, false);
        if self.enqueues.load(Ordering::Relaxed) {
            more |= self.enqueue(state)?;
        }
        if self.dequeues.load(Ordering::Relaxed) && !state.lags {
            more |= self.fire(state)?;
            state.fired.pass(state.read_ms);
        }
        if (now - state.flushed_ms).abs() >= self.config.flush_ms {
            state.flushed_ms = now;
            if state.changed {
                self.save(state, false)?;
            }
        }
        self.show(state);
        let snapshot = self.snapshot(state, now)?;
        drop(held);
        if let Some(snapshot) = snapshot {
            let env = &self.store.env;
            self.note(snapshot.write(env.disk.as_ref(), &self.store.config.root))?;
        }
        Ok(more)
    }

    /// Copies the wheel when it is time for a snapshot; all that it knows of is durable then.
    fn snapshot(&self, state: &mut State, now: i64) -> Result<Option<Snapshot>, StoreError> {
        let every_ms = self.snapshot_ms.load(Ordering::Relaxed);
        let (at_ms, of) = state.snapshot;
        let has_new = of != Some(state.log.end());
        if every_ms <= 0 || !has_new || (now - at_ms).abs() < every_ms {
            return Ok(None);
        }
        self.save(state, false)?;
        let position = state.log.end();
        state.snapshot = (now, Some(position));
        Ok(Some(Snapshot {
            position,
            length: state.wheel.length(),
            pages: state.wheel.copy(),
        }))
    }

    /// Makes everything durable; with `whole` the next start takes the files as they are.
    pub fn flush(&self, whole: bool) -> Result<(), StoreError> {
        self.save(&mut hold(&self.state), whole)
    }

    fn save(&self, state: &mut State, whole: bool) -> Result<(), StoreError> {
        self.store.flush()?;
        let synced = state.log.sync().and_then(|()| state.wheel.sync());
        self.note(synced)?;
        debug_assert!(state.read_ms <= state.write_ms + self.config.precision_ms);
        let [version, _, counter] = state.saved.version;
        let here = (state.queue_offset, state.log.mark());
        let (queue_offset, mark) = state.late.as_ref().map_or(here, |(from, _)| *from);
        let next = TimerCheckpoint {
            read_ms: state.read_ms,
            log_position: mark.end.cast_signed(),
            queue_offset,
            master_queue_offset: queue_offset,
            version: [version, (self.store.env.clock)(), counter + 1],
            known: Some(state.known(&self.config, whole && state.late.is_none(), mark)),
        };
        let written = state.checkpoint_file.write(&next, state.log.closed());
        self.note(written)?;
        state.saved = next;
        state.changed = false;
        Ok(())
    }

    /// A failed sync is never tried again as if nothing had happened: the whole store stops.
    fn note<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.as_ref().is_err_and(StoreError::passes) {
            return done;
        }
        self.store.note(done)
    }

    /// Removes files of the timer log whose messages the commit log no longer has.
    pub fn clean(&self) -> Result<usize, StoreError> {
        let min = self.store.log().min();
        hold(&self.state).log.clean(min)
    }

    /// Messages waiting in the slot of a time, Unix milliseconds.
    pub fn waiting_at(&self, time_ms: i64) -> i64 {
        let slot = hold(&self.state).wheel.get(time_ms);
        slot.map_or(0, |slot| i64::from(slot.count).max(0))
    }

    /// Messages waiting in all slots that have not fired.
    pub fn waiting(&self) -> i64 {
        let state = hold(&self.state);
        let open = state
            .wheel
            .used()
            .filter(|(time, _)| *time >= state.read_ms);
        open.map(|(_, slot)| i64::from(slot.count).max(0)).sum()
    }

    /// Messages waiting by how far off they are: one number a bound, milliseconds, ascending.
    pub fn distribution(&self, bounds_ms: &[i64]) -> Vec<i64> {
        let state = hold(&self.state);
        let mut counts = vec![0; bounds_ms.len()];
        for (time, slot) in state.wheel.used() {
            if time < state.read_ms {
                continue;
            }
            let wait = time - state.write_ms;
            let place = bounds_ms.partition_point(|bound| *bound <= wait);
            if let Some(count) = counts.get_mut(place) {
                *count += i64::from(slot.count).max(0);
            }
        }
        counts
    }

    /// Messages of the timer topic that have not entered the wheel.
    pub fn behind(&self) -> i64 {
        let last = self.store.queues().max(TIMER_TOPIC, 0).cast_signed();
        (last - self.counters.queue_offset.load(Ordering::Relaxed)).max(0)
    }

    /// Waiting messages by topic: (topic, messages, time of the last change).
    pub fn metrics(&self) -> Vec<(String, i64, i64)> {
        let state = hold(&self.state);
        let rows = state.metrics.iter();
        rows.map(|(topic, (count, time))| (topic.clone(), *count, *time))
            .collect()
    }

    /// Java's 56 bytes of the checkpoint, for slaves.
    ///
    /// Slots in which nothing waited are not saved one by one: with nothing else to save the wheel
    /// is where it turned to since.
    pub fn checkpoint(&self) -> [u8; JAVA_SIZE] {
        let state = hold(&self.state);
        let mut told = state.saved;
        if !state.changed {
            told.read_ms = state.read_ms;
        }
        told.java()
    }

    /// Why the engine cannot go on at the moment.
    pub fn trouble(&self) -> Option<String> {
        hold(&self.trouble).clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *hold(&self.trouble) = trouble;
    }

    /// For how long nothing is to be done unless a message comes: `soon` where slots wait for the
    /// queue of the timer topic to be told of what is stored, `again` where the store took nothing.
    pub(crate) fn pause(&self, soon: Duration, again: Duration) -> Duration {
        let mut held = hold(&self.state);
        let state = &mut *held;
        if state.enters_until > self.store.dispatched() {
            return soon;
        }
        if state.firing.is_some() || state.late.is_some() || state.lags || state.waits {
            return again;
        }
        let env = &self.store.env;
        let now = state.clock.look((env.clock)(), (env.steady)());
        let step_ms = self.config.floor(now) + self.config.precision_ms - now;
        let save_ms = state.flushed_ms + self.config.flush_ms - now;
        let is_due_ms = if state.changed { save_ms } else { step_ms };
        let pause_ms = is_due_ms.min(step_ms).max(1);
        Duration::from_millis(pause_ms.cast_unsigned())
    }

    /// Whether messages of the timer topic have not entered the wheel, but could.
    pub(crate) fn has_news(&self) -> bool {
        let end = self.store.queues().max(TIMER_TOPIC, 0).cast_signed();
        self.enqueues.load(Ordering::Relaxed)
            && self.counters.queue_offset.load(Ordering::Relaxed) < end
    }

    fn show(&self, state: &State) {
        let counters = &self.counters;
        counters.read_ms.store(state.read_ms, Ordering::Relaxed);
        counters.write_ms.store(state.write_ms, Ordering::Relaxed);
        counters
            .queue_offset
            .store(state.queue_offset, Ordering::Relaxed);
        let lead_ms = state.clock.lead_ms();
        counters.clock_lead_ms.store(lead_ms, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
