//! Why bytes could not be read or written: one type for frames, headers, records and batches.

use std::fmt;

/// What is wrong with the bytes; the text is for a log line or an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// A length field is negative, or larger than what is left or allowed.
    Length {
        /// Which length.
        what: &'static str,
        /// The value found.
        found: i64,
        /// The largest value that would have fitted.
        limit: u64,
    },
    /// A value is none of those allowed.
    Value {
        /// Which value.
        what: &'static str,
        /// The value found.
        found: i64,
    },
    /// The text is not what it should be, such as UTF-8 or JSON.
    Text {
        /// Which text, and why it was refused.
        what: &'static str,
        /// Byte offset inside that text, as near as it is known.
        at: usize,
    },
    /// The stored checksum differs from the one computed.
    Checksum {
        /// The stored value.
        stored: u32,
        /// The value computed from the bytes.
        computed: u32,
    },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { what, found, limit } => {
                write!(f, "{what} is {found}, at most {limit} fits")
            }
            Self::Value { what, found } => write!(f, "{what} cannot be {found}"),
            Self::Text { what, at } => write!(f, "{what} at byte {at}"),
            Self::Checksum { stored, computed } => {
                write!(f, "body CRC is {computed}, stored was {stored}")
            }
        }
    }
}

impl std::error::Error for CodecError {}
