//! How long answers took: counts by request code, response code and class of duration.

use std::time::Duration;

/// Upper bounds of the classes, in milliseconds, as RocketMQ 5 shows them; one more has none.
pub const BOUNDS_MS: [u64; 9] = [1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000];

/// How many classes there are.
pub const CLASSES: usize = BOUNDS_MS.len() + 1;

/// When an answer came, apart from how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As soon as there was one.
    Plain,
    /// A pull that waited for a message.
    Held,
    /// Never: nobody waits for it.
    OneWay,
}

/// Requests that were answered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Request code.
    pub request: i32,
    /// Response code.
    pub response: i32,
    /// When it came.
    pub way: Way,
}

impl Kind {
    /// Answers that nobody had to wait for longer than the work took.
    pub(super) fn plain(request: i32, response: i32) -> Self {
        Self {
            request,
            response,
            way: Way::Plain,
        }
    }
}

/// How long the answers of one kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Answers by class: those within its bound and above the one before.
    pub counts: [u64; CLASSES],
    /// All of them together, in microseconds.
    pub sum_us: u64,
}

/// Counts since they were last taken. There are few kinds, so that looking at each finds one soon.
#[derive(Debug, Default)]
pub struct Answered {
    lines: Vec<(Kind, Took)>,
}

impl Answered {
    /// Counts one answer.
    pub(super) fn add(&mut self, kind: Kind, took: Duration) {
        let at = self.lines.iter().position(|(known, _)| *known == kind);
        let at = at.unwrap_or_else(|| {
            self.lines.push((kind, Took::default()));
            self.lines.len() - 1
        });
        let us = micros(took);
        if let Some((_, line)) = self.lines.get_mut(at) {
            let class = BOUNDS_MS.partition_point(|bound| us > bound * 1_000);
            if let Some(count) = line.counts.get_mut(class) {
                *count += 1;
            }
            line.sum_us = line.sum_us.saturating_add(us);
        }
    }

    /// Takes everything.
    pub fn take(&mut self) -> Vec<(Kind, Took)> {
        std::mem::take(&mut self.lines)
    }
}

/// A duration in whole microseconds.
pub(super) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// The time from one moment to another, both in Unix milliseconds; clocks that go back make it 0.
pub(super) fn between(from_ms: i64, to_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{between, Answered, Kind, Way};
    use std::time::Duration;

    #[test]
    fn a_bound_belongs_to_the_class_below_it() {
        let mut answered = Answered::default();
        for us in [0, 1_000, 1_001, 3_000, 100_000, 3_000_000, 3_000_001] {
            answered.add(Kind::plain(310, 0), Duration::from_micros(us));
        }
        let ((_, took),) = match answered.take()[..] {
            [line] => (line,),
            ref lines => panic!("{lines:?}"),
        };
        assert_eq!(took.counts, [2, 2, 0, 0, 0, 1, 0, 0, 1, 1]);
        assert_eq!(took.sum_us, 6_105_002);
        assert!(answered.take().is_empty());
    }

    #[test]
    fn kinds_are_counted_apart() {
        let mut answered = Answered::default();
        let held = Kind {
            way: Way::Held,
            ..Kind::plain(11, 0)
        };
        for kind in [Kind::plain(11, 0), held, Kind::plain(11, 19), held] {
            answered.add(kind, Duration::from_millis(2));
        }
        let counts: Vec<_> = answered
            .take()
            .iter()
            .map(|(kind, took)| (*kind, took.counts[1]))
            .collect();
        assert_eq!(
            counts,
            [(Kind::plain(11, 0), 1), (held, 2), (Kind::plain(11, 19), 1)]
        );
    }

    #[test]
    fn no_time_is_negative() {
        assert_eq!(between(1_000, 1_250), Duration::from_millis(250));
        assert_eq!(between(1_000, 999), Duration::ZERO);
        assert_eq!(
            between(i64::MIN, i64::MAX),
            Duration::from_millis(i64::MAX as u64)
        );
    }
}
