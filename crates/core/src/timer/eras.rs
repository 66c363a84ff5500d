//! Messages that were stored while the wheel had other steps (`timerPrecisionMs`).
//!
//! A message names its time one step early, in the steps of the time at which it was stored. At each
//! change of the steps what waits moves to the first slot that fires no sooner. So the slot of a
//! message follows from the steps it was stored with and from all that followed: a request to cancel
//! it, which names the time in the steps of today, is filed in that slot as well.

/// Changes that are told apart. Of more the two oldest count as one with the longer steps: late by
/// a step, never early.
pub(super) const ERAS_MAX: usize = 4;

/// Messages before an offset of the timer queue, from the era before on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Era {
    until: i64,
    steps_ms: i64,
}

/// The eras before this one, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eras {
    /// Those that there are not have no steps, and stand last.
    eras: [Era; ERAS_MAX],
}

/// The first slot that fires no sooner than a slot of other steps would.
pub(super) fn later(steps_ms: i64, slot_ms: i64, old_ms: i64) -> i64 {
    let earliest = slot_ms + old_ms - steps_ms;
    let up = earliest + steps_ms - 1;
    up - up.rem_euclid(steps_ms)
}

impl Eras {
    /// Reads pairs of an offset and steps in milliseconds; zeros are none.
    pub(super) fn decode(numbers: &[i64]) -> Self {
        let mut found = Self::default();
        let pairs = numbers.as_chunks::<2>().0.iter();
        let pairs = pairs.filter(|[until, steps_ms]| *until > 0 && *steps_ms > 0);
        for (era, [until, steps_ms]) in found.eras.iter_mut().zip(pairs) {
            *era = Era {
                until: *until,
                steps_ms: *steps_ms,
            };
        }
        found
    }

    pub(super) fn encode(&self) -> [u64; 2 * ERAS_MAX] {
        let mut numbers = [0; 2 * ERAS_MAX];
        for (pair, era) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(self.eras) {
            *pair = [era.until.cast_unsigned(), era.steps_ms.cast_unsigned()];
        }
        numbers
    }

    /// Ends the era of steps of so many milliseconds at an offset; forgets those of which the queue,
    /// which begins at `first`, has no message.
    pub(super) fn end(&mut self, until: i64, steps_ms: i64, first: i64) {
        let mut kept: Vec<Era> = self.used().filter(|era| era.until > first).collect();
        if until > first {
            kept.push(Era { until, steps_ms });
        }
        if kept.len() > ERAS_MAX {
            let oldest = kept.remove(0);
            if let Some(next) = kept.first_mut() {
                next.steps_ms = next.steps_ms.max(oldest.steps_ms);
            }
        }
        *self = Self::default();
        for (place, era) in self.eras.iter_mut().zip(kept) {
            *place = era;
        }
    }

    /// Whether a message was stored with other steps.
    pub(super) fn cover(&self, offset: i64) -> bool {
        self.used().any(|era| offset < era.until)
    }

    /// The time in the steps of today of a message that names one in those it was stored with;
    /// `None` for messages of today.
    pub(super) fn moved(&self, precision_ms: i64, out_ms: i64, offset: i64) -> Option<i64> {
        let first = self.used().position(|era| offset < era.until)?;
        Some(self.through(first, precision_ms, out_ms))
    }

    /// The slots in which messages of earlier eras wait that are due at a time; the one who asks has
    /// the given offset.
    pub(super) fn slots_before(&self, precision_ms: i64, due_ms: i64, offset: i64) -> Vec<i64> {
        let mut slots: Vec<i64> = Vec::new();
        for (place, era) in self.used().enumerate() {
            if era.until <= offset {
                let named_ms = (due_ms - 1).div_euclid(era.steps_ms) * era.steps_ms;
                let slot_ms = self.through(place, precision_ms, named_ms);
                if !slots.contains(&slot_ms) {
                    slots.push(slot_ms);
                }
            }
        }
        slots
    }

    /// Takes a time of an era through all changes since.
    fn through(&self, place: usize, precision_ms: i64, time_ms: i64) -> i64 {
        let steps: Vec<i64> = self.used().skip(place).map(|era| era.steps_ms).collect();
        let next = steps.iter().skip(1).copied().chain([precision_ms]);
        let changes = steps.iter().zip(next);
        changes.fold(time_ms, |time_ms, (old_ms, steps_ms)| {
            later(steps_ms, time_ms, *old_ms)
        })
    }

    fn used(&self) -> impl Iterator<Item = Era> + '_ {
        let eras = self.eras.iter().copied();
        eras.take_while(|era| era.steps_ms > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{later, Eras};

    #[test]
    fn slot_of_other_steps_is_the_first_that_fires_no_sooner() {
        // (own step, time of the slot, step it was stored with, slot now)
        for (own, slot, old, now) in [
            (1000, 5_000, 1000, 5_000),
            // A slot of two seconds fires at 8 s; those of one second fire a step after their time.
            (1000, 6_000, 2000, 7_000),
            (100, 5_000, 1000, 5_900),
            (1000, 5_000, 100, 5_000),
            (1000, 5_100, 100, 5_000),
            (1000, 4_900, 100, 4_000),
            (1000, 5_101, 100, 5_000),
        ] {
            assert_eq!(later(own, slot, old), now, "{own} {slot} {old}");
            let late_ms = (now + own) - (slot + old);
            assert!((0..own).contains(&late_ms), "{own} {slot} {old}");
        }
    }

    #[test]
    fn message_moves_through_every_change_since_it_was_stored() {
        let mut eras = Eras::default();
        assert_eq!(eras.moved(1000, 5_000, 0), None);
        eras.end(10, 200, 0);
        eras.end(20, 500, 0);
        // From 5,800 in steps of 200 to 5,500 in steps of 500, which fires at 6,000 as well.
        assert_eq!(eras.moved(1000, 5_800, 9), Some(5_000));
        assert_eq!(eras.moved(100, 5_800, 9), Some(5_900));
        assert_eq!(eras.moved(1000, 5_500, 10), Some(5_000));
        assert_eq!(eras.moved(1000, 5_500, 20), None);
        assert!(eras.cover(19) && !eras.cover(20));
        // Due at 6,001: named 6,000 by both, and moved from there.
        assert_eq!(eras.slots_before(100, 6_001, 20), [6_400]);
        assert_eq!(eras.slots_before(100, 6_000, 20), [5_900]);
        assert_eq!(eras.slots_before(100, 6_000, 10), [5_900]);
        assert_eq!(eras.slots_before(100, 6_000, 9), [] as [i64; 0]);
    }

    #[test]
    fn eras_of_which_nothing_is_left_are_forgotten_and_the_oldest_merged() {
        let mut eras = Eras::default();
        for (until, steps_ms) in [(10, 100), (20, 1000), (30, 500), (40, 200)] {
            eras.end(until, steps_ms, 0);
        }
        let all = [10, 100, 20, 1000, 30, 500, 40, 200];
        assert_eq!(eras, Eras::decode(&all));
        assert_eq!(eras.encode(), all.map(i64::cast_unsigned));
        let mut more = eras;
        more.end(50, 700, 9);
        assert_eq!(more, Eras::decode(&[20, 1000, 30, 500, 40, 200, 50, 700]));
        let mut fewer = eras;
        fewer.end(50, 700, 20);
        assert_eq!(fewer, Eras::decode(&[30, 500, 40, 200, 50, 700]));
        assert_eq!(Eras::decode(&[0, 5, 3, 0, -1, 7, 4, -2]), Eras::default());
    }
}
