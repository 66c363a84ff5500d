//! What a thread does without bytes of a peer: late answers, held pulls, ends of connections.

use std::time::{Duration, Instant};

use super::{note_waits, Worker, TICK_MS};
use crate::ingest::{Ingest, Outbound};
use crate::net::connection::Connection;
use crate::net::frames::OwnFrame;
use crate::net::lane::News;
use crate::store::health::hold;

/// How long held pulls are served before connections have their turn.
const TURN: Duration = Duration::from_millis(5);

impl Worker {
    /// Flushes for the one connection that waits; after a failure, the news of it refuses what waits.
    pub(super) fn flush_store(&mut self) {
        let flushed = self.fast.as_ref().map(|fast| fast.store.flush_in_place());
        if let Some(Ok(flushed)) = flushed {
            self.answer_late(|core, now_ms| core.flushed(flushed, now_ms));
        }
    }

    pub(super) fn release_flushed(&mut self) {
        if let Some(fast) = &self.fast {
            let flushed = fast.store.log().flushed();
            self.answer_late(|core, now_ms| core.flushed(flushed, now_ms));
        }
    }

    /// Looks at what sends wait for that have just begun to: nobody told of it before.
    pub(super) fn release(&mut self) {
        self.release_flushed();
        let (copied, lapsed) = self.lane.copied();
        if lapsed > 0 {
            self.answer_late(|core, now_ms| core.lapse(lapsed, now_ms));
        }
        if copied > 0 {
            self.answer_late(|core, now_ms| core.replicated(copied, now_ms));
        }
    }

    pub(super) fn answer_late(&mut self, work: impl FnOnce(&mut Ingest, i64) -> Vec<Outbound>) {
        let Some(fast) = &self.fast else { return };
        let mut core = hold(&fast.ingest);
        let answers = work(&mut core, self.limits.now_ms());
        note_waits(&self.lane, fast, &mut core);
        drop(core);
        self.write_all(answers);
    }

    fn write_all(&mut self, answers: Vec<Outbound>) {
        for (key, bytes) in answers {
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.queue_own(bytes);
                self.flush(key);
            }
        }
    }

    /// Serves held pulls that are due, gives up what has waited too long, ends what is done.
    pub(super) fn late(&mut self) {
        let waits = self.lane.holds() || self.lane.parks();
        let tick = Duration::from_millis(u64::from(TICK_MS.unsigned_abs()));
        if waits && self.looked.elapsed() >= tick {
            self.looked = Instant::now();
            self.answer_late(Ingest::expire);
        }
        if waits {
            self.serve();
        }
        if !self.closing.is_empty() {
            self.end_closing();
        }
        if !self.lingers.is_empty() {
            self.end_lingers();
        }
    }

    fn serve(&mut self) {
        let Some(fast) = &self.fast else { return };
        let mut core = hold(&fast.ingest);
        if !core.has_due() {
            return;
        }
        let begun = Instant::now();
        let mut left = Vec::new();
        let answers = core.serve(
            &fast.store,
            self.limits.now_ms(),
            &mut || begun.elapsed() < TURN,
            &mut |key, frame, _| left.push((key, OwnFrame::of(frame))),
        );
        note_waits(&self.lane, fast, &mut core);
        drop(core);
        self.write_all(answers);
        for (key, frame) in left {
            self.lane.push(News::Left(key, frame));
        }
    }

    /// Writes what a peer over TLS is told last; true while that is not written.
    fn says_farewell(&mut self, key: u64) -> bool {
        let last = self.connections.get_mut(&key);
        if !last.is_some_and(Connection::queue_farewell) {
            return false;
        }
        self.flush(key);
        self.connections
            .get(&key)
            .is_some_and(Connection::has_output)
    }

    /// Ends the connections whose output is written and whose sends are answered.
    fn end_closing(&mut self) {
        let mut stay = Vec::new();
        for key in std::mem::take(&mut self.closing) {
            let Some(connection) = self.connections.get(&key) else {
                continue;
            };
            let waits = connection.has_output() || connection.is_awaited();
            let owes = self.ingest().is_some_and(|core| core.owes(key));
            if waits || owes || self.says_farewell(key) {
                stay.push(key);
            } else {
                self.end_softly(key, String::new());
            }
        }
        self.closing = stay;
    }
}
