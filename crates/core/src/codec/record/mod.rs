//! One stored message: its bytes on disk and in pull answers (spec: store §3, wire §7).
//!
//! A record is encoded once, by whoever takes the message, straight into the buffer that goes to
//! the disk. Three fields are known only under the commit log's lock and patched there: queue
//! offset, physical offset and store time. The body's CRC is computed at encoding, outside it.

mod encode;

pub(crate) use self::encode::set_properties_size;
pub use self::encode::{blank, encode, patch, NewRecord};

use crate::codec::crc;
use crate::codec::cursor::Cursor;
use crate::codec::host;

/// Magic number of a record whose topic length is one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic number of a record whose topic length is two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic number of the filler at the end of a commit-log file.
pub const MAGIC_BLANK: u32 = 0xCBD4_3194;

/// Bytes of the filler itself; the rest of the file behind it means nothing.
pub const BLANK_SIZE: usize = 8;
/// Bytes of a V1 record with IPv4 hosts and neither body, topic nor properties.
pub const RECORD_SIZE_MIN: usize = 91;

/// sysFlag bit: the body is compressed.
pub const SYS_COMPRESSED: i32 = 0x1;
/// sysFlag mask of the transaction type.
pub const SYS_TRANSACTION: i32 = 0xC;
/// Transaction type of a half message.
pub const SYS_PREPARED: i32 = 0x4;
/// Transaction type of a committed message.
pub const SYS_COMMIT: i32 = 0x8;
/// Transaction type of a rolled-back message.
pub const SYS_ROLLBACK: i32 = 0xC;
/// sysFlag bit: the born host has an IPv6 address.
pub const SYS_BORN_HOST_V6: i32 = 0x10;
/// sysFlag bit: the store host has an IPv6 address.
pub const SYS_STORE_HOST_V6: i32 = 0x20;

const QUEUE_OFFSET_AT: usize = 20;
const PHYSICAL_OFFSET_AT: usize = 28;
const BORN_HOST_AT: usize = 48;

/// A record inside bytes that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Bytes of the whole record.
    pub total_size: u32,
    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    pub magic: u32,
    /// CRC of the stored body.
    pub body_crc: u32,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Place in the queue; 0 for prepared and rolled-back messages.
    pub queue_offset: i64,
    /// Where the record says that it starts.
    pub physical_offset: i64,
    /// System flag.
    pub sys_flag: i32,
    /// Born time, Unix milliseconds.
    pub born_timestamp: i64,
    /// Host it came from, 8 or 20 bytes.
    pub born_host: &'a [u8],
    /// Store time, Unix milliseconds.
    pub store_timestamp: i64,
    /// Host that stored it, 8 or 20 bytes.
    pub store_host: &'a [u8],
    /// How often it was consumed in vain.
    pub reconsume_times: i32,
    /// Physical offset of the half message it commits.
    pub prepared_transaction_offset: i64,
    /// Body as stored.
    pub body: &'a [u8],
    /// Topic, normally UTF-8.
    pub topic: &'a [u8],
    /// Property text.
    pub properties: &'a [u8],
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The magic number is none of the three.
    Magic,
    /// The buffer ends inside the record, or a length in it is negative.
    Length,
    /// The lengths inside do not add up to the size at the front.
    Sum,
    /// The body's CRC differs.
    Checksum,
}

/// What is at a place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole, valid record.
    Record {
        /// Its fields.
        view: RecordView<'a>,
        /// Its size; the next one follows there.
        size: u32,
    },
    /// The filler at the end of a file; `size` is what it says about the rest of the file.
    Blank {
        /// Bytes left in the file, from the filler's first.
        size: u32,
    },
    /// Nothing: the buffer ends here, or zeros follow.
    End,
    /// Not a record.
    Broken {
        /// The size at the front, when a reader could skip by it.
        size: Option<u32>,
        /// What is wrong.
        why: Why,
    },
}

/// Reads what is at `at`, checking every length and, when asked, the body's CRC.
pub fn parse(buf: &[u8], at: usize, check_crc: bool) -> Parsed<'_> {
    let broken = |why| Parsed::Broken { size: None, why };
    let bytes = buf.get(at..).unwrap_or_default();
    if bytes.is_empty() {
        return Parsed::End;
    }
    let mut front = Cursor::new(bytes);
    let (Some(size), Some(magic)) = (front.u32(), front.u32()) else {
        return if bytes.iter().all(|byte| *byte == 0) {
            Parsed::End
        } else {
            broken(Why::Length)
        };
    };
    match magic {
        MAGIC_BLANK => return Parsed::Blank { size },
        0 if size == 0 => return Parsed::End,
        MAGIC_V1 | MAGIC_V2 => {}
        _ => return broken(Why::Magic),
    }
    let fits = i32::try_from(size).is_ok() && size as usize >= RECORD_SIZE_MIN;
    let whole = bytes.get(..size as usize).filter(|_| fits);
    let Some(view) = whole.and_then(|whole| view(whole, size, magic)) else {
        // The lengths may still be readable beyond a size that is too small: both are damage.
        return Parsed::Broken {
            size: whole.map(|_| size),
            why: if whole.is_some() {
                Why::Sum
            } else {
                Why::Length
            },
        };
    };
    if check_crc && !view.body.is_empty() && crc::masked(view.body) != view.body_crc {
        return broken(Why::Checksum);
    }
    Parsed::Record { view, size }
}

/// The fields of exactly `whole`; `None` when its inner lengths do not add up to it.
fn view(whole: &[u8], total_size: u32, magic: u32) -> Option<RecordView<'_>> {
    let mut cursor = Cursor::new(whole);
    cursor.take(8)?;
    let body_crc = cursor.u32()?;
    let queue_id = cursor.i32()?;
    let flag = cursor.i32()?;
    let queue_offset = cursor.i64()?;
    let physical_offset = cursor.i64()?;
    let sys_flag = cursor.i32()?;
    let born_timestamp = cursor.i64()?;
    let born_host = cursor.take(host_size(sys_flag, SYS_BORN_HOST_V6))?;
    let store_timestamp = cursor.i64()?;
    let store_host = cursor.take(host_size(sys_flag, SYS_STORE_HOST_V6))?;
    let reconsume_times = cursor.i32()?;
    let prepared_transaction_offset = cursor.i64()?;
    let body_size = usize::try_from(cursor.i32()?).ok()?;
    let body = cursor.take(body_size)?;
    let topic_size = if magic == MAGIC_V2 {
        usize::try_from(cursor.i16()?).ok()?
    } else {
        usize::try_from(cursor.i8()?).ok()?
    };
    let topic = cursor.take(topic_size)?;
    let properties_size = usize::try_from(cursor.i16()?).ok()?;
    let properties = cursor.take(properties_size)?;
    cursor.rest().is_empty().then_some(RecordView {
        total_size,
        magic,
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
        body,
        topic,
        properties,
    })
}

pub(crate) fn host_size(sys_flag: i32, bit: i32) -> usize {
    if sys_flag & bit == 0 {
        host::V4_SIZE
    } else {
        host::V6_SIZE
    }
}

/// The fields at the front of a record, read without looking at the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes of the whole record.
    pub total_size: u32,
    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    pub magic: u32,
    /// Queue of the topic.
    pub queue_id: i32,
    /// Place in the queue.
    pub queue_offset: i64,
    /// Where the record says that it starts.
    pub physical_offset: i64,
    /// System flag.
    pub sys_flag: i32,
    /// Store time, Unix milliseconds.
    pub store_timestamp: i64,
}

impl RecordHead {
    /// Bytes that [`RecordHead::read`] needs in any case.
    pub const SIZE: usize = BORN_HOST_AT + host::V6_SIZE + 8;

    /// Reads the front of a record; `None` when it is none or cut off there.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let total_size = cursor.u32()?;
        let magic = cursor.u32()?;
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return None;
        }
        cursor.take(4)?;
        let queue_id = cursor.i32()?;
        cursor.take(4)?;
        let queue_offset = cursor.i64()?;
        let physical_offset = cursor.i64()?;
        let sys_flag = cursor.i32()?;
        cursor.take(8 + host_size(sys_flag, SYS_BORN_HOST_V6))?;
        let store_timestamp = cursor.i64()?;
        Some(Self {
            total_size,
            magic,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            store_timestamp,
        })
    }
}

/// The records of a buffer that holds nothing else, such as the body of a pull answer.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    buf: &'a [u8],
    at: usize,
    check_crc: bool,
}

/// Iterates over records that follow each other without a gap; ends after the first error.
pub fn records(buf: &[u8], check_crc: bool) -> Records<'_> {
    Records {
        buf,
        at: 0,
        check_crc,
    }
}

impl Records<'_> {
    /// Where in the buffer the next record begins.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, (usize, Why)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.buf.len() {
            return None;
        }
        let at = self.at;
        self.at = self.buf.len();
        match parse(self.buf, at, self.check_crc) {
            Parsed::Record { view, size } => {
                self.at = at + size as usize;
                Some(Ok(view))
            }
            Parsed::Broken { why, .. } => Some(Err((at, why))),
            Parsed::Blank { .. } | Parsed::End => Some(Err((at, Why::Magic))),
        }
    }
}
