//! Sends of the remoting protocol that a proxy passes on to brokers, and the brokers' answers back: the
//! numbers of the frames are changed and nothing else.
//!
//! A send passes here when its topic and broker were [put](SendForwarder::put) a moment ago, and it is of
//! the type that needs no look at the topic's. Everything else is returned for the owner, who also has the
//! connections: it writes what this returns.
//!
//! **Invariant.** A send that was taken leaves by exactly one door: with the broker's answer, back to the
//! owner because no broker has looked at it, or as one whose outcome nobody knows.

use std::collections::{BTreeMap, HashMap};

use crate::codec::command::{Header, FLAG_ONE_WAY, FLAG_RESPONSE};
use crate::codec::error::CodecError;
use crate::codec::frame::{self, Frame};
use crate::codec::properties::pairs;

/// `SEND_MESSAGE_V2`, whose fields have names of one letter.
const SEND_V2: i32 = 310;
/// The broker is stopping and has not looked at the request.
const GO_AWAY: i32 = 1500;
/// Topic, properties, whether it is a batch, broker.
const FIELDS: [&str; 4] = ["b", "i", "m", "n"];

/// What the owner allows. Times are milliseconds.
#[derive(Clone, Debug)]
pub struct SendForwarding {
    /// Longest frame in bytes.
    pub frame_max: usize,
    /// How long a broker is waited for.
    pub patience_ms: i64,
    /// Sends at a time.
    pub sends_max: usize,
    /// Properties that make a message one of a type.
    pub typed: Vec<String>,
}

/// Frames for one connection, and the numbers of the sends that they are.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Whole frames.
    pub frames: Vec<u8>,
    /// Numbers of the sends.
    pub numbers: Vec<i32>,
}

/// A send without an answer.
#[derive(Debug)]
pub struct Unanswered {
    /// Key of the client's connection.
    pub client: u64,
    /// The number that the client gave it.
    pub opaque: i32,
    /// Key of the broker's connection.
    pub line: u64,
    /// The frame as it came.
    pub frame: Vec<u8>,
}

/// What came of bytes.
#[derive(Debug, Default)]
pub struct Passed {
    /// Frames to write, by the key of the connection.
    pub out: BTreeMap<u64, Outgoing>,
    /// Frames for the owner.
    pub rest: Vec<u8>,
    /// Sends that no broker has looked at.
    pub again: Vec<Unanswered>,
    /// Why no more can be read of the connection.
    pub broken: Option<CodecError>,
}

struct Row {
    line: u64,
    until_ms: i64,
}

struct Waiting {
    ends_ms: i64,
    it: Unanswered,
}

/// Sends between clients and brokers. The owner's thread alone uses it.
pub struct SendForwarder {
    rules: SendForwarding,
    /// Topic to broker to what is known of them.
    rows: HashMap<String, HashMap<String, Row>>,
    partial: HashMap<u64, Vec<u8>>,
    waiting: HashMap<i32, Waiting>,
    next: i32,
}

impl SendForwarder {
    /// Begins without topics.
    pub fn new(rules: SendForwarding) -> Self {
        Self {
            rules,
            rows: HashMap::new(),
            partial: HashMap::new(),
            waiting: HashMap::new(),
            next: 0,
        }
    }

    /// Lets sends to a topic of a broker pass by a connection until a steady time.
    pub fn put(&mut self, topic: &str, broker: &str, line: u64, until_ms: i64) {
        let brokers = self.rows.entry(topic.to_owned()).or_default();
        brokers.insert(broker.to_owned(), Row { line, until_ms });
    }

    /// Forgets what counts no more at a steady time, or everything.
    pub fn forget(&mut self, steady_ms: Option<i64>) {
        let Some(now_ms) = steady_ms else {
            return self.rows.clear();
        };
        for brokers in self.rows.values_mut() {
            brokers.retain(|_, row| now_ms < row.until_ms);
        }
        self.rows.retain(|_, brokers| !brokers.is_empty());
    }

    /// How many sends wait for a broker.
    pub fn waits(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of a connection's incomplete frame.
    pub fn held(&self, key: u64) -> usize {
        self.partial.get(&key).map_or(0, Vec::len)
    }

    /// Forgets a connection of either side; returns the sends whose answers cannot come any more.
    pub fn close(&mut self, key: u64) -> Vec<Unanswered> {
        self.partial.remove(&key);
        for brokers in self.rows.values_mut() {
            brokers.retain(|_, row| row.line != key);
        }
        self.remove(|send| send.it.line == key)
    }

    /// Returns the sends that have waited for too long.
    pub fn late(&mut self, steady_ms: i64) -> Vec<Unanswered> {
        self.remove(|send| send.ends_ms <= steady_ms)
    }

    /// Takes sends back whose frames were not written.
    pub fn take_back(&mut self, numbers: &[i32]) -> Vec<u8> {
        let found = numbers.iter().filter_map(|one| self.waiting.remove(one));
        found.flat_map(|send| send.it.frame).collect()
    }

    /// Takes bytes of a client.
    pub fn ask(&mut self, client: u64, data: &[u8], steady_ms: i64) -> Passed {
        self.pass(client, data, |all, whole, frame, passed| {
            let header = frame.decode_header()?;
            match all.row_of(&header, steady_ms) {
                Some(line) => all.send((client, line), (&header, frame, whole), steady_ms, passed),
                None => passed.rest.extend_from_slice(whole),
            }
            Ok(())
        })
    }

    /// Takes bytes of a broker.
    pub fn answer(&mut self, line: u64, data: &[u8]) -> Passed {
        self.pass(line, data, |all, whole, frame, passed| {
            let mut header = frame.decode_header()?;
            let is_known = header.flag & FLAG_RESPONSE != 0
                && (all.waiting.get(&header.opaque)).is_some_and(|send| send.it.line == line);
            let Some(send) = is_known
                .then(|| all.waiting.remove(&header.opaque))
                .flatten()
            else {
                passed.rest.extend_from_slice(whole);
                return Ok(());
            };
            if header.code == GO_AWAY {
                passed.again.push(send.it);
                return Ok(());
            }
            header.opaque = send.it.opaque;
            let out = passed.out.entry(send.it.client).or_default();
            write(&header, frame, &mut out.frames)
        })
    }

    fn pass(
        &mut self,
        key: u64,
        data: &[u8],
        mut take: impl FnMut(&mut Self, &[u8], &Frame<'_>, &mut Passed) -> Result<(), CodecError>,
    ) -> Passed {
        let mut passed = Passed::default();
        let before = self.partial.remove(&key);
        let joined = before.map(|mut partial| {
            partial.extend_from_slice(data);
            partial
        });
        let mut left = joined.as_deref().unwrap_or(data);
        loop {
            let found = frame::cut(left, self.rules.frame_max).and_then(|found| {
                let Some(frame) = found else {
                    return Ok(false);
                };
                let (whole, behind) = left.split_at_checked(frame.size).unwrap_or_default();
                left = behind;
                take(self, whole, &frame, &mut passed).map(|()| true)
            });
            match found {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    passed.broken = Some(error);
                    return passed;
                }
            }
        }
        if !left.is_empty() {
            // Grows with the bytes received, never with the length that a peer declares.
            self.partial.insert(key, left.to_vec());
        }
        passed
    }

    /// The connection that a send may take, if it is plain.
    fn row_of(&self, header: &Header<'_>, steady_ms: i64) -> Option<u64> {
        let is_asked = header.flag & (FLAG_RESPONSE | FLAG_ONE_WAY) == 0;
        if header.code != SEND_V2 || !is_asked || self.waiting.len() >= self.rules.sends_max {
            return None;
        }
        let [topic, properties, batch, broker] = FIELDS.map(|name| header.get(name));
        let row = self.rows.get(topic?)?.get(broker?)?;
        let is_one = batch.is_none_or(|text| text == "false");
        if steady_ms >= row.until_ms || !is_one {
            return None;
        }
        let typed = &self.rules.typed;
        let mut named = pairs(properties.unwrap_or_default());
        named
            .all(|(name, _)| typed.iter().all(|known| known != name))
            .then_some(row.line)
    }

    fn send(
        &mut self,
        (client, line): (u64, u64),
        (header, frame, whole): (&Header<'_>, &Frame<'_>, &[u8]),
        steady_ms: i64,
        passed: &mut Passed,
    ) {
        let number = self.free();
        let numbered = Header {
            opaque: number,
            ..header.clone()
        };
        let out = passed.out.entry(line).or_default();
        if write(&numbered, frame, &mut out.frames).is_err() {
            passed.rest.extend_from_slice(whole);
            return;
        }
        out.numbers.push(number);
        let it = Unanswered {
            client,
            opaque: header.opaque,
            line,
            frame: whole.to_vec(),
        };
        let ends_ms = steady_ms.saturating_add(self.rules.patience_ms);
        self.waiting.insert(number, Waiting { ends_ms, it });
    }

    /// A number that no send has which waits. Numbers wrap.
    fn free(&mut self) -> i32 {
        loop {
            let number = self.next;
            self.next = number.checked_add(1).unwrap_or(0);
            if !self.waiting.contains_key(&number) {
                return number;
            }
        }
    }

    fn remove(&mut self, is_over: impl Fn(&Waiting) -> bool) -> Vec<Unanswered> {
        let over = self.waiting.iter().filter(|(_, send)| is_over(send));
        let over: Vec<i32> = over.map(|(number, _)| *number).collect();
        let found = over.iter().filter_map(|one| self.waiting.remove(one));
        found.map(|send| send.it).collect()
    }
}

/// Appends a frame with another header of the same fields.
fn write(header: &Header<'_>, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let ext = header.ext.as_ref();
    let ext = ext.map(|ext| {
        ext.iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()))
    });
    frame::encode_start(frame.encoding, header, ext, frame.body.len(), out)?;
    out.extend_from_slice(frame.body);
    Ok(())
}
