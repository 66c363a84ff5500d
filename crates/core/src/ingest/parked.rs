//! Answers to sends that wait until their bytes are durable, copied to a slave, or both: group
//! commit seen from the network.
//!
//! Two watermarks release them: how far the log is flushed, and how far it is replicated. They are
//! kept in the order of the log, so that one step of a watermark releases all it covers from the
//! front; those that need no slave do not stand behind those that do.

use std::collections::{HashMap, VecDeque};

use super::answered::{between, Kind};
use super::books::Ledger;
use super::connection::Connection;
use super::pop::settled::Settled;
use super::send::{write_answer, write_refusal, Answer};
use super::table::{Flush, Slaves, State};

/// SYSTEM_ERROR.
const SYSTEM_ERROR: i32 = 1;
/// FLUSH_DISK_TIMEOUT.
const FLUSH_DISK_TIMEOUT: i32 = 10;
/// SLAVE_NOT_AVAILABLE.
const SLAVE_NOT_AVAILABLE: i32 = 11;
/// FLUSH_SLAVE_TIMEOUT.
const FLUSH_SLAVE_TIMEOUT: i32 = 12;

/// What an answer waits for, and the code it has if all of that comes in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Until when the flush may take, Unix milliseconds; `None` when none is needed any more.
    pub(super) flush_until: Option<i64>,
    /// The same for the slave.
    pub(super) copy_until: Option<i64>,
    /// Response code: what is known to have gone wrong already.
    pub(super) code: i32,
}

impl Needs {
    /// What an answer needs whose sender waits.
    pub(super) fn of(state: &State, now_ms: i64) -> Self {
        Self {
            flush_until: (state.flush != Flush::NotAwaited)
                .then(|| now_ms.saturating_add(state.flush_timeout_ms)),
            copy_until: (state.slaves == Slaves::Wait)
                .then(|| now_ms.saturating_add(state.copy_timeout_ms)),
            code: if state.slaves == Slaves::Lacking {
                SLAVE_NOT_AVAILABLE
            } else {
                0
            },
        }
    }

    pub(super) fn waits(&self) -> bool {
        self.flush_until.is_some() || self.copy_until.is_some()
    }

    fn reached(&mut self, end: u64, marks: Marks) {
        if end <= marks.flushed {
            self.flush_until = None;
        }
        if end <= marks.copied {
            self.copy_until = None;
        }
    }

    /// Gives up what has taken too long. A missing copy is told before a missing flush.
    fn expire(&mut self, now_ms: i64) {
        if self.flush_until.is_some_and(|until| until <= now_ms) {
            self.flush_until = None;
            if self.code == 0 {
                self.code = FLUSH_DISK_TIMEOUT;
            }
        }
        if self.copy_until.is_some_and(|until| until <= now_ms) {
            self.copy_until = None;
            self.code = FLUSH_SLAVE_TIMEOUT;
        }
    }

    fn is_late(&self, now_ms: i64) -> bool {
        let late = |until: Option<i64>| until.is_some_and(|until| until <= now_ms);
        late(self.flush_until) || late(self.copy_until)
    }
}

/// The send that an answer is for.
#[derive(Clone, Debug)]
pub(super) struct Sent<'a> {
    /// Connection it came from.
    pub(super) key: u64,
    /// Request code.
    pub(super) code: i32,
    pub(super) topic: &'a str,
    /// When it arrived, Unix milliseconds.
    pub(super) at_ms: i64,
}

/// One waiting answer.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    /// Connection it goes to.
    pub(super) key: u64,
    /// Offset of the log that must be durable or copied.
    pub(super) end: u64,
    pub(super) needs: Needs,
    /// When it arrived, Unix milliseconds.
    since_ms: i64,
    told: Told,
}

/// What a waiting answer says.
#[derive(Clone, Debug)]
enum Told {
    /// Where a send is stored.
    Stored(Box<Stored>),
    /// That popped messages are settled.
    Settled(Settled),
}

/// A send that is stored.
#[derive(Clone, Debug)]
struct Stored {
    /// Code of the request.
    request: i32,
    topic: Box<str>,
    opaque: i32,
    queue_id: i32,
    queue_offset: i64,
    physical_offset: i64,
    others: Box<[i64]>,
    unique_key: Option<Box<str>>,
}

impl Parked {
    pub(super) fn new(sent: &Sent<'_>, end: u64, needs: Needs, answer: &Answer<'_>) -> Self {
        Self {
            key: sent.key,
            end,
            needs,
            since_ms: sent.at_ms,
            told: Told::Stored(Box::new(Stored {
                request: sent.code,
                topic: sent.topic.into(),
                opaque: answer.opaque,
                queue_id: answer.queue_id,
                queue_offset: answer.queue_offset,
                physical_offset: answer.physical_offset,
                others: answer.others.into(),
                unique_key: answer.unique_key.map(Box::from),
            })),
        }
    }

    /// The answer to a request that came from a connection at a time, Unix milliseconds.
    pub(super) fn settled(
        (key, since_ms): (u64, i64),
        end: u64,
        needs: Needs,
        settled: Settled,
    ) -> Self {
        Self {
            key,
            end,
            needs,
            since_ms,
            told: Told::Settled(settled),
        }
    }
}

/// Bytes to write to a connection.
pub type Outbound = (u64, Vec<u8>);

/// How far the log is safe, in offsets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) flushed: u64,
    pub(super) copied: u64,
}

/// Where late answers go: to the connections that are still there, and into the ledger.
pub(super) struct Late<'i> {
    pub(super) state: &'i State,
    pub(super) connections: &'i HashMap<u64, Connection>,
    pub(super) ledger: &'i mut Ledger,
    /// Unix milliseconds.
    pub(super) now_ms: i64,
    pub(super) out: Vec<Outbound>,
}

impl Late<'_> {
    fn answer(&mut self, parked: &Parked) {
        let (state, took) = (self.state, between(parked.since_ms, self.now_ms));
        let Some(bytes) = place(self.connections, &mut self.out, parked.key) else {
            return;
        };
        match &parked.told {
            Told::Stored(stored) => {
                let code = parked.needs.code;
                let answer = Answer {
                    opaque: stored.opaque,
                    queue_id: stored.queue_id,
                    queue_offset: stored.queue_offset,
                    physical_offset: stored.physical_offset,
                    others: &stored.others,
                    unique_key: stored.unique_key.as_deref(),
                };
                // A header of this size always fits its length.
                let _ = write_answer(state, &answer, code, bytes);
                self.ledger.put(&stored.topic, stored.queue_id).sent(took);
                self.ledger
                    .answered
                    .add(Kind::plain(stored.request, code), took);
            }
            // It is in the log, which is all that its answer promises.
            Told::Settled(settled) => settled.answer(state, took, self.ledger, bytes),
        }
    }

    fn refuse(&mut self, parked: &Parked, remark: &str) {
        let (state, took) = (self.state, between(parked.since_ms, self.now_ms));
        let Some(bytes) = place(self.connections, &mut self.out, parked.key) else {
            return;
        };
        match &parked.told {
            Told::Stored(stored) => {
                // A header of this size always fits its length.
                let _ = write_refusal(state, stored.opaque, SYSTEM_ERROR, remark, bytes);
                let kind = Kind::plain(stored.request, SYSTEM_ERROR);
                self.ledger.answered.add(kind, took);
            }
            Told::Settled(settled) => {
                settled.refuse(state, (SYSTEM_ERROR, remark), took, self.ledger, bytes);
            }
        }
    }
}

/// The place for an answer to a connection: behind the one before when it is for the same one;
/// `None` when there is no connection any more.
fn place<'o>(
    connections: &HashMap<u64, Connection>,
    out: &'o mut Vec<Outbound>,
    key: u64,
) -> Option<&'o mut Vec<u8>> {
    if !connections.contains_key(&key) {
        return None;
    }
    if out.last().is_none_or(|(last, _)| *last != key) {
        out.push((key, Vec::with_capacity(256)));
    }
    out.last_mut().map(|(_, bytes)| bytes)
}

/// All waiting answers.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Those that need a flush only.
    flushes: VecDeque<Parked>,
    /// Those that need a slave, and perhaps a flush as well.
    copies: VecDeque<Parked>,
    marks: Marks,
    /// The connection that the last group's answers went to, if it was one.
    sole: Option<u64>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.flushes.len() + self.copies.len()
    }

    /// Whether everything that waits is a flush for this connection, and that was so the last time:
    /// nobody else seems to have anything to add to a group.
    pub(super) fn is_alone(&self, key: u64) -> bool {
        self.sole == Some(key)
            && self.copies.is_empty()
            && !self.flushes.is_empty()
            && self.flushes.iter().all(|parked| parked.key == key)
    }

    /// Whether an answer to this connection waits.
    pub(super) fn has(&self, key: u64) -> bool {
        let mut all = self.flushes.iter().chain(&self.copies);
        all.any(|parked| parked.key == key)
    }

    /// Strikes off what is already there of an answer's needs, given how far the log is flushed.
    pub(super) fn settle(&self, needs: &mut Needs, end: u64, flushed: u64) {
        needs.reached(
            end,
            Marks {
                flushed,
                copied: self.marks.copied,
            },
        );
    }

    pub(super) fn park(&mut self, parked: Parked) {
        if parked.needs.copy_until.is_some() {
            self.copies.push_back(parked);
        } else {
            self.flushes.push_back(parked);
        }
    }

    /// The answers that a flush up to `offset` allows.
    pub(super) fn flushed(&mut self, offset: u64, to: &mut Late<'_>) {
        self.marks.flushed = self.marks.flushed.max(offset);
        self.release(to);
    }

    /// The answers that copies up to `offset` allow.
    pub(super) fn replicated(&mut self, offset: u64, to: &mut Late<'_>) {
        self.marks.copied = self.marks.copied.max(offset);
        self.release(to);
    }

    fn release(&mut self, to: &mut Late<'_>) {
        let marks = self.marks;
        for queue in [&mut self.flushes, &mut self.copies] {
            while let Some(first) = queue.front_mut() {
                first.needs.reached(first.end, marks);
                if first.needs.waits() {
                    break;
                }
                to.answer(first);
                queue.pop_front();
            }
        }
        match to.out.as_slice() {
            [] => {}
            [(key, _)] => self.sole = Some(*key),
            _ => self.sole = None,
        }
    }

    /// Gives up waiting for copies of what ends at or before `offset`: nobody will prove to have it.
    pub(super) fn lapse(&mut self, offset: u64, to: &mut Late<'_>) {
        let marks = self.marks;
        self.copies.retain_mut(|parked| {
            if parked.end > offset {
                return true;
            }
            parked.needs.reached(parked.end, marks);
            if parked.needs.copy_until.take().is_some() {
                parked.needs.code = FLUSH_SLAVE_TIMEOUT;
            }
            let stays = parked.needs.waits();
            if !stays {
                to.answer(parked);
            }
            stays
        });
    }

    /// The answers that have waited too long: stored, but perhaps not durable or not copied.
    pub(super) fn expire(&mut self, to: &mut Late<'_>) {
        let (marks, now_ms) = (self.marks, to.now_ms);
        for queue in [&mut self.flushes, &mut self.copies] {
            // Time-outs may have been changed meanwhile, so the front need not be the first.
            if queue.iter().any(|parked| parked.needs.is_late(now_ms)) {
                queue.retain_mut(|parked| {
                    parked.needs.reached(parked.end, marks);
                    parked.needs.expire(now_ms);
                    let stays = parked.needs.waits();
                    if !stays {
                        to.answer(parked);
                    }
                    stays
                });
            }
        }
    }

    /// Refuses everything: a flush failed, and nothing unflushed is ever acknowledged.
    pub(super) fn fail(&mut self, remark: &str, to: &mut Late<'_>) {
        for parked in self.flushes.drain(..).chain(self.copies.drain(..)) {
            to.refuse(&parked, remark);
        }
    }
}
