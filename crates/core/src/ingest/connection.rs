//! What the ingest keeps of each connection: its peer's address and the bytes not yet used.

use crate::host;

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
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) key: u64,
    pub(super) peer: Peer,
    /// Whether its port serves pulls.
    pub(super) pulls: bool,
    /// Unix milliseconds.
    pub(super) now_ms: i64,
}

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) pulls: bool,
    /// Bytes received and not used, from `start` on.
    pub(super) kept: Vec<u8>,
    pub(super) start: usize,
    /// Whether nothing is looked at until `resume`.
    pub(super) stopped: bool,
}

impl Connection {
    pub(super) fn held(&self) -> usize {
        self.kept.len() - self.start
    }

    /// Keeps what was not used of bytes that are the kept ones themselves.
    pub(super) fn put_back(&mut self, kept: Vec<u8>, used: usize) {
        self.kept = kept;
        self.start = used;
        if self.start >= self.kept.len() {
            self.kept = Vec::new();
            self.start = 0;
        } else if self.start > self.kept.len() / 2 {
            self.kept.drain(..self.start);
            self.start = 0;
        }
    }
}
