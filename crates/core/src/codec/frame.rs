//! A frame: length, encoding, header, body (spec: wire §2).
//!
//! Bad input is refused as soon as the bytes that show it are there, so that nobody waits, or keeps
//! memory, for a frame that cannot come.

use std::borrow::Cow;

use crate::codec::command::{Encoding, Header};
use crate::codec::error::CodecError;
use crate::codec::header;
use crate::codec::limits::HEADER_SIZE_MAX;

/// Bytes before the header.
pub const PREFIX_SIZE: usize = 8;

/// The parts of a whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// How the header is written.
    pub encoding: Encoding,
    /// Header bytes.
    pub header: &'a [u8],
    /// Body bytes.
    pub body: &'a [u8],
    /// Bytes of the whole frame, its length included.
    pub size: usize,
}

impl<'a> Frame<'a> {
    /// Reads the header.
    pub fn decode_header(&self) -> Result<Header<'a>, CodecError> {
        match self.encoding {
            Encoding::Json => header::json::decode(self.header),
            Encoding::Binary => header::binary::decode(self.header),
        }
    }
}

/// Cuts the frame at the start of `bytes`; `None` when more bytes are needed.
pub fn cut(bytes: &[u8], frame_size_max: usize) -> Result<Option<Frame<'_>>, CodecError> {
    let Some((total, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let total = i32::from_be_bytes(*total);
    let limit = frame_size_max.saturating_sub(4);
    let total_size = usize::try_from(total)
        .ok()
        .filter(|size| (4..=limit).contains(size))
        .ok_or(CodecError::Length {
            what: "frame length",
            found: i64::from(total),
            limit: limit as u64,
        })?;
    let Some((encoding, more)) = rest.split_first() else {
        return Ok(None);
    };
    let encoding = Encoding::from_code(*encoding).ok_or(CodecError::Value {
        what: "serialize type",
        found: i64::from(*encoding),
    })?;
    let Some((high, _)) = more.split_first_chunk::<3>() else {
        return Ok(None);
    };
    let [a, b, c] = *high;
    let header_size = u32::from_be_bytes([0, a, b, c]) as usize;
    let least = match encoding {
        Encoding::Json => 1,
        Encoding::Binary => header::binary::HEADER_SIZE_MIN,
    };
    let most = (total_size - 4).min(HEADER_SIZE_MAX);
    if !(least..=most).contains(&header_size) {
        return Err(CodecError::Length {
            what: "header length",
            found: i64::try_from(header_size).unwrap_or(i64::MAX),
            limit: most as u64,
        });
    }
    Ok(rest.get(4..total_size).map(|content| {
        let (header, body) = content.split_at_checked(header_size).unwrap_or_default();
        Frame {
            encoding,
            header,
            body,
            size: 4 + total_size,
        }
    }))
}

/// Appends the start of a frame, everything but its body, which the caller appends next. A code or a
/// version that a binary header cannot hold has a header in JSON.
///
/// Fails, leaving `out` as it was, when header or frame are longer than their lengths can say.
pub fn encode_start<'a>(
    encoding: Encoding,
    header: &Header<'_>,
    ext: Option<impl Iterator<Item = (&'a str, &'a str)>>,
    body_size: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_SIZE]);
    let encoding = match encoding {
        // Half of a code is another code, or none, to a peer that does not know how to guess it.
        Encoding::Binary if !header::binary::holds(header) => Encoding::Json,
        other => other,
    };
    let written = match encoding {
        Encoding::Json => {
            header::json::encode(header, ext, out);
            Ok(())
        }
        Encoding::Binary => header::binary::encode(header, ext.into_iter().flatten(), out),
    };
    let result = written.and_then(|()| close_header(encoding, start, body_size, out));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Writes the lengths into the prefix at `start`, once the header behind it is whole.
pub(crate) fn close_header(
    encoding: Encoding,
    start: usize,
    body_size: usize,
    out: &mut [u8],
) -> Result<(), CodecError> {
    let header_size = out.len() - start - PREFIX_SIZE;
    let too_long = |what, found: usize, limit: u64| CodecError::Length {
        what,
        found: i64::try_from(found).unwrap_or(i64::MAX),
        limit,
    };
    let header_word = u32::try_from(header_size)
        .ok()
        .filter(|size| *size < 1 << 24)
        .ok_or_else(|| too_long("header length", header_size, (1 << 24) - 1))?;
    let total_size = 4 + header_size + body_size;
    let total = i32::try_from(total_size)
        .map_err(|_| too_long("frame length", total_size, i32::MAX as u64))?;
    if let Some(prefix) = out.get_mut(start..start + PREFIX_SIZE) {
        let word = header_word | u32::from(encoding.code()) << 24;
        let (first, second) = prefix.split_at_mut(4);
        first.copy_from_slice(&total.to_be_bytes());
        second.copy_from_slice(&word.to_be_bytes());
    }
    Ok(())
}

/// Appends a whole frame with the extFields of `header`.
pub fn encode(
    encoding: Encoding,
    header: &Header<'_>,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let ext = header.ext.as_ref().map(|ext| {
        ext.iter()
            .map(|(name, value)| (Cow::as_ref(name), Cow::as_ref(value)))
    });
    encode_start(encoding, header, ext, body.len(), out)?;
    out.extend_from_slice(body);
    Ok(())
}
