//! Reads of several connections that one wait reports: their sends are appended with one write.

use super::{note_waits, Worker, RECEIVE_SIZE, WAKE};
use crate::ingest::Read;
use crate::net::connection::Connection;
use crate::net::poll::Ready;
use crate::store::health::hold;

/// Bytes that each connection of a group has room for at least.
const SHARE_MIN: usize = 16 << 10;
/// Connections of a group.
const GROUP: usize = RECEIVE_SIZE / SHARE_MIN;

impl Worker {
    /// Reads what can be read together, which leaves `found`. One read a connection, as ever.
    pub(super) fn read_together(&mut self, found: &mut Vec<(u64, Ready)>) {
        if self.fast.is_none() || found.len() < 2 || self.limits.read_size() < RECEIVE_SIZE {
            return;
        }
        let only_read = |ready: &Ready| ready.read && !ready.write && !ready.gone;
        let mut group = Vec::new();
        for (key, ready) in found.iter() {
            let connection = self.connections.get(key).filter(|_| only_read(ready));
            if *key != WAKE && connection.is_some_and(Connection::may_share) {
                group.push(*key);
            }
        }
        if group.len() < 2 {
            return;
        }
        let mut next = group.iter().peekable();
        found.retain(|(key, _)| next.next_if_eq(&key).is_none());
        for keys in group.chunks(GROUP) {
            self.read_group(keys);
        }
    }

    fn read_group(&mut self, keys: &[u64]) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let share = buffer.len() / keys.len().max(1);
        let mut reads = Vec::with_capacity(keys.len());
        let mut at = 0;
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            let waited_ms = connection.waited_ms();
            let room = buffer.get_mut(at..at + share).unwrap_or_default();
            let got = connection.read(room);
            if let Some(got) = self.received(*key, got) {
                reads.push((*key, at..at + got, waited_ms));
                at += got;
            }
        }
        self.feed_group(&buffer, &reads);
        self.buffer = buffer;
    }

    fn feed_group(&mut self, buffer: &[u8], reads: &[(u64, std::ops::Range<usize>, i64)]) {
        let Some(fast) = &self.fast else { return };
        let data = |range: &std::ops::Range<usize>| buffer.get(range.clone()).unwrap_or_default();
        let of_core: Vec<Read<'_>> = reads
            .iter()
            .map(|(key, range, _)| Read {
                key: *key,
                data: data(range),
            })
            .collect();
        let mut core = hold(&fast.ingest);
        let fed = core.feed_together(&fast.store, &of_core, self.limits.now_ms());
        let parks = note_waits(&self.lane, fast, &mut core);
        drop(core);
        let mut start = 0;
        for ((key, range, waited_ms), end) in reads.iter().zip(&fed.ends) {
            let Some(end) = *end else {
                self.feed(*key, data(range), *waited_ms);
                continue;
            };
            let replies = fed.replies.get(start..end).unwrap_or_default();
            start = end;
            if let Some(connection) = self.connections.get_mut(key) {
                connection.answer_with(replies);
                self.settle(*key);
            }
        }
        if parks {
            self.release();
        }
    }
}
