//! Answers to sends that wait until their bytes are durable: group commit seen from the network.
//!
//! They are kept in the order of the log, so that one flush releases all it covers from the front.

use std::collections::VecDeque;

use super::send::{write_answer, write_refusal, Answer};
use super::table::State;

/// SYSTEM_ERROR.
const SYSTEM_ERROR: i32 = 1;
/// FLUSH_DISK_TIMEOUT.
const FLUSH_DISK_TIMEOUT: i32 = 10;

/// One waiting answer.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    /// Connection it goes to.
    pub(super) key: u64,
    /// Offset of the log that must be durable.
    pub(super) end: u64,
    /// When it is given up, Unix milliseconds.
    pub(super) deadline_ms: i64,
    pub(super) opaque: i32,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
    pub(super) physical_offset: i64,
    pub(super) unique_key: Box<str>,
}

/// Bytes to write to a connection.
pub type Outbound = (u64, Vec<u8>);

/// All waiting answers.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Parked>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn park(&mut self, parked: Parked) {
        self.queue.push_back(parked);
    }

    /// The answers that a flush up to `flushed` allows.
    pub(super) fn release(
        &mut self,
        flushed: u64,
        state: &State,
        is_open: impl Fn(u64) -> bool,
    ) -> Vec<Outbound> {
        let mut out = Vec::new();
        while let Some(parked) = self.queue.pop_front_if(|parked| parked.end <= flushed) {
            if is_open(parked.key) {
                answer(&parked, state, 0, &mut out);
            }
        }
        out
    }

    /// The answers that have waited too long: stored, but perhaps not durable.
    pub(super) fn expire(
        &mut self,
        now_ms: i64,
        state: &State,
        is_open: impl Fn(u64) -> bool,
    ) -> Vec<Outbound> {
        let mut out = Vec::new();
        while let Some(parked) = self
            .queue
            .pop_front_if(|parked| parked.deadline_ms <= now_ms)
        {
            if is_open(parked.key) {
                answer(&parked, state, FLUSH_DISK_TIMEOUT, &mut out);
            }
        }
        out
    }

    /// Refuses everything: a flush failed, and nothing unflushed is ever acknowledged.
    pub(super) fn fail(
        &mut self,
        remark: &str,
        state: &State,
        is_open: impl Fn(u64) -> bool,
    ) -> Vec<Outbound> {
        let mut out = Vec::new();
        for parked in self.queue.drain(..).filter(|parked| is_open(parked.key)) {
            let bytes = bytes_for(parked.key, &mut out);
            // A header of this size always fits its length.
            let _ = write_refusal(state, parked.opaque, SYSTEM_ERROR, remark, bytes);
        }
        out
    }
}

fn answer(parked: &Parked, state: &State, code: i32, out: &mut Vec<Outbound>) {
    let answer = Answer {
        opaque: parked.opaque,
        queue_id: parked.queue_id,
        queue_offset: parked.queue_offset,
        physical_offset: parked.physical_offset,
        unique_key: &parked.unique_key,
    };
    // A header of this size always fits its length.
    let _ = write_answer(state, &answer, code, bytes_for(parked.key, out));
}

/// The bytes for a connection: the last entry when it is for the same one, else a new one.
fn bytes_for(key: u64, out: &mut Vec<Outbound>) -> &mut Vec<u8> {
    if out.last().is_none_or(|(last, _)| *last != key) {
        out.push((key, Vec::with_capacity(256)));
    }
    match out.last_mut() {
        Some((_, bytes)) => bytes,
        None => unreachable!("pushed above"),
    }
}
