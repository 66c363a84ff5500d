//! The time that slots fire by: the wall clock, unless it has just jumped ahead.
//!
//! A clock that is set wrong for a moment, as by one bad answer of a time server, would fire all that
//! is due until then. So a clock that runs ahead of the time that has passed counts for nothing before
//! it has stood there for a minute: what is due is late by as much when the jump was right. A clock
//! that is set back is believed at once, since nothing comes early by that.

/// A lead that drift and the time between two readings explain.
const JUMP_MS: i64 = 500;
/// So long a clock has to stand ahead before it is believed.
const HOLD_MS: i64 = 60_000;

/// Told the wall clock and a clock that nobody can set, it says what time it is.
#[derive(Default)]
pub(in crate::timer) struct SteadyClock {
    /// The wall clock less the steady one, as it was believed last.
    believed: Option<i64>,
    /// Since when the wall clock stands ahead, by the steady one, and by how much at most.
    ahead: Option<(i64, i64)>,
}

impl SteadyClock {
    /// The time to go by, Unix milliseconds.
    pub(in crate::timer) fn look(&mut self, wall_ms: i64, steady_ms: i64) -> i64 {
        let offset = wall_ms.saturating_sub(steady_ms);
        let believed = *self.believed.get_or_insert(offset);
        let lead = offset.saturating_sub(believed);
        if lead > JUMP_MS {
            let (since, most) = self.ahead.unwrap_or((steady_ms, lead));
            // One more jump is waited for as well.
            let since = if lead > most.saturating_add(JUMP_MS) {
                steady_ms
            } else {
                since
            };
            if steady_ms - since < HOLD_MS {
                self.ahead = Some((since, most.max(lead)));
                return believed.saturating_add(steady_ms);
            }
        }
        self.ahead = None;
        self.believed = Some(offset);
        wall_ms
    }

    /// How far the wall clock is ahead of what it is believed, milliseconds; 0 when it is believed.
    pub(in crate::timer) fn lead_ms(&self) -> i64 {
        self.ahead.map_or(0, |(_, lead)| lead)
    }
}

#[cfg(test)]
mod tests {
    use super::{SteadyClock, HOLD_MS, JUMP_MS};

    const NOW: i64 = 1_700_000_000_000;

    #[test]
    fn clock_that_jumps_ahead_counts_only_after_it_stayed_there() {
        for jump in [JUMP_MS + 1, 3_600_000, 80 * 3_600_000, 315_360_000_000] {
            let mut clock = SteadyClock::default();
            assert_eq!(clock.look(NOW, 0), NOW);
            for passed in (1_000..=HOLD_MS).step_by(1_000) {
                assert_eq!(clock.look(NOW + jump + passed, passed), NOW + passed);
                assert_eq!(clock.lead_ms(), jump);
            }
            let later = HOLD_MS + 1_000;
            assert_eq!(clock.look(NOW + jump + later, later), NOW + jump + later);
            assert_eq!(clock.lead_ms(), 0);
        }
    }

    #[test]
    fn clock_that_comes_back_in_time_never_counted() {
        let mut clock = SteadyClock::default();
        clock.look(NOW, 0);
        assert_eq!(clock.look(NOW + 7_200_000, 3_000), NOW + 3_000);
        assert_eq!(clock.look(NOW + 4_000, 4_000), NOW + 4_000);
        // The next jump is waited for from its own begin.
        let late = 4_000 + HOLD_MS;
        assert_eq!(clock.look(NOW + 7_200_000 + late, late), NOW + late);
    }

    #[test]
    fn clock_that_jumps_once_more_is_waited_for_again() {
        let mut clock = SteadyClock::default();
        clock.look(NOW, 0);
        clock.look(NOW + 10_000, 1_000);
        assert_eq!(
            clock.look(NOW + 900_000, HOLD_MS + 500),
            NOW + HOLD_MS + 500
        );
    }

    #[test]
    fn clock_that_drifts_stands_still_or_is_set_back_is_believed() {
        let mut clock = SteadyClock::default();
        clock.look(NOW, 0);
        for (wall, steady) in [
            (NOW + 1_000 + JUMP_MS, 1_000),
            (NOW + 1_000, 2_000),
            (NOW + 1_000, 90_000),
            (NOW - 3_600_000, 91_000),
        ] {
            assert_eq!(clock.look(wall, steady), wall);
        }
    }
}
