//! A log copied from one broker to another by threads of its own: one for each connection, from file
//! to socket on the master, from socket to file on the slave (spec: ha §1).
//!
//! `feed` and `copier` hold the rules, without socket and clock; `feeder` and `follower` are the
//! threads, over plain sockets (`wire`) or TLS (`tls`, `session`). Who may connect, and from where a
//! slave gets the log, is decided by whoever starts them: until then a thread only carries what the
//! peers say to each other (`greeting`).
//!
//! Invariants:
//! - no byte of the log leaves, and none is appended, before the owner has said [`link::Link::begin`];
//! - over TLS nothing is handed to the owner, and nothing of it is sent, before the peer's
//!   certificate was checked;
//! - what is kept for a peer that does not read is bounded, encrypted or not.

pub mod copier;
pub mod feed;
pub mod feeder;
pub mod follower;
mod greeting;
pub mod link;
mod session;
pub mod tls;
pub mod wire;

use crate::store::error::StoreError;

/// Milliseconds between two looks at the clock while the peer reads nothing: what is due by then
/// has to wait for the peer.
const FULL: u64 = 100;

/// Why a connection has to end; the text goes on from "the peer".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(error.text)
    }
}
