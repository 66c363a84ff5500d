//! Where a packet goes, and what its sender is told when it cannot go there.

use std::borrow::Cow;

use super::server::Server;
use super::Exchange;
use crate::codec::command::{Encoding, Header, FLAG_ONE_WAY, FLAG_RESPONSE};
use crate::codec::error::CodecError;
use crate::codec::frame::{self, Frame};

/// Request code: to the server `to`.
pub(super) const FORWARD: i32 = 7106;
/// Request code: to one server of type `type`, the one of routing key `key`.
pub(super) const FORWARD_BY_TYPE: i32 = 7107;
/// Request code: to every server of type `type`; none of them answers.
pub(super) const FORWARD_TO_ALL: i32 = 7108;

const SYSTEM_BUSY: i32 = 2;
const INVALID_PARAMETER: i32 = 29;
const TARGET_UNKNOWN: i32 = 7201;
const TARGET_GONE: i32 = 7202;
const TARGET_DRAINING: i32 = 7203;
const TARGET_TIMEOUT: i32 = 7204;
const NO_SERVER_OF_TYPE: i32 = 7205;
const TARGET_LOST: i32 = 7208;

/// Longest time that a request may ask for, in milliseconds.
const TIMEOUT_MAX_MS: i64 = 600_000;
const KEY_SIZE_MAX: usize = 1024;
const VERSION: i32 = 513;

/// Why a packet was not delivered: response code and text.
#[derive(Debug)]
struct Refusal(i32, Cow<'static, str>);

impl Refusal {
    fn new(code: i32, text: impl Into<Cow<'static, str>>) -> Self {
        Self(code, text.into())
    }
}

/// A frame with its header and its bytes.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    encoding: Encoding,
    header: &'a Header<'a>,
    raw: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(super) fn new(frame: &Frame<'_>, header: &'a Header<'a>, raw: &'a [u8]) -> Self {
        Self {
            encoding: frame.encoding,
            header,
            raw,
        }
    }

    /// Whether it goes to a server, rather than to the relay itself.
    pub(super) fn is_routed(&self) -> bool {
        if self.is_answer() {
            return self.header.get("to").is_some();
        }
        matches!(self.header.code, FORWARD | FORWARD_BY_TYPE | FORWARD_TO_ALL)
    }

    fn is_answer(&self) -> bool {
        self.header.flag & FLAG_RESPONSE != 0
    }

    fn is_one_way(&self) -> bool {
        self.header.flag & FLAG_ONE_WAY != 0
    }

    fn number(&self, name: &'static str) -> Result<i32, Refusal> {
        let text = self.header.get(name).unwrap_or_default();
        text.parse()
            .ok()
            .filter(|number| *number > 0 && !text.starts_with('+'))
            .ok_or_else(|| {
                let shown: String = text.escape_default().take(40).collect();
                let text =
                    format!("{name} is '{shown}', it should be a number within 1..2147483647");
                Refusal::new(INVALID_PARAMETER, text)
            })
    }

    fn timeout_ms(&self, default: i64) -> Result<i64, Refusal> {
        let Some(text) = self.header.get("timeoutMs") else {
            return Ok(default);
        };
        text.parse()
            .ok()
            .filter(|ms| (1..=TIMEOUT_MAX_MS).contains(ms))
            .ok_or_else(|| Refusal::new(INVALID_PARAMETER, "timeoutMs is not within 1..600000"))
    }
}

impl Exchange {
    /// Delivers a packet or refuses it. Fails when the sender does not even take refusals.
    pub(super) fn route(
        &mut self,
        from: i32,
        packet: &Packet<'_>,
        now_ms: i64,
    ) -> Result<(), CodecError> {
        if let Some(server) = self.servers.get_mut(&from) {
            server.traffic.in_packets += 1;
            server.traffic.in_bytes += packet.raw.len() as u64;
        }
        if packet.is_answer() {
            self.answer(from, packet);
            return Ok(());
        }
        match self.forward(from, packet, now_ms) {
            Ok(()) => Ok(()),
            Err(refusal) => {
                self.count(refusal.0);
                if packet.is_one_way() {
                    self.counters.unanswered += 1;
                    return Ok(());
                }
                self.tell(from, packet.encoding, packet.header.opaque, &refusal)
            }
        }
    }

    /// Refuses requests that were not answered in time; returns servers that take no refusals.
    pub fn expire(&mut self, now_ms: i64) -> Vec<i32> {
        let mut late = Vec::new();
        for (id, server) in &mut self.servers {
            server.pending.retain(|asked, deadline_ms| {
                let keep = *deadline_ms > now_ms;
                if !keep {
                    late.push((*asked, *id));
                }
                keep
            });
        }
        let mut stuck = Vec::new();
        for ((asking, opaque), id) in late {
            self.counters.timed_out += 1;
            let text = format!("server {id} did not answer in time");
            let refusal = Refusal::new(TARGET_TIMEOUT, text);
            if self
                .tell(asking, Encoding::Binary, opaque, &refusal)
                .is_err()
            {
                stuck.push(asking);
            }
        }
        stuck
    }

    /// Refuses the requests that a server who has left cannot answer any more.
    pub(super) fn abandon(&mut self, id: i32, server: &Server) {
        for (asking, opaque) in server.pending.keys() {
            self.counters.abandoned += 1;
            let refusal = Refusal::new(TARGET_LOST, format!("server {id} left before it answered"));
            if self
                .tell(*asking, Encoding::Binary, *opaque, &refusal)
                .is_err()
            {
                // The asking server is stuck; its own time-out tells it.
                self.counters.unanswered += 1;
            }
        }
    }

    fn forward(&mut self, from: i32, packet: &Packet<'_>, now_ms: i64) -> Result<(), Refusal> {
        let claimed = packet.number("from")?;
        if claimed != from {
            let text = format!("from is {claimed}, the sender is server {from}");
            return Err(Refusal::new(INVALID_PARAMETER, text));
        }
        if packet.header.code == FORWARD {
            let to = packet.number("to")?;
            return self.deliver(from, to, packet, now_ms);
        }
        let kind = packet.number("type")?;
        if packet.header.code == FORWARD_TO_ALL {
            return self.copy_to_all(from, kind, packet);
        }
        let key = packet.header.get("key").unwrap_or_default();
        if key.is_empty() || key.len() > KEY_SIZE_MAX {
            let text = "key is not there, or longer than 1024 bytes";
            return Err(Refusal::new(INVALID_PARAMETER, text));
        }
        let found = self
            .rings
            .get(&kind)
            .and_then(|ring| ring.find(key.as_bytes()));
        let Some(to) = found else {
            let text = format!("no server of type {kind} takes packets");
            return Err(Refusal::new(NO_SERVER_OF_TYPE, text));
        };
        self.deliver(from, to, packet, now_ms)
    }

    fn deliver(
        &mut self,
        from: i32,
        to: i32,
        packet: &Packet<'_>,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let asked = if packet.is_one_way() {
            None
        } else {
            let timeout_ms = packet.timeout_ms(self.limits.timeout_ms)?;
            Some(((from, packet.header.opaque), now_ms + timeout_ms))
        };
        self.admit(to, packet.raw.len(), false)?;
        if let (Some((asked, deadline_ms)), Some(server)) = (asked, self.servers.get_mut(&to)) {
            if server.pending.len() >= self.limits.pending_max {
                server.traffic.refused += 1;
                let text = format!("too many requests wait for server {to}");
                return Err(Refusal::new(SYSTEM_BUSY, text));
            }
            if server.pending.contains_key(&asked) {
                let text = format!("opaque {} is that of a request that waits", asked.1);
                return Err(Refusal::new(INVALID_PARAMETER, text));
            }
            server.pending.insert(asked, deadline_ms);
        }
        self.put(to, packet.raw);
        Ok(())
    }

    fn copy_to_all(&mut self, from: i32, kind: i32, packet: &Packet<'_>) -> Result<(), Refusal> {
        let ids: Vec<i32> = self
            .servers
            .iter()
            .filter(|(id, server)| server.kind == kind && **id != from)
            .map(|(id, _)| *id)
            .collect();
        if ids.is_empty() {
            let text = format!("no other server has type {kind}");
            return Err(Refusal::new(NO_SERVER_OF_TYPE, text));
        }
        let (mut delivered, mut refused) = (0_u32, 0_u32);
        for to in ids {
            match self.admit(to, packet.raw.len(), false) {
                Ok(()) => {
                    self.put(to, packet.raw);
                    delivered += 1;
                }
                Err(refusal) => {
                    self.count(refusal.0);
                    refused += 1;
                }
            }
        }
        if packet.is_one_way() {
            self.counters.unanswered += u64::from(refused);
            return Ok(());
        }
        let header = Header {
            flag: FLAG_RESPONSE,
            version: VERSION,
            opaque: packet.header.opaque,
            ext: Some(vec![
                (Cow::Borrowed("delivered"), delivered.to_string().into()),
                (Cow::Borrowed("refused"), refused.to_string().into()),
            ]),
            ..Header::empty()
        };
        let mut out = Vec::new();
        // These few short fields always fit a frame.
        let _ = frame::encode(packet.encoding, &header, &[], &mut out);
        self.notify(from, &out);
        Ok(())
    }

    fn answer(&mut self, from: i32, packet: &Packet<'_>) {
        let opaque = packet.header.opaque;
        let waited = packet.number("to").ok().filter(|to| {
            self.servers
                .get_mut(&from)
                .is_some_and(|server| server.pending.remove(&(*to, opaque)).is_some())
        });
        let Some(to) = waited else {
            self.counters.stray_answers += 1;
            return;
        };
        let refusal = match packet.number("from") {
            Ok(claimed) if claimed == from => match self.admit(to, packet.raw.len(), true) {
                Ok(()) => {
                    self.put(to, packet.raw);
                    self.counters.answers += 1;
                    return;
                }
                Err(refusal) => refusal,
            },
            _ => Refusal::new(INVALID_PARAMETER, format!("server {from} answered badly")),
        };
        self.count(refusal.0);
        if self.tell(to, packet.encoding, opaque, &refusal).is_err() {
            self.counters.unanswered += 1;
        }
    }

    /// Whether a packet of `size` bytes may join a server's queue; an answer may while it drains.
    fn admit(&mut self, to: i32, size: usize, answers: bool) -> Result<(), Refusal> {
        let total = self.queued;
        let Some(server) = self.servers.get_mut(&to) else {
            return Err(if self.known.contains(&to) {
                Refusal::new(TARGET_GONE, format!("server {to} is not connected"))
            } else {
                Refusal::new(TARGET_UNKNOWN, format!("there is no server {to}"))
            });
        };
        let refusal = if server.drains && !answers {
            Refusal::new(TARGET_DRAINING, format!("server {to} takes no new packets"))
        } else if server.queued() + size > self.limits.queue_max {
            Refusal::new(SYSTEM_BUSY, format!("the queue of server {to} is full"))
        } else if total + size > self.limits.total_max {
            Refusal::new(SYSTEM_BUSY, "the queues of the relay are full")
        } else {
            return Ok(());
        };
        server.traffic.refused += 1;
        Err(refusal)
    }

    fn put(&mut self, to: i32, raw: &[u8]) {
        if let Some(server) = self.servers.get_mut(&to) {
            server.push(raw);
            server.traffic.out_packets += 1;
            server.traffic.out_bytes += raw.len() as u64;
            self.queued += raw.len();
            self.counters.forwarded += 1;
            self.counters.forwarded_bytes += raw.len() as u64;
        }
        self.wake(to);
    }

    fn tell(
        &mut self,
        id: i32,
        encoding: Encoding,
        opaque: i32,
        refusal: &Refusal,
    ) -> Result<(), CodecError> {
        let header = Header {
            code: refusal.0,
            flag: FLAG_RESPONSE,
            version: VERSION,
            opaque,
            remark: Some(Cow::Borrowed(&refusal.1)),
            ..Header::empty()
        };
        let mut out = Vec::new();
        frame::encode(encoding, &header, &[], &mut out)?;
        if self.notify(id, &out) {
            return Ok(());
        }
        Err(CodecError::Text {
            what: "the peer takes no answers, and sends more",
            at: 0,
        })
    }

    fn count(&mut self, code: i32) {
        let counters = &mut self.counters;
        let counter = match code {
            TARGET_UNKNOWN | NO_SERVER_OF_TYPE => &mut counters.refused_unknown,
            TARGET_GONE => &mut counters.refused_gone,
            TARGET_DRAINING => &mut counters.refused_draining,
            SYSTEM_BUSY => &mut counters.refused_busy,
            _ => &mut counters.refused_invalid,
        };
        *counter += 1;
    }
}
