//! POP on the fast path: what the table says about it, the pops and the acknowledgements of a read.

pub(super) mod acks;
pub(super) mod batches;
mod change;
pub mod give;
pub mod pops;
mod revive;
pub(super) mod settled;

use std::sync::Arc;
use std::time::Duration;

use super::Ingest;
use crate::store::Store;
use give::{Given, Show, Wish};
use settled::Settled;

/// ACK_MESSAGE.
pub const ACK: i32 = 200_051;

/// POP_MESSAGE.
pub const POP: i32 = 200_050;

/// BATCH_ACK_MESSAGE.
pub const BATCH_ACK: i32 = 200_151;

/// CHANGE_MESSAGE_INVISIBLETIME.
pub const CHANGE: i32 = 200_053;

/// What holds for everything that is popped, while the core may settle it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popping {
    /// This broker's name, as receipt handles and records have it; plain.
    pub broker: String,
    /// The topic of checkpoints and acknowledgements; plain.
    pub revive_topic: String,
    /// Handles may name queues of it below this.
    pub revive_queues: i32,
    /// The longest time that the timer wheel takes, and a message may be invisible, in milliseconds.
    pub delay_max_ms: i64,
    /// Its step, in milliseconds.
    pub precision_ms: i64,
    /// When a topic or a group was deleted last, Unix milliseconds: what was popped until then may be
    /// of a former one, and gets no other time here.
    pub deleted_ms: i64,
    /// Whether checkpoints are in the memory of whoever feeds: acknowledgements are read here and
    /// settled there ([`Merge`]).
    pub merges: bool,
    /// Whether plain pops are read here, for whoever feeds to decide ([`pops::Pop`]).
    pub pops: bool,
    /// What need not be safe before its answer leaves.
    pub unwaited: Unwaited,
}

impl Popping {
    /// Whether a request is of a kind that the ingest of the handlers' thread may answer where others
    /// left it: pops, since only that thread knows how far groups are and has checkpoints in memory, and
    /// what settles messages, which kept its turn behind a pop.
    pub fn is_for_processors(&self, code: i32) -> bool {
        self.pops && matches!(code, POP | ACK | BATCH_ACK | CHANGE)
    }
}

/// Which records wait for no flush and no slave, whatever sends do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwaited {
    /// Those of acknowledgements.
    pub acks: bool,
    /// Those of pops.
    pub checkpoints: bool,
}

/// Plain acknowledgements of one checkpoint, for whoever has it in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The topic that the messages lie in.
    pub topic: String,
    /// The group that popped them.
    pub group: String,
    /// Their queue.
    pub queue_id: i32,
    /// Start of the checkpoint.
    pub start_offset: i64,
    /// When they were popped, Unix milliseconds.
    pub pop_time_ms: i64,
    /// Queue offsets of the messages, in the order of the requests.
    pub offsets: Vec<i64>,
    /// Correlation numbers of the requests: one for each message, or one of a batch.
    pub opaques: Vec<i32>,
    /// Whether all of it is one request, a batch: it is settled whole or not at all.
    pub is_batch: bool,
    /// The requests, for the handlers: the checkpoint may not be there.
    pub frames: Vec<u8>,
}

impl Ingest {
    /// The answers to acknowledgements that were settled in memory, `took` after they came;
    /// `is_batch` says that they are batches.
    pub fn merged(&mut self, opaques: &[i32], is_batch: bool, took: Duration) -> Vec<u8> {
        let shared = Arc::clone(&self.shared);
        let table = shared.read();
        let mut replies = Vec::new();
        let code = if is_batch { BATCH_ACK } else { ACK };
        for opaque in opaques {
            let settled = Settled::ack(code, *opaque);
            settled.answer(&table.state, took, &mut self.ledger, &mut replies);
        }
        replies
    }

    /// Messages for a pop that was decided; `None` leaves it to the handlers, and nothing has
    /// changed.
    pub fn give(&mut self, store: &Store, wish: &Wish<'_>) -> Option<Given> {
        self.give_shown(store, wish, None)
    }

    /// The same for another front, which shows messages in its own form.
    pub fn give_shown(
        &mut self,
        store: &Store,
        wish: &Wish<'_>,
        show: Option<Show<'_>>,
    ) -> Option<Given> {
        let shared = Arc::clone(&self.shared);
        let table = shared.read();
        if !pops::covers(&table, wish.topic, wish.group) {
            return None;
        }
        give::give(&table.state, store, wish, &mut self.ledger, show)
    }
}
