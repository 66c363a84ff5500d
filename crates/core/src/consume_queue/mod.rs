//! Consume queues: for every topic and queue id the list of where its messages are in the log
//! (spec: store §5.1).
//!
//! A queue is a sequence of sparse files of equal length that hold 20-byte units; the unit of queue
//! offset `q` is at byte `20 q` over the whole sequence. Units are derived from the log, so they are
//! written late and in blocks, served from memory meanwhile, and made durable by
//! [`ConsumeQueues::sync`] only; whoever recovers dispatches the log again from its checkpoint.
//!
//! Only the last two files of a queue can hold units that are not durable: before a third one is
//! made, the older ones are synced. Loading therefore looks for damage in the last three files.
//!
//! That is one form of queues ([`FileQueues`]). The store uses them through [`ConsumeQueues`], which
//! takes any other [`QueueStore`] as well.

mod audit;
mod files;
pub mod light_queues;
mod load;
mod queue;
mod queue_store;
mod queues;
mod time;
mod upkeep;

pub(crate) use files::check_topic;
pub use files::FileQueues;
pub use queue_store::{QueueStore, UnitPut};
pub use queues::ConsumeQueues;

/// Bytes of one unit.
pub const UNIT_SIZE: u64 = 20;

/// Size that marks a unit which stands for no message.
const FILLER_SIZE: u32 = 0x7FFF_FFFF;

/// Where one message is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// First byte of the record in the commit log.
    pub physical_offset: u64,
    /// Length of the record in bytes.
    pub size: u32,
    /// Hash of the tags, or what else the topic keeps here (delivery time of a delayed message).
    pub tags_code: i64,
}

impl Unit {
    /// What fills queue offsets that have no message.
    pub const FILLER: Self = Self {
        physical_offset: 0,
        size: FILLER_SIZE,
        tags_code: 0,
    };

    /// Stands in memory for a place in a file where no unit is: damage, or a page that is lost.
    pub(crate) const LOST: Self = Self {
        physical_offset: u64::MAX,
        size: 0,
        tags_code: 0,
    };

    /// First byte after the record in the commit log.
    pub fn end(&self) -> u64 {
        self.physical_offset.saturating_add(u64::from(self.size))
    }

    /// Whether the unit stands for no message; readers step over it.
    pub fn is_filler(&self) -> bool {
        *self == Self::FILLER || self.is_lost()
    }

    /// Whether the file has no unit there.
    pub(crate) fn is_lost(&self) -> bool {
        *self == Self::LOST
    }

    /// The unit as it is on disk.
    pub fn encode(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        let (phy, rest) = bytes.split_at_mut(8);
        let (size, tags) = rest.split_at_mut(4);
        phy.copy_from_slice(&self.physical_offset.to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        tags.copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// The unit at the start of `bytes`; `None` when there is none (too short, no size, or negative).
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (phy, rest) = bytes.split_first_chunk::<8>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let (tags, _) = rest.split_first_chunk::<8>()?;
        let physical_offset = u64::from_be_bytes(*phy);
        let size = u32::from_be_bytes(*size);
        let positive = size > 0 && size <= FILLER_SIZE && i64::try_from(physical_offset).is_ok();
        positive.then_some(Self {
            physical_offset,
            size,
            tags_code: i64::from_be_bytes(*tags),
        })
    }
}
