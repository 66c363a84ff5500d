//! Receipt handles: which pop took a message, and where it lies.

use crate::ingest::scan::number;

/// Bytes of a handle that is read here.
const LENGTH_MAX: usize = 1024;

/// What a plain handle says that an acknowledgement needs. Times are Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle<'a> {
    /// Start of the checkpoint.
    pub start_offset: i64,
    /// When it was popped.
    pub pop_time_ms: i64,
    /// How long it is invisible.
    pub invisible_ms: i64,
    /// Queue of the revive topic that has its checkpoint.
    pub revive_queue: i32,
    /// The broker that has it.
    pub broker: &'a str,
}

impl<'a> Handle<'a> {
    /// Reads a handle of exactly eight fields; `None` when anything about it is odd.
    pub fn read(text: &'a str) -> Option<Self> {
        if text.len() > LENGTH_MAX {
            return None;
        }
        let mut parts = text.split(' ');
        let handle = Self {
            start_offset: number(parts.next()?)?,
            pop_time_ms: number(parts.next()?)?,
            invisible_ms: number(parts.next()?)?,
            revive_queue: number(parts.next()?)?,
            broker: {
                parts.next()?;
                parts.next()?
            },
        };
        number::<i32>(parts.next()?)?;
        number::<i64>(parts.next()?)?;
        parts.next().is_none().then_some(handle)
    }

    /// When the message becomes visible again; `None` for times that no plain record has.
    pub fn revive_ms(&self) -> Option<i64> {
        let fits = self.pop_time_ms >= 0 && self.invisible_ms >= 0;
        fits.then(|| self.pop_time_ms.checked_add(self.invisible_ms))?
    }

    /// Whether a pop may have given it for the message at `offset`, beyond doubt: where the clock
    /// was set back or a broker stood still, the handlers know what to make of it.
    pub fn could_be(&self, offset: i64, now_ms: i64, invisible_max_ms: i64) -> bool {
        let oldest_ms = now_ms.saturating_sub(invisible_max_ms);
        (0..=offset).contains(&self.start_offset)
            && (oldest_ms..=now_ms).contains(&self.pop_time_ms)
            && (0..=invisible_max_ms).contains(&self.invisible_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::{Handle, LENGTH_MAX};

    #[test]
    fn a_plain_handle_is_read() {
        let handle = Handle::read("7 1700000000000 60000 3 0 broker-a 2 9").unwrap();
        assert_eq!(
            handle,
            Handle {
                start_offset: 7,
                pop_time_ms: 1_700_000_000_000,
                invisible_ms: 60_000,
                revive_queue: 3,
                broker: "broker-a",
            }
        );
        assert_eq!(handle.revive_ms(), Some(1_700_000_060_000));
    }

    #[test]
    fn odd_handles_are_left_alone() {
        let long = format!("1 2 3 4 0 {} 5 6", "b".repeat(LENGTH_MAX));
        for text in [
            "",
            "1 2 3 4 0 b 5",
            "1 2 3 4 0 b 5 6 7",
            "1 2 3 4 0 b  6",
            "x 2 3 4 0 b 5 6",
            "1 2 3 2147483648 0 b 5 6",
            "1 2 3 4 0 b 2147483648 6",
            "1 2 3 4 0 b 5 9223372036854775808",
            &long,
        ] {
            assert_eq!(Handle::read(text), None, "{text}");
        }
    }

    #[test]
    fn handles_that_no_pop_gave_are_doubtful() {
        let could_be = |text: &str| Handle::read(text).unwrap().could_be(9, 5_000, 1_000);
        for text in [
            "9 5000 0 1 0 b 5 6",
            "0 5000 1000 1 0 b 5 6",
            "9 4000 1 1 0 b 5 6",
        ] {
            assert!(could_be(text), "{text}");
        }
        for text in [
            "10 5000 0 1 0 b 5 6",
            "-1 5000 0 1 0 b 5 6",
            "9 5001 0 1 0 b 5 6",
            "9 3999 0 1 0 b 5 6",
            "9 5000 1001 1 0 b 5 6",
            "9 5000 -1 1 0 b 5 6",
        ] {
            assert!(!could_be(text), "{text}");
        }
    }

    #[test]
    fn times_that_cannot_be_are_not_plain() {
        for text in [
            "1 -1 3 4 0 b 5 6",
            "1 1 -3 4 0 b 5 6",
            "1 9223372036854775807 1 4 0 b 5 6",
        ] {
            assert_eq!(Handle::read(text).unwrap().revive_ms(), None, "{text}");
        }
    }
}
