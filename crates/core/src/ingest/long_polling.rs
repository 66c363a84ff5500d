//! Pulls that found nothing and wait for a message, for their time to end, or for their connection
//! to close (architecture §3.6). Who they are is known here; what they are answered is not.

use super::table::Choice;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// One waiting pull.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Connection it came from.
    pub(super) key: u64,
    pub(super) topic: Box<str>,
    pub(super) queue_id: i32,
    /// Where a message must come that could be for it; what lies before was looked at.
    pub(super) from: i64,
    /// Which messages it wanted when it began to wait.
    pub(super) choice: Choice,
    /// The whole frame, to be judged anew when its turn comes.
    pub(super) frame: Box<[u8]>,
    /// When it is given up, Unix milliseconds.
    pub(super) deadline_ms: i64,
    /// When it came, Unix milliseconds.
    pub(super) since_ms: i64,
    /// The version of the accounts by which it may wait.
    pub(super) accounts: u64,
    state: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Waits,
    /// Its queue has grown: it is to be looked at.
    Due,
    /// Its time is over: it is to be answered.
    Over,
}

impl Held {
    pub(super) fn is_over(&self) -> bool {
        self.state == Turn::Over
    }
}

/// Spreads deadlines: consumers that came together do not go together.
#[derive(Clone, Debug)]
struct Jitter(u64);

impl Jitter {
    /// A wait moved by up to a tenth, either way.
    fn spread(&mut self, wait_ms: i64) -> i64 {
        let permille = i64::try_from(self.next() % 2001).unwrap_or(0) - 1000;
        wait_ms + wait_ms.saturating_mul(permille) / 10_000
    }

    /// The next number of the generator called splitmix64: good enough, and its seed is given.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl super::Ingest {
    /// When the time of the next pull is over that waits here, Unix milliseconds.
    pub fn held_until_ms(&self) -> Option<i64> {
        let first = self.holds.deadlines.first();
        first.map(|(deadline_ms, _)| *deadline_ms)
    }
}

type Queues = HashMap<Box<str>, HashMap<i32, BTreeSet<u64>>>;

/// All waiting pulls, each under a number that grows.
#[derive(Debug)]
pub(super) struct LongPolling {
    held: HashMap<u64, Held>,
    queues: Queues,
    connections: HashMap<u64, BTreeSet<u64>>,
    deadlines: BTreeSet<(i64, u64)>,
    due: VecDeque<u64>,
    last: u64,
    jitter: Jitter,
    /// Pulls that wait elsewhere and count towards the same bound.
    pub(super) beside: usize,
}

impl LongPolling {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            held: HashMap::new(),
            queues: HashMap::new(),
            connections: HashMap::new(),
            deadlines: BTreeSet::new(),
            due: VecDeque::new(),
            last: 0,
            jitter: Jitter(seed),
            beside: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether one more may wait where `most` may.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.held.len() + self.beside < most
    }

    /// Lets a pull wait for about `wait_ms`.
    pub(super) fn hold(&mut self, request: &super::pull::Request<'_>, wait: Wait<'_>) {
        let deadline_ms = wait
            .now_ms
            .saturating_add(self.jitter.spread(wait.at_most_ms));
        self.insert(Held {
            key: wait.key,
            topic: request.topic.into(),
            queue_id: request.queue_id,
            from: request.offset,
            choice: request.choice.clone(),
            frame: wait.frame.into(),
            deadline_ms,
            since_ms: wait.now_ms,
            accounts: wait.accounts,
            state: Turn::Waits,
        });
    }

    fn insert(&mut self, held: Held) -> u64 {
        self.last += 1;
        let id = self.last;
        self.deadlines.insert((held.deadline_ms, id));
        self.connections.entry(held.key).or_default().insert(id);
        let queues = match self.queues.get_mut(&held.topic) {
            Some(queues) => queues,
            None => self.queues.entry(held.topic.clone()).or_default(),
        };
        queues.entry(held.queue_id).or_default().insert(id);
        self.held.insert(id, held);
        id
    }

    /// Lets a pull wait on that waited elsewhere, until the time that it was given there. Its queue
    /// may have grown up to `max` since, of which nobody tells again.
    pub(super) fn take_over(&mut self, mut held: Held, max: i64) {
        let is_due = held.is_over() || max > held.from;
        if is_due && !held.is_over() {
            held.state = Turn::Due;
        } else if !is_due {
            held.state = Turn::Waits;
        }
        let id = self.insert(held);
        if is_due {
            self.due.push_back(id);
        }
    }

    /// Makes the pulls due that wait for messages below `max` of a queue, or (-1) of each of a topic.
    pub(super) fn arrived(&mut self, topic: &str, queue_id: i32, max: i64) {
        if queue_id < 0 {
            let queues = self.queues.get(topic);
            let each: Vec<i32> = queues.map_or_else(Vec::new, |all| all.keys().copied().collect());
            for queue_id in each.into_iter().filter(|id| *id >= 0) {
                self.arrived(topic, queue_id, max);
            }
            return;
        }
        let waiting = self.queues.get(topic).and_then(|all| all.get(&queue_id));
        for id in waiting.into_iter().flatten() {
            if let Some(held) = self.held.get_mut(id) {
                if max > held.from && held.state == Turn::Waits {
                    held.state = Turn::Due;
                    self.due.push_back(*id);
                }
            }
        }
    }

    /// Makes the pulls due whose queue has grown while nobody told of it.
    pub(super) fn look_again(&mut self, max: impl Fn(&str, i32) -> i64) {
        let mut grown = Vec::new();
        for (topic, queues) in &self.queues {
            grown.extend(queues.keys().map(|queue_id| {
                let found = max(topic, *queue_id);
                (topic.clone(), *queue_id, found)
            }));
        }
        for (topic, queue_id, found) in grown {
            self.arrived(&topic, queue_id, found);
        }
    }

    /// Makes the pulls due whose time is over.
    pub(super) fn expire(&mut self, now_ms: i64) {
        while let Some((_, id)) = self.deadlines.first().filter(|first| first.0 <= now_ms) {
            let id = *id;
            self.deadlines.pop_first();
            if let Some(held) = self.held.get_mut(&id) {
                if held.state == Turn::Waits {
                    self.due.push_back(id);
                }
                held.state = Turn::Over;
            }
        }
    }

    /// Whether any pull is due.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes the next due pull's number and says what it waits for.
    pub(super) fn next_due(&mut self) -> Option<(u64, &Held)> {
        while let Some(id) = self.due.pop_front() {
            if self.held.contains_key(&id) {
                return self.held.get(&id).map(|held| (id, held));
            }
        }
        None
    }

    /// Lets a due pull wait on: nothing before `from` is for it.
    pub(super) fn wait_on(&mut self, id: u64, from: i64) {
        if let Some(held) = self.held.get_mut(&id) {
            held.from = held.from.max(from);
            held.state = Turn::Waits;
        }
    }

    /// Takes a pull out.
    pub(super) fn take(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.deadlines.remove(&(held.deadline_ms, id));
        if let Some(queues) = self.queues.get_mut(&held.topic) {
            forget(queues, &held.queue_id, id);
            if queues.is_empty() {
                self.queues.remove(&held.topic);
            }
        }
        forget(&mut self.connections, &held.key, id);
        Some(held)
    }

    /// Takes out the pulls of a connection, in the order in which they came.
    pub(super) fn take_connection(&mut self, key: u64) -> Vec<Held> {
        let all = self.connections.get(&key).cloned().unwrap_or_default();
        all.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Drops the pulls of a connection.
    pub(super) fn drop_connection(&mut self, key: u64) {
        self.take_connection(key);
    }
}

/// How and for how long a pull waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait<'a> {
    pub(super) key: u64,
    pub(super) frame: &'a [u8],
    pub(super) now_ms: i64,
    pub(super) at_most_ms: i64,
    pub(super) accounts: u64,
}

fn forget<K: std::hash::Hash + Eq>(table: &mut HashMap<K, BTreeSet<u64>>, at: &K, id: u64) {
    if let Some(ids) = table.get_mut(at) {
        ids.remove(&id);
        if ids.is_empty() {
            table.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pull::Request;
    use super::{Choice, Jitter, LongPolling, Wait};

    fn hold(holds: &mut LongPolling, key: u64, queue_id: i32, offset: i64, wait_ms: i64) {
        let request = Request {
            group: "g",
            topic: "T",
            queue_id,
            offset,
            messages: 32,
            commit: None,
            suspend_ms: Some(wait_ms),
            choice: &Choice::EVERY,
            projection: None,
            topic_sys_flag: 0,
            group_sys_flag: 0,
        };
        let wait = Wait {
            key,
            frame: b"frame",
            now_ms: 1000,
            at_most_ms: wait_ms,
            accounts: 0,
        };
        holds.hold(&request, wait);
    }

    fn due(holds: &mut LongPolling) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some((id, _)) = holds.next_due() {
            found.push(id);
        }
        found
    }

    #[test]
    fn the_queue_wakes_those_it_has_grown_past() {
        let mut holds = LongPolling::new(1);
        hold(&mut holds, 1, 0, 5, 9000);
        hold(&mut holds, 1, 0, 6, 9000);
        hold(&mut holds, 2, 1, 0, 9000);
        holds.arrived("T", 0, 5);
        holds.arrived("U", 0, 50);
        assert!(!holds.has_due());
        holds.arrived("T", 0, 6);
        holds.arrived("T", 0, 6);
        assert_eq!(due(&mut holds), [1]);
        holds.wait_on(1, 6);
        holds.arrived("T", 0, 6);
        assert!(due(&mut holds).is_empty());
        holds.arrived("T", 0, 7);
        assert_eq!(due(&mut holds), [1, 2]);
    }

    #[test]
    fn drawn_numbers_are_those_of_the_published_generator() {
        let mut drawn = Jitter(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(published.map(|_| drawn.next()), published);
    }

    #[test]
    fn deadlines_are_spread_by_a_tenth() {
        let mut holds = LongPolling::new(7);
        for _ in 0..200 {
            hold(&mut holds, 1, 0, 0, 10_000);
        }
        holds.expire(9_999);
        assert!(!holds.has_due());
        // They go evenly, none after the last of these times.
        for now_ms in [10_500, 11_000, 11_500, 12_000] {
            holds.expire(now_ms);
            let gone = due(&mut holds).len();
            assert!((30..70).contains(&gone), "{gone} up to {now_ms}");
        }
        holds.expire(i64::MAX);
        assert!(!holds.has_due());
    }

    #[test]
    fn nothing_is_left_of_what_has_gone() {
        let mut holds = LongPolling::new(1);
        hold(&mut holds, 1, 0, 0, 100);
        hold(&mut holds, 1, 1, 0, 100);
        hold(&mut holds, 2, 0, 0, 100);
        holds.arrived("T", 0, 1);
        holds.drop_connection(1);
        assert_eq!((holds.len(), due(&mut holds)), (1, vec![3]));
        assert!(holds.has_room(2) && !holds.has_room(1));
        holds.beside = 1;
        assert!(!holds.has_room(2));
        assert!(holds.take(3).is_some() && holds.take(3).is_none());
        assert!(holds.queues.is_empty() && holds.connections.is_empty());
        assert!(holds.deadlines.is_empty());
    }

    #[test]
    fn pulls_that_are_taken_over_wait_as_long_and_for_the_same() {
        let (mut there, mut here) = (LongPolling::new(1), LongPolling::new(2));
        hold(&mut here, 9, 0, 0, 9000);
        for queue_id in 0..4 {
            hold(&mut there, 1, queue_id, 5, 10_000);
        }
        hold(&mut there, 2, 0, 5, 10_000);
        there.arrived("T", 2, 6);
        let deadlines = |holds: &LongPolling| -> Vec<i64> {
            let all = holds.held.values().filter(|held| held.key == 1);
            let mut found: Vec<i64> = all.map(|held| held.deadline_ms).collect();
            found.sort_unstable();
            found
        };
        let before = deadlines(&there);
        for (held, max) in there.take_connection(1).into_iter().zip([5, 6, 6, 0]) {
            here.take_over(held, max);
        }
        assert_eq!((there.len(), here.len()), (1, 5));
        assert_eq!(due(&mut there), [0; 0]);
        assert_eq!(deadlines(&here), before);
        // Those whose queue has grown meanwhile, or had before; the others go on waiting.
        assert_eq!(due(&mut here), [3, 4]);
        here.arrived("T", 3, 6);
        assert_eq!(due(&mut here), [5]);
        here.expire(20_000);
        assert_eq!(due(&mut here).len(), 2);
    }

    #[test]
    fn pull_that_is_taken_over_when_its_time_is_over_is_due_once() {
        let (mut there, mut here) = (LongPolling::new(1), LongPolling::new(2));
        hold(&mut there, 1, 0, 5, 100);
        there.expire(5_000);
        let held = there.take_connection(1).remove(0);
        here.take_over(held, 9);
        here.expire(5_000);
        let (id, held) = here.next_due().unwrap();
        assert!(held.is_over());
        here.take(id);
        assert!(!here.has_due() && here.deadlines.is_empty());
    }

    #[test]
    fn one_that_is_both_due_and_over_has_one_turn() {
        let mut holds = LongPolling::new(1);
        hold(&mut holds, 1, 0, 0, 100);
        holds.arrived("T", 0, 1);
        holds.expire(5000);
        let (id, held) = holds.next_due().unwrap();
        assert!(held.is_over());
        assert_eq!(id, 1);
        assert!(!holds.has_due());
    }
}
