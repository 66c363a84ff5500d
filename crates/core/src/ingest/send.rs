//! Plain sends: from the fields of the request to a record, and from its place to the answer.

use std::borrow::Cow;
use std::fmt::Write;

use super::scan;
use super::table::State;
use crate::codec::command::{Encoding, Header, FLAG_RESPONSE, JAVA};
use crate::codec::error::CodecError;
use crate::codec::frame;
use crate::codec::header;
use crate::codec::message_id;
use crate::codec::record::SYS_TRANSACTION;

/// SEND_MESSAGE.
pub const SEND: i32 = 10;
/// SEND_MESSAGE_V2: the same with one-letter names.
pub const SEND_SHORT: i32 = 310;

/// SEND_BATCH_MESSAGE: a body of several messages, when its field says so as well.
pub const SEND_BATCH: i32 = 320;

/// Whether a request code is one of them.
pub(super) fn is_send(code: i32) -> bool {
    matches!(code, SEND | SEND_SHORT | SEND_BATCH)
}

/// SYSTEM_BUSY.
pub const SYSTEM_BUSY: i32 = 2;

/// The transaction bits of a half message.
const SYS_PREPARED: i32 = 0x4;

/// sysFlag bits that make a message something else than a plain one.
const SYS_UNPLAIN: i32 = SYS_TRANSACTION | 0x40 | 0x80;

/// The fields of a plain send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue, not below 0.
    pub queue_id: i32,
    /// sysFlag of the message.
    pub sys_flag: i32,
    /// Born time, Unix milliseconds.
    pub born_timestamp: i64,
    /// The user's flag.
    pub flag: i32,
    /// Property text.
    pub properties: &'a str,
    /// How often it was consumed in vain.
    pub reconsume_times: i32,
    /// Whether the body holds several messages.
    pub batch: bool,
    /// Whether the sysFlag said that it is a half message; `sys_flag` does not say so any more.
    pub prepared: bool,
}

/// Required fields seen: producer group, topic, default topic, its queues, queue, three numbers.
const REQUIRED: u32 = 0xFF;

/// Reads a send; `None` when a field is missing or odd, so that the handlers may say so.
pub fn read<'a>(header: &'a Header<'_>) -> Option<Request<'a>> {
    let short = header.code != SEND;
    let mut request = Request {
        topic: "",
        queue_id: -1,
        sys_flag: 0,
        born_timestamp: 0,
        flag: 0,
        properties: "",
        reconsume_times: 0,
        batch: false,
        prepared: false,
    };
    let mut seen = 0;
    for (name, value) in header.ext.as_ref()? {
        let letter = if short {
            short_name(name)
        } else {
            long_name(name)
        };
        match letter {
            b'a' | b'c' => {}
            b'b' => request.topic = value,
            b'd' | b'l' => drop(scan::number::<i32>(value)?),
            b'e' => request.queue_id = scan::number(value)?,
            b'f' => request.sys_flag = scan::number(value)?,
            b'g' => request.born_timestamp = scan::number(value)?,
            b'h' => request.flag = scan::number(value)?,
            b'i' => request.properties = value,
            b'j' => request.reconsume_times = scan::number(value)?,
            b'm' => request.batch = flag(value)?,
            _ => continue,
        }
        if letter <= b'h' {
            seen |= 1 << (letter - b'a');
        }
    }
    if request.sys_flag & SYS_TRANSACTION == SYS_PREPARED {
        request.prepared = true;
        request.sys_flag &= !SYS_TRANSACTION;
    }
    let plain = seen == REQUIRED && request.queue_id >= 0 && request.sys_flag & SYS_UNPLAIN == 0;
    plain.then_some(request)
}

fn flag(text: &str) -> Option<bool> {
    let is = |word| text.eq_ignore_ascii_case(word);
    (is("true") || is("false")).then(|| is("true"))
}

fn short_name(name: &str) -> u8 {
    match name.as_bytes() {
        [letter] => *letter,
        _ => b'z',
    }
}

fn long_name(name: &str) -> u8 {
    match name {
        "producerGroup" => b'a',
        "topic" => b'b',
        "defaultTopic" => b'c',
        "defaultTopicQueueNums" => b'd',
        "queueId" => b'e',
        "sysFlag" => b'f',
        "bornTimestamp" => b'g',
        "flag" => b'h',
        "properties" => b'i',
        "reconsumeTimes" => b'j',
        "maxReconsumeTimes" => b'l',
        "batch" => b'm',
        _ => b'z',
    }
}

/// What the answer to a send says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Correlation number of the request.
    pub opaque: i32,
    /// Queue it went to.
    pub queue_id: i32,
    /// Place in the queue.
    pub queue_offset: i64,
    /// Place in the log.
    pub physical_offset: i64,
    /// Places of the other messages of a batch.
    pub others: &'a [i64],
    /// The unique key of the message or of the batch.
    pub unique_key: Option<&'a str>,
}

/// Appends the answer with a response code, as the send handler writes it.
pub fn write_answer(
    state: &State,
    answer: &Answer<'_>,
    code: i32,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    if let Some(fixed) = &state.fixed {
        return write_json(fixed, answer, code, out);
    }
    let mut ids = message_id::encode(&state.store_host, answer.physical_offset);
    for other in answer.others {
        ids.push(',');
        ids.push_str(&message_id::encode(&state.store_host, *other));
    }
    let mut numbers = String::with_capacity(32);
    // Writing to a string cannot fail.
    let _ = write!(numbers, "{}", answer.queue_id);
    let middle = numbers.len();
    let _ = write!(numbers, "{}", answer.queue_offset);
    let (queue_id, queue_offset) = numbers.split_at(middle);
    let own = [
        ("msgId", ids.as_str()),
        ("queueId", queue_id),
        ("queueOffset", queue_offset),
    ];
    let unique_key = answer.unique_key.map(|key| ("transactionId", key));
    let fixed = state
        .send_ext
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let header = response(state, code, answer.opaque, None);
    frame::encode_start(
        state.encoding,
        &header,
        Some(own.into_iter().chain(unique_key).chain(fixed)),
        0,
        out,
    )
}

/// What all JSON answers to sends have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The broker's address in message ids.
    host: Vec<u8>,
    /// Between the last field of its own and the correlation number.
    middle: Vec<u8>,
    /// Behind that.
    end: Vec<u8>,
}

impl Fixed {
    /// Takes it from what answers say; `None` for binary headers.
    pub fn new(state: &State) -> Option<Self> {
        if state.encoding != Encoding::Json {
            return None;
        }
        let mut fixed = Self::default();
        let id = message_id::encode(&state.store_host, 0);
        let host = id.get(..2 * state.store_host.len())?;
        fixed.host.extend_from_slice(host.as_bytes());
        for (name, value) in &state.send_ext {
            fixed.middle.push(b',');
            header::json::string(name, &mut fixed.middle);
            fixed.middle.push(b':');
            header::json::string(value, &mut fixed.middle);
        }
        let rest = format!("}},\"flag\":{FLAG_RESPONSE},\"language\":\"JAVA\",\"opaque\":");
        fixed.middle.extend_from_slice(rest.as_bytes());
        let end = format!(
            ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":{}}}",
            state.version
        );
        fixed.end = end.into_bytes();
        Some(fixed)
    }
}

/// Appends an answer as the encoder of headers would, from what is the same in all of them.
fn write_json(
    fixed: &Fixed,
    answer: &Answer<'_>,
    code: i32,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; frame::PREFIX_SIZE]);
    out.extend_from_slice(b"{\"code\":");
    header::json::number(code, out);
    out.extend_from_slice(b",\"extFields\":{\"msgId\":\"");
    out.extend_from_slice(&fixed.host);
    message_id::write(&[], answer.physical_offset, out);
    for other in answer.others {
        out.push(b',');
        out.extend_from_slice(&fixed.host);
        message_id::write(&[], *other, out);
    }
    out.extend_from_slice(b"\",\"queueId\":\"");
    header::json::number(answer.queue_id, out);
    out.extend_from_slice(b"\",\"queueOffset\":\"");
    header::json::number(answer.queue_offset, out);
    out.push(b'"');
    if let Some(key) = answer.unique_key {
        out.extend_from_slice(b",\"transactionId\":");
        header::json::string(key, out);
    }
    out.extend_from_slice(&fixed.middle);
    header::json::number(answer.opaque, out);
    out.extend_from_slice(&fixed.end);
    frame::close_header(Encoding::Json, start, 0, out)
}

/// Appends an answer that refuses a send.
pub fn write_refusal(
    state: &State,
    opaque: i32,
    code: i32,
    remark: &str,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let fixed = state
        .send_ext
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let header = response(state, code, opaque, Some(remark));
    frame::encode_start(state.encoding, &header, Some(fixed), 0, out)
}

/// Appends the answer to a send for which there is no room.
pub fn write_busy(
    state: &State,
    opaque: i32,
    remark: &str,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let none: Option<std::iter::Empty<(&str, &str)>> = None;
    let header = response(state, SYSTEM_BUSY, opaque, Some(remark));
    frame::encode_start(state.encoding, &header, none, 0, out)
}

/// The header of an answer without its extFields.
pub fn response<'a>(state: &State, code: i32, opaque: i32, remark: Option<&'a str>) -> Header<'a> {
    Header {
        code,
        flag: FLAG_RESPONSE,
        language: JAVA,
        version: state.version,
        opaque,
        remark: remark.map(Cow::Borrowed),
        ext: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{read, write_answer, Answer, Fixed, Request, SEND, SEND_BATCH, SEND_SHORT};
    use crate::codec::command::Header;
    use crate::ingest::table::State;

    /// Each field by its two names, and what it says here.
    const FIELDS: [(&str, &str, &str); 12] = [
        ("a", "producerGroup", "p"),
        ("b", "topic", "T"),
        ("c", "defaultTopic", "TBW102"),
        ("d", "defaultTopicQueueNums", "8"),
        ("e", "queueId", "3"),
        ("f", "sysFlag", "1"),
        ("g", "bornTimestamp", "1700000000000"),
        ("h", "flag", "-5"),
        ("i", "properties", "k\u{1}v\u{2}"),
        ("j", "reconsumeTimes", "2"),
        ("l", "maxReconsumeTimes", "16"),
        ("m", "batch", "TRUE"),
    ];

    const WHOLE: Request<'_> = Request {
        topic: "T",
        queue_id: 3,
        sys_flag: 1,
        born_timestamp: 1_700_000_000_000,
        flag: -5,
        properties: "k\u{1}v\u{2}",
        reconsume_times: 2,
        batch: true,
        prepared: false,
    };

    /// A send with all fields; one of them may be left out or say something else.
    fn header(code: i32, changed: &str, value: Option<&'static str>) -> Header<'static> {
        let fields = FIELDS.into_iter().filter_map(|(short, long, usual)| {
            let name = if code == SEND { long } else { short };
            let said = if short == changed { value } else { Some(usual) };
            said.map(|said| (name.into(), said.into()))
        });
        Header {
            code,
            ext: Some(fields.collect()),
            ..Header::empty()
        }
    }

    /// What is read of it.
    fn said(code: i32, changed: &str, value: Option<&'static str>) -> Option<Request<'static>> {
        read(Box::leak(Box::new(header(code, changed, value))))
    }

    #[test]
    fn fields_of_a_send_are_read_by_both_of_their_names() {
        for code in [SEND, SEND_SHORT, SEND_BATCH] {
            assert_eq!(said(code, "", None), Some(WHOLE), "{code}");
            let mut other = header(code, "", None);
            other.code = if code == SEND { SEND_SHORT } else { SEND };
            assert_eq!(read(&other), None, "the names of another code");
        }
        assert_eq!(read(&Header::empty()), None);
    }

    #[test]
    fn send_without_a_field_that_it_needs_is_left_to_the_processors() {
        let bare = Request {
            properties: "",
            ..WHOLE
        };
        for code in [SEND, SEND_SHORT] {
            for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
                assert_eq!(said(code, name, None), None, "{code} {name}");
            }
            assert_eq!(said(code, "i", None), Some(bare));
            assert_eq!(said(code, "j", None).unwrap().reconsume_times, 0);
            assert_eq!(said(code, "l", None), Some(WHOLE));
            assert!(!said(code, "m", None).unwrap().batch);
        }
    }

    #[test]
    fn send_with_an_odd_value_is_left_to_the_processors() {
        for code in [SEND, SEND_SHORT] {
            for name in ["d", "e", "f", "g", "h", "j", "l", "m"] {
                assert_eq!(said(code, name, Some("x")), None, "{code} {name}");
            }
            assert_eq!(said(code, "e", Some("-1")), None, "no such queue");
            assert_eq!(said(code, "e", Some("0")).unwrap().queue_id, 0);
            assert!(!said(code, "m", Some("False")).unwrap().batch);
        }
    }

    #[test]
    fn transaction_bits_of_a_send_are_read_apart_from_the_others() {
        for (flag, left) in [("4", 0), ("5", 1)] {
            let half = Request {
                sys_flag: left,
                prepared: true,
                ..WHOLE
            };
            assert_eq!(said(SEND, "f", Some(flag)), Some(half), "{flag}");
        }
        // Committed, rolled back, or with bits that mean something else.
        for unplain in ["8", "12", "64", "68", "128", "132"] {
            assert_eq!(said(SEND, "f", Some(unplain)), None, "{unplain}");
        }
    }

    #[test]
    fn the_short_way_writes_what_the_encoder_writes() {
        let mut state = State {
            store_host: vec![127, 0, 0, 1, 0, 0, 42, 159],
            send_ext: vec![
                ("MSG_REGION".to_owned(), "a \"region\"".to_owned()),
                ("TRACE_ON".to_owned(), "true".to_owned()),
            ],
            version: 513,
            ..State::default()
        };
        for (opaque, queue_offset, physical_offset) in
            [(0, 0, 0), (-1, 7, i64::MAX), (i32::MIN, i64::MAX, 12)]
        {
            let answer = Answer {
                opaque,
                queue_id: 3,
                queue_offset,
                physical_offset,
                others: if opaque == 0 { &[] } else { &[1, i64::MAX] },
                unique_key: (opaque != -1).then_some("7F0000\u{1}\""),
            };
            for code in [0, 10, 12] {
                let (mut slow, mut fast) = (Vec::new(), b"before".to_vec());
                state.fixed = None;
                write_answer(&state, &answer, code, &mut slow).unwrap();
                state.fixed = Fixed::new(&state);
                write_answer(&state, &answer, code, &mut fast).unwrap();
                assert_eq!(&fast[6..], slow);
            }
        }
    }
}
