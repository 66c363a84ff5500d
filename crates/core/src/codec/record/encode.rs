//! Encoding of a record, and what is set in one that is encoded.
//!
//! Invariant: a record with properties ends in a byte that is not 0. So a last record of a log that
//! ends in one was never written whole (`recovery::tail`).

use super::{
    BLANK_SIZE, BORN_HOST_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6,
};
use crate::codec::crc;
use crate::codec::error::CodecError;
use crate::codec::host;
use crate::codec::limits::{PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX, TOPIC_V1_SIZE_MAX};
use crate::codec::properties::VALUE_END;

/// A message to encode. Hosts are in the form of [`host::encode`].
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Topic it is stored under.
    pub topic: &'a [u8],
    /// Queue of that topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// System flag; the two address-family bits are set here from the hosts.
    pub sys_flag: i32,
    /// Born time, Unix milliseconds.
    pub born_timestamp: i64,
    /// Host it came from.
    pub born_host: &'a [u8],
    /// Host that stores it.
    pub store_host: &'a [u8],
    /// How often it was consumed in vain.
    pub reconsume_times: i32,
    /// Physical offset of the half message it commits.
    pub prepared_transaction_offset: i64,
    /// Body as stored, that is still compressed.
    pub body: &'a [u8],
    /// Property text.
    pub properties: &'a [u8],
}

impl NewRecord<'_> {
    /// Whether only the long form can hold the topic.
    ///
    /// Java counts UTF-16 units; topics are ASCII, so that bytes are the same.
    fn is_v2(&self) -> bool {
        self.topic.len() > TOPIC_V1_SIZE_MAX
    }

    /// What is stored behind the properties: a separator when they end in 0, which changes no pair.
    fn ending(&self) -> &'static [u8] {
        match self.properties.last() {
            Some(0) => &[VALUE_END],
            _ => &[],
        }
    }

    /// Bytes of the properties as they are stored.
    pub fn properties_size(&self) -> usize {
        self.properties.len() + self.ending().len()
    }

    /// Bytes that [`encode`] will append.
    pub fn size(&self) -> usize {
        let hosts = self.born_host.len() + self.store_host.len();
        RECORD_SIZE_MIN - 2 * host::V4_SIZE
            + hosts
            + usize::from(self.is_v2())
            + self.body.len()
            + self.topic.len()
            + self.properties_size()
    }

    fn check(&self) -> Result<(), CodecError> {
        limit("topic length", self.topic.len(), TOPIC_SIZE_MAX)?;
        limit(
            "properties length",
            self.properties_size(),
            PROPERTIES_SIZE_MAX,
        )?;
        limit("record length", self.size(), i32::MAX as usize)?;
        for host in [self.born_host, self.store_host] {
            if host.len() != host::V4_SIZE && host.len() != host::V6_SIZE {
                return Err(CodecError::Value {
                    what: "length of a host",
                    found: i64::try_from(host.len()).unwrap_or(i64::MAX),
                });
            }
        }
        Ok(())
    }

    fn stored_sys_flag(&self) -> i32 {
        let mut flag = self.sys_flag & !(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6);
        if self.born_host.len() == host::V6_SIZE {
            flag |= SYS_BORN_HOST_V6;
        }
        if self.store_host.len() == host::V6_SIZE {
            flag |= SYS_STORE_HOST_V6;
        }
        flag
    }
}

fn limit(what: &'static str, found: usize, limit: usize) -> Result<(), CodecError> {
    if found > limit {
        return Err(CodecError::Length {
            what,
            found: i64::try_from(found).unwrap_or(i64::MAX),
            limit: limit as u64,
        });
    }
    Ok(())
}

/// Corrects the lengths in a record, behind whose properties, `before` bytes, `more` were added.
#[allow(clippy::cast_possible_truncation)] // Both fit: whoever adds them has looked.
pub(crate) fn set_properties_size(record: &mut [u8], before: usize, more: usize) {
    let size = record.len() as u32;
    if let Some(place) = record.first_chunk_mut::<4>() {
        *place = size.to_be_bytes();
    }
    let at = record.len() - more - before - 2;
    if let Some(place) = record.get_mut(at..at + 2) {
        place.copy_from_slice(&((before + more) as u16).to_be_bytes());
    }
}

/// Appends the record to `out` and returns its size; the fields that [`patch`] sets are 0.
///
/// Properties that end in a 0 byte get a separator behind it. `out` is untouched when the record cannot
/// be encoded: a topic over 255 bytes, properties over 32,767 then, or a host that is not 8 or 20 bytes
/// long.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // `check` bounded them.
pub fn encode(record: &NewRecord<'_>, out: &mut Vec<u8>) -> Result<usize, CodecError> {
    record.check()?;
    let size = record.size();
    out.reserve(size);
    let mut head = [0u8; BORN_HOST_AT];
    let magic = if record.is_v2() { MAGIC_V2 } else { MAGIC_V1 };
    let numbers = [
        size as u32,
        magic,
        crc::masked(record.body),
        record.queue_id.cast_unsigned(),
        record.flag.cast_unsigned(),
        0,
        0,
        0,
        0,
        record.stored_sys_flag().cast_unsigned(),
    ];
    for (place, number) in head.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    if let Some(place) = head.last_chunk_mut::<8>() {
        *place = record.born_timestamp.to_be_bytes();
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(record.born_host);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(record.store_host);
    out.extend_from_slice(&record.reconsume_times.to_be_bytes());
    out.extend_from_slice(&record.prepared_transaction_offset.to_be_bytes());
    out.extend_from_slice(&(record.body.len() as i32).to_be_bytes());
    out.extend_from_slice(record.body);
    if record.is_v2() {
        out.extend_from_slice(&(record.topic.len() as i16).to_be_bytes());
    } else {
        out.push(record.topic.len() as u8);
    }
    out.extend_from_slice(record.topic);
    out.extend_from_slice(&(record.properties_size() as i16).to_be_bytes());
    out.extend_from_slice(record.properties);
    out.extend_from_slice(record.ending());
    Ok(size)
}

/// Sets the three fields that only the commit log knows, in an encoded record.
///
/// Returns false, changing nothing, when `record` is too short to be one.
pub fn patch(
    record: &mut [u8],
    queue_offset: i64,
    physical_offset: i64,
    store_timestamp: i64,
) -> bool {
    let Some(sys_flag) = record.get(36..40).and_then(|b| b.first_chunk::<4>()) else {
        return false;
    };
    let v6 = i32::from_be_bytes(*sys_flag) & SYS_BORN_HOST_V6 != 0;
    let store_timestamp_at = BORN_HOST_AT + if v6 { host::V6_SIZE } else { host::V4_SIZE };
    if record.len() < store_timestamp_at + 8 {
        return false;
    }
    for (at, value) in [
        (QUEUE_OFFSET_AT, queue_offset),
        (PHYSICAL_OFFSET_AT, physical_offset),
        (store_timestamp_at, store_timestamp),
    ] {
        if let Some(place) = record.get_mut(at..at + 8) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
    true
}

/// The filler that closes a commit-log file with `remaining` bytes left.
#[allow(clippy::cast_possible_truncation)] // A file is at most 2 GiB long.
pub fn blank(remaining: usize) -> [u8; BLANK_SIZE] {
    let mut bytes = [0; BLANK_SIZE];
    let (size, magic) = bytes.split_at_mut(4);
    size.copy_from_slice(&(remaining as u32).to_be_bytes());
    magic.copy_from_slice(&MAGIC_BLANK.to_be_bytes());
    bytes
}
