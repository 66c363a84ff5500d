//! POP on the fast path: what the table says about it, and the acknowledgements of a read.

pub(super) mod acks;

/// ACK_MESSAGE.
pub const ACK: i32 = 200_051;

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
    /// Whether checkpoints are in the memory of whoever feeds: acknowledgements are read here and
    /// settled there ([`Merge`]).
    pub merges: bool,
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
    /// Correlation numbers of the requests.
    pub opaques: Vec<i32>,
    /// The requests, for the processors: the checkpoint may not be there.
    pub frames: Vec<u8>,
}
