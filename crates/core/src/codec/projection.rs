//! Stored messages without their bodies, for readers that need only some of the fields.
//!
//! A reader asks for a [`Projection`]; a broker then answers with projected records in place of
//! those of the log, one for each, in the same order. A projected record has a magic number of its
//! own, so that nothing takes it for a stored one: only [`records`] reads it, and the log's readers
//! refuse it. It keeps the stored size and every fixed field as stored; the broker has checked the
//! body's CRC before it left the body out, and the reader has nothing to check it with.
//!
//! Layout, big-endian: size (4), [`MAGIC`] (4), stored size (4), the record's bytes from its body
//! CRC up to its body's length (4, as stored), topic length (2), topic, properties length (2),
//! properties.

use crate::codec::cursor::Cursor;
use crate::codec::host;
use crate::codec::limits::TOPIC_V1_SIZE_MAX;
use crate::codec::properties::{self, NAME_END, VALUE_END};
use crate::codec::record::{
    self, Parsed, RecordView, Records, Why, MAGIC_V1, MAGIC_V2, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6,
};

/// Magic number of a projected record.
pub const MAGIC: u32 = 0x5250_524A;

/// The field that asks for a projection, in a pull and in the answer that obeys it.
pub const FIELD: &str = "projection";
/// What the answer that obeys it says in that field.
pub const OBEYED: &str = "1";
/// Bytes of the field's value at most.
pub const TEXT_MAX: usize = 1024;
/// Properties that may be named at most.
pub const NAMES_MAX: usize = 16;

const HEADERS: &str = "headers";
const PROPERTIES: &str = "properties";

/// Bytes of a stored record in front of its body's CRC, which a projected one writes anew.
const FRONT: usize = 8;
/// Bytes from the CRC up to the end of the length of the body, with two addresses of IPv4.
const FIXED: usize = 80;

/// Which fields a reader wants beside the fixed ones and the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection<'a> {
    /// No property.
    Headers,
    /// All properties.
    Properties,
    /// The properties of these names.
    Named(Vec<&'a str>),
}

impl<'a> Projection<'a> {
    /// Reads `headers`, `properties` or `properties:NAME,NAME`; `None` for anything else, for more
    /// than [`NAMES_MAX`] names and for more than [`TEXT_MAX`] bytes.
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        match text {
            HEADERS => return Some(Self::Headers),
            PROPERTIES => return Some(Self::Properties),
            _ => {}
        }
        let names: Vec<&str> = text
            .strip_prefix(PROPERTIES)?
            .strip_prefix(':')?
            .split(',')
            .collect();
        let is_good = |name: &&str| !name.is_empty() && !name.bytes().any(|byte| byte <= VALUE_END);
        (names.len() <= NAMES_MAX && names.iter().all(is_good)).then_some(Self::Named(names))
    }

    fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Headers => false,
            Self::Properties => true,
            Self::Named(names) => names.iter().any(|wanted| wanted.as_bytes() == name),
        }
    }
}

/// Appends the projected form of the stored records in `stored`, which has nothing else.
///
/// Fails at bytes that are no record, with their place; `out` is then what it was.
pub fn write(
    stored: &[u8],
    projection: &Projection<'_>,
    out: &mut Vec<u8>,
) -> Result<(), (usize, Why)> {
    let before = out.len();
    let mut all = record::records(stored, false);
    loop {
        let at = all.position();
        match all.next() {
            None => return Ok(()),
            Some(Ok(view)) => {
                let whole = stored.get(at..all.position()).unwrap_or_default();
                write_one(whole, &view, projection, out);
            }
            Some(Err(error)) => {
                out.truncate(before);
                return Err(error);
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // Never longer than the record, which has 31 bits.
fn write_one(whole: &[u8], view: &RecordView<'_>, projection: &Projection<'_>, out: &mut Vec<u8>) {
    let begin = out.len();
    let fixed = FIXED - 2 * host::V4_SIZE + view.born_host.len() + view.store_host.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&MAGIC.to_be_bytes());
    out.extend_from_slice(&view.total_size.to_be_bytes());
    out.extend_from_slice(whole.get(FRONT..FRONT + fixed).unwrap_or_default());
    out.extend_from_slice(&(view.topic.len() as u16).to_be_bytes());
    out.extend_from_slice(view.topic);
    let place = out.len();
    out.extend_from_slice(&[0; 2]);
    match projection {
        Projection::Headers => {}
        Projection::Properties => out.extend_from_slice(view.properties),
        Projection::Named(_) => {
            for (name, value) in properties::entries(view.properties) {
                if projection.has(name) {
                    out.extend_from_slice(name);
                    out.push(NAME_END);
                    out.extend_from_slice(value);
                    out.push(VALUE_END);
                }
            }
            // The last pair of a text need not be ended; a chosen one is, by one byte more.
            let most = place + 2 + view.properties.len();
            out.truncate(most.min(out.len()));
        }
    }
    let properties = (out.len() - place - 2) as u16;
    let size = (out.len() - begin) as u32;
    for (at, value) in [
        (place, &properties.to_be_bytes()[..]),
        (begin, &size.to_be_bytes()[..]),
    ] {
        if let Some(room) = out.get_mut(at..at + value.len()) {
            room.copy_from_slice(value);
        }
    }
}

/// Records one after another, of a buffer that is read piece by piece.
pub trait Positioned<'a>: Iterator<Item = Result<RecordView<'a>, (usize, Why)>> {
    /// Where in the buffer the next record begins.
    fn position(&self) -> usize;
}

impl<'a> Positioned<'a> for Records<'a> {
    fn position(&self) -> usize {
        Records::position(self)
    }
}

/// Projected and stored records of an answer: a broker need not obey a projection.
#[derive(Clone, Debug)]
pub struct Projected<'a> {
    buf: &'a [u8],
    at: usize,
    check_crc: bool,
}

/// Iterates over records of both forms; those that are projected have an empty body.
///
/// `check_crc` is about the bodies that there are. Ends after the first error.
pub fn records(buf: &[u8], check_crc: bool) -> Projected<'_> {
    Projected {
        buf,
        at: 0,
        check_crc,
    }
}

impl<'a> Positioned<'a> for Projected<'a> {
    fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Projected<'a> {
    type Item = Result<RecordView<'a>, (usize, Why)>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let rest = self.buf.get(at..).filter(|rest| !rest.is_empty())?;
        self.at = self.buf.len();
        let mut front = Cursor::new(rest);
        let (size, magic) = (front.u32(), front.u32());
        if magic != Some(MAGIC) {
            return match record::parse(self.buf, at, self.check_crc) {
                Parsed::Record { view, size } => {
                    self.at = at + size as usize;
                    Some(Ok(view))
                }
                Parsed::Broken { why, .. } => Some(Err((at, why))),
                Parsed::Blank { .. } | Parsed::End => Some(Err((at, Why::Magic))),
            };
        }
        let whole = size.and_then(|size| rest.get(..size as usize));
        let Some(whole) = whole else {
            return Some(Err((at, Why::Length)));
        };
        let Some(view) = view(whole) else {
            return Some(Err((at, Why::Sum)));
        };
        self.at = at + whole.len();
        Some(Ok(view))
    }
}

/// The fields of exactly `whole`; `None` when its inner lengths do not add up to it.
fn view(whole: &[u8]) -> Option<RecordView<'_>> {
    let mut cursor = Cursor::new(whole);
    cursor.take(FRONT)?;
    let total_size = cursor.u32()?;
    let body_crc = cursor.u32()?;
    let queue_id = cursor.i32()?;
    let flag = cursor.i32()?;
    let queue_offset = cursor.i64()?;
    let physical_offset = cursor.i64()?;
    let sys_flag = cursor.i32()?;
    let born_timestamp = cursor.i64()?;
    let born_host = cursor.take(record::host_size(sys_flag, SYS_BORN_HOST_V6))?;
    let store_timestamp = cursor.i64()?;
    let store_host = cursor.take(record::host_size(sys_flag, SYS_STORE_HOST_V6))?;
    let reconsume_times = cursor.i32()?;
    let prepared_transaction_offset = cursor.i64()?;
    let body_size = cursor.i32()?;
    let topic_size = usize::try_from(cursor.i16()?).ok()?;
    let topic = cursor.take(topic_size)?;
    let properties_size = usize::try_from(cursor.i16()?).ok()?;
    let properties = cursor.take(properties_size)?;
    let is_whole = cursor.rest().is_empty() && body_size >= 0 && i32::try_from(total_size).is_ok();
    is_whole.then_some(RecordView {
        total_size,
        magic: if topic_size > TOPIC_V1_SIZE_MAX {
            MAGIC_V2
        } else {
            MAGIC_V1
        },
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body: &[],
        topic,
        properties,
    })
}
