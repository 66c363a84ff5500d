//! Counts and checksums of buckets of a queue's messages, by which copies are compared.
//!
//! A bucket is a run of offsets of equal length. The checksum of a message is XXH64 over its
//! offset (8 bytes, little-endian), its unique key (nothing, if it has none) and its unpacked body,
//! each with the sum of what is in front of it as its seed, the first with 42: what Spark's
//! `xxhash64(queueOffset, coalesce(uniqKey, ''), body)` gives. A bucket has the XOR of them.
//! (Checksums of the CRC family would not do: they are linear, so that two messages of one length
//! that changed places would leave the XOR as it was.)
//!
//! Invariant: XOR and count do not depend on the order, so a bucket may be summed in parts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use twox_hash::XxHash64;

use super::{Failure, Found};
use crate::codec::decompress;
use crate::codec::error::CodecError;
use crate::codec::projection::Positioned;
use crate::codec::properties;
use crate::codec::record::RecordView;

const SEED: u64 = 42;

/// What one bucket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Messages.
    pub count: u64,
    /// XOR of their checksums.
    pub xor: u64,
    /// The first offset of them.
    pub first: i64,
    /// The last offset of them.
    pub last: i64,
}

/// Which messages are summed.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Queue offsets.
    pub offsets: Range<i64>,
    /// Unix milliseconds at which they were stored.
    pub stored: Range<i64>,
    /// Offsets of a bucket; above 0.
    pub bucket: i64,
    /// Most bytes that one compressed body may become.
    pub decompress_max: usize,
}

/// Sums up records.
#[derive(Debug)]
pub struct Sums {
    chosen: Chosen,
    found: BTreeMap<i64, Sum>,
    unpacked: Vec<u8>,
}

impl Sums {
    /// Nothing is summed yet.
    pub fn new(chosen: Chosen) -> Self {
        Self {
            chosen,
            found: BTreeMap::new(),
            unpacked: Vec::new(),
        }
    }

    /// Adds the chosen records of one answer to a pull.
    pub fn add<'r>(&mut self, records: impl Positioned<'r>) -> Result<(), Failure> {
        for record in records {
            let view = record.map_err(|(at, why)| Failure::Record(at, why))?;
            self.add_record(&view)
                .map_err(|error| Failure::Content(view.physical_offset, error))?;
        }
        Ok(())
    }

    fn add_record(&mut self, view: &RecordView<'_>) -> Result<(), CodecError> {
        let offset = view.queue_offset;
        if !self.chosen.offsets.contains(&offset)
            || !self.chosen.stored.contains(&view.store_timestamp)
        {
            return Ok(());
        }
        self.unpacked.clear();
        let body = if decompress::is_compressed(view.sys_flag) {
            let limit = self.chosen.decompress_max;
            decompress::decompress(view.sys_flag, view.body, limit, &mut self.unpacked)?;
            self.unpacked.as_slice()
        } else {
            view.body
        };
        let text: Cow<'_, str> = String::from_utf8_lossy(view.properties);
        let key = Found::read(&text).get(properties::UNIQ_KEY).unwrap_or("");
        let front = XxHash64::oneshot(SEED, &offset.to_le_bytes());
        let hash = XxHash64::oneshot(XxHash64::oneshot(front, key.as_bytes()), body);
        let sum = self
            .found
            .entry(offset.div_euclid(self.chosen.bucket.max(1)))
            .or_insert(Sum {
                count: 0,
                xor: 0,
                first: offset,
                last: offset,
            });
        sum.count += 1;
        sum.xor ^= hash;
        sum.first = sum.first.min(offset);
        sum.last = sum.last.max(offset);
        Ok(())
    }

    /// The buckets that have messages, by their numbers (offset divided by the bucket's length).
    pub fn finish(self) -> BTreeMap<i64, Sum> {
        self.found
    }
}
