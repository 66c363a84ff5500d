//! Pulls: answered at once, held until a message comes, and answered then.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::answered::{between, Kind, Way};
use super::books::Ledger;
use super::connection::Source;
use super::long_polling::{LongPolling, Wait};
use super::output::Output;
use super::parked::Outbound;
use super::pull::{self, Request};
use super::table::Table;
use crate::codec::command::{Header, FLAG_ONE_WAY};
use crate::codec::frame::{self, Frame};
use crate::codec::projection;
use crate::codec::record::Why;
use crate::store::get::{GetStatus, Got, Wanted};
use crate::store::Store;

/// Bytes of answers to woken pulls that one turn of the loop writes at most.
const TURN_BYTES: usize = 8 << 20;

/// Room for an answer with one small message.
const ANSWER_SIZE: usize = 2048;

/// Takes a held pull that the handlers must answer: connection, frame, header.
pub type Left<'s> = &'s mut dyn FnMut(u64, &Frame<'_>, &Header<'_>);

/// Answers by connection: a consumer whose pulls are due together gets them with one write.
#[derive(Default)]
struct Answers {
    all: Vec<Outbound>,
    places: HashMap<u64, usize>,
}

impl Answers {
    fn of(&mut self, key: u64) -> &mut Vec<u8> {
        let at = *self.places.entry(key).or_insert(self.all.len());
        if at == self.all.len() {
            self.all.push((key, Vec::with_capacity(ANSWER_SIZE)));
        }
        match self.all.get_mut(at) {
            Some((_, bytes)) => bytes,
            None => unreachable!("pushed above"),
        }
    }
}

/// All that answering pulls needs of the ingest.
pub(super) struct Pulls<'i> {
    pub(super) table: &'i Table,
    pub(super) store: &'i Store,
    pub(super) holds: &'i mut LongPolling,
    pub(super) ledger: &'i mut Ledger,
}

impl Pulls<'_> {
    /// Answers or holds a pull that the table covers; false leaves it to the handlers.
    pub(super) fn take(
        &mut self,
        header: &Header<'_>,
        whole: &[u8],
        from: Source,
        replies: &mut Output,
    ) -> bool {
        self.try_take(header, whole, from, replies).is_some()
    }

    fn try_take(
        &mut self,
        header: &Header<'_>,
        whole: &[u8],
        from: Source,
        replies: &mut Output,
    ) -> Option<()> {
        let state = &self.table.state;
        let request = plain(self.table, header)?;
        let got = read(self.store, &request)?;
        let code = pull::code_of(got.status, request.offset);
        let wait_ms = request
            .suspend_ms
            .filter(|_| code == pull::NOT_FOUND && self.holds.has_room(state.pulling.holds_max));
        if let Some(asked_ms) = wait_ms {
            let wait_ms = state
                .pulling
                .hold_ms
                .unwrap_or_else(|| asked_ms.min(state.pulling.hold_ms_max));
            let wait = Wait {
                key: from.key,
                frame: whole,
                now_ms: from.now_ms,
                at_most_ms: wait_ms.max(0),
                accounts: self.table.accounts_version,
            };
            self.holds.hold(&request, wait);
            self.store.set_awaited(true);
            self.ledger.books.asked(&request, got.max);
            self.ledger.counters.held += 1;
            return Some(());
        }
        if let Some(body) = projected(&request, &got).ok()? {
            let (size, out) = (body.len(), replies.bytes());
            pull::write_answer(state, header.opaque, &request, &got, size, out).ok()?;
            out.extend_from_slice(&body);
        } else {
            let (size, out) = (stored_size(&got), replies.bytes());
            pull::write_answer(state, header.opaque, &request, &got, size, out).ok()?;
            for part in &got.parts {
                replies.lease(part);
            }
        }
        self.ledger.books.asked(&request, got.max);
        let took = from.took();
        let kind = Kind::plain(header.code, code);
        self.answered(&request, &got, took, (kind, took));
        Some(())
    }

    /// Enters an answer: what reading for it took, and what became of the request in what time.
    fn answered(
        &mut self,
        request: &Request<'_>,
        got: &Got,
        read: Duration,
        all: (Kind, Duration),
    ) {
        self.ledger.books.answered(request, got, read);
        self.ledger.answered.add(all.0, all.1);
        self.ledger.counters.pulls += 1;
    }

    /// Serves the pulls that are due for as long as there is time to spare, but at least one.
    pub(super) fn serve(
        &mut self,
        now_ms: i64,
        spare: &mut dyn FnMut() -> bool,
        left: Left<'_>,
    ) -> Vec<Outbound> {
        let mut out = Answers::default();
        let mut written = 0;
        while let Some((id, held)) = self.holds.next_due() {
            let found = held.is_over() || {
                let wanted = Wanted {
                    topic: &held.topic,
                    queue_id: held.queue_id,
                    offset: held.from,
                    messages: 1,
                    bytes: pull::BYTES_MAX,
                    tag_codes: held.choice.codes.as_deref(),
                    filter: held.choice.filter.as_deref(),
                };
                match seek(self.store, wanted) {
                    None => true,
                    Some(next) => {
                        self.holds.wait_on(id, next);
                        false
                    }
                }
            };
            if found {
                written += self.resume((id, now_ms), &mut out, left);
            }
            if written > TURN_BYTES || !spare() {
                break;
            }
        }
        out.all
    }

    /// Answers a held pull by the table of now; returns the bytes written.
    fn resume(&mut self, (id, now_ms): (u64, i64), out: &mut Answers, left: Left<'_>) -> usize {
        let Some(held) = self.holds.take(id) else {
            return 0;
        };
        // It was cut and decoded once before.
        let Ok(Some(frame)) = frame::cut(&held.frame, usize::MAX) else {
            return 0;
        };
        let Ok(header) = frame.decode_header() else {
            return 0;
        };
        let bytes = out.of(held.key);
        let before = bytes.len();
        let waited = between(held.since_ms, now_ms);
        // Its rights were judged by other accounts: the guard judges it again.
        let is_judged = held.accounts == self.table.accounts_version;
        if !is_judged || self.answer_now(&header, waited, bytes).is_none() {
            left(held.key, &frame, &header);
        }
        bytes.len() - before
    }

    fn answer_now(
        &mut self,
        header: &Header<'_>,
        waited: Duration,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        let began = Instant::now();
        let request = plain(self.table, header)?;
        let got = read(self.store, &request)?;
        let body = projected(&request, &got).ok()?;
        let size = body.as_ref().map_or_else(|| stored_size(&got), Vec::len);
        pull::write_answer(
            &self.table.state,
            header.opaque,
            &request,
            &got,
            size,
            bytes,
        )
        .ok()?;
        match body {
            Some(body) => bytes.extend_from_slice(&body),
            None => got
                .parts
                .iter()
                .for_each(|part| bytes.extend_from_slice(part)),
        }
        let kind = Kind {
            way: Way::Held,
            ..Kind::plain(header.code, pull::code_of(got.status, request.offset))
        };
        self.answered(&request, &got, began.elapsed(), (kind, waited));
        Some(())
    }
}

/// Looks for a message that a pull wants; says where the next may come when there is none yet.
fn seek(store: &Store, mut wanted: Wanted<'_>) -> Option<i64> {
    if wanted.tag_codes.is_none() && wanted.filter.is_none() {
        return None;
    }
    loop {
        let got = store.get(wanted).ok()?;
        match got.status {
            GetStatus::NoMatchedMessage if got.next > wanted.offset => wanted.offset = got.next,
            GetStatus::OffsetOverflowOne | GetStatus::NoMessageInQueue => {
                return Some(wanted.offset);
            }
            GetStatus::NoMatchedMessage => return Some(wanted.offset),
            _ => return None,
        }
    }
}

/// The pull in a frame, if the table covers it.
fn plain<'a>(table: &'a Table, header: &'a Header<'_>) -> Option<Request<'a>> {
    let state = &table.state;
    let served = match header.code {
        pull::PULL => state.pulls,
        pull::LITE_PULL => state.pulls && state.pulling.lite,
        _ => false,
    };
    if !served || header.flag & FLAG_ONE_WAY != 0 {
        return None;
    }
    pull::read(table, header)
}

/// Reads for a pull; `None` when the log cannot be read, or not without waiting for the disk: the
/// handlers wait while others have Python.
fn read(store: &Store, request: &Request<'_>) -> Option<Got> {
    let wanted = Wanted {
        topic: request.topic,
        queue_id: request.queue_id,
        offset: request.offset,
        messages: request.messages,
        bytes: pull::BYTES_MAX,
        tag_codes: request.choice.codes.as_deref(),
        filter: request.choice.filter.as_deref(),
    };
    let got = if request.projection.is_some() {
        store.get_projected(wanted)
    } else {
        store.get_resident(wanted)
    };
    got.ok().flatten()
}

/// The records of an answer as the pull wants them, `None` for whole ones. Fails at bytes that are
/// no records, which the store has just checked.
fn projected(request: &Request<'_>, got: &Got) -> Result<Option<Vec<u8>>, (usize, Why)> {
    let Some(projection) = &request.projection else {
        return Ok(None);
    };
    let mut out = Vec::new();
    for part in &got.parts {
        projection::write(part, projection, &mut out)?;
    }
    Ok(Some(out))
}

fn stored_size(got: &Got) -> usize {
    usize::try_from(got.bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "tests/pulls.rs"]
mod tests;
