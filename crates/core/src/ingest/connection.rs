//! What the ingest keeps of each connection: its peer's address and the bytes not yet used.

use std::time::{Duration, Instant};

use crate::codec::host;

/// A peer's address in the form of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    bytes: [u8; host::V6_SIZE],
    size: usize,
}

impl Peer {
    /// Takes 8 or 20 bytes; other lengths give an address that is not known.
    pub(super) fn new(host: &[u8]) -> Self {
        let mut peer = Self::default();
        if host.len() == host::V4_SIZE || host.len() == host::V6_SIZE {
            if let Some(place) = peer.bytes.get_mut(..host.len()) {
                place.copy_from_slice(host);
                peer.size = host.len();
            }
        }
        peer
    }

    /// The address; `None` when it is not known.
    pub(super) fn host(&self) -> Option<&[u8]> {
        self.bytes.get(..self.size).filter(|host| !host.is_empty())
    }
}

/// Where the bytes of one read come from, and when.
#[allow(clippy::struct_excessive_bools)] // Facts that do not depend on one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) key: u64,
    pub(super) peer: Peer,
    /// Whether its port serves pulls.
    pub(super) pulls: bool,
    /// Whether everything of it is for the processors.
    pub(super) passing: bool,
    /// Whether the processors have frames of it: no pull is answered before they are done.
    pub(super) busy: bool,
    /// Whether an append may wait for another writer.
    pub(super) patient: bool,
    /// Unix milliseconds.
    pub(super) now_ms: i64,
    /// When work on them began.
    pub(super) began: Instant,
}

impl Source {
    /// How long they have been worked on.
    pub(super) fn took(&self) -> Duration {
        self.began.elapsed()
    }
}

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) pulls: bool,
    /// Bytes received and not used: the start of a frame.
    pub(super) kept: Vec<u8>,
    /// Whether everything is for the processors until they have finished what they have.
    pub(super) passing: bool,
    /// Whether the processors, on another thread, have frames of it.
    pub(super) busy: bool,
}
