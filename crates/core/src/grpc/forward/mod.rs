//! Plain sends and acknowledgements of gRPC that go to brokers of a cluster: a request becomes frames of
//! the remoting protocol, and the answers to all of them the call's.
//!
//! What is plain is what `sends.rs` and `acks.rs` say, for topics that were [put](Forwarder::put) and brokers
//! that have a [line](Forwarder::open). Whoever owns the forwarder owns the connections: it writes the frames that
//! [`Forwarder::take`] returns and feeds what it reads.
//!
//! **Invariant.** A call that was taken leaves by exactly one door: it is answered here, when a broker has
//! said yes to each of its frames; or it comes back whole with what the broker said ([`Fed::odd`]), with
//! nothing because no broker has looked at it ([`Fed::news`]), or as one whose outcome nobody knows
//! ([`Forwarder::late`], [`Forwarder::close`]).

mod parts;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::acks;
use super::asked;
use super::fields::Odd;
use super::sends::{self, Sends};
use super::{Head, News, Server};
use crate::codec::command::{Encoding, Header, FLAG_RESPONSE};
use crate::codec::error::CodecError;
use crate::codec::frame;
use crate::ingest::pop::ACK;
use crate::pop::handle::Handle;

use parts::{free, is_group, line_of, place_of, read_place, Begun, Waiting};
pub use parts::{Fed, ForwardRules, Kind, Outgoing, Taken, Target, Unsettled};

/// `SEND_MESSAGE_V2`, whose fields have names of one letter.
const SEND_V2: i32 = 310;
/// The broker is stopping and has not looked at the request.
const GO_AWAY: i32 = 1500;
const ACK_METHOD: &str = "/apache.rocketmq.v2.MessagingService/AckMessage";
/// Index of PYTHON: the brokers see one client, whichever way a request takes through it.
const LANGUAGE: u8 = 3;

/// Plain calls between clients and brokers. The owner's thread alone uses it.
pub struct Forwarder {
    rules: ForwardRules,
    sends: Sends,
    topics: HashMap<String, Target>,
    /// Broker to the key of its connection.
    lines: HashMap<Arc<str>, u64>,
    partial: HashMap<u64, Vec<u8>>,
    calls: HashMap<u64, Waiting>,
    /// Opaque to the call and the entry of it.
    frames: HashMap<i32, (u64, usize)>,
    next: i32,
    /// Calls that wait, by kind.
    counts: (usize, usize),
    /// Answers of the bytes that are being fed.
    done: Vec<(u64, Vec<u8>)>,
}

impl Forwarder {
    /// Begins without topics and lines.
    pub fn new(rules: ForwardRules, sends: Sends) -> Self {
        Self {
            rules,
            sends,
            topics: HashMap::new(),
            lines: HashMap::new(),
            partial: HashMap::new(),
            calls: HashMap::new(),
            frames: HashMap::new(),
            next: 0,
            counts: (0, 0),
            done: Vec::new(),
        }
    }

    /// Lets messages of a topic pass.
    pub fn put(&mut self, topic: String, target: Target) {
        self.topics.insert(topic, target);
    }

    /// Leaves a topic to the owner.
    pub fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// Knows the connection to a broker.
    pub fn open(&mut self, broker: &str, line: u64) {
        self.lines.insert(broker.into(), line);
    }

    /// Asks a broker nothing more until it has another connection.
    pub fn retire(&mut self, broker: &str) {
        self.lines.remove(broker);
    }

    /// Forgets a connection that has ended; returns the calls whose answers cannot come any more.
    pub fn close(&mut self, line: u64) -> Vec<Unsettled> {
        self.lines.retain(|_, known| *known != line);
        self.partial.remove(&line);
        self.remove(|call| call.line == line)
    }

    /// Returns the calls that have waited for too long.
    pub fn late(&mut self, steady_ms: i64) -> Vec<Unsettled> {
        self.remove(|call| call.ends_ms <= steady_ms)
    }

    /// Bytes of a line's incomplete frame.
    pub fn held(&self, line: u64) -> usize {
        self.partial.get(&line).map_or(0, Vec::len)
    }

    /// Sends, and calls with acknowledgements, that wait for a broker.
    pub fn counts(&self) -> (usize, usize) {
        self.counts
    }

    /// Takes plain calls from the news. `now` is the steady time and the Unix time; `settles` tells whether
    /// the acknowledgements of a client end nothing but the flight of its messages.
    pub fn take(
        &mut self,
        server: &Server,
        news: Vec<News>,
        now: (i64, i64),
        settles: &mut dyn FnMut(&str) -> bool,
    ) -> Taken {
        let mut taken = Taken::default();
        let slow = server.slow(news.iter().filter_map(News::unary));
        for one in news {
            let News::Call {
                call,
                connection,
                head,
                message: Some(message),
            } = one
            else {
                taken.news.push(one);
                continue;
            };
            let asked = (call, &*head, &message);
            let begun = if slow.contains(&call) {
                Err(Odd)
            } else if head.path() == sends::METHOD {
                self.send(asked, now, &mut taken)
            } else if head.path() == ACK_METHOD {
                self.acknowledge(asked, now.1, settles, &mut taken)
            } else {
                Err(Odd)
            };
            match begun {
                Ok(begun) => {
                    *self.count(begun.kind) += 1;
                    let asked = (connection, head, message);
                    let waiting = self.waiting(call, asked, begun, now.0);
                    self.calls.insert(call, waiting);
                }
                Err(Odd) => taken.news.push(News::Call {
                    call,
                    connection,
                    head,
                    message: Some(message),
                }),
            }
        }
        taken
    }

    /// Takes calls back whose frames were not written.
    pub fn take_back(&mut self, calls: &[u64]) -> Vec<News> {
        let found = calls.iter().filter_map(|call| self.end(*call));
        found.map(Waiting::into_news).collect()
    }

    /// Takes bytes of a broker, and answers the calls that they end. What came before bytes that are no
    /// frame counts.
    pub fn feed(&mut self, server: &Server, line: u64, data: &[u8]) -> Fed {
        let mut fed = Fed::default();
        let before = self.partial.remove(&line);
        let joined = before.map(|mut partial| {
            partial.extend_from_slice(data);
            partial
        });
        let bytes = joined.as_deref().unwrap_or(data);
        let left = self.feed_frames(line, bytes, &mut fed);
        server.answer(std::mem::take(&mut self.done));
        match left {
            Ok([]) => {}
            // Grows with the bytes received, never with the length that a peer declares.
            Ok(left) => drop(self.partial.insert(line, left.to_vec())),
            Err(error) => fed.broken = Some(error),
        }
        fed
    }

    /// Takes whole frames, and returns what is left.
    fn feed_frames<'a>(
        &mut self,
        line: u64,
        mut left: &'a [u8],
        fed: &mut Fed,
    ) -> Result<&'a [u8], CodecError> {
        while let Some(frame) = frame::cut(left, self.rules.frame_max)? {
            let (whole, behind) = left.split_at_checked(frame.size).unwrap_or_default();
            left = behind;
            let header = frame.decode_header()?;
            let known = self.frames.get(&header.opaque).copied();
            let is_answer = header.flag & FLAG_RESPONSE != 0;
            match known {
                Some((call, entry)) if is_answer && self.is_of(call, line) => {
                    self.frames.remove(&header.opaque);
                    self.answered((call, entry), &header, whole, fed);
                }
                _ => fed.rest.extend_from_slice(whole),
            }
        }
        Ok(left)
    }

    fn is_of(&self, call: u64, line: u64) -> bool {
        self.calls.get(&call).is_some_and(|it| it.line == line)
    }

    fn answered(
        &mut self,
        (number, entry): (u64, usize),
        header: &Header<'_>,
        whole: &[u8],
        fed: &mut Fed,
    ) {
        fed.answered = true;
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        call.left -= 1;
        let is_plain = match call.it.kind {
            _ if header.code != 0 => false,
            Kind::Ack => true,
            Kind::Send => read_place(header).is_some_and(|place| {
                call.offset = place;
                true
            }),
        };
        if header.code == GO_AWAY {
            call.was_sent_away = true;
            call.it.answers.push((entry, Vec::new()));
        } else if !is_plain {
            call.it.answers.push((entry, whole.to_vec()));
        }
        if call.left > 0 {
            return;
        }
        let Some(done) = self.end(number) else {
            return;
        };
        if done.was_sent_away {
            // Those entries that were acknowledged may be so again.
            fed.news.push(done.into_news());
        } else if done.it.answers.is_empty() {
            if let Some(answer) = written(&done) {
                self.done.push((number, answer));
            }
        } else {
            fed.odd.push(done.it);
        }
    }

    fn send(
        &mut self,
        (call, head, message): (u64, &Head, &Bytes),
        (steady_ms, now_ms): (i64, i64),
        taken: &mut Taken,
    ) -> Result<Begun, Odd> {
        sends::check_client(head)?;
        let asked = asked::read(message)?;
        let target = self.topics.get(asked.topic).ok_or(Odd)?;
        if steady_ms >= target.until_ms || self.counts.0 >= self.rules.calls_max {
            return Err(Odd);
        }
        self.sends.check(&asked, target.takes)?;
        let queues = target.places.iter().map(|(_, queues)| queues).sum();
        let (broker, queue) = place_of(&target.places, self.sends.queue(asked.group, queues)?)?;
        let broker = Arc::clone(broker);
        let line = line_of(&self.lines, &broker, taken)?;
        let born = match asked.born_ms {
            Some(born_ms) => born_ms.to_string(),
            None => now_ms.to_string(),
        };
        let properties = sends::properties(&asked, head, &born);
        let flag = if asked.is_gzip {
            sends::SYS_COMPRESSED
        } else {
            0
        };
        let (queue, flag) = (queue.to_string(), flag.to_string());
        let template_queues = self.rules.template_queues.to_string();
        let ext = [
            ("a", asked.topic),
            ("b", asked.topic),
            ("c", &*self.rules.template),
            ("d", &*template_queues),
            ("e", &*queue),
            ("f", &*flag),
            ("g", &*born),
            ("h", "0"),
            ("i", &*properties),
            ("j", "0"),
            ("k", "false"),
            ("m", "false"),
            ("n", &*broker),
        ];
        let opaque = free(&mut self.next, &self.frames);
        let header = self.header(SEND_V2, opaque);
        let out = taken.out.entry(line).or_default();
        let (start, ext, size) = (out.frames.len(), Some(ext.into_iter()), asked.body.len());
        frame::encode_start(Encoding::Binary, &header, ext, size, &mut out.frames)
            .map_err(|_| Odd)?;
        if out.frames.len() - start + size > self.rules.frame_max {
            // The broker would close the connection, which is that of others as well.
            out.frames.truncate(start);
            return Err(Odd);
        }
        out.frames.extend_from_slice(asked.body);
        out.calls.push(call);
        self.frames.insert(opaque, (call, 0));
        Ok(Begun {
            kind: Kind::Send,
            broker,
            line,
            frames: 1,
        })
    }

    fn acknowledge(
        &mut self,
        (call, head, message): (u64, &Head, &Bytes),
        now_ms: i64,
        settles: &mut dyn FnMut(&str) -> bool,
        taken: &mut Taken,
    ) -> Result<Begun, Odd> {
        sends::check_client(head)?;
        let asked = acks::read(message)?;
        let is_plain = self.topics.contains_key(asked.topic)
            && is_group(asked.group)
            && self.rules.system.allows(&asked)
            && self.counts.1 < self.rules.calls_max;
        if !is_plain || !head.last(sends::CLIENT_ID).is_some_and(settles) {
            return Err(Odd);
        }
        let mut broker = None;
        for entry in &asked.entries {
            let handle = Handle::read(entry.plain).ok_or(Odd)?;
            if now_ms > handle.revive_ms().ok_or(Odd)? {
                return Err(Odd);
            }
            if *broker.get_or_insert(handle.broker) != handle.broker {
                return Err(Odd);
            }
        }
        let broker: Arc<str> = broker.ok_or(Odd)?.into();
        let line = line_of(&self.lines, &broker, taken)?;
        let out = taken.out.entry(line).or_default();
        let (start, mut numbers) = (out.frames.len(), Vec::with_capacity(asked.entries.len()));
        for (number, entry) in asked.entries.iter().enumerate() {
            let opaque = free(&mut self.next, &self.frames);
            let header = self.header(ACK, opaque);
            let frames = &mut out.frames;
            if acks::write_frame(Encoding::Json, &asked, entry, &header, frames).is_none() {
                out.frames.truncate(start);
                for opaque in numbers {
                    self.frames.remove(&opaque);
                }
                return Err(Odd);
            }
            self.frames.insert(opaque, (call, number));
            numbers.push(opaque);
        }
        out.calls.push(call);
        Ok(Begun {
            kind: Kind::Ack,
            broker,
            line,
            frames: asked.entries.len(),
        })
    }

    fn header(&self, code: i32, opaque: i32) -> Header<'static> {
        Header {
            code,
            language: LANGUAGE,
            version: self.rules.version,
            opaque,
            ..Header::empty()
        }
    }

    fn waiting(
        &self,
        call: u64,
        (connection, head, message): (u64, Box<Head>, Bytes),
        begun: Begun,
        began_ms: i64,
    ) -> Waiting {
        let patience_ms = match begun.kind {
            Kind::Send => self.rules.patience_ms.0,
            Kind::Ack => self.rules.patience_ms.1,
        };
        Waiting {
            connection,
            head,
            line: begun.line,
            ends_ms: began_ms.saturating_add(patience_ms),
            left: begun.frames,
            was_sent_away: false,
            offset: (0, None),
            it: Unsettled {
                call,
                kind: begun.kind,
                broker: begun.broker,
                began_ms,
                message,
                answers: Vec::new(),
            },
        }
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Send => &mut self.counts.0,
            Kind::Ack => &mut self.counts.1,
        }
    }

    fn end(&mut self, call: u64) -> Option<Waiting> {
        let found = self.calls.remove(&call)?;
        *self.count(found.it.kind) -= 1;
        if found.left > 0 {
            self.frames.retain(|_, (of, _)| *of != call);
        }
        Some(found)
    }

    fn remove(&mut self, is_over: impl Fn(&Waiting) -> bool) -> Vec<Unsettled> {
        let over = self.calls.iter().filter(|(_, call)| is_over(call));
        let over: HashSet<u64> = over.map(|(number, _)| *number).collect();
        if over.is_empty() {
            return Vec::new();
        }
        let calls = &mut self.calls;
        self.frames.retain(|_, (of, entry)| {
            if !over.contains(of) {
                return true;
            }
            if let Some(call) = calls.get_mut(of) {
                call.it.answers.push((*entry, Vec::new()));
            }
            false
        });
        let mut found = Vec::with_capacity(over.len());
        for number in over {
            if let Some(call) = self.calls.remove(&number) {
                *self.count(call.it.kind) -= 1;
                found.push(call.it);
            }
        }
        found
    }
}

/// The answer to a call to which every answer was a yes.
fn written(done: &Waiting) -> Option<Vec<u8>> {
    match done.it.kind {
        Kind::Send => {
            let asked = asked::read(&done.it.message).ok()?;
            let (offset, transaction) = &done.offset;
            let transaction = transaction.as_deref().unwrap_or_default();
            Some(sends::answer(asked.id, *offset, transaction))
        }
        Kind::Ack => Some(acks::answer(&acks::read(&done.it.message).ok()?)),
    }
}
