//! Packets between inner servers: cut, checked and put into the queue of their target, as they are.
//!
//! Everything that is no packet comes out for the relay's services. Nothing is dropped without an
//! answer or a count.

mod ring;
mod route;
mod server;

use std::collections::{HashMap, HashSet};

use crate::codec::command::Header;
use crate::codec::error::CodecError;
use crate::codec::frame::{self, Frame};

use ring::Ring;
use server::Server;
pub use server::Traffic;

/// Takes a frame that the services have to handle.
pub type Sink<'a> = &'a mut dyn FnMut(&Frame<'_>, &Header<'_>);

/// Bounds of an exchange; sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest frame.
    pub frame_size_max: usize,
    /// Packets waiting for one server; above it senders are told that it is busy.
    pub queue_max: usize,
    /// What notices and refusals may add to that before the link is given up.
    pub control_max: usize,
    /// Packets waiting for all servers together.
    pub total_max: usize,
    /// Requests that one server may have to answer.
    pub pending_max: usize,
    /// Milliseconds that a request may take when it does not say.
    pub timeout_ms: i64,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets put into a queue, answers and copies included.
    pub forwarded: u64,
    /// Bytes of their frames.
    pub forwarded_bytes: u64,
    /// Answers among them.
    pub answers: u64,
    /// Refused: no server has this id, or none this type.
    pub refused_unknown: u64,
    /// Refused: the server is configured and not connected.
    pub refused_gone: u64,
    /// Refused: the server's queue is full, or too many requests wait for it.
    pub refused_busy: u64,
    /// Refused: the server takes no new packets.
    pub refused_draining: u64,
    /// Refused: a field is missing or wrong.
    pub refused_invalid: u64,
    /// Requests that were not answered in time.
    pub timed_out: u64,
    /// Requests whose server left before it answered.
    pub abandoned: u64,
    /// Refused packets among the above whose sender wanted no answer.
    pub unanswered: u64,
    /// Answers that nobody waits for any more.
    pub stray_answers: u64,
}

#[derive(Debug, Default)]
struct LinkState {
    partial: Vec<u8>,
    server: Option<i32>,
    read_ms: i64,
}

/// All links of a relay, the servers registered on them, and their queues.
#[derive(Debug)]
pub struct Exchange {
    limits: Limits,
    links: HashMap<u64, LinkState>,
    servers: HashMap<i32, Server>,
    rings: HashMap<i32, Ring>,
    known: HashSet<i32>,
    ready: Vec<Vec<i32>>,
    queued: usize,
    counters: Counters,
}

impl Exchange {
    /// Knows nobody yet; `workers` own the servers.
    pub fn new(limits: Limits, workers: usize) -> Self {
        Self {
            limits,
            links: HashMap::new(),
            servers: HashMap::new(),
            rings: HashMap::new(),
            known: HashSet::new(),
            ready: vec![Vec::new(); workers],
            queued: 0,
            counters: Counters::default(),
        }
    }

    /// Knows a new connection.
    pub fn open(&mut self, key: u64, now_ms: i64) {
        let link = LinkState {
            read_ms: now_ms,
            ..LinkState::default()
        };
        self.links.insert(key, link);
    }

    /// Forgets a connection and its incomplete frame. A server on it stays until `unregister`.
    pub fn close(&mut self, key: u64) {
        self.links.remove(&key);
    }

    /// Bytes of a connection's incomplete frame.
    pub fn held(&self, key: u64) -> usize {
        self.links.get(&key).map_or(0, |link| link.partial.len())
    }

    /// Sets the ids that are configured: a packet for one of them that is away is told so.
    pub fn set_known(&mut self, ids: impl IntoIterator<Item = i32>) {
        self.known = ids.into_iter().collect();
    }

    /// Registers a server on a connection, in place of an earlier one of the same id.
    ///
    /// False when the connection has gone, or the worker does not exist.
    pub fn register(&mut self, id: i32, kind: i32, key: u64, worker: usize) -> bool {
        if worker >= self.ready.len() || !self.links.contains_key(&key) {
            return false;
        }
        self.drop_server(id);
        if let Some(link) = self.links.get_mut(&key) {
            link.server = Some(id);
        }
        self.servers.insert(id, Server::new(kind, key, worker));
        self.rings.entry(kind).or_default().add(id);
        true
    }

    /// Forgets a server whose link has gone; false when it is registered on another one by now.
    pub fn unregister(&mut self, id: i32, key: u64) -> bool {
        let same = self.servers.get(&id).is_some_and(|one| one.key == key);
        if same {
            self.drop_server(id);
        }
        same
    }

    /// Gives a server no new packets, or again; answers to it still pass.
    pub fn drain(&mut self, id: i32, drains: bool) {
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        if server.drains != drains {
            server.drains = drains;
            let kind = server.kind;
            self.on_ring(kind, id, !drains);
        }
    }

    /// Takes what a connection received. Returns why it must be closed, if it must.
    pub fn feed(
        &mut self,
        key: u64,
        data: &[u8],
        now_ms: i64,
        sink: Sink<'_>,
    ) -> Option<CodecError> {
        let link = self.links.get_mut(&key)?;
        link.read_ms = now_ms;
        let mut partial = std::mem::take(&mut link.partial);
        let from = link.server;
        let result = if partial.is_empty() {
            self.frames(from, data, now_ms, sink).map(|used| {
                // Grows with the bytes received, never with the length that a peer declares.
                partial.extend_from_slice(data.get(used..).unwrap_or_default());
            })
        } else {
            partial.extend_from_slice(data);
            self.frames(from, &partial, now_ms, sink).map(|used| {
                partial.drain(..used);
            })
        };
        if let Some(link) = self.links.get_mut(&key) {
            link.partial = partial;
        }
        result.err()
    }

    /// Puts a frame of the relay's own into a server's queue.
    ///
    /// False when the server is not there, or takes so little that even notices do not fit.
    pub fn notify(&mut self, id: i32, frame: &[u8]) -> bool {
        let most = self.limits.queue_max + self.limits.control_max;
        let Some(server) = self.servers.get_mut(&id) else {
            return false;
        };
        if server.queued() + frame.len() > most {
            return false;
        }
        server.push(frame);
        self.queued += frame.len();
        self.wake(id);
        true
    }

    /// Puts a frame into the queues of a worker's servers; returns those whose queue is too full.
    pub fn broadcast(&mut self, worker: usize, frame: &[u8], except: i32) -> Vec<i32> {
        let ids: Vec<i32> = self
            .servers
            .iter()
            .filter(|(id, server)| server.worker == worker && **id != except)
            .map(|(id, _)| *id)
            .collect();
        ids.into_iter()
            .filter(|id| !self.notify(*id, frame))
            .collect()
    }

    /// The workers whose servers got output since they last took all of it.
    pub fn ready_workers(&self) -> Vec<usize> {
        self.ready
            .iter()
            .enumerate()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(worker, _)| worker)
            .collect()
    }

    /// The servers of a worker with new output, each named once until its queue was taken empty.
    pub fn take_ready(&mut self, worker: usize) -> Vec<i32> {
        self.ready
            .get_mut(worker)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes the next piece of a server's output; `None` when there is no more.
    pub fn take(&mut self, id: i32) -> Option<Vec<u8>> {
        let server = self.servers.get_mut(&id)?;
        if let Some(piece) = server.take() {
            self.queued -= piece.len();
            return Some(piece);
        }
        server.listed = false;
        None
    }

    /// The servers of a worker from which nothing was read since `before_ms`.
    pub fn silent(&self, worker: usize, before_ms: i64) -> Vec<i32> {
        self.servers
            .iter()
            .filter(|(_, server)| server.worker == worker)
            .filter(|(_, server)| {
                self.links
                    .get(&server.key)
                    .is_none_or(|link| link.read_ms < before_ms)
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Bytes in a server's queue, requests it has to answer, whether it drains, its counters.
    pub fn server(&self, id: i32) -> Option<(usize, usize, bool, Traffic)> {
        let server = self.servers.get(&id)?;
        Some((
            server.queued(),
            server.pending.len(),
            server.drains,
            server.traffic,
        ))
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes in all queues.
    pub fn queued(&self) -> usize {
        self.queued
    }

    fn frames(
        &mut self,
        from: Option<i32>,
        bytes: &[u8],
        now_ms: i64,
        sink: Sink<'_>,
    ) -> Result<usize, CodecError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some(found) = frame::cut(rest, self.limits.frame_size_max)? else {
                return Ok(used);
            };
            let header = found.decode_header()?;
            let raw = rest.get(..found.size).unwrap_or_default();
            let packet = route::Packet::new(&found, &header, raw);
            match from {
                Some(from) if packet.is_routed() => self.route(from, &packet, now_ms)?,
                _ => sink(&found, &header),
            }
            used += found.size;
        }
    }

    fn wake(&mut self, id: i32) {
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        if !server.listed {
            server.listed = true;
            if let Some(ready) = self.ready.get_mut(server.worker) {
                ready.push(id);
            }
        }
    }

    fn on_ring(&mut self, kind: i32, id: i32, there: bool) {
        let ring = self.rings.entry(kind).or_default();
        if there {
            ring.add(id);
        } else {
            ring.remove(id);
            if ring.is_empty() {
                self.rings.remove(&kind);
            }
        }
    }

    fn drop_server(&mut self, id: i32) {
        let Some(server) = self.servers.remove(&id) else {
            return;
        };
        self.queued -= server.queued();
        self.on_ring(server.kind, id, false);
        if let Some(link) = self.links.get_mut(&server.key) {
            link.server = None;
        }
        for other in self.servers.values_mut() {
            // Its next link may use the same opaque for another request.
            other.pending.retain(|(asking, _), _| *asking != id);
        }
        self.abandon(id, &server);
    }
}
