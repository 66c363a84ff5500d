//! What was done and must be entered in Python's tables: counted here, handed out together.

use std::collections::HashMap;
use std::time::Duration;

use super::answered::{micros, Answered};
use crate::store::get::{GetStatus, Got};

/// Counts of what the fast path did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends stored.
    pub sends: u64,
    /// Half messages among them.
    pub halves: u64,
    /// Acknowledgements of popped messages stored.
    pub acks: u64,
    /// Pops answered.
    pub pops: u64,
    /// Pulls answered.
    pub pulls: u64,
    /// Pulls that had to wait.
    pub held: u64,
    /// Frames given to the handlers.
    pub passed: u64,
    /// Admitted sends given to the handlers after all, because the log was busy or refused.
    pub returned: u64,
    /// Answers that waited for a flush.
    pub parked: u64,
    /// Sends refused because too many answers waited.
    pub refused: u64,
    /// Syncs that were left to whoever fed the only sender.
    pub synced: u64,
}

/// What sends to one queue came to since they were last handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Messages stored.
    pub messages: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Sends whose time is known: with a flush to wait for, later than their messages.
    pub sends: u64,
    /// What they took from their arrival on, together, in microseconds.
    pub took_us: u64,
}

impl Put {
    /// Enters how long one of the sends took.
    pub(super) fn sent(&mut self, took: Duration) {
        self.sends += 1;
        self.took_us = self.took_us.saturating_add(micros(took));
    }
}

/// By topic and queue.
pub type Stored = HashMap<Box<str>, HashMap<i32, Put>>;

/// Half messages stored, by the topic that they are for.
pub type Halves = HashMap<Box<str>, u64>;

/// Everything that is counted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) counters: Counters,
    pub(super) stored: Stored,
    pub(super) halves: Halves,
    pub(super) books: Books,
    pub(super) answered: Answered,
}

impl Ledger {
    /// The sums of a queue's sends.
    pub(super) fn put(&mut self, topic: &str, queue_id: i32) -> &mut Put {
        below(&mut self.stored, topic).entry(queue_id).or_default()
    }

    /// Enters a half message.
    pub(super) fn opened(&mut self, topic: &str) {
        self.counters.halves += 1;
        match self.halves.get_mut(topic) {
            Some(count) => *count += 1,
            None => drop(self.halves.insert(topic.into(), 1)),
        }
    }
}

/// What the pulls of one queue for one group came to since they were last handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Offset that the last of them asked for.
    pub offset: Option<i64>,
    /// Offset that the last commit among them gave.
    pub commit: Option<i64>,
    /// How many commits there were.
    pub commits: u64,
    /// Answers that found messages.
    pub reads: u64,
    /// Answers that found none.
    pub misses: u64,
    /// Messages found.
    pub messages: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Messages left unread behind each answer that found some, added up.
    pub behind: u64,
    /// What the answers that found messages took, added up, in microseconds; without any wait.
    pub took_us: u64,
}

impl Pulled {
    /// Enters an answer that found messages.
    fn found(&mut self, got: &Got, took: Duration) {
        self.reads += 1;
        self.took_us = self.took_us.saturating_add(micros(took));
        self.messages += got.messages;
        self.bytes += got.bytes;
        self.behind += u64::try_from(got.max - got.next).unwrap_or(0);
    }
}

type Topics = HashMap<Box<str>, HashMap<i32, Pulled>>;

/// By group, topic and queue.
#[derive(Debug, Default)]
pub struct Books {
    groups: HashMap<Box<str>, Topics>,
}

/// One line of [`Books`]: group, topic, queue, sums.
pub type Line = (Box<str>, Box<str>, i32, Pulled);

impl Books {
    /// The sums of a queue.
    fn line(&mut self, group: &str, topic: &str, queue_id: i32) -> &mut Pulled {
        let topics = below(&mut self.groups, group);
        below(topics, topic).entry(queue_id).or_default()
    }

    /// Enters what a pull asked for; `commit` counts up to the queue's end.
    pub(super) fn asked(&mut self, request: &super::pull::Request<'_>, max: i64) {
        let line = self.line(request.group, request.topic, request.queue_id);
        line.offset = Some(request.offset);
        if let Some(commit) = request.commit {
            line.commit = Some(commit.min(max));
            line.commits += 1;
        }
    }

    /// Enters what it was answered with.
    pub(super) fn answered(
        &mut self,
        request: &super::pull::Request<'_>,
        got: &Got,
        took: Duration,
    ) {
        let line = self.line(request.group, request.topic, request.queue_id);
        if got.status == GetStatus::Found {
            line.found(got, took);
        } else {
            line.misses += 1;
        }
    }

    /// Enters what a pop found in a queue of a topic, and how many reads before found nothing.
    pub(super) fn popped(
        &mut self,
        (group, topic, queue_id): (&str, &str, i32),
        got: &Got,
        misses: u64,
        took: Duration,
    ) {
        let line = self.line(group, topic, queue_id);
        line.misses += misses;
        line.found(got, took);
    }

    /// Enters reads of a pop that found nothing in any queue.
    pub(super) fn missed(&mut self, (group, topic, queue_id): (&str, &str, i32), misses: u64) {
        self.line(group, topic, queue_id).misses += misses;
    }

    /// Takes everything.
    pub fn take(&mut self) -> Vec<Line> {
        let groups = std::mem::take(&mut self.groups);
        let mut lines = Vec::new();
        for (group, topics) in groups {
            for (topic, queues) in topics {
                let line = |(queue, sums)| (group.clone(), topic.clone(), queue, sums);
                lines.extend(queues.into_iter().map(line));
            }
        }
        lines
    }
}

/// What stands under a name; the name is copied only when it is new.
fn below<'m, T: Default>(map: &'m mut HashMap<Box<str>, T>, name: &str) -> &'m mut T {
    if !map.contains_key(name) {
        map.insert(name.into(), T::default());
    }
    match map.get_mut(name) {
        Some(found) => found,
        None => unreachable!("inserted above"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Books, Duration, GetStatus, Got, Ledger, Pulled, Put};
    use crate::ingest::pull::Request;
    use crate::ingest::table::Choice;

    fn got(status: GetStatus, next: i64, messages: u64) -> Got {
        Got {
            status,
            next,
            min: 0,
            max: 20,
            messages,
            bytes: 100 * messages,
            parts: Vec::new(),
            suggest_slave: false,
        }
    }

    fn asked(offset: i64, commit: Option<i64>) -> Request<'static> {
        Request {
            group: "g",
            topic: "T",
            queue_id: 3,
            offset,
            messages: 32,
            commit,
            suspend_ms: None,
            choice: &Choice::EVERY,
            projection: None,
            topic_sys_flag: 0,
            group_sys_flag: 0,
        }
    }

    #[test]
    fn what_pulls_and_pops_come_to_is_added_up_by_queue() {
        let mut books = Books::default();
        let ms = Duration::from_millis;
        for (offset, commit, next, messages) in [(4, Some(30), 6, 2), (6, Some(5), 9, 3)] {
            let request = asked(offset, commit);
            books.asked(&request, 20);
            books.answered(&request, &got(GetStatus::Found, next, messages), ms(2));
        }
        let request = asked(9, None);
        books.asked(&request, 20);
        for status in [
            GetStatus::NoMatchedMessage,
            GetStatus::OffsetOverflowOne,
            GetStatus::OffsetTooSmall,
        ] {
            books.answered(&request, &got(status, 12, 0), ms(2));
        }
        // Behind the end there is nothing, whatever a pop passes over.
        books.popped(("g", "T", 3), &got(GetStatus::Found, 22, 4), 5, ms(3));
        books.popped(("g", "T", 1), &got(GetStatus::Found, 19, 1), 0, ms(3));
        let mut lines = books.take();
        lines.sort_by_key(|line| line.2);
        let wanted = [
            Pulled {
                reads: 1,
                messages: 1,
                bytes: 100,
                behind: 1,
                took_us: 3000,
                ..Pulled::default()
            },
            Pulled {
                offset: Some(9),
                commit: Some(5),
                commits: 2,
                reads: 3,
                misses: 8,
                messages: 9,
                bytes: 900,
                behind: 25,
                took_us: 7000,
            },
        ];
        let places = lines.iter().map(|line| (&*line.0, &*line.1, line.2));
        assert!(places.eq([("g", "T", 1), ("g", "T", 3)]));
        assert!(lines.iter().map(|line| line.3).eq(wanted));
        assert!(books.take().is_empty());
        // A commit counts up to the end of its queue.
        books.asked(&asked(4, Some(30)), 20);
        assert_eq!(books.take()[0].3.commit, Some(20));
    }

    #[test]
    fn what_is_stored_is_added_up_by_topic() {
        let mut ledger = Ledger::default();
        for took in [2, 3] {
            ledger.put("T", 1).sent(Duration::from_millis(took));
            ledger.opened("T");
        }
        ledger.opened("U");
        let put = Put {
            sends: 2,
            took_us: 5000,
            ..Put::default()
        };
        assert_eq!((ledger.stored["T"][&1], ledger.stored.len()), (put, 1));
        assert_eq!(ledger.counters.halves, 3);
        assert_eq!((ledger.halves["T"], ledger.halves["U"]), (2, 1));
    }
}
