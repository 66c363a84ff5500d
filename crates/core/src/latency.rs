//! How long things took: counts by duration that any thread adds to without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper ends, in milliseconds, of the spans that RocketMQ's tools show; the last has none.
pub const SPANS_MS: [u64; 12] = [
    1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000,
];
/// Steps between one power of two and the next: a percentile is at most an eighth too high.
const STEPS: u64 = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Enough for two hours in microseconds.
const BUCKETS: usize = 256;

/// Durations of one kind of work since the start.
#[derive(Debug)]
pub struct Latency {
    spans: [AtomicU64; SPANS_MS.len() + 1],
    buckets: [AtomicU64; BUCKETS],
    longest_us: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            spans: [const { AtomicU64::new(0) }; SPANS_MS.len() + 1],
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            longest_us: AtomicU64::new(0),
        }
    }
}

impl Latency {
    /// Counts one.
    pub fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let span = SPANS_MS.partition_point(|end| us >= end * 1_000);
        for (counters, place) in [(&self.spans[..], span), (&self.buckets[..], bucket(us))] {
            if let Some(counter) = counters.get(place) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }

    /// The longest so far, in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.longest_us.load(Ordering::Relaxed)
    }

    /// How many took less than each of [`SPANS_MS`] and not less than the one before, and how many
    /// took longer than all.
    pub fn spans(&self) -> Vec<u64> {
        let counts = self.spans.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// What `share` thousandths of all did not exceed, in microseconds; 0 when there was none.
    pub fn percentile_us(&self, share: u64) -> u64 {
        let counts = self.buckets.iter();
        let counts: Vec<u64> = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let wanted = (all * share).div_ceil(1_000);
        let mut seen = 0;
        for (place, count) in counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return upper_end(place as u64).min(self.longest_us());
            }
        }
        0
    }
}

/// Which bucket a duration belongs to.
fn bucket(us: u64) -> usize {
    if us < STEPS {
        return usize::try_from(us).unwrap_or(0);
    }
    let power = us.ilog2();
    let step = (us >> (power - STEP_BITS)) & (STEPS - 1);
    let place = u64::from(power - STEP_BITS + 1) * STEPS + step;
    usize::try_from(place).map_or(BUCKETS - 1, |place| place.min(BUCKETS - 1))
}

/// The longest duration of a bucket.
fn upper_end(place: u64) -> u64 {
    if place < STEPS {
        return place;
    }
    let power = place / STEPS - 1;
    ((STEPS + place % STEPS + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::{bucket, upper_end, Latency};
    use std::time::Duration;

    #[test]
    fn buckets_follow_one_another() {
        let mut last = 0;
        for us in 0..100_000 {
            let place = bucket(us);
            assert!(place == last || place == last + 1, "{us}");
            assert!(upper_end(place as u64) >= us);
            assert!(upper_end(place as u64) <= us + us / 8);
            last = place;
        }
        assert_eq!(bucket(u64::MAX), 255);
    }

    #[test]
    fn shares_and_spans() {
        let found = Latency::default();
        assert_eq!(found.percentile_us(990), 0);
        for us in 1..=1_000 {
            found.add(Duration::from_micros(us));
        }
        found.add(Duration::from_secs(20));
        assert_eq!(found.longest_us(), 20_000_000);
        assert!((985..=1_030).contains(&found.percentile_us(990)));
        assert_eq!(found.percentile_us(1_000), 20_000_000);
        let spans = found.spans();
        assert_eq!((spans[0], spans[1], spans[12]), (999, 1, 1));
    }
}
