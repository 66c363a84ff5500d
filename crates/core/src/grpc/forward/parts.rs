//! What goes into the forwarder and what comes out of it, and the small rules of its frames.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::super::acks::SystemNames;
use super::super::fields::Odd;
use super::super::{Head, News};
use crate::codec::command::Header;
use crate::codec::error::CodecError;

/// Characters of a group that is looked at no further.
const GROUP_MAX: usize = 120;
/// Brokers without a line that are named at a time.
const WANTED_MAX: usize = 64;

/// How the forwarder asks brokers. Times are milliseconds.
#[derive(Clone, Debug)]
pub struct ForwardRules {
    /// Names that no client may use.
    pub system: SystemNames,
    /// The topic whose queues a new one takes.
    pub template: String,
    /// Queues of a topic that is made by a send.
    pub template_queues: u32,
    /// The version that requests claim.
    pub version: i32,
    /// Longest frame of a broker in bytes.
    pub frame_max: usize,
    /// How long a broker is waited for, with sends and with acknowledgements.
    pub patience_ms: (i64, i64),
    /// Sends at a time, and as many calls with acknowledgements.
    pub calls_max: usize,
}

/// A topic that may be sent to, until a steady time.
#[derive(Clone, Debug)]
pub struct Target {
    /// Whether it takes messages without a group, and those with one.
    pub takes: (bool, bool),
    /// Brokers and the queues that each of them has for writing.
    pub places: Vec<(Arc<str>, u32)>,
    /// From then on it is asked for again.
    pub until_ms: i64,
}

/// What is asked of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SendMessage`.
    Send,
    /// `AckMessage`.
    Ack,
}

/// A call whose outcome is for the owner to tell.
#[derive(Debug)]
pub struct Unsettled {
    /// Number of the call.
    pub call: u64,
    /// What it asks.
    pub kind: Kind,
    /// The broker that it went to.
    pub broker: Arc<str>,
    /// The steady time at which it did.
    pub began_ms: i64,
    /// The request.
    pub message: Bytes,
    /// Answers that are no plain success: the entry of the request, and the frame, which is empty where
    /// there was none.
    pub answers: Vec<(usize, Vec<u8>)>,
}

/// Frames for one line.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Whole frames.
    pub frames: Vec<u8>,
    /// The calls that they are of.
    pub calls: Vec<u64>,
}

/// What was taken of some news.
#[derive(Debug, Default)]
pub struct Taken {
    /// What is for the owner.
    pub news: Vec<News>,
    /// What is to be written, by the key of the connection.
    pub out: BTreeMap<u64, Outgoing>,
    /// Brokers that have no line, though a call was for them.
    pub wanted: Vec<String>,
}

/// What came of bytes of a broker.
#[derive(Debug, Default)]
pub struct Fed {
    /// Frames that answer nothing of this forwarder.
    pub rest: Vec<u8>,
    /// Calls that were answered otherwise than by a plain yes.
    pub odd: Vec<Unsettled>,
    /// Calls that the broker has not looked at.
    pub news: Vec<News>,
    /// Whether any call was answered.
    pub answered: bool,
    /// Why no more can be read of the connection.
    pub broken: Option<CodecError>,
}

/// A call whose frames brokers have not all answered.
pub(super) struct Waiting {
    pub(super) connection: u64,
    pub(super) head: Box<Head>,
    pub(super) line: u64,
    pub(super) ends_ms: i64,
    /// Frames without an answer.
    pub(super) left: usize,
    pub(super) was_sent_away: bool,
    pub(super) offset: (u64, Option<String>),
    pub(super) it: Unsettled,
}

/// A call whose frames are about to be written.
pub(super) struct Begun {
    pub(super) kind: Kind,
    pub(super) broker: Arc<str>,
    pub(super) line: u64,
    pub(super) frames: usize,
}

impl Waiting {
    pub(super) fn into_news(self) -> News {
        News::Call {
            call: self.it.call,
            connection: self.connection,
            head: self.head,
            message: Some(self.it.message),
        }
    }
}

pub(super) fn line_of(
    lines: &HashMap<Arc<str>, u64>,
    broker: &Arc<str>,
    taken: &mut Taken,
) -> Result<u64, Odd> {
    if let Some(line) = lines.get(broker) {
        return Ok(*line);
    }
    let is_new = taken.wanted.len() < WANTED_MAX && taken.wanted.iter().all(|it| **it != **broker);
    if is_new {
        taken.wanted.push(broker.to_string());
    }
    Err(Odd)
}

/// A number that no frame has which waits. Numbers wrap.
pub(super) fn free(next: &mut i32, used: &HashMap<i32, (u64, usize)>) -> i32 {
    loop {
        let opaque = *next;
        *next = next.checked_add(1).unwrap_or(0);
        if !used.contains_key(&opaque) {
            return opaque;
        }
    }
}

/// The broker and its queue behind a number of all queues that can be written to.
pub(super) fn place_of(
    places: &[(Arc<str>, u32)],
    mut index: u32,
) -> Result<(&Arc<str>, u32), Odd> {
    for (broker, queues) in places {
        if index < *queues {
            return Ok((broker, index));
        }
        index -= queues;
    }
    Err(Odd)
}

/// Whether a name is of letters, digits and what stands between them.
pub(super) fn is_group(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.len() <= GROUP_MAX && name.bytes().all(fits)
}

/// Where a message lies that was stored as it should be; a message that can be taken back has more to say.
pub(super) fn read_place(header: &Header<'_>) -> Option<(u64, Option<String>)> {
    let offset = header.get("queueOffset")?.parse().ok()?;
    let is_plain = header.get("recallHandle").is_none_or(str::is_empty);
    is_plain.then(|| (offset, header.get("transactionId").map(str::to_owned)))
}
