//! The fast path: received bytes to answers for the frames that the admission table covers.
//!
//! Everything else comes out as decoded frames, in order (architecture §3, §3a). Nothing here waits:
//! a log that somebody else is writing to, and anything that is not plain, is left to the
//! handlers, which do the same work with all the rules.

pub mod accounts;
pub mod answered;
pub mod books;
mod connection;
mod long_polling;
pub mod output;
mod parked;
pub mod pop;
pub mod pull;
mod pulls;
pub mod scan;
pub mod send;
mod sends;
pub mod table;

use std::collections::HashMap;
use std::sync::{Arc, RwLockWriteGuard};
use std::time::Instant;

use crate::codec::command::{Header, FLAG_RESPONSE};
use crate::codec::error::CodecError;
use crate::codec::frame::{self, Frame};
use crate::store::Store;
use answered::{Kind, Took};
use books::Ledger;
pub use books::{Counters, Stored};
use connection::{Connection, Peer, Source};
pub use connection::{Handed, Standing};
use long_polling::LongPolling;
use output::Output;
pub use parked::Outbound;
use parked::{Late, Waiting};
use pop::acks::Acks;
use pop::pops::Pop;
use pop::Merge;
pub use pulls::Left;
use pulls::Pulls;
pub use sends::{Read, Together};
use sends::{Refused, Sends};
pub use table::Shared;
use table::{Flush, Table};

/// What came of one read.
#[derive(Debug, Default)]
pub struct FeedResult {
    /// Answers to write now.
    pub replies: Output,
    /// Bytes kept for the connection: the start of a frame.
    pub held: usize,
    /// What is known of whoever sent them.
    pub standing: Standing,
    proven: bool,
    /// Whether everything of this connection is for the handlers until [`Ingest::idle`].
    pub passing: bool,
    /// Why the connection must be closed.
    pub broken: Option<CodecError>,
    /// Whether the caller has to flush the store, which nobody else has been asked for, and to tell
    /// [`Ingest::flushed`]: there is one sender, who waits for it.
    pub flush: bool,
    /// Acknowledgements that the caller settles in memory, before anything else.
    pub merges: Vec<Merge>,
    /// Pops that the caller decides about behind these ([`Ingest::give`]).
    pub pops: Vec<Pop>,
}

/// The fast path of one thread's connections. Not for two threads at once.
#[derive(Debug)]
pub struct Ingest {
    /// What all ingests of a process have in common: the table above all.
    shared: Arc<Shared>,
    /// Whether the handlers are on another thread, and so an append may wait.
    apart: bool,
    /// What of `waiting` and `holds` is in the common sums.
    summed: table::Sums,
    frame_size_max: usize,
    connections: HashMap<u64, Connection>,
    waiting: Waiting,
    holds: LongPolling,
    ledger: Ledger,
    /// A buffer that may be used again.
    spare: Output,
    /// The same for records about to be stored.
    room: Vec<u8>,
}

/// Takes the frames that the handlers get.
pub type Sink<'s> = &'s mut dyn FnMut(&Frame<'_>, &Header<'_>);

impl Ingest {
    /// Begins with an empty table, that is, with every frame for the handlers. `seed` spreads
    /// the deadlines of held pulls.
    pub fn new(frame_size_max: usize, seed: u64) -> Self {
        Self::sharing(Arc::default(), frame_size_max, seed, false)
    }

    /// As [`Self::new`], by a table that others use as well. `apart` says that the handlers are
    /// on another thread: then [`Self::set_busy`] tells when they have frames.
    pub fn sharing(shared: Arc<Shared>, frame_size_max: usize, seed: u64, apart: bool) -> Self {
        Self {
            shared,
            apart,
            summed: table::Sums::default(),
            frame_size_max,
            connections: HashMap::new(),
            waiting: Waiting::default(),
            holds: LongPolling::new(seed),
            ledger: Ledger::default(),
            spare: Output::default(),
            room: Vec::new(),
        }
    }

    /// The table, to be changed: no ingest that shares it judges a frame meanwhile.
    pub fn table(&self) -> RwLockWriteGuard<'_, Table> {
        self.shared.write()
    }

    /// Knows a new connection, its peer's address, and whether its port serves pulls.
    pub fn open(&mut self, key: u64, host: &[u8], pulls: bool) {
        let connection = self.connections.entry(key).or_default();
        connection.peer = Peer::new(host);
        connection.pulls = pulls;
    }

    /// Forgets a connection and its held pulls; answers that wait are dropped in their turn.
    pub fn close(&mut self, key: u64) {
        self.connections.remove(&key);
        self.holds.drop_connection(key);
        self.sum_up();
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
        self.shared.set_beside(count);
        store.set_awaited(self.shared.is_awaited());
    }

    /// Looks at the queues of all held pulls: while none was held, nobody told of their growth.
    pub fn look_again(&mut self, store: &Store) {
        let max = |topic: &str, queue_id| {
            i64::try_from(store.queues().max(topic, queue_id)).unwrap_or(i64::MAX)
        };
        self.holds.look_again(max);
    }

    /// Hears whether the handlers, on another thread, have frames of a connection.
    pub fn set_busy(&mut self, key: u64, busy: bool) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.busy = busy;
            connection.passing &= busy;
        }
    }

    /// Whether an answer to a connection waits for a flush or a copy.
    pub fn owes(&self, key: u64) -> bool {
        self.waiting.has(key)
    }

    /// Enters what is held and parked here into the common sums.
    fn sum_up(&mut self) {
        let now = table::Sums {
            held: self.holds.len(),
            parked: self.waiting.len(),
        };
        if now != self.summed {
            self.shared.changed(self.summed, now);
            self.summed = now;
        }
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
        let shared = Arc::clone(&self.shared);
        let table = shared.read();
        let mut pulls = Pulls {
            table: &table,
            store,
            holds: &mut self.holds,
            ledger: &mut self.ledger,
        };
        let out = pulls.serve(now_ms, spare, left);
        self.sum_up();
        store.set_awaited(self.shared.is_awaited());
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
    ) -> FeedResult {
        let shared = Arc::clone(&self.shared);
        // Held until the answers are made: a change of the table waits for that.
        let table = shared.read();
        let before = self.held(key);
        let mut fed = self.feed_by(&table, store, (key, now_ms), data, sink);
        self.judge(&table, key, before + data.len(), &mut fed);
        self.sum_up();
        fed
    }

    fn feed_by(
        &mut self,
        table: &Table,
        store: &Store,
        (key, now_ms): (u64, i64),
        data: &[u8],
        sink: Sink<'_>,
    ) -> FeedResult {
        let replies = std::mem::take(&mut self.spare);
        let sends = self.ledger.counters.sends;
        self.holds.beside = self.shared.held_beside(self.summed);
        let connection = self.connections.entry(key).or_default();
        let from = Source {
            key,
            peer: connection.peer,
            pulls: connection.pulls,
            passing: connection.passing,
            busy: connection.busy,
            patient: self.apart,
            now_ms,
            began: Instant::now(),
        };
        if connection.kept.is_empty() {
            let (mut fed, used) = self.run(table, store, from, data, replies, sink);
            fed.flush = self.flushes_here(table, store, key, sends);
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
        let (mut fed, used) = self.run(table, store, from, &kept, replies, sink);
        fed.flush = self.flushes_here(table, store, key, sends);
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
    fn flushes_here(&mut self, table: &Table, store: &Store, key: u64, sends_before: u64) -> bool {
        if self.ledger.counters.sends == sends_before {
            return false;
        }
        let alone = self.shared.parked_beside(self.summed) == 0;
        let here = alone && table.state.flush == Flush::Here && self.waiting.is_alone(key);
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

    /// Hears that the handlers have finished everything they got of a connection.
    pub fn idle(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.passing = false;
        }
    }

    /// The answers that a flush up to `offset` allows.
    pub fn flushed(&mut self, offset: u64, now_ms: i64) -> Vec<Outbound> {
        self.late(now_ms, |waiting, late| waiting.flushed(offset, late))
    }

    /// The answers that copies on slaves up to `offset` allow.
    pub fn replicated(&mut self, offset: u64, now_ms: i64) -> Vec<Outbound> {
        self.late(now_ms, |waiting, late| waiting.replicated(offset, late))
    }

    /// The answers to sends that end at or before `offset` and still wait for a copy: no slave that
    /// is connected can prove one any more.
    pub fn lapse(&mut self, offset: u64, now_ms: i64) -> Vec<Outbound> {
        self.late(now_ms, |waiting, late| waiting.lapse(offset, late))
    }

    /// The answers that have waited too long; held pulls whose time is over are due.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Outbound> {
        self.holds.expire(now_ms);
        self.late(now_ms, Waiting::expire)
    }

    /// Refuses every send that waits: there will be no flush.
    pub fn fail(&mut self, remark: &str, now_ms: i64) -> Vec<Outbound> {
        self.late(now_ms, |waiting, late| waiting.fail(remark, late))
    }

    /// Has `work` answer what waits; returns the answers.
    fn late(
        &mut self,
        now_ms: i64,
        work: impl FnOnce(&mut Waiting, &mut Late<'_>),
    ) -> Vec<Outbound> {
        let shared = Arc::clone(&self.shared);
        let table = shared.read();
        let mut late = Late {
            state: &table.state,
            connections: &self.connections,
            ledger: &mut self.ledger,
            now_ms,
            out: Vec::new(),
        };
        work(&mut self.waiting, &mut late);
        let out = late.out;
        self.sum_up();
        out
    }

    #[allow(clippy::too_many_lines)] // One frame after the other, in the order of the rules.
    /// Works through whole frames; returns what came of it and how many bytes were used.
    fn run(
        &mut self,
        table: &Table,
        store: &Store,
        from: Source,
        bytes: &[u8],
        replies: Output,
        sink: Sink<'_>,
    ) -> (FeedResult, usize) {
        let parked_beside = self.shared.parked_beside(self.summed);
        let Self {
            waiting,
            holds,
            ledger,
            frame_size_max,
            room,
            ..
        } = self;
        let on = table.is_on();
        let trusted = table.trusts(from.peer);
        let mut fed = FeedResult {
            passing: from.passing,
            replies,
            ..FeedResult::default()
        };
        let mut sends = Sends::new(table, from, std::mem::take(room));
        let mut acks = Acks::new(table, from, waiting.len() + parked_beside);
        let mut used = 0;
        let mut passed = from.busy;
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
            fed.proven |= permitted && !trusted;
            let mut refused = Refused {
                replies: fed.replies.bytes(),
                ledger,
            };
            if permitted && sends.take(&frame, &header, waiting.len() + parked_beside, &mut refused)
            {
                continue;
            }
            // Behind a frame for the handlers, whose records come first, they keep their turn.
            if permitted && !passed && acks.take(store, (&frame, whole), &header) {
                continue;
            }
            // Behind a frame for the handlers, whose offsets it may read or move, it keeps its turn.
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
            if admits && table.barrier.contains(&header.code) {
                // What came before is in the log before the handlers hear of it, and what comes
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
        (fed.merges, fed.pops) = acks.commit(store, waiting, ledger, replies, &mut *sink);
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

#[cfg(test)]
#[path = "tests/whole.rs"]
mod tests;
