//! What a master does for one slave, without socket and clock (spec: ha §1.2).
//!
//! Times are milliseconds since the connection began. A slave's word releases answers to sends, so
//! a report is believed only where it can be true.

use super::Fault;

/// Bytes of a report: where the slave's log ends.
pub const REPORT: usize = 8;

/// How a slave is fed. Times are milliseconds, sizes bytes.
#[derive(Clone, Copy, Debug)]
pub struct FeedConfig {
    /// Longest piece in one frame.
    pub batch: u64,
    /// Silence before a heartbeat.
    pub heartbeat: u64,
    /// Silence that ends the connection.
    pub housekeeping: u64,
    /// Most bytes in a second; 0: as fast as the slave takes them.
    pub bytes_per_second: u64,
    /// How long a piece shorter than a batch waits while an earlier one is not acknowledged: what
    /// is appended meanwhile goes with it.
    pub linger: u64,
}

/// What the first report has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has not come.
    Silent,
    /// It has come and somebody decides where to begin.
    Asked(u64),
    /// The slave is fed.
    Fed,
}

/// One slave's connection as the master sees it.
pub struct Feed {
    rules: FeedConfig,
    stage: Stage,
    unread: Vec<u8>,
    acked: u64,
    position: u64,
    last_read: u64,
    last_write: u64,
    second: u64,
    sent_in_second: u64,
}

impl Feed {
    /// Begins at time 0.
    pub fn new(rules: FeedConfig) -> Self {
        Self {
            rules,
            stage: Stage::Silent,
            unread: Vec::new(),
            acked: 0,
            position: 0,
            last_read: 0,
            last_write: 0,
            second: 0,
            sent_in_second: 0,
        }
    }

    /// Goes by other rules from now on.
    pub fn follow(&mut self, rules: FeedConfig) {
        self.rules = rules;
    }

    /// Where the slave's log ends by its own word.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Offset of the next byte to send.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether more reports can be taken: while the start is being decided they wait.
    pub fn listens(&self) -> bool {
        !matches!(self.stage, Stage::Asked(_))
    }

    /// Takes bytes; returns the first report once, for which [`Self::begin`] is the answer.
    pub fn receive(&mut self, data: &[u8], now: u64) -> Result<Option<u64>, Fault> {
        self.last_read = now;
        self.unread.extend_from_slice(data);
        if self.stage == Stage::Silent {
            let Some(first) = self.next_report()? else {
                return Ok(None);
            };
            self.stage = Stage::Asked(first);
            return Ok(Some(first));
        }
        self.take_reports().map(|()| None)
    }

    /// Feeds the slave from `position` on.
    pub fn begin(&mut self, position: u64) -> Result<(), Fault> {
        if let Stage::Asked(first) = self.stage {
            self.stage = Stage::Fed;
            self.acked = first;
            self.position = position;
            self.take_reports()?;
        }
        Ok(())
    }

    fn take_reports(&mut self) -> Result<(), Fault> {
        while self.stage == Stage::Fed {
            let Some(report) = self.next_report()? else {
                break;
            };
            if report > self.position {
                return Err(Fault(format!(
                    "acknowledges {report}, of which {} and more is unsent",
                    self.position
                )));
            }
            if report < self.acked {
                return Err(Fault(format!("goes back from {} to {report}", self.acked)));
            }
            self.acked = report;
        }
        Ok(())
    }

    fn next_report(&mut self) -> Result<Option<u64>, Fault> {
        let Some(report) = self.unread.first_chunk::<REPORT>() else {
            return Ok(None);
        };
        let report = i64::from_be_bytes(*report);
        self.unread.drain(..REPORT);
        u64::try_from(report)
            .map(Some)
            .map_err(|_| Fault(format!("reports a negative offset, {report}")))
    }

    /// (offset, most bytes) of the next piece; `None` when nothing may be sent now.
    pub fn due(&mut self, end: u64, now: u64) -> Option<(u64, u64)> {
        if self.stage != Stage::Fed || self.position >= end {
            return None;
        }
        let mut size = self.rules.batch.min(end - self.position);
        if self.rules.bytes_per_second > 0 {
            size = size.min(self.budget(now));
        }
        (size > 0).then_some((self.position, size))
    }

    /// Whether what there is up to `end` should wait for more: something is on its way already.
    pub fn lingers(&self, end: u64, now: u64) -> bool {
        self.position > self.acked
            && end - self.position.min(end) < self.rules.batch
            && now < self.last_write + self.rules.linger
    }

    fn budget(&mut self, now: u64) -> u64 {
        if now / 1000 != self.second {
            self.second = now / 1000;
            self.sent_in_second = 0;
        }
        self.rules
            .bytes_per_second
            .saturating_sub(self.sent_in_second)
    }

    /// Returns what goes before the piece that is sent now, and moves behind the piece.
    pub fn header(&mut self, size: u64, now: u64) -> [u8; 12] {
        let mut header = [0; 12];
        let (offset, length) = header.split_at_mut(8);
        offset.copy_from_slice(&self.position.to_be_bytes());
        length.copy_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
        self.position += size;
        self.last_write = now;
        self.sent_in_second += size;
        header
    }

    /// Whether nothing was written for so long that a heartbeat is due.
    pub fn wants_heartbeat(&self, now: u64) -> bool {
        self.stage == Stage::Fed && now - self.last_write >= self.rules.heartbeat
    }

    /// Fails when the slave is silent, or has stopped inside a report.
    pub fn check(&self, now: u64) -> Result<(), Fault> {
        let silent = now - self.last_read;
        if silent > self.rules.housekeeping {
            return Err(Fault(format!("has said nothing for {silent} ms")));
        }
        let stray = self.unread.len();
        if self.listens() && stray > 0 && silent > self.rules.heartbeat {
            return Err(Fault(format!("wrote {stray} bytes, which is no report")));
        }
        Ok(())
    }

    /// Milliseconds until the clock alone makes something due; `end` is what may be sent.
    pub fn patience(&self, end: u64, now: u64) -> u64 {
        let mut until = self.last_read + self.rules.housekeeping + 1;
        if self.listens() && !self.unread.is_empty() {
            until = until.min(self.last_read + self.rules.heartbeat + 1);
        }
        if self.stage == Stage::Fed {
            until = until.min(self.last_write + self.rules.heartbeat);
            if self.position < end {
                let next = if self.lingers(end, now) {
                    self.last_write + self.rules.linger
                } else {
                    (now / 1000 + 1) * 1000
                };
                until = until.min(next);
            }
        }
        until.saturating_sub(now)
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
