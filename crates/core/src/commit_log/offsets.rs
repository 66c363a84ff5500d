//! The queue offset that the next message of each queue gets.

use crate::consume_queue::light_queues::is_light;
use std::collections::{BTreeMap, HashMap};

/// Next offsets by topic and queue; a queue that is not in it starts at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextOffsets(
    HashMap<Box<str>, BTreeMap<i32, i64>>,
    /// How many of the topics are light queues.
    usize,
);

impl NextOffsets {
    /// The next offset of a queue.
    pub fn get(&self, topic: &str, queue_id: i32) -> i64 {
        let queues = self.0.get(topic);
        queues
            .and_then(|queues| queues.get(&queue_id))
            .copied()
            .unwrap_or(0)
    }

    /// Sets the next offset of a queue.
    pub fn set(&mut self, topic: &str, queue_id: i32, next: i64) {
        self.change(topic, queue_id, |slot| *slot = next);
    }

    /// Forgets a topic.
    pub fn forget(&mut self, topic: &str) {
        if self.0.remove(topic).is_some() && is_light(topic) {
            self.1 -= 1;
        }
    }

    /// How many topics there are among them.
    pub(crate) fn topics(&self) -> usize {
        self.0.len()
    }

    /// Whether a topic is among them.
    pub(crate) fn knows(&self, topic: &str) -> bool {
        self.0.contains_key(topic)
    }

    /// How many light queues there are among them.
    pub(crate) fn lights(&self) -> usize {
        self.1
    }

    /// Takes everything out: (topic, queue, next offset).
    pub fn drain(&mut self) -> Vec<(String, i32, i64)> {
        self.1 = 0;
        self.0
            .drain()
            .flat_map(|(topic, queues)| {
                queues
                    .into_iter()
                    .map(move |(queue_id, next)| (topic.to_string(), queue_id, next))
            })
            .collect()
    }

    /// Takes the next offset of a queue.
    pub(crate) fn take(&mut self, topic: &str, queue_id: i32) -> i64 {
        self.change(topic, queue_id, |slot| {
            let taken = *slot;
            *slot = taken.saturating_add(1);
            taken
        })
    }

    /// Gives back the last offset taken.
    pub(crate) fn give_back(&mut self, topic: &str, queue_id: i32) {
        self.change(topic, queue_id, |slot| *slot = slot.saturating_sub(1));
    }

    fn change<T>(&mut self, topic: &str, queue_id: i32, by: impl FnOnce(&mut i64) -> T) -> T {
        // Only a topic's first message pays for a copy of its name.
        if let Some(queues) = self.0.get_mut(topic) {
            return by(queues.entry(queue_id).or_default());
        }
        self.1 += usize::from(is_light(topic));
        let queues = self.0.entry(topic.into()).or_default();
        by(queues.entry(queue_id).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::NextOffsets;

    #[test]
    fn take_and_give_back() {
        let mut next = NextOffsets::default();
        assert_eq!(next.get("T", 0), 0);
        assert_eq!((next.take("T", 0), next.take("T", 0)), (0, 1));
        next.give_back("T", 0);
        next.set("T", 1, 7);
        assert_eq!((next.get("T", 0), next.take("T", 1)), (1, 7));
        next.forget("T");
        assert_eq!(next.get("T", 1), 0);
    }

    #[test]
    fn what_is_set_is_drained_once() {
        let mut next = NextOffsets::default();
        next.set("T", 0, 5);
        next.set("T", 3, 6);
        next.set("U", 0, 7);
        let mut rows = next.clone().drain();
        rows.sort();
        let wanted = [("T", 0, 5), ("T", 3, 6), ("U", 0, 7)];
        assert_eq!(
            rows,
            wanted.map(|(topic, id, at)| (topic.to_owned(), id, at))
        );
        assert_eq!(next.drain().len(), 3);
        assert_eq!((next.drain(), next), (Vec::new(), NextOffsets::default()));
    }

    #[test]
    fn light_queues_are_counted_once_each_while_they_are_known() {
        let mut next = NextOffsets::default();
        next.take("%LMQ%a", 0);
        next.set("%LMQ%b", 0, 3);
        next.set("%LMQ%c", 0, 4);
        next.take("%LMQ%a", 0);
        next.take("T", 0);
        assert_eq!(next.lights(), 3);
        for (topic, left) in [("T", 3), ("%LMQ%a", 2), ("%LMQ%a", 2), ("%LMQ%b", 1)] {
            next.forget(topic);
            assert_eq!((next.lights(), next.knows(topic)), (left, false), "{topic}");
        }
        next.take("%LMQ%a", 0);
        assert_eq!(
            (next.lights(), next.drain().len(), next.lights()),
            (2, 2, 0)
        );
    }

    #[test]
    fn offsets_stop_at_the_largest_there_is() {
        let mut next = NextOffsets::default();
        next.set("T", 0, i64::MAX);
        assert_eq!((next.take("T", 0), next.get("T", 0)), (i64::MAX, i64::MAX));
        next.give_back("T", 0);
        assert_eq!(next.get("T", 0), i64::MAX - 1);
    }
}
