//! What fired while the clock stood ahead of what it is now.
//!
//! When the clock is set back behind the read time, the read time goes back as well: what enters from
//! then on has to wait in slots that fired before. Those slots keep the units that fired; they are
//! told by their place in the timer log, and messages that are read again by that in the commit log.
//!
//! Invariant: a message of the timer topic below `below` whose time is before `until_ms` has fired,
//! and so has every unit of a slot before `until_ms` that stands before `log_end` in the timer log.

/// Times of which this is remembered. Of more the one that ends first is given up: its messages come
/// twice.
pub(in crate::timer) const FIRED_MAX: usize = 2;
/// Numbers of one mark.
const NUMBERS: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    until_ms: i64,
    below: i64,
    log_end: i64,
}

/// The slots that fired although they are before the read time again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Those in use come first.
    marks: [Mark; FIRED_MAX],
}

impl Fired {
    /// Notes that slots before `until_ms` have fired, for messages below a place in the commit log and
    /// units before one in the timer log.
    pub(in crate::timer) fn add(&mut self, until_ms: i64, below: i64, log_end: i64) {
        let covers = |mark: &Mark| {
            mark.until_ms <= until_ms && mark.below <= below && mark.log_end <= log_end
        };
        let mut kept: Vec<Mark> = self.used().filter(|mark| !covers(mark)).collect();
        kept.push(Mark {
            until_ms,
            below,
            log_end,
        });
        kept.sort_by_key(|mark| std::cmp::Reverse(mark.until_ms));
        self.keep(&kept);
    }

    /// Forgets what is before the read time by now.
    pub(in crate::timer) fn pass(&mut self, read_ms: i64) {
        if self.used().any(|mark| mark.until_ms <= read_ms) {
            let kept: Vec<Mark> = self.used().filter(|it| it.until_ms > read_ms).collect();
            self.keep(&kept);
        }
    }

    /// Whether the unit at a position of the timer log has fired.
    pub(in crate::timer) fn covers(&self, slot_ms: i64, position: i64) -> bool {
        self.used()
            .any(|mark| slot_ms < mark.until_ms && position < mark.log_end)
    }

    /// Up to which slot something has fired.
    pub(in crate::timer) fn latest(&self) -> i64 {
        self.used().map(|mark| mark.until_ms).max().unwrap_or(0)
    }

    /// Up to which time all fired for a message at a place in the commit log; 0 for none.
    pub(in crate::timer) fn until(&self, physical_offset: i64) -> i64 {
        let marks = self.used().filter(|mark| physical_offset < mark.below);
        marks.map(|mark| mark.until_ms).max().unwrap_or(0)
    }

    /// Counts nothing from `end` of the commit log on: what stood there was cut off.
    pub(in crate::timer) fn cut(&mut self, end: i64) {
        for mark in &mut self.marks {
            mark.below = mark.below.min(end);
        }
    }

    /// Counts no unit from `end` of the timer log on: what is written there is new.
    pub(in crate::timer) fn cut_log(&mut self, end: i64) {
        for mark in &mut self.marks {
            mark.log_end = mark.log_end.min(end);
        }
    }

    pub(in crate::timer) fn encode(&self) -> [u64; NUMBERS * FIRED_MAX] {
        let mut numbers = [0; NUMBERS * FIRED_MAX];
        for (row, mark) in numbers.chunks_exact_mut(NUMBERS).zip(&self.marks) {
            let parts = [mark.until_ms, mark.below, mark.log_end];
            row.copy_from_slice(&parts.map(i64::cast_unsigned));
        }
        numbers
    }

    pub(in crate::timer) fn decode(numbers: &[i64]) -> Self {
        let mut fired = Self::default();
        for row in numbers.chunks_exact(NUMBERS) {
            if let [until_ms, below, log_end] = *row {
                if until_ms > 0 && below >= 0 && log_end >= 0 {
                    fired.add(until_ms, below, log_end);
                }
            }
        }
        fired
    }

    fn used(&self) -> impl Iterator<Item = Mark> + '_ {
        self.marks.iter().copied().filter(|mark| mark.until_ms > 0)
    }

    fn keep(&mut self, marks: &[Mark]) {
        self.marks = [Mark::default(); FIRED_MAX];
        for (place, mark) in self.marks.iter_mut().zip(marks) {
            *place = *mark;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fired, FIRED_MAX};

    #[test]
    fn unit_has_fired_where_one_mark_covers_slot_and_position() {
        let mut fired = Fired::default();
        assert!(!fired.covers(0, 0));
        fired.add(9_000, 1_000, 100);
        fired.add(5_000, 3_000, 300);
        for (slot, at, want) in [
            (8_000, 99, true),
            (9_000, 99, false),
            (8_000, 100, false),
            (4_000, 299, true),
            (4_000, 300, false),
            (5_000, 299, false),
        ] {
            assert_eq!(fired.covers(slot, at), want, "{slot} {at}");
        }
        let until = [999, 2_999, 3_000].map(|at| fired.until(at));
        assert_eq!(until, [9_000, 5_000, 0]);
        assert_eq!(fired, Fired::decode(&fired.encode().map(u64::cast_signed)));
        // A log that is made anew holds nothing that fired.
        fired.cut_log(0);
        assert!(!fired.covers(4_000, 0) && fired.until(999) == 9_000);
        fired.cut(500);
        assert_eq!([499, 500].map(|at| fired.until(at)), [9_000, 0]);
        // One that covers more takes the place of others.
        fired.add(9_000, 3_000, 300);
        assert_eq!(fired.used().count(), 1);
        fired.pass(8_999);
        assert_eq!(fired.used().count(), 1);
        fired.pass(9_000);
        assert_eq!(fired, Fired::default());
    }

    #[test]
    fn more_marks_than_have_room_lose_the_one_that_ends_first() {
        let mut fired = Fired::default();
        for number in 0..3 {
            fired.add(9_000 - number * 1_000, 100 + number, 100 + number);
        }
        assert_eq!(fired.used().count(), FIRED_MAX);
        assert!(fired.covers(8_000, 99) && fired.covers(7_500, 100));
        assert!(!fired.covers(6_500, 101));
    }
}
