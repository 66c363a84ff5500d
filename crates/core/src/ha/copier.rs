//! What a slave does with one connection to its master, without socket and clock (spec: ha §1.3).
//!
//! Times are milliseconds since the connection began. Frames may be cut anywhere and pieces are
//! appended as they come, so a large frame needs no buffer.

use super::Fault;

/// Bytes in front of a piece: its offset and its length.
pub const HEADER: usize = 12;
/// A longer piece is taken for garbage: masters send 32 KiB unless told otherwise.
pub const BODY_MAX: i32 = 64 * 1024 * 1024;

/// How a slave behaves. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct CopierRules {
    /// Longest silence between two reports.
    pub heartbeat: u64,
    /// Silence that ends the connection.
    pub housekeeping: u64,
}

/// One connection to the master as the slave sees it.
pub struct Copier {
    rules: CopierRules,
    end: u64,
    header: Vec<u8>,
    body: u64,
    reported: Option<u64>,
    last_read: u64,
    last_write: u64,
}

impl Copier {
    /// Begins at time 0; `end` is where the slave's own log ends.
    pub fn new(rules: CopierRules, end: u64) -> Self {
        Self {
            rules,
            end,
            header: Vec::with_capacity(HEADER),
            body: 0,
            reported: None,
            last_read: 0,
            last_write: 0,
        }
    }

    /// Goes by other rules from now on.
    pub fn follow(&mut self, rules: CopierRules) {
        self.rules = rules;
    }

    /// Takes bytes and hands each piece to `append` with its offset.
    pub fn receive(
        &mut self,
        mut data: &[u8],
        now: u64,
        mut append: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.last_read = now;
        while !data.is_empty() {
            if self.body == 0 {
                let missing = HEADER - self.header.len();
                let (front, rest) = data.split_at(missing.min(data.len()));
                self.header.extend_from_slice(front);
                data = rest;
                if self.header.len() == HEADER {
                    self.open_frame()?;
                }
                continue;
            }
            let size = usize::try_from(self.body).unwrap_or(usize::MAX);
            let (piece, rest) = data.split_at(size.min(data.len()));
            append(self.end, piece)?;
            self.end += piece.len() as u64;
            self.body -= piece.len() as u64;
            data = rest;
        }
        Ok(())
    }

    fn open_frame(&mut self) -> Result<(), Fault> {
        let (offset, size) = self.header.split_at(8);
        let offset = i64::from_be_bytes(offset.try_into().unwrap_or_default());
        let size = i32::from_be_bytes(size.try_into().unwrap_or_default());
        self.header.clear();
        if !(0..=BODY_MAX).contains(&size) {
            return Err(Fault(format!("announces a piece of {size} bytes")));
        }
        let Ok(offset) = u64::try_from(offset) else {
            return Err(Fault(format!("sends a negative offset, {offset}")));
        };
        if self.end != 0 && self.end != offset {
            return Err(Fault(format!(
                "sends offset {offset}, the log here ends at {}",
                self.end
            )));
        }
        if size > 0 {
            // An empty log begins where the master says.
            self.end = offset;
            self.body = u64::from(size.unsigned_abs());
        }
        Ok(())
    }

    /// Returns a report if the log has grown, or the last one is old; `end` is how far the slave
    /// vouches for its log.
    pub fn report(&mut self, end: u64, now: u64) -> Option<[u8; 8]> {
        let is_new = self.reported.is_none_or(|reported| end > reported);
        if !is_new && now - self.last_write < self.rules.heartbeat {
            return None;
        }
        let reported = self.reported.map_or(end, |reported| reported.max(end));
        self.reported = Some(reported);
        self.last_write = now;
        Some(reported.to_be_bytes())
    }

    /// Fails when the master is silent.
    pub fn check(&self, now: u64) -> Result<(), Fault> {
        let silent = now - self.last_read;
        if silent > self.rules.housekeeping {
            return Err(Fault(format!("has said nothing for {silent} ms")));
        }
        Ok(())
    }

    /// Milliseconds until the clock alone makes something due.
    pub fn patience(&self, now: u64) -> u64 {
        let silence = self.last_read + self.rules.housekeeping + 1;
        let report = self.last_write + self.rules.heartbeat;
        silence.min(report).saturating_sub(now)
    }
}
