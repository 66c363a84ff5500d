//! One entry of an index file, and the hash of a key.

use super::header::{int, long};
use crate::java_hash;

/// Bytes of an entry.
pub(super) const ENTRY_SIZE: usize = 20;

/// One key of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: i32,
    pub(super) phy: i64,
    /// Seconds since the begin time of the file.
    pub(super) seconds: i32,
    /// Number of the entry before in the same slot; 0 for none.
    pub(super) previous: i32,
}

impl Entry {
    pub(super) fn encode(&self) -> [u8; ENTRY_SIZE] {
        let mut bytes = [0; ENTRY_SIZE];
        let (hash, rest) = bytes.split_at_mut(4);
        let (phy, rest) = rest.split_at_mut(8);
        let (seconds, previous) = rest.split_at_mut(4);
        hash.copy_from_slice(&self.hash.to_be_bytes());
        phy.copy_from_slice(&self.phy.to_be_bytes());
        seconds.copy_from_slice(&self.seconds.to_be_bytes());
        previous.copy_from_slice(&self.previous.to_be_bytes());
        bytes
    }

    /// Reads the entry at the start of `bytes`; missing bytes count as zero.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        Self {
            hash: int(bytes),
            phy: long(bytes.get(4..).unwrap_or_default()),
            seconds: int(bytes.get(12..).unwrap_or_default()),
            previous: int(bytes.get(16..).unwrap_or_default()),
        }
    }
}

/// Hash of a key of a topic: `<topic>#<key>`, never negative.
pub(crate) fn key_hash(topic: &str, key: &[u8]) -> i32 {
    let mut text = Vec::with_capacity(topic.len() + 1 + key.len());
    text.extend_from_slice(topic.as_bytes());
    text.push(b'#');
    text.extend_from_slice(key);
    java_hash::hash(&text).checked_abs().unwrap_or(0)
}

/// Seconds from `begin` to `time` as an entry holds them.
pub(super) fn seconds_between(begin: i64, time: i64) -> i32 {
    if begin <= 0 {
        return 0;
    }
    let seconds = time.saturating_sub(begin) / 1000;
    i32::try_from(seconds.max(0)).unwrap_or(i32::MAX)
}
