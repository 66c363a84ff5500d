//! What is answered to requests that settle popped messages, at once or when their records are safe.

use super::super::answered::Kind;
use super::super::books::Ledger;
use super::super::send::response;
use super::super::table::State;
use super::CHANGE;
use crate::codec::frame;
use std::time::Duration;

/// The remark of a change of the invisible time that succeeded.
const CHANGED: &str = "not set any response code";
/// What refusals of acknowledgements and of changes begin with.
const ACK_FAILED: &str = "put ack msg error";
const CHANGE_FAILED: &str = "append checkpoint or ack origin failed";

/// A request whose records are in the log, or that was settled in memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::ingest) struct Settled {
    /// Request code.
    pub(in crate::ingest) code: i32,
    /// Correlation number.
    pub(in crate::ingest) opaque: i32,
    /// Of a change: (pop time, invisible time, queue of the revive topic) from now on.
    pub(super) changed: [i64; 3],
}

impl Settled {
    /// An acknowledgement, or a batch of them.
    pub(super) fn ack(code: i32, opaque: i32) -> Self {
        Self {
            code,
            opaque,
            changed: [0; 3],
        }
    }

    /// Writes and counts the answer of a success: the record is in the log, however safe.
    pub(in crate::ingest) fn answer(
        &self,
        state: &State,
        took: Duration,
        ledger: &mut Ledger,
        replies: &mut Vec<u8>,
    ) {
        let remark = (self.code == CHANGE).then_some(CHANGED);
        self.write(state, (0, remark), self.changed, replies);
        ledger.counters.acks += 1;
        ledger.answered.add(Kind::plain(self.code, 0), took);
    }

    /// Writes and counts a refusal: the record may be lost.
    pub(in crate::ingest) fn refuse(
        &self,
        state: &State,
        (code, why): (i32, &str),
        took: Duration,
        ledger: &mut Ledger,
        replies: &mut Vec<u8>,
    ) {
        let failed = match self.code {
            CHANGE => CHANGE_FAILED,
            _ => ACK_FAILED,
        };
        self.write(
            state,
            (code, Some(&format!("{failed}: {why}"))),
            [0; 3],
            replies,
        );
        ledger.answered.add(Kind::plain(self.code, code), took);
    }

    fn write(
        &self,
        state: &State,
        (code, remark): (i32, Option<&str>),
        changed: [i64; 3],
        replies: &mut Vec<u8>,
    ) {
        let names = ["popTime", "invisibleTime", "reviveQid"];
        let texts = changed.map(|number| number.to_string());
        let fields = names.into_iter().zip(texts.iter().map(String::as_str));
        let fields = (self.code == CHANGE).then_some(fields);
        let header = response(state, code, self.opaque, remark);
        // A header of this size always fits its length.
        let _ = frame::encode_start(state.encoding, &header, fields, 0, replies);
    }
}
