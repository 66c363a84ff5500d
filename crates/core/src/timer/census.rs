//! How many messages wait for each topic, counted in the timer log (`timerEnableCheckMetrics`).
//!
//! The counts that change with every message drift: a crash loses the last of them, a request to
//! cancel that finds nothing takes one off for good. The units of the slots that have not fired say
//! what is true. A unit knows its topic by a hash; the name is in the counts, else in the message.

use super::enqueue::{timer_record, whole, REAL_TOPIC};
use super::{State, Timers, Unit};
use crate::codec::properties::find;
use crate::java_hash;
use crate::store::health::hold;
use crate::store::Store;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Units counted with one hold of the engine's lock.
const SLICE: usize = 16_384;
/// How often, and with which pause, a count waits for a slot that is firing.
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// Upper bounds of the classes of delays, seconds (`rocketmq_delay_message_latency`).
pub const DELAYS_S: [i64; 6] = [60, 600, 3600, 43_200, 86_400, 259_200];
/// Topics whose traffic is counted; more are not.
const TRAFFIC_TOPICS: usize = 10_000;

/// What entered the wheel for a topic and left it, since the start.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct TopicTraffic {
    /// Messages that entered the wheel or were due at once, each once.
    pub enqueued: u64,
    /// Messages stored in the topic.
    pub fired: u64,
    /// Messages that entered, by the class of their delay; the last class has no bound.
    pub delays: [u64; DELAYS_S.len() + 1],
    /// Sum of these delays: from birth until due, seconds.
    pub delay_s: i64,
}

impl TopicTraffic {
    /// Counts a message that enters.
    pub(super) fn enters(&mut self, delay_ms: i64) {
        let seconds = delay_ms.max(0) / 1000;
        self.enqueued += 1;
        let class = DELAYS_S.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.delays.get_mut(class) {
            *count += 1;
        }
        self.delay_s = self.delay_s.saturating_add(seconds);
    }
}

/// The traffic of a message's topic; None when too many topics are counted already.
pub(super) fn traffic<'a>(state: &'a mut State, properties: &[u8]) -> Option<&'a mut TopicTraffic> {
    let topic = std::str::from_utf8(find(properties, REAL_TOPIC)?).ok()?;
    if !state.traffic.contains_key(topic) {
        if state.traffic.len() >= TRAFFIC_TOPICS {
            return None;
        }
        state
            .traffic
            .insert(topic.to_owned(), TopicTraffic::default());
    }
    state.traffic.get_mut(topic)
}

/// One topic whose count was wrong: its name, what it was, and what it is.
pub type Mended = (String, i64, i64);

#[derive(Clone, Copy)]
struct Tally {
    waiting: i64,
    /// One of the units, by which the name of the topic can be found.
    sample: Unit,
}

/// Waiting messages by the hash of their topic.
#[derive(Default)]
pub(super) struct Census {
    by_hash: HashMap<i32, Tally>,
    /// Hashes that several topics have, and what waits for each of those.
    shared: HashSet<i32>,
    by_name: HashMap<String, i64>,
}

impl Census {
    /// Knows the topics that are counted; those with one hash are told apart by their messages.
    fn of<'a>(topics: impl Iterator<Item = &'a String>) -> Self {
        let mut seen = HashSet::new();
        let hashes = topics.map(|topic| java_hash::hash(topic.as_bytes()));
        Self {
            shared: hashes.filter(|hash| !seen.insert(*hash)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, unit: &Unit, store: &Store) {
        let more = if unit.cancels { -1 } else { 1 };
        if self.shared.contains(&unit.topic_hash) {
            if let Some(topic) = topic_of(store, unit) {
                *self.by_name.entry(topic).or_default() += more;
            }
            return;
        }
        let tally = self.by_hash.entry(unit.topic_hash).or_insert(Tally {
            waiting: 0,
            sample: *unit,
        });
        tally.waiting += more;
    }

    /// Takes out what waits for a topic.
    fn take(&mut self, topic: &str) -> i64 {
        let hash = java_hash::hash(topic.as_bytes());
        if self.shared.contains(&hash) {
            return self.by_name.remove(topic).unwrap_or(0);
        }
        self.by_hash.remove(&hash).map_or(0, |tally| tally.waiting)
    }

    /// What is left: topics that nobody counted.
    fn rest(self, store: &Store) -> Vec<(String, i64)> {
        let tallies = self.by_hash.into_values();
        let named = tallies.filter_map(|it| Some((topic_of(store, &it.sample)?, it.waiting)));
        named.chain(self.by_name).collect()
    }
}

fn topic_of(store: &Store, unit: &Unit) -> Option<String> {
    let at = u64::try_from(unit.physical_offset).ok()?;
    let lease = timer_record(store, at, unit.size.cast_unsigned(), None)?;
    let topic = find(whole(&lease)?.properties, REAL_TOPIC)?;
    Some(std::str::from_utf8(topic).ok()?.to_owned())
}

impl Timers {
    /// What entered and left for each topic since the start.
    pub fn traffic(&self) -> Vec<(String, TopicTraffic)> {
        let state = hold(&self.state);
        let rows = state.traffic.iter();
        rows.map(|(topic, row)| (topic.clone(), *row)).collect()
    }

    /// Takes over waiting messages by topic from the last run; where the start made the wheel anew,
    /// its units are counted instead.
    pub fn set_metrics(&self, rows: Vec<(String, i64, i64)>) {
        let mut held = hold(&self.state);
        let state = &mut *held;
        let rows = rows.into_iter();
        state.metrics = rows
            .map(|(topic, count, time)| (topic, (count, time)))
            .collect();
        if let Some(mut census) = state.rebuilt.take() {
            let mut counted = state.metrics.clone();
            // Which of several topics with one hash a unit belongs to was not asked at the start.
            let shared = Census::of(counted.keys()).shared;
            counted.retain(|topic, _| !shared.contains(&java_hash::hash(topic.as_bytes())));
            census.by_hash.retain(|hash, _| !shared.contains(hash));
            self.mend(state, census, &counted, i64::MAX);
        }
    }

    /// Counts the waiting messages of every topic that has fewer than `below`, and mends what is
    /// wrong, while the wheel turns; `None` when the log was made anew meanwhile.
    ///
    /// It may take seconds: call it from a thread of its own.
    pub fn recount(&self, below: i64) -> Option<Vec<Mended>> {
        let (mut at, end, read_ms, counted, broken) = self.begin_recount()?;
        let mut census = Census::of(counted.keys());
        while at < end {
            let state = hold(&self.state);
            if self.remade() != broken {
                return None;
            }
            let mut next = end;
            for (here, unit) in state.log.units_from(at).take(SLICE) {
                if here >= end {
                    break;
                }
                let has_fired = state.fired.covers(unit.slot_ms(), here.cast_signed());
                if unit.slot_ms() >= read_ms && !has_fired {
                    census.add(&unit, &self.store);
                }
                next = here + super::unit::UNIT_SIZE as u64;
            }
            at = if next > at { next } else { end };
        }
        let mut state = hold(&self.state);
        if self.remade() != broken {
            return None;
        }
        Some(self.mend(&mut state, census, &counted, below))
    }

    /// A number that changes when the log is made anew, or slots are to fire again.
    fn remade(&self) -> u64 {
        let counters = &self.counters;
        counters.broken_chains.load(Ordering::Relaxed) + counters.set_backs.load(Ordering::Relaxed)
    }

    /// Where a count begins: between two slots, since a slot that fires is counted by halves.
    #[expect(clippy::type_complexity, reason = "one caller takes it apart")]
    fn begin_recount(&self) -> Option<(u64, u64, i64, HashMap<String, (i64, i64)>, u64)> {
        for _ in 0..TRIES {
            let state = hold(&self.state);
            if state.firing.is_none() {
                let broken = self.remade();
                let (min, end) = (state.log.min(), state.log.end());
                return Some((min, end, state.read_ms, state.metrics.clone(), broken));
            }
            drop(state);
            thread::sleep(PAUSE);
        }
        None
    }

    /// Corrects the counts by what they were wrong when the count began.
    fn mend(
        &self,
        state: &mut State,
        mut census: Census,
        counted: &HashMap<String, (i64, i64)>,
        below: i64,
    ) -> Vec<Mended> {
        let mut mended = Vec::new();
        for (topic, (before, _)) in counted {
            let waiting = census.take(topic);
            if *before < below && waiting != *before {
                mended.push((topic.clone(), *before, waiting));
            }
        }
        let rest = census.rest(&self.store).into_iter();
        let unknown = rest.filter(|(topic, waiting)| *waiting != 0 && !counted.contains_key(topic));
        mended.extend(unknown.map(|(topic, waiting)| (topic, 0, waiting)));
        for (topic, before, waiting) in &mended {
            let row = state.metrics.entry(topic.clone()).or_default();
            *row = (row.0 + waiting - before, state.write_ms);
        }
        mended.sort_unstable();
        mended
    }
}
