//! Finding a queue offset by store time (spec: store §5.1).

use std::io;

use super::QueueStore;

/// Returns the first offset not older than `timestamp`, or with `upper` the last not newer.
pub(super) fn offset_by_time<Q: QueueStore + ?Sized>(
    queues: &Q,
    (topic, queue_id): (&str, i32),
    timestamp: i64,
    upper: bool,
    store_time: &dyn Fn(u64, u32) -> Option<i64>,
) -> io::Result<u64> {
    let max = queues.max(topic, queue_id);
    let min = queues.min(topic, queue_id).min(max);
    let (mut low, mut high) = (min, max);
    while low < high {
        let middle = low + (high - low) / 2;
        let mut found = Vec::with_capacity(1);
        queues.range(topic, queue_id, middle, 1, &mut found)?;
        // What the log no longer holds is older than everything that it holds.
        let time = found
            .first()
            .filter(|unit| !unit.is_filler())
            .and_then(|unit| store_time(unit.physical_offset, unit.size));
        let before = time.is_none_or(|time| time < timestamp || (upper && time == timestamp));
        if before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if upper {
        return Ok(low.saturating_sub(1).max(min));
    }
    Ok(low)
}
