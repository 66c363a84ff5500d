//! What the ingest keeps of each connection: its peer's address and the bytes not yet used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::accounts::{Accounts, ACCESS_KEY};
use super::long_polling::Held;
use super::table::Table;
use super::{FeedResult, Ingest};
use crate::codec::command::{Encoding, Header};
use crate::codec::frame::Frame;
use crate::codec::host;
use crate::store::Store;

/// What is known of whoever sent the start of a frame. The signature is over the whole frame, so
/// that the frame itself proves nothing before its last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nobody needs an account, or an account was proven on this connection before.
    #[default]
    Proven,
    /// The frame's header names an account.
    Named,
    /// The header names none, or is not there yet.
    Nameless,
}

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
    /// Whether everything of it is for the handlers.
    pub(super) passing: bool,
    /// Whether the handlers have frames of it: no pull is answered before they are done.
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
#[allow(clippy::struct_excessive_bools)] // Facts that do not depend on one another.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) pulls: bool,
    /// Bytes received and not used: the start of a frame.
    pub(super) kept: Vec<u8>,
    /// Whether everything is for the handlers until they have finished what they have.
    pub(super) passing: bool,
    /// Whether the handlers, on another thread, have frames of it.
    pub(super) busy: bool,
    /// Whether a request on it was signed by an account that may do what it asked for.
    pub(super) proven: bool,
    /// Whether the header of the frame in `kept` names an account, once that is known.
    pub(super) named: Option<bool>,
}

impl Connection {
    /// What is known of the peer by what is kept. A header is read once, however slowly it comes.
    pub(super) fn standing(&mut self, accounts: &Accounts) -> Standing {
        if self.proven || accounts.trusts(self.peer.host()) {
            return Standing::Proven;
        }
        if self.named.is_none() {
            let found = start_of(&self.kept);
            self.named = found.map(|header| {
                header
                    .get(ACCESS_KEY)
                    .is_some_and(|key| accounts.knows(key))
            });
        }
        match self.named {
            Some(true) => Standing::Named,
            _ => Standing::Nameless,
        }
    }
}

/// What one ingest knows of a connection that another feeds from then on.
#[derive(Debug, Default)]
pub struct Handed {
    /// The start of a frame, which is to be fed as if it were read now.
    pub kept: Vec<u8>,
    /// Whether everything was for the handlers until they have finished what they had.
    passing: bool,
    proven: bool,
    /// In the order in which they came.
    pulls: Vec<Held>,
}

/// The header of the frame that begins with `bytes`; `None` while it is not whole, and for one that
/// cannot be read, which the end of the frame shows.
fn start_of(bytes: &[u8]) -> Option<Header<'_>> {
    let (_, rest) = bytes.split_first_chunk::<4>()?;
    let ([encoding, high, middle, low], rest) = rest.split_first_chunk::<4>()?;
    let size = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
    let frame = Frame {
        encoding: Encoding::from_code(*encoding)?,
        header: rest.get(..size)?,
        body: &[],
        size: 0,
    };
    frame.decode_header().ok()
}

impl Ingest {
    /// Notes what one read has shown of a peer; `most` is what is kept when nothing was used.
    pub(super) fn judge(&mut self, table: &Table, key: u64, most: usize, fed: &mut FeedResult) {
        let (Some(accounts), Some(connection)) = (&table.accounts, self.connections.get_mut(&key))
        else {
            return;
        };
        connection.proven |= fed.proven;
        if fed.held != most {
            // What is kept begins with another frame.
            connection.named = None;
        }
        fed.standing = connection.standing(accounts);
    }

    /// Hears that an account was proven on a connection, by a request that the handlers got.
    pub fn prove(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.proven = true;
        }
    }

    /// Forgets a connection to which no answer is owed ([`Ingest::owes`]), for another ingest.
    pub fn hand_over(&mut self, key: u64) -> Handed {
        debug_assert!(
            !self.owes(key),
            "its answer would come where nobody knows it"
        );
        let connection = self.connections.remove(&key).unwrap_or_default();
        let pulls = self.holds.take_connection(key);
        self.sum_up();
        Handed {
            kept: connection.kept,
            passing: connection.passing,
            proven: connection.proven,
            pulls,
        }
    }

    /// Goes on with a connection that was opened here and that another ingest has handed over.
    /// `works` says that the handlers have requests of it in hand, `waits` that they are still to
    /// get some: these come before whatever is read next. True when held pulls are due.
    pub fn take_over(
        &mut self,
        store: &Store,
        key: u64,
        handed: Handed,
        (works, waits): (bool, bool),
    ) -> bool {
        let connection = self.connections.entry(key).or_default();
        connection.passing |= waits || (works && handed.passing);
        connection.proven |= handed.proven;
        for held in handed.pulls {
            let max = store.queues().max(&held.topic, held.queue_id);
            let max = i64::try_from(max).unwrap_or(i64::MAX);
            self.holds.take_over(held, max);
        }
        self.sum_up();
        store.set_awaited(self.shared.is_awaited());
        self.has_due()
    }

    /// What is known of whoever sent the bytes that are kept for a connection.
    pub fn standing(&mut self, key: u64) -> Standing {
        let shared = Arc::clone(&self.shared);
        let table = shared.read();
        let (Some(accounts), Some(connection)) = (&table.accounts, self.connections.get_mut(&key))
        else {
            return Standing::Proven;
        };
        connection.standing(accounts)
    }
}
