//! Stored records into Arrow columns, the rows of the Spark source.
//!
//! The buffers are laid out as Arrow wants them and nothing is copied afterwards; `ffi`
//! hands them out. Hosts repeat from record to record, so their texts are made once and copied.

pub mod ffi;
pub mod rows;
pub mod sums;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::codec::decompress;
use crate::codec::error::CodecError;
use crate::codec::host;
use crate::codec::message_id;
use crate::codec::projection::Positioned;
use crate::codec::properties;
use crate::codec::record::{RecordView, Why};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text with 32-bit offsets.
    Utf8,
    /// Bytes with 32-bit offsets.
    Binary,
    /// Signed 32-bit numbers.
    Int32,
    /// Signed 64-bit numbers.
    Int64,
    /// Microseconds since 1970, UTC.
    Timestamp,
    /// Text to text.
    Map,
}

macro_rules! fields {
    ($($variant:ident $name:literal $kind:ident),* $(,)?) => {
        /// The columns, in their order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The names are those of the schema.
        pub enum Field { $($variant),* }

        impl Field {
            /// Every column, in order.
            pub const ALL: [Self; 19] = [$(Self::$variant),*];

            /// The name in the schema.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The type.
            pub fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind),* }
            }
        }
    };
}

fields! {
    Topic "topic" Utf8, BrokerName "brokerName" Utf8, QueueId "queueId" Int32,
    QueueOffset "queueOffset" Int64, PhysicalOffset "physicalOffset" Int64,
    StoreSize "storeSize" Int32, MsgId "msgId" Utf8, UniqKey "uniqKey" Utf8, Keys "keys" Utf8,
    Tags "tags" Utf8, Properties "properties" Map, BornTimestamp "bornTimestamp" Timestamp,
    StoreTimestamp "storeTimestamp" Timestamp, BornHost "bornHost" Utf8, StoreHost "storeHost" Utf8,
    ReconsumeTimes "reconsumeTimes" Int32, SysFlag "sysFlag" Int32, BodyCrc "bodyCRC" Int32,
    Body "body" Binary,
}

impl Field {
    /// The column of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Text or bytes, one after another, with the place where each ends.
#[derive(Debug)]
pub struct Bytes {
    /// Start of each value, and behind the last the end of all.
    pub offsets: Vec<i32>,
    /// The values.
    pub data: Vec<u8>,
    /// One bit a row, set where there is a value; empty while no row is null.
    pub validity: Vec<u8>,
    /// Rows without a value.
    pub nulls: usize,
}

impl Bytes {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            data: Vec::new(),
            validity: Vec::new(),
            nulls: 0,
        }
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn end(&mut self) -> Result<(), CodecError> {
        let end = i32::try_from(self.data.len()).map_err(|_| CodecError::Length {
            what: "bytes of one column of a batch",
            found: i64::try_from(self.data.len()).unwrap_or(i64::MAX),
            limit: i32::MAX as u64,
        })?;
        let row = self.rows();
        self.offsets.push(end);
        if self.nulls > 0 {
            self.mark(row, true);
        }
        Ok(())
    }

    fn push(&mut self, value: &[u8]) -> Result<(), CodecError> {
        self.data.extend_from_slice(value);
        self.end()
    }

    fn push_option(&mut self, value: Option<&str>) -> Result<(), CodecError> {
        if let Some(value) = value {
            return self.push(value.as_bytes());
        }
        let row = self.rows();
        if self.nulls == 0 {
            self.validity.clear();
            self.validity.resize(row.div_ceil(8), 0xFF);
        }
        self.nulls += 1;
        self.offsets.extend_from_within(row..);
        self.mark(row, false);
        Ok(())
    }

    fn mark(&mut self, row: usize, valid: bool) {
        self.validity.resize(row / 8 + 1, 0);
        if let Some(byte) = self.validity.get_mut(row / 8) {
            let bit = 1u8 << (row % 8);
            *byte = if valid { *byte | bit } else { *byte & !bit };
        }
    }
}

/// The buffers of one column.
#[derive(Debug)]
pub enum Column {
    /// Text or bytes.
    Bytes(Bytes),
    /// 32-bit numbers.
    Int32(Vec<i32>),
    /// 64-bit numbers and times.
    Int64(Vec<i64>),
    /// Maps: where each row's entries start, and the entries.
    Map {
        /// Start of each row's entries, and behind the last the end of all.
        offsets: Vec<i32>,
        /// Names.
        keys: Bytes,
        /// Values.
        values: Bytes,
    },
}

/// A finished batch.
#[derive(Debug)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// The columns asked for, in the order of the schema.
    pub columns: Vec<(Field, Column)>,
}

/// Which rows and columns to take.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Columns wanted.
    pub fields: Vec<Field>,
    /// What the column brokerName says.
    pub broker_name: &'a str,
    /// First queue offset wanted.
    pub begin: i64,
    /// Queue offset behind the last wanted.
    pub end: i64,
    /// When given, only rows whose TAGS is one of these.
    pub tags: Option<Vec<String>>,
    /// When given, only rows of these topics.
    pub topics: Option<Vec<String>>,
    /// Only rows stored at these Unix milliseconds.
    pub stored: Range<i64>,
    /// The batch is full at this many rows.
    pub rows_max: usize,
    /// The batch is full at this many bytes of text and bodies.
    pub bytes_max: usize,
    /// Most bytes that one compressed body may become.
    pub decompress_max: usize,
}

/// Why a batch could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Bytes that are no record, at this place of the input.
    Record(usize, Why),
    /// A record whose content cannot be shown: its physical offset, and why.
    Content(i64, CodecError),
}

/// Host bytes and their text, kept for the next record.
#[derive(Default)]
struct HostText {
    host: Vec<u8>,
    text: String,
}

impl HostText {
    fn of(&mut self, host: &[u8]) -> &[u8] {
        if self.host != host {
            self.host.clear();
            self.host.extend_from_slice(host);
            self.text.clear();
            // Writing to a string cannot fail.
            let _ = host::write_text(host, &mut self.text);
        }
        self.text.as_bytes()
    }
}

/// What the properties of one record say, each name once.
#[derive(Default)]
struct Found<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Found<'a> {
    /// Above this many pairs repeats are found by hashing.
    const FEW: usize = 32;

    fn read(text: &'a str) -> Self {
        let mut pairs: Vec<(&str, &str)> = Vec::with_capacity(8);
        for (name, value) in properties::pairs(text) {
            let known = if pairs.len() <= Self::FEW {
                pairs.iter_mut().find(|(known, _)| *known == name)
            } else {
                None
            };
            match known {
                Some(pair) => pair.1 = value,
                None => pairs.push((name, value)),
            }
        }
        if pairs.len() > Self::FEW {
            let last: HashMap<&str, usize> = pairs
                .iter()
                .enumerate()
                .map(|(at, (name, _))| (*name, at))
                .collect();
            let mut at = 0;
            pairs.retain(|(name, _)| {
                at += 1;
                last.get(name) == Some(&(at - 1))
            });
        }
        Self { pairs }
    }

    fn get(&self, name: &[u8]) -> Option<&'a str> {
        self.pairs
            .iter()
            .find(|(found, _)| found.as_bytes() == name)
            .map(|(_, value)| *value)
    }
}

/// What a row is taken to need beside its body and properties.
const FIXED_SIZE: usize = 256;

/// Collects records into columns.
pub struct Builder<'a> {
    options: Options<'a>,
    rows: usize,
    bytes: usize,
    columns: Vec<(Field, Column)>,
    wants_properties: bool,
    born_host: HostText,
    store_host: HostText,
}

impl<'a> Builder<'a> {
    /// Starts an empty batch; columns come in the order of the schema, whatever order was given.
    pub fn new(options: Options<'a>) -> Self {
        let columns: Vec<_> = Field::ALL
            .into_iter()
            .filter(|field| options.fields.contains(field))
            .map(|field| (field, empty(field.kind())))
            .collect();
        let wants_properties = options.tags.is_some()
            || columns.iter().any(|(field, _)| {
                matches!(
                    field,
                    Field::UniqKey | Field::Keys | Field::Tags | Field::Properties
                )
            });
        Self {
            options,
            rows: 0,
            bytes: 0,
            columns,
            wants_properties,
            born_host: HostText::default(),
            store_host: HostText::default(),
        }
    }

    /// Adds the wanted records of one pull answer until the batch is full.
    ///
    /// Returns where in the answer to go on, `None` when all of it was read.
    pub fn add<'r>(&mut self, mut records: impl Positioned<'r>) -> Result<Option<usize>, Failure> {
        while !self.is_full() {
            let Some(record) = records.next() else {
                return Ok(None);
            };
            let view = record.map_err(|(at, why)| Failure::Record(at, why))?;
            self.add_record(&view)
                .map_err(|error| Failure::Content(view.physical_offset, error))?;
        }
        Ok(Some(records.position()))
    }

    /// Whether the batch has as many rows or bytes as it may.
    pub fn is_full(&self) -> bool {
        self.rows >= self.options.rows_max || self.bytes >= self.options.bytes_max
    }

    /// Adds a record if it is wanted; on failure the batch is what it was.
    pub fn add_record(&mut self, view: &RecordView<'_>) -> Result<(), CodecError> {
        let options = &self.options;
        let topics = options.topics.as_ref();
        if !(options.begin..options.end).contains(&view.queue_offset)
            || !options.stored.contains(&view.store_timestamp)
            || topics.is_some_and(|all| all.iter().all(|it| it.as_bytes() != view.topic))
        {
            return Ok(());
        }
        let text = if self.wants_properties {
            String::from_utf8_lossy(view.properties)
        } else {
            Cow::Borrowed("")
        };
        let found = Found::read(&text);
        if let Some(tags) = &self.options.tags {
            let tag = found.get(properties::TAGS);
            if !tag.is_some_and(|tag| tags.iter().any(|wanted| wanted == tag)) {
                return Ok(());
            }
        }
        let body = self.add_body(view)?;
        self.bytes += body + view.properties.len() + FIXED_SIZE;
        self.rows += 1;
        for at in 0..self.columns.len() {
            self.add_field(at, view, &found)?;
        }
        Ok(())
    }

    /// Adds the body, the one field that may be refused, before all others; returns its bytes.
    fn add_body(&mut self, view: &RecordView<'_>) -> Result<usize, CodecError> {
        let Some((Field::Body, Column::Bytes(column))) = self.columns.last_mut() else {
            return Ok(0);
        };
        let before = column.data.len();
        if let Err(error) = body(view, self.options.decompress_max, column) {
            column.data.truncate(before);
            return Err(error);
        }
        Ok(column.data.len() - before)
    }

    fn add_field(
        &mut self,
        at: usize,
        view: &RecordView<'_>,
        found: &Found<'_>,
    ) -> Result<(), CodecError> {
        let Some((field, column)) = self.columns.get_mut(at) else {
            return Ok(());
        };
        match column {
            Column::Int32(column) => column.push(number32(*field, view)),
            Column::Int64(column) => column.push(number64(*field, view)),
            Column::Map {
                offsets,
                keys,
                values,
            } => {
                for (name, value) in &found.pairs {
                    keys.push(name.as_bytes())?;
                    values.push(value.as_bytes())?;
                }
                offsets.push(
                    keys.offsets
                        .len()
                        .try_into()
                        .map_or(i32::MAX, |n: i32| n - 1),
                );
            }
            Column::Bytes(column) => match field {
                Field::Topic => column.push(String::from_utf8_lossy(view.topic).as_bytes())?,
                Field::BrokerName => column.push(self.options.broker_name.as_bytes())?,
                Field::MsgId => {
                    message_id::write(view.store_host, view.physical_offset, &mut column.data);
                    column.end()?;
                }
                Field::UniqKey => column.push_option(found.get(properties::UNIQ_KEY))?,
                Field::Keys => column.push_option(found.get(properties::KEYS))?,
                Field::Tags => column.push_option(found.get(properties::TAGS))?,
                Field::BornHost => column.push(self.born_host.of(view.born_host))?,
                Field::StoreHost => column.push(self.store_host.of(view.store_host))?,
                // The body is there already.
                _ => {}
            },
        }
        Ok(())
    }

    /// The batch as it is.
    pub fn finish(self) -> Batch {
        Batch {
            rows: self.rows,
            columns: self.columns,
        }
    }
}

fn empty(kind: Kind) -> Column {
    match kind {
        Kind::Utf8 | Kind::Binary => Column::Bytes(Bytes::new()),
        Kind::Int32 => Column::Int32(Vec::new()),
        Kind::Int64 | Kind::Timestamp => Column::Int64(Vec::new()),
        Kind::Map => Column::Map {
            offsets: vec![0],
            keys: Bytes::new(),
            values: Bytes::new(),
        },
    }
}

fn number32(field: Field, view: &RecordView<'_>) -> i32 {
    match field {
        Field::QueueId => view.queue_id,
        Field::StoreSize => view.total_size.cast_signed(),
        Field::ReconsumeTimes => view.reconsume_times,
        Field::SysFlag => view.sys_flag,
        _ => view.body_crc.cast_signed(),
    }
}

fn number64(field: Field, view: &RecordView<'_>) -> i64 {
    match field {
        Field::QueueOffset => view.queue_offset,
        Field::PhysicalOffset => view.physical_offset,
        Field::BornTimestamp => view.born_timestamp.saturating_mul(1000),
        _ => view.store_timestamp.saturating_mul(1000),
    }
}

fn body(view: &RecordView<'_>, limit: usize, column: &mut Bytes) -> Result<(), CodecError> {
    if decompress::is_compressed(view.sys_flag) {
        decompress::decompress(view.sys_flag, view.body, limit, &mut column.data)?;
        column.end()
    } else {
        column.push(view.body)
    }
}
