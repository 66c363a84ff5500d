//! Plain sends of gRPC on the fast path: a request becomes a frame, the frame's answer the call's.
//!
//! What is plain here is what `proxy/services/produce.py` takes without a refusal: one message of type NORMAL
//! or FIFO for a topic of that type, within all limits, of the fields that `asked.rs` lists. Everything
//! else is left to it, as if nobody had looked. The frame passes the rules of every send (`ingest/send.rs`).
//!
//! **Invariant.** A call is answered here only after its message was appended; a call that was not
//! answered here has changed nothing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;

use super::asked::{read, Asked};
use super::fields::{Odd, Written};
use super::{Head, News, Server};
use crate::codec::command::{Encoding, Header, JAVA};
use crate::codec::{frame, host};
use crate::ingest::send::SEND;
use crate::ingest::table::{Shared, Table};
use crate::ingest::{Ingest, Read};
use crate::java_hash;
use crate::store::Store;

pub(super) const METHOD: &str = "/apache.rocketmq.v2.MessagingService/SendMessage";
pub(super) const CLIENT_ID: &str = "x-mq-client-id";
const CLIENT_ID_LENGTH_MAX: usize = 1024;
/// `Code.OK`.
pub(super) const OK: u64 = 20_000;
/// `INTERNAL` of gRPC.
const INTERNAL: u8 = 13;
/// Bit of a stored message whose body is compressed.
pub(super) const SYS_COMPRESSED: i32 = 1;
/// Properties beyond this are left alone: the fast path takes 32, of which it needs some itself.
const SPARE_PROPERTIES: usize = 20;
/// The connection of the ingest that stands for whoever is served at the moment, and those below it for
/// others who are served with him: no port has so many.
pub(super) const CONNECTION: u64 = u64::MAX;
/// Frames that are appended together.
const TOGETHER_MAX: usize = 4 << 20;

/// What a message may have. Sizes are bytes, of which 0 stands for no limit.
#[derive(Clone, Debug, Default)]
pub struct SendRules {
    /// Body.
    pub body: usize,
    /// User properties.
    pub properties: usize,
    /// Keys and values, tag and keys.
    pub property_bytes: usize,
    /// A message group is shorter.
    pub group: usize,
    /// Whether topics take their own type alone.
    pub checks_type: bool,
    /// Names that no user's property may have.
    pub reserved: HashSet<String>,
}

/// Answers plain sends.
#[derive(Debug)]
pub struct Sends {
    rules: SendRules,
    /// The queue of the next message without a group.
    turn: AtomicU32,
}

/// A send that is plain so far.
struct Plain {
    call: u64,
    connection: u64,
    head: Box<Head>,
    message: Bytes,
    /// Of the message, once that was looked at.
    id: Bytes,
}

impl Sends {
    /// Begins with the first queue.
    pub fn new(rules: SendRules) -> Self {
        Self {
            rules,
            turn: AtomicU32::new(0),
        }
    }

    /// What messages may have.
    pub fn rules(&self) -> &SendRules {
        &self.rules
    }

    /// Answers what is plain among the news, and returns the rest. `shared` is what the ingest goes by.
    ///
    /// News of a connection keep their order, but for sends, which clients start side by side.
    pub fn answer(
        &self,
        server: &Server,
        news: Vec<News>,
        (ingest, shared, store): (&mut Ingest, &Shared, &Store),
        now_ms: i64,
    ) -> Vec<News> {
        if !shared.read().answers_at_once() {
            return news;
        }
        let mut left = Vec::with_capacity(news.len());
        let mut batch = Batch::default();
        let slow = server.slow(news.iter().filter_map(News::unary));
        for one in news {
            let mut plain = match one {
                News::Call {
                    call,
                    connection,
                    head,
                    message: Some(message),
                } if head.path() == METHOD => Plain {
                    call,
                    connection,
                    head,
                    message,
                    id: Bytes::new(),
                },
                other => {
                    batch.send(server, (&mut *ingest, store), now_ms, &mut left);
                    left.push(other);
                    continue;
                }
            };
            if !batch.takes(&plain) {
                batch.send(server, (&mut *ingest, store), now_ms, &mut left);
            }
            let table = shared.read();
            let framed = if slow.contains(&plain.call) {
                Err(Odd)
            } else {
                self.frame(&table, &plain, now_ms, &mut batch.frames)
            };
            drop(table);
            match framed {
                Ok(id) => {
                    plain.id = id;
                    batch.push(plain);
                }
                Err(Odd) => left.push(plain.into()),
            }
        }
        batch.send(server, (ingest, store), now_ms, &mut left);
        server.answer(batch.done);
        left
    }

    /// Appends the frame of a send; returns the message's id.
    fn frame(
        &self,
        table: &Table,
        plain: &Plain,
        now_ms: i64,
        out: &mut Vec<u8>,
    ) -> Result<Bytes, Odd> {
        check_client(&plain.head)?;
        let asked = read(&plain.message)?;
        let row = table.topics.get(asked.topic).ok_or(Odd)?;
        self.check(&asked, (row.takes.normal(), row.takes.fifo()))?;
        let queues = u32::try_from(row.front_queues).map_err(|_| Odd)?;
        let queue = self.queue(asked.group, queues)?;
        let born = match asked.born_ms {
            Some(born_ms) => born_ms.to_string(),
            None => now_ms.to_string(),
        };
        let properties = properties(&asked, &plain.head, &born);
        let flag = if asked.is_gzip { SYS_COMPRESSED } else { 0 };
        let (queue, flag) = (queue.to_string(), flag.to_string());
        let ext = [
            ("producerGroup", asked.topic),
            ("topic", asked.topic),
            ("defaultTopic", asked.topic),
            ("defaultTopicQueueNums", "0"),
            ("queueId", &queue),
            ("sysFlag", &flag),
            ("bornTimestamp", &born),
            ("flag", "0"),
            ("properties", &properties),
            ("reconsumeTimes", "0"),
        ];
        let header = Header {
            code: SEND,
            language: JAVA,
            ..Header::empty()
        };
        let size = asked.body.len();
        frame::encode_start(Encoding::Binary, &header, Some(ext.into_iter()), size, out)
            .map_err(|_| Odd)?;
        out.extend_from_slice(asked.body);
        Ok(plain.message.slice_ref(asked.id.as_bytes()))
    }

    /// Checks what the front would refuse, and what it would do more for. The topic is for messages
    /// without a group, for those with one, or for both.
    pub(super) fn check(&self, asked: &Asked<'_>, (normal, fifo): (bool, bool)) -> Result<(), Odd> {
        let rules = &self.rules;
        let within = |size: usize, most: usize| most == 0 || size <= most;
        let fits = if asked.group.is_empty() { normal } else { fifo };
        let mut size = asked.tag.len() + asked.keys.iter().map(|key| key.len()).sum::<usize>();
        for (name, value) in &asked.properties {
            if name.is_empty() || rules.reserved.contains(*name) {
                return Err(Odd);
            }
            size += name.len() + value.len();
        }
        let plain_texts = is_word(asked.id)
            && (asked.tag.is_empty() || is_word(asked.tag) && !asked.tag.contains('|'))
            && asked.keys.iter().all(|key| is_word(key))
            && (asked.born_host.is_empty() || is_word(asked.born_host))
            && (asked.group.is_empty() || !asked.group.trim().is_empty());
        let group_fits = rules.group == 0 || asked.group.len() < rules.group;
        let fine = plain_texts
            && group_fits
            && (fits || !rules.checks_type)
            && !asked.body.is_empty()
            && within(asked.body.len(), rules.body)
            && asked.properties.len() <= rules.properties.min(SPARE_PROPERTIES)
            && within(size, rules.property_bytes);
        fine.then_some(()).ok_or(Odd)
    }

    /// The queue of a message group, or the next in turn, of so many.
    pub(super) fn queue(&self, group: &str, queues: u32) -> Result<u32, Odd> {
        if queues == 0 {
            return Err(Odd);
        }
        if group.is_empty() {
            return Ok(self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1) % queues);
        }
        Ok(queue_of_group(group, queues))
    }
}

/// The queue of a message group: the consistent hash that Java's proxy takes.
pub fn queue_of_group(group: &str, queues: u32) -> u32 {
    let mut state = i64::from(java_hash::hash(group.as_bytes())).cast_unsigned();
    let mut candidate = 0_u32;
    loop {
        state = state
            .wrapping_mul(2_862_933_555_777_941_757)
            .wrapping_add(1);
        #[allow(clippy::cast_precision_loss)] // 31 bits.
        let share = ((state >> 33) + 1) as f64 / f64::from(1_u32 << 31);
        let following = (f64::from(candidate) + 1.0) / share;
        if following >= f64::from(queues) {
            return candidate;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Below `queues`.
        let next = following as u32;
        candidate = next;
    }
}

/// Whether a text has something to read and no blank, so that nobody asks what it means.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

pub(super) fn check_client(head: &Head) -> Result<(), Odd> {
    let id = head.last(CLIENT_ID).ok_or(Odd)?;
    (is_word(id) && id.len() <= CLIENT_ID_LENGTH_MAX)
        .then_some(())
        .ok_or(Odd)
}

/// Writes the properties of a message, in the order of the front.
pub(super) fn properties(asked: &Asked<'_>, head: &Head, born: &str) -> String {
    let mut out = String::with_capacity(256);
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(name);
            out.push('\u{1}');
            out.push_str(value);
            out.push('\u{2}');
        }
    };
    for (name, value) in &asked.properties {
        add(name, value);
    }
    let host = match asked.born_host {
        "" => head.peer().rsplit_once(':').map_or("", |(host, _)| host),
        given => given,
    };
    add("TAGS", asked.tag);
    add("KEYS", &asked.keys.join(" "));
    add("UNIQ_KEY", asked.id);
    add("PGROUP", asked.topic);
    add("RECONSUME_TIME", &asked.attempt.to_string());
    add("__SHARDINGKEY", asked.group);
    add("TRACE_CONTEXT", asked.trace);
    add("__BORNHOST", host);
    add("BORN_TIMESTAMP", born);
    out
}

impl From<Plain> for News {
    fn from(plain: Plain) -> Self {
        Self::Call {
            call: plain.call,
            connection: plain.connection,
            head: plain.head,
            message: Some(plain.message),
        }
    }
}

/// Sends of one turn, of whichever connections, that are appended together.
#[derive(Default)]
struct Batch {
    sends: Vec<Plain>,
    frames: Vec<u8>,
    /// Where the frame of each of them ends.
    ends: Vec<usize>,
    /// Answers to those that were appended before.
    done: Vec<(u64, Vec<u8>)>,
}

/// The place of a message that was stored, or why it was not.
type Outcome = Result<(u64, Option<String>), String>;

impl Batch {
    fn takes(&self, plain: &Plain) -> bool {
        self.frames.len() + plain.message.len() <= TOGETHER_MAX
    }

    fn push(&mut self, plain: Plain) {
        self.sends.push(plain);
        self.ends.push(self.frames.len());
    }

    /// Appends them and answers; those that the fast path did not take go to `left`.
    fn send(
        &mut self,
        server: &Server,
        (ingest, store): (&mut Ingest, &Store),
        now_ms: i64,
        left: &mut Vec<News>,
    ) {
        if self.sends.is_empty() {
            return;
        }
        let outcomes = self.feed((ingest, store), now_ms);
        for (plain, outcome) in self.sends.drain(..).zip(outcomes) {
            match outcome {
                None => left.push(plain.into()),
                Some(Ok((offset, transaction))) => {
                    let id = std::str::from_utf8(&plain.id).unwrap_or_default();
                    let answer = answer(id, offset, transaction.as_deref().unwrap_or(""));
                    self.done.push((plain.call, answer));
                }
                // It was refused or is not safe: it must not be sent a second time from here.
                Some(Err(remark)) => drop(server.finish(plain.call, INTERNAL, &remark)),
            }
        }
        self.frames.clear();
        self.ends.clear();
    }

    /// Returns what became of each; `None` is for the handlers.
    fn feed(&self, (ingest, store): (&mut Ingest, &Store), now_ms: i64) -> Vec<Option<Outcome>> {
        let mut reads = Vec::with_capacity(self.sends.len());
        let (mut start, mut key, mut last) = (0, CONNECTION, None);
        for (plain, end) in self.sends.iter().zip(&self.ends) {
            if last.replace(plain.connection) != Some(plain.connection) {
                // A record says whose address it came from.
                key -= 1;
                ingest.open(key, &host::encode(plain.head.peer_address()), false);
            }
            let data = self.frames.get(start..*end).unwrap_or_default();
            start = *end;
            reads.push(Read { key, data });
        }
        let fed = ingest.feed_together(store, &reads, now_ms);
        (key..CONNECTION).for_each(|key| ingest.close(key));
        let mut start = 0;
        let outcome = |end: &Option<usize>| {
            let end = (*end)?;
            let reply = fed.replies.get(start..end).unwrap_or_default();
            start = end;
            // It is in the log, so it must not be sent a second time from here.
            Some(outcome_of(reply).unwrap_or_else(|| Err("its answer waits".to_owned())))
        };
        fed.ends.iter().map(outcome).collect()
    }
}

/// Reads the answer to a send.
fn outcome_of(reply: &[u8]) -> Option<Outcome> {
    let frame = frame::cut(reply, usize::MAX >> 1).ok()??;
    let header = frame.decode_header().ok()?;
    let offset = header.get("queueOffset").and_then(|text| text.parse().ok());
    Some(match offset {
        Some(offset) if header.code == 0 => {
            Ok((offset, header.get("transactionId").map(str::to_owned)))
        }
        _ => Err(header.remark.as_deref().unwrap_or("not stored").to_owned()),
    })
}

/// Writes the answer of a message that is stored.
pub(super) fn answer(id: &str, offset: u64, transaction: &str) -> Vec<u8> {
    let mut status = Written::default();
    status.number(1, OK).text(2, "OK");
    let mut entry = Written::default();
    entry
        .message(1, &status.0)
        .text(2, id)
        .text(3, transaction)
        .number(4, offset);
    let mut answer = Written::default();
    answer.message(1, &status.0).message(2, &entry.0);
    answer.0
}
