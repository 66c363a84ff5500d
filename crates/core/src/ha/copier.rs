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
pub struct CopierConfig {
    /// Longest silence between two reports.
    pub heartbeat: u64,
    /// Silence that ends the connection.
    pub housekeeping: u64,
}

/// One connection to the master as the slave sees it.
pub struct Copier {
    rules: CopierConfig,
    end: u64,
    header: Vec<u8>,
    body: u64,
    reported: Option<u64>,
    last_read: u64,
    last_write: u64,
}

impl Copier {
    /// Begins at time 0; `end` is where the slave's own log ends.
    pub fn new(rules: CopierConfig, end: u64) -> Self {
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
    pub fn follow(&mut self, rules: CopierConfig) {
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

#[cfg(test)]
mod tests {
    use super::{Copier, CopierConfig, Fault, BODY_MAX};

    const RULES: CopierConfig = CopierConfig {
        heartbeat: 50,
        housekeeping: 200,
    };

    fn frame(offset: i64, size: i32, body: &[u8]) -> Vec<u8> {
        [&offset.to_be_bytes()[..], &size.to_be_bytes(), body].concat()
    }

    /// Takes bytes in pieces of `cut`; returns what was appended, and where.
    fn taken(copier: &mut Copier, data: &[u8], cut: usize) -> Result<(u64, Vec<u8>), Fault> {
        let mut all = Vec::new();
        let mut begin = None;
        for piece in data.chunks(cut) {
            copier.receive(piece, 0, |offset, bytes| {
                let first = *begin.get_or_insert(offset);
                assert_eq!(offset, first + all.len() as u64);
                all.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok((begin.unwrap_or(0), all))
    }

    #[test]
    fn frames_are_appended_one_behind_the_other_whatever_the_cuts() {
        let data = [
            frame(100, 3, b"abc"),
            frame(103, 0, b""),
            frame(103, 14, b"defghijklmnopq"),
            frame(117, 1, b"r"),
        ]
        .concat();
        for cut in 1..=data.len() {
            for end in [0, 100] {
                let mut copier = Copier::new(RULES, end);
                let (at, all) = taken(&mut copier, &data, cut).unwrap();
                assert_eq!((at, &all[..]), (100, &b"abcdefghijklmnopqr"[..]));
                assert_eq!(copier.end, 118);
            }
        }
    }

    #[test]
    fn frame_that_does_not_follow_is_refused() {
        for (end, offset, size, good) in [
            (100, 100, 1, true),
            (100, 99, 1, false),
            (100, 101, 1, false),
            (100, 0, 0, false),
            (100, 100, 0, true),
            (0, 0, 1, true),
            (0, 99, 1, true),
            (0, -1, 0, false),
            (100, -1, 0, false),
            (100, 100, -1, false),
            (100, 100, BODY_MAX, true),
            (100, 100, BODY_MAX + 1, false),
            (100, 100, i32::MIN, false),
        ] {
            let mut copier = Copier::new(RULES, end);
            let found = taken(&mut copier, &frame(offset, size, b""), 12);
            assert_eq!(found.is_ok(), good, "{end} {offset} {size}");
        }
        // Heartbeats do not say where an empty log begins.
        let mut copier = Copier::new(RULES, 0);
        taken(&mut copier, &frame(7, 0, b""), 12).unwrap();
        let both = [frame(50, 1, b"x"), frame(52, 1, b"y")].concat();
        let Fault(said) = taken(&mut copier, &both, 99).unwrap_err();
        assert_eq!(said, "sends offset 52, the log here ends at 51");
        assert_eq!(BODY_MAX, 67_108_864);
    }

    #[test]
    fn what_cannot_be_appended_ends_the_connection() {
        let mut copier = Copier::new(RULES, 0);
        let failed = copier.receive(&frame(0, 3, b"abc"), 0, |_, _| Err(Fault("full".into())));
        assert_eq!(failed.unwrap_err().0, "full");
    }

    #[test]
    fn growth_is_reported_at_once_and_the_rest_by_the_clock() {
        let mut copier = Copier::new(RULES, 0);
        let mut said = |end: u64, now| copier.report(end, now).map(u64::from_be_bytes);
        assert_eq!(said(100, 7), Some(100));
        assert_eq!(said(100, 8), None);
        assert_eq!(said(100, 56), None);
        assert_eq!(said(100, 57), Some(100));
        assert_eq!(said(101, 58), Some(101));
        // What was vouched for once is not taken back.
        assert_eq!(said(99, 107), None);
        assert_eq!(said(99, 108), Some(101));
        assert_eq!(said(99, 158), Some(101));
        assert_eq!(Copier::new(RULES, 0).report(0, 0), Some([0; 8]));
    }

    #[test]
    fn silent_master_is_given_up() {
        let mut copier = Copier::new(RULES, 0);
        copier.receive(&[0], 30, |_, _| Ok(())).unwrap();
        assert!(copier.check(230).is_ok());
        let Fault(said) = copier.check(231).unwrap_err();
        assert_eq!(said, "has said nothing for 201 ms");
        assert_eq!(copier.patience(40), 10);
        copier.report(1, 40);
        assert_eq!(copier.patience(41), 49);
        copier.report(2, 220);
        assert_eq!(copier.patience(225), 6);
        assert_eq!(copier.patience(231), 0);
        assert_eq!(copier.patience(500), 0);
        copier.follow(CopierConfig {
            heartbeat: 1000,
            housekeeping: 2000,
        });
        assert_eq!(copier.patience(230), 990);
        assert!(copier.check(231).is_ok());
    }
}
