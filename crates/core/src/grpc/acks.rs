//! Plain acknowledgements of gRPC on the fast path: each entry becomes a frame.
//!
//! What is plain here is what `proxy/services/consume.py` takes without a refusal: messages of one topic
//! whose handles are alive and name no retry topic. The frames pass the rules of every acknowledgement
//! (`ingest/pop/acks.rs`).
//!
//! **Invariant.** A call is answered here only after the record of each of its entries is in the log. A
//! call that is left to the front may have some there already: a second record does no harm.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::fields::{Fields, Odd, Written};
use super::sends::{CONNECTION, OK};
use crate::codec::command::{Encoding, Header, JAVA};
use crate::codec::{frame, host};
use crate::ingest::pop::ACK;
use crate::ingest::table::Shared;
use crate::ingest::Ingest;
use crate::pop::handle::Handle;
use crate::store::Store;

/// Entries of a call that is answered here.
const ENTRIES_MAX: usize = 1024;
/// Fields of a handle as the broker reads it; the place in the log stands behind them.
const HANDLE_FIELDS: usize = 8;
/// The retry flag of a message that lies in its own topic.
const NORMAL: &str = "0";

/// Names that clients may not use.
#[derive(Clone, Debug, Default)]
pub struct SystemNames {
    /// Topics.
    pub topics: HashSet<String>,
    /// What further topics begin with.
    pub topic_prefix: String,
    /// What groups begin with.
    pub group_prefix: String,
}

/// An entry of a request.
pub(super) struct Entry<'a> {
    id: &'a str,
    /// The handle as the client has it.
    handle: &'a str,
    /// The handle as the broker reads it.
    pub(super) plain: &'a str,
    queue_id: &'a str,
    offset: &'a str,
}

pub(super) struct Asked<'a> {
    pub(super) topic: &'a str,
    pub(super) group: &'a str,
    pub(super) entries: Vec<Entry<'a>>,
}

impl SystemNames {
    /// Acknowledges what a request names; returns the answer, `None` when it is for the front.
    pub fn acknowledge(
        &self,
        (peer, request): (&str, &[u8]),
        (ingest, shared, store): (&mut Ingest, &Shared, &Store),
        now_ms: i64,
    ) -> Option<Vec<u8>> {
        if !shared.read().answers_at_once() {
            return None;
        }
        let asked = read(request).ok()?;
        self.allows(&asked).then_some(())?;
        let mut frames = Vec::with_capacity(256 * asked.entries.len());
        for (number, entry) in asked.entries.iter().enumerate() {
            let handle = Handle::read(entry.plain)?;
            if now_ms > handle.revive_ms()? {
                return None;
            }
            let opaque = i32::try_from(number).ok()?;
            let header = Header {
                code: ACK,
                language: JAVA,
                opaque,
                ..Header::empty()
            };
            write_frame(Encoding::Binary, &asked, entry, &header, &mut frames)?;
        }
        let peer = peer.parse::<SocketAddr>().ok()?;
        ingest.open(CONNECTION, &host::encode(peer), false);
        let fed = ingest.feed(store, CONNECTION, &frames, now_ms, &mut |_, _| ());
        ingest.close(CONNECTION);
        let done = successes(&fed.replies.pieces(0).collect::<Vec<_>>().concat());
        ingest.recycle(fed.replies);
        (done == asked.entries.len()).then(|| answer(&asked))
    }

    pub(super) fn allows(&self, asked: &Asked<'_>) -> bool {
        !self.topics.contains(asked.topic)
            && !asked.topic.starts_with(&self.topic_prefix)
            && !asked.group.starts_with(&self.group_prefix)
    }
}

pub(super) fn read(request: &[u8]) -> Result<Asked<'_>, Odd> {
    let (mut group, mut topic, mut entries) = (None, None, Vec::new());
    let mut fields = Fields(request);
    while let Some((number, value)) = fields.next()? {
        let data = value.bytes()?;
        match number {
            1 if group.is_none() => group = Some(super::asked::name_of(data)?),
            2 if topic.is_none() => topic = Some(super::asked::name_of(data)?),
            3 if entries.len() < ENTRIES_MAX => entries.push(entry(data)?),
            _ => return Err(Odd),
        }
    }
    if entries.is_empty() {
        return Err(Odd);
    }
    Ok(Asked {
        topic: topic.ok_or(Odd)?,
        group: group.ok_or(Odd)?,
        entries,
    })
}

fn entry(data: &[u8]) -> Result<Entry<'_>, Odd> {
    let (mut id, mut handle) = ("", "");
    let mut fields = Fields(data);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => id = value.text()?,
            2 => handle = value.text()?,
            _ => return Err(Odd),
        }
    }
    let plain = match handle.match_indices(' ').nth(HANDLE_FIELDS - 1) {
        Some((end, _)) => handle.get(..end).unwrap_or_default(),
        None => handle,
    };
    let mut parts = plain.split(' ').skip(4);
    let (Some(NORMAL), Some(_), Some(queue_id), Some(offset)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Odd);
    };
    Ok(Entry {
        id,
        handle,
        plain,
        queue_id,
        offset,
    })
}

/// Appends the frame that acknowledges one entry. A binary header keeps 16 bits of its code, which only
/// this broker's own ingest reads as what they say: other brokers get JSON.
pub(super) fn write_frame(
    encoding: Encoding,
    asked: &Asked<'_>,
    entry: &Entry<'_>,
    header: &Header<'_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let ext = [
        ("consumerGroup", asked.group),
        ("topic", asked.topic),
        ("queueId", entry.queue_id),
        ("extraInfo", entry.plain),
        ("offset", entry.offset),
    ];
    frame::encode_start(encoding, header, Some(ext.into_iter()), 0, out).ok()
}

/// Counts the answers that are a success.
fn successes(mut replies: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(frame)) = frame::cut(replies, usize::MAX >> 1) {
        replies = replies.get(frame.size..).unwrap_or_default();
        count += usize::from(frame.decode_header().is_ok_and(|header| header.code == 0));
    }
    count
}

/// Writes the answer to a request whose entries are all acknowledged.
pub(super) fn answer(asked: &Asked<'_>) -> Vec<u8> {
    let mut status = Written::default();
    status.number(1, OK).text(2, "OK");
    let mut answer = Written::default();
    answer.message(1, &status.0);
    for entry in &asked.entries {
        let mut done = Written::default();
        done.text(1, entry.id)
            .text(2, entry.handle)
            .message(3, &status.0);
        answer.message(2, &done.0);
    }
    answer.0
}
