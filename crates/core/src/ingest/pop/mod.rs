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
    /// The longest time that the timer wheel takes, in milliseconds.
    pub delay_max_ms: i64,
    /// Its step, in milliseconds.
    pub precision_ms: i64,
}
