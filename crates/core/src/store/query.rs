//! Questions to a store other than reading from a queue, and its upkeep.

use crate::consume_queue::Unit;
use crate::disk::segment::Segment;
use crate::store::error::StoreError;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// How many appends took how long, by [`crate::latency::SPANS_MS`].
const PUT_SPANS: [&str; 13] = [
    "puts_under_1_ms",
    "puts_under_10_ms",
    "puts_under_50_ms",
    "puts_under_100_ms",
    "puts_under_200_ms",
    "puts_under_500_ms",
    "puts_under_1_s",
    "puts_under_2_s",
    "puts_under_3_s",
    "puts_under_4_s",
    "puts_under_5_s",
    "puts_under_10_s",
    "puts_over_10_s",
];

impl Store {
    /// Queue offset for a store time (spec: store §5.1).
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        upper: bool,
    ) -> Result<u64, StoreError> {
        self.usable()?;
        let store_time = |at: u64, _size: u32| self.log.head(at).map(|head| head.store_timestamp);
        let queues = self.queues();
        Ok(queues.offset_by_time(topic, queue_id, timestamp, upper, &store_time)?)
    }

    /// Offsets of messages with a key, ascending, and how far the index goes: (store time, offset).
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        max: usize,
        begin: i64,
        end: i64,
    ) -> Result<(Vec<u64>, i64, u64), StoreError> {
        self.usable()?;
        let Some(index) = &self.derived.index else {
            return Ok((Vec::new(), 0, 0));
        };
        let found = index.query(topic, key.as_bytes(), max, begin, end)?;
        let (time, offset) = index.last();
        Ok((found, time, offset))
    }

    /// Up to `count` (physical offset, size, tags code) from a queue offset on.
    pub fn units(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
        count: u64,
    ) -> Result<Vec<(u64, u32, i64)>, StoreError> {
        self.usable()?;
        let Ok(offset) = u64::try_from(offset) else {
            return Ok(Vec::new());
        };
        let mut units = Vec::new();
        self.queues()
            .range(topic, queue_id, offset, count, &mut units)?;
        let tuples = units
            .iter()
            .map(|unit| {
                if unit.is_filler() {
                    Unit::FILLER
                } else {
                    *unit
                }
            })
            .map(|unit| (unit.physical_offset, unit.size, unit.tags_code));
        Ok(tuples.collect())
    }

    /// Store time of the oldest record; `None` when there is none.
    pub fn earliest_store_time(&self) -> Option<i64> {
        self.log
            .head(self.log.min())
            .map(|head| head.store_timestamp)
    }

    /// Store time of the newest record that is in the queues; 0 when there is none.
    fn newest_store_time(&self) -> u64 {
        u64::try_from(self.dispatcher.progress().last.time).unwrap_or(0)
    }

    /// Deletes a topic's queues; returns how many. Its messages stay in the log, out of reach.
    pub fn delete_topic(&self, topic: &str) -> Result<usize, StoreError> {
        self.usable()?;
        // What is not dispatched yet would bring the queues back.
        if self.config.sync_flush {
            self.flush()?;
        }
        while self.dispatch()? {}
        let deleted = self.alone(|| self.delete_queues(topic))?;
        // A Java broker that dispatched again from before the deletion would do the same.
        self.quick_checkpoint()?;
        Ok(deleted)
    }

    /// Notes durably that a topic's messages have no queue any more, then removes the queues.
    fn delete_queues(&self, topic: &str) -> Result<usize, StoreError> {
        let note = &self.derived.deleted;
        // The note must not reach beyond what is durable, lest it hides what is written there next.
        let end = self.flush()?;
        // When this fails nobody knows whether the note is there after a power cut.
        self.note(note.add(topic, end))?;
        let forgotten_at = self.log.forget_topic(topic);
        if forgotten_at > end {
            // Sent in between, with offsets of the old queue.
            self.flush()?;
            self.note(note.add(topic, forgotten_at))?;
        }
        Ok(self.queues().delete_topic(topic)?)
    }

    /// Deletes whole log files last written before a time, oldest first, never the last.
    pub fn delete_expired(&self, before: u64, limit: usize) -> Result<usize, StoreError> {
        self.usable()?;
        let dispatched = self.dispatched();
        let gone = |segment: &Segment| {
            let modified = self.env.disk.modified_ms(segment.path());
            segment.end() <= dispatched && modified.is_ok_and(|modified| modified < before)
        };
        if !self.log.segments().first().is_some_and(|first| gone(first)) {
            return Ok(0);
        }
        // A queue whose messages are all gone is the only one to know its next offset: it must not
        // be lost with a power cut, lest offsets are used twice.
        self.checkpoint()?;
        let dropped = self.log.drop_oldest(limit, gone)?;
        if dropped > 0 {
            let min = self.log.min();
            self.dispatcher.clean(min)?;
            self.derived.deleted.settle(min, u64::MAX)?;
            self.drop_expired_lights()?;
        }
        Ok(dropped)
    }

    /// What is wrong with the files of log and queues.
    pub fn self_check(&self) -> Result<Vec<String>, StoreError> {
        self.usable()?;
        let mut found = self.log.self_check();
        found.extend(self.queues().self_check());
        Ok(found)
    }

    /// Looks at the disk and notes how far the log is durable; once a second is enough.
    pub fn tend(&self) {
        let fill = self.disk_fill();
        self.health.set_disk_full(fill > self.tuned().levels.full);
        self.forget_gone_lights();
        // It is only a hint for the next recovery.
        let _ = self.note_flushed();
    }

    /// Per cent of the disk in use: of the emptiest one when the log has several.
    pub fn disk_fill(&self) -> u64 {
        let fills = self.config.commit_log.iter().filter_map(|folder| {
            let (free, total) = self.env.disk.space(folder).ok()?;
            let used = total.saturating_sub(free);
            Some(used.saturating_mul(100).div_ceil(total.max(1)))
        });
        fills.min().unwrap_or(0)
    }

    /// Whether sends are taken, and why not.
    pub fn writable(&self) -> (bool, String) {
        if !self.is_started() {
            return (false, "the store is not started".to_owned());
        }
        match self.health.refusal() {
            Some(why) => (false, why),
            None => (true, String::new()),
        }
    }

    /// Whether the run before this one stopped in order, or there was none.
    pub fn last_run_stopped(&self) -> bool {
        self.clean
    }

    /// What the start cut or made again, for people.
    pub fn recovery_notes(&self) -> &[String] {
        &self.recovered.notes
    }

    /// The last messages that reads passed over, and the last record that no queue could take, for
    /// people; empty when there was none.
    pub fn last_damage(&self) -> (String, String) {
        (self.log.damage.last(), self.queues().last_conflict())
    }

    /// Counters and gauges by name.
    pub fn stats(&self) -> BTreeMap<&'static str, u64> {
        let levels = self.tuned().levels;
        let segments = self.log.segments();
        let counters = &self.log.counters;
        let files = segments.len() as u64;
        let recovered = &self.recovered;
        let mut stats = BTreeMap::from([
            ("commit_log_files", files),
            (
                "commit_log_bytes",
                self.log.written().saturating_sub(self.log.min()),
            ),
            ("mapped_bytes", files.saturating_mul(self.log.file_size())),
            ("zero_filled_files", self.env.disk.zero_filled()),
            ("disk_used_percent", self.disk_fill()),
            ("disk_full_level", levels.full),
            ("disk_clean_level", levels.clean),
            ("disk_used_level", levels.used),
            ("newest_store_time", self.newest_store_time()),
            ("flushes", counters.flushes.load(Ordering::Relaxed)),
            ("flush_us", counters.flush_us.load(Ordering::Relaxed)),
            ("puts", counters.puts.load(Ordering::Relaxed)),
            ("put_us_longest", counters.put_time.longest_us()),
            ("put_us_p99", counters.put_time.percentile_us(990)),
            ("put_us_p999", counters.put_time.percentile_us(999)),
            ("get_us_longest", counters.get_time.longest_us()),
            (
                "deleted_topics_damaged",
                u64::from(self.derived.deleted.was_damaged()),
            ),
            ("put_bytes", counters.put_bytes.load(Ordering::Relaxed)),
            ("failed_puts", counters.failed_puts.load(Ordering::Relaxed)),
            ("damaged_reads", self.log.damage.total()),
            (
                "refused_copies",
                counters.refused_copies.load(Ordering::Relaxed),
            ),
            ("queue_conflicts", self.queues().conflicts()),
            ("recovered_records", recovered.records),
            ("recovered_bytes", recovered.bytes),
            ("recovered_end", recovered.end),
            ("recovered_cut_bytes", recovered.cut_bytes),
            ("recovered_lost_bytes", recovered.lost_bytes),
            ("recovered_rebuilds", recovered.rebuilds),
        ]);
        stats.extend(PUT_SPANS.into_iter().zip(counters.put_time.spans()));
        stats
    }
}
