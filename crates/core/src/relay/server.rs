//! What the exchange keeps of each registered server: its output queue and who waits for it.

use std::collections::{HashMap, VecDeque};

/// Bytes of one piece of a queue; also about what one write to a socket takes.
const PIECE_SIZE: usize = 512 * 1024;

/// What happened on one server's link since it registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets that the server sent to others.
    pub in_packets: u64,
    /// Bytes of their frames.
    pub in_bytes: u64,
    /// Packets of others that were put into the server's queue.
    pub out_packets: u64,
    /// Bytes of their frames.
    pub out_bytes: u64,
    /// Packets for this server that were refused.
    pub refused: u64,
}

/// One registered server.
#[derive(Debug)]
pub(super) struct Server {
    /// Its type.
    pub(super) kind: i32,
    /// The connection that it is registered on.
    pub(super) key: u64,
    /// Index of the worker that owns the connection.
    pub(super) worker: usize,
    /// Whether it is given no new packets.
    pub(super) drains: bool,
    /// Whether its worker knows that there is output, and has not taken all of it.
    pub(super) listed: bool,
    /// Counters.
    pub(super) traffic: Traffic,
    /// Requests that it has to answer: (asking server, opaque) -> deadline in milliseconds.
    pub(super) pending: HashMap<(i32, i32), i64>,
    queue: VecDeque<Vec<u8>>,
    queued: usize,
}

impl Server {
    pub(super) fn new(kind: i32, key: u64, worker: usize) -> Self {
        Self {
            kind,
            key,
            worker,
            drains: false,
            listed: false,
            traffic: Traffic::default(),
            pending: HashMap::new(),
            queue: VecDeque::new(),
            queued: 0,
        }
    }

    /// Bytes in the queue.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Appends a frame.
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.queued += frame.len();
        match self.queue.back_mut() {
            Some(piece) if piece.len() < PIECE_SIZE => piece.extend_from_slice(frame),
            _ => self.queue.push_back(frame.to_vec()),
        }
    }

    /// Takes the next piece of output.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let piece = self.queue.pop_front()?;
        self.queued -= piece.len();
        Some(piece)
    }
}
