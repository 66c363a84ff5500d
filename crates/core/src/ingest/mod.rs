//! The fast path: received bytes to answers for the frames that the admission table covers.
//!
//! Everything else comes out as decoded frames, in order (architecture §3, §3a). Nothing here waits:
//! a log that somebody else is writing to, and anything that is not plain, is left to the
//! processors, which do the same work with all the rules.

pub mod accounts;
pub mod answered;
pub mod books;
mod connection;
mod holds;
pub mod output;
mod parked;
pub mod pull;
mod pulls;
pub mod scan;
pub mod send;
mod sends;
pub mod table;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::codec_error::CodecError;
use crate::command::{Header, FLAG_RESPONSE};
use crate::frame::{self, Frame};
use crate::store::Store;
use answered::{Kind, Took};
use books::Ledger;
pub use books::Stored;
use connection::{Connection, Peer, Source};
use holds::Holds;
use output::Output;
pub use parked::Outbound;
use parked::{Late, Waiting};
pub use pulls::Left;
use pulls::Pulls;
use sends::{Refused, Sends};
use table::{Flush, Table};

/// What came of one read.
#[derive(Debug, Default)]
pub struct Fed {
    /// Answers to write now.
    pub replies: Output,
    /// Bytes kept for the connection: the start of a frame.
    pub held: usize,
    /// Whether everything of this connection is for the processors until [`Ingest::idle`].
    pub passing: bool,
    /// Why the connection must be closed.
    pub broken: Option<CodecError>,
    /// Whether the caller has to flush the store, which nobody else has been asked for, and to tell
    /// [`Ingest::flushed`]: there is one sender, who waits for it.
    pub flush: bool,
}

/// Counts of what the fast path did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends stored.
    pub sends: u64,
    /// Half messages among them.
    pub halves: u64,
    /// Pulls answered.
    pub pulls: u64,
    /// Pulls that had to wait.
    pub held: u64,
    /// Frames given to the processors.
    pub passed: u64,
    /// Admitted sends given to the processors after all, because the log was busy or refused.
    pub returned: u64,
    /// Answers that waited for a flush.
    pub parked: u64,
    /// Sends refused because too many answers waited.
    pub refused: u64,
    /// Syncs that were left to whoever fed the only sender.
    pub synced: u64,
}

/// The fast path of one listening port. Not for two threads at once.
#[derive(Debug)]
pub struct Ingest {
    table: Table,
    barrier: HashSet<i32>,
    frame_size_max: usize,
    connections: HashMap<u64, Connection>,
    waiting: Waiting,
    holds: Holds,
    ledger: Ledger,
    /// A buffer that may be used again.
    spare: Output,
    /// The same for records about to be stored.
    room: Vec<u8>,
}

/// Takes the frames that the processors get.
pub type Sink<'s> = &'s mut dyn FnMut(&Frame<'_>, &Header<'_>);

impl Ingest {
    /// Begins with an empty table, that is, with every frame for the processors. `seed` spreads
    /// the deadlines of held pulls.
    pub fn new(frame_size_max: usize, seed: u64) -> Self {
        Self {
            table: Table::default(),
            barrier: HashSet::new(),
            frame_size_max,
            connections: HashMap::new(),
            waiting: Waiting::default(),
            holds: Holds::new(seed),
            ledger: Ledger::default(),
            spare: Output::default(),
            room: Vec::new(),
        }
    }

    /// The table, to be changed between two reads.
    pub fn table(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Codes of requests that nothing of their connection may overtake when they are not admitted.
    pub fn set_barrier(&mut self, codes: HashSet<i32>) {
        self.barrier = codes;
    }

    /// Knows a new connection, its peer's address, and whether its port serves pulls.
    pub fn open(&mut self, key: u64, host: &[u8], pulls: bool) {
        let connection = self.connections.entry(key).or_default();
        connection.peer = Peer::new(host);
        connection.pulls = pulls;
    }

    /// Forgets a connection and its held pulls; answers that wait for a flush are dropped when
    /// their turn comes.
    pub fn close(&mut self, key: u64) {
        self.connections.remove(&key);
        self.holds.drop_connection(key);
    }

    /// Bytes kept for a connection.
    pub fn held(&self, key: u64) -> usize {
        self.connections
            .get(&key)
            .map_or(0, |connection| connection.kept.len())
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    /// Answers that wait for a flush.
    pub fn parked(&self) -> usize {
        self.waiting.len()
    }

    /// Pulls that wait for a message.
    pub fn held_pulls(&self) -> usize {
        self.holds.len()
    }

    /// Hears how many pulls wait elsewhere, which count towards the same bound.
    pub fn set_held_beside(&mut self, store: &Store, count: usize) {
        self.holds.beside = count;
        store.set_awaited(self.holds.len() + count > 0);
    }

    /// Hears how far a queue has grown: pulls that wait for it are due.
    pub fn arrived(&mut self, topic: &str, queue_id: i32, max_offset: i64) {
        self.holds.arrived(topic, queue_id, max_offset);
    }

    /// Whether [`Self::serve`] has anything to do.
    pub fn has_due(&self) -> bool {
        self.holds.has_due()
    }

    /// Serves the held pulls that are due while `spare` says that there is time; those that the
    /// table no longer covers go to `left`.
    pub fn serve(
        &mut self,
        store: &Store,
        now_ms: i64,
        spare: &mut dyn FnMut() -> bool,
        left: Left<'_>,
    ) -> Vec<Outbound> {
        let mut pulls = Pulls {
            table: &self.table,
            store,
            holds: &mut self.holds,
            ledger: &mut self.ledger,
        };
        let out = pulls.serve(now_ms, spare, left);
        store.set_awaited(self.holds.len() + self.holds.beside > 0);
        out
    }

    /// Takes what pulls came to since the last call.
    pub fn take_pulled(&mut self) -> Vec<books::Line> {
        self.ledger.books.take()
    }

    /// Takes what was stored since the last call.
    pub fn take_stored(&mut self) -> Stored {
        std::mem::take(&mut self.ledger.stored)
    }

    /// Takes how many half messages were stored since the last call.
    pub fn take_halves(&mut self) -> books::Halves {
        std::mem::take(&mut self.ledger.halves)
    }

    /// Takes how long answers took since the last call.
    pub fn take_answered(&mut self) -> Vec<(Kind, Took)> {
        self.ledger.answered.take()
    }

    /// Takes what a connection received.
    pub fn feed(
        &mut self,
        store: &Store,
        key: u64,
        data: &[u8],
        now_ms: i64,
        sink: Sink<'_>,
    ) -> Fed {
        let replies = std::mem::take(&mut self.spare);
        let sends = self.ledger.counters.sends;
        let connection = self.connections.entry(key).or_default();
        let from = Source {
            key,
            peer: connection.peer,
            pulls: connection.pulls,
            passing: connection.passing,
            now_ms,
            began: Instant::now(),
        };
        if connection.kept.is_empty() {
            let (mut fed, used) = self.run(store, from, data, replies, sink);
            fed.flush = self.flushes_here(store, key, sends);
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.passing = fed.passing;
                // Grows with the bytes received, never with the length that a peer declares.
                connection
                    .kept
                    .extend_from_slice(data.get(used..).unwrap_or_default());
                fed.held = connection.kept.len();
            }
            return fed;
        }
        connection.kept.extend_from_slice(data);
        let mut kept = std::mem::take(&mut connection.kept);
        let (mut fed, used) = self.run(store, from, &kept, replies, sink);
        fed.flush = self.flushes_here(store, key, sends);
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.passing = fed.passing;
            if used < kept.len() {
                kept.drain(..used);
                connection.kept = kept;
            }
            fed.held = connection.kept.len();
        }
        fed
    }

    /// Whether the caller flushes what a connection has sent; the flush thread does otherwise.
    fn flushes_here(&mut self, store: &Store, key: u64, sends_before: u64) -> bool {
        if self.ledger.counters.sends == sends_before {
            return false;
        }
        let here = self.table.state.flush == Flush::Here && self.waiting.is_alone(key);
        if here {
            self.ledger.counters.synced += 1;
        } else {
            store.want_flush();
        }
        here
    }

    /// Takes written answers back, for the room that they took.
    pub fn recycle(&mut self, mut replies: Output) {
        replies.clear();
        self.spare = replies;
    }

    /// Hears that the processors have finished everything they got of a connection.
    pub fn idle(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.passing = false;
        }
    }

    /// The answers that a flush up to `offset` allows.
    pub fn flushed(&mut self, offset: u64, now_ms: i64) -> Vec<Outbound> {
        let (waiting, mut replies) = self.late(now_ms);
        waiting.flushed(offset, &mut replies);
        replies.out
    }

    /// The answers that copies on slaves up to `offset` allow.
    pub fn replicated(&mut self, offset: u64, now_ms: i64) -> Vec<Outbound> {
        let (waiting, mut replies) = self.late(now_ms);
        waiting.replicated(offset, &mut replies);
        replies.out
    }

    /// The answers to sends that end at or before `offset` and still wait for a copy: no slave that
    /// is connected can prove one any more.
    pub fn lapse(&mut self, offset: u64, now_ms: i64) -> Vec<Outbound> {
        let (waiting, mut replies) = self.late(now_ms);
        waiting.lapse(offset, &mut replies);
        replies.out
    }

    /// The answers that have waited too long; held pulls whose time is over are due.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Outbound> {
        self.holds.expire(now_ms);
        let (waiting, mut replies) = self.late(now_ms);
        waiting.expire(&mut replies);
        replies.out
    }

    /// Refuses every send that waits: there will be no flush.
    pub fn fail(&mut self, remark: &str, now_ms: i64) -> Vec<Outbound> {
        let (waiting, mut replies) = self.late(now_ms);
        waiting.fail(remark, &mut replies);
        replies.out
    }

    /// What waits, and where its answers go.
    fn late(&mut self, now_ms: i64) -> (&mut Waiting, Late<'_>) {
        let late = Late {
            state: &self.table.state,
            connections: &self.connections,
            ledger: &mut self.ledger,
            now_ms,
            out: Vec::new(),
        };
        (&mut self.waiting, late)
    }

    /// Works through whole frames; returns what came of it and how many bytes were used.
    fn run(
        &mut self,
        store: &Store,
        from: Source,
        bytes: &[u8],
        replies: Output,
        sink: Sink<'_>,
    ) -> (Fed, usize) {
        let Self {
            table,
            barrier,
            waiting,
            holds,
            ledger,
            frame_size_max,
            room,
            ..
        } = self;
        let on = table.is_on();
        let trusted = table.trusts(from.peer);
        let mut fed = Fed {
            passing: from.passing,
            replies,
            ..Fed::default()
        };
        let mut sends = Sends::new(table, from, std::mem::take(room));
        let mut used = 0;
        let mut passed = false;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let (frame, header) = match next(rest, *frame_size_max) {
                Ok(Some(read)) => read,
                Ok(None) => break,
                Err(error) => {
                    fed.broken = Some(error);
                    break;
                }
            };
            let whole = rest.get(..frame.size).unwrap_or_default();
            used += frame.size;
            let admits = on && !fed.passing && header.flag & FLAG_RESPONSE == 0;
            // Codes of the barrier that are not permitted are one nevertheless.
            let permitted = admits && table.permits(&header, frame.body, trusted, from.peer);
            let mut refused = Refused {
                replies: fed.replies.bytes(),
                ledger,
            };
            if permitted && sends.take(&frame, &header, waiting.len(), &mut refused) {
                continue;
            }
            // Behind a frame for the processors, whose offsets it may read or move, it keeps its turn.
            if permitted && from.pulls && !passed {
                let mut pulls = Pulls {
                    table,
                    store,
                    holds,
                    ledger,
                };
                if pulls.take(&header, whole, from, &mut fed.replies) {
                    continue;
                }
            }
            if admits && barrier.contains(&header.code) {
                // What came before is in the log before the processors hear of it, and what comes
                // behind takes the same way, so that nothing overtakes it.
                let replies = fed.replies.bytes();
                sends.commit(store, waiting, ledger, replies, &mut *sink);
                fed.passing = true;
            }
            ledger.counters.passed += 1;
            passed = true;
            sink(&frame, &header);
        }
        let replies = fed.replies.bytes();
        fed.passing |= sends.commit(store, waiting, ledger, replies, &mut *sink);
        *room = sends.into_room();
        (fed, used)
    }
}

/// Reads the frame at the start of `bytes`; `None` when more are needed.
fn next(
    bytes: &[u8],
    frame_size_max: usize,
) -> Result<Option<(Frame<'_>, Header<'_>)>, CodecError> {
    match frame::cut(bytes, frame_size_max)? {
        None => Ok(None),
        Some(frame) => frame.decode_header().map(|header| Some((frame, header))),
    }
}
