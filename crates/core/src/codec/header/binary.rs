//! The binary header encoding, which Java calls ROCKETMQ (spec: wire §4).

use std::borrow::Cow;

use crate::codec::command::{self, Ext, Header};
use crate::codec::cursor::Cursor;
use crate::codec::error::CodecError;
use crate::codec::limits::{EXT_COUNT_MAX, EXT_NAME_MAX};

/// Bytes of a header without remark and extFields.
pub const HEADER_SIZE_MIN: usize = 21;

/// What a code above 32,767 loses in 16 bits: all of them lie between 196,608 and 229,375.
const LOST_BITS: i32 = 0x3_0000;

/// Reads a header that fills `bytes` exactly.
pub fn decode(bytes: &[u8]) -> Result<Header<'_>, CodecError> {
    let short = || length("length of a binary header", bytes.len(), bytes.len());
    let mut cursor = Cursor::new(bytes);
    let code = i32::from(cursor.i16().ok_or_else(short)?);
    let language = cursor.i8().ok_or_else(short)?;
    let version = i32::from(cursor.i16().ok_or_else(short)?);
    let opaque = cursor.i32().ok_or_else(short)?;
    let flag = cursor.i32().ok_or_else(short)?;
    let remark = block(&mut cursor, "remark length")?;
    let ext = block(&mut cursor, "extFields length")?;
    if !cursor.rest().is_empty() {
        // Java would take these bytes for the start of the body.
        return Err(length(
            "length behind the extFields",
            cursor.rest().len(),
            0,
        ));
    }
    let known = u8::try_from(language).is_ok_and(|code| usize::from(code) < 14);
    Ok(Header {
        code: restore(code, flag),
        flag,
        language: if known {
            language.cast_unsigned()
        } else {
            command::OTHER
        },
        version,
        opaque,
        remark: (!remark.is_empty()).then(|| String::from_utf8_lossy(remark)),
        ext: if ext.is_empty() {
            None
        } else {
            Some(entries(ext)?)
        },
    })
}

/// Gives a request back the code that 16 bits could not hold; no other request has these numbers.
fn restore(code: i32, flag: i32) -> i32 {
    let cut = matches!(code, 3442..=3448 | 3462..=3471 | 3543);
    if cut && flag & command::FLAG_RESPONSE == 0 {
        code + LOST_BITS
    } else {
        code
    }
}

fn block<'a>(cursor: &mut Cursor<'a>, what: &'static str) -> Result<&'a [u8], CodecError> {
    let left = cursor.rest().len();
    let size = cursor.i32().ok_or_else(|| length(what, left, left))?;
    usize::try_from(size)
        .ok()
        .and_then(|size| cursor.take(size))
        .ok_or(CodecError::Length {
            what,
            found: i64::from(size),
            limit: left.saturating_sub(4) as u64,
        })
}

fn entries(bytes: &[u8]) -> Result<Ext<'_>, CodecError> {
    let mut ext = Ext::with_capacity(16);
    let mut cursor = Cursor::new(bytes);
    let mut count = 0;
    while !cursor.rest().is_empty() {
        count += 1;
        if count > EXT_COUNT_MAX {
            return Err(length("number of extFields", count, EXT_COUNT_MAX));
        }
        let left = cursor.rest().len();
        let wrong = |what, found: i64| CodecError::Length {
            what,
            found,
            limit: left as u64,
        };
        let size = cursor.i16().ok_or_else(|| wrong("length of a name", 2))?;
        let name = usize::try_from(size)
            .ok()
            .filter(|size| *size <= EXT_NAME_MAX)
            .and_then(|size| cursor.take(size))
            .ok_or_else(|| wrong("length of a name", i64::from(size)))?;
        let size = cursor.i32().ok_or_else(|| wrong("length of a value", 4))?;
        let value = usize::try_from(size)
            .ok()
            .and_then(|size| cursor.take(size))
            .ok_or_else(|| wrong("length of a value", i64::from(size)))?;
        if !name.is_empty() && !value.is_empty() {
            ext.push((
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value),
            ));
        }
    }
    Ok(ext)
}

fn length(what: &'static str, found: usize, limit: usize) -> CodecError {
    CodecError::Length {
        what,
        found: i64::try_from(found).unwrap_or(i64::MAX),
        limit: limit as u64,
    }
}

/// Tells whether code and version fit: each has 16 bits with a sign, and Java drops the others.
pub fn holds(header: &Header<'_>) -> bool {
    i16::try_from(header.code).is_ok() && i16::try_from(header.version).is_ok()
}

/// Appends a header that it [`holds`]; of another one code and version keep their lower 16 bits.
pub fn encode<'a>(
    header: &Header<'_>,
    ext: impl Iterator<Item = (&'a str, &'a str)>,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    #[allow(clippy::cast_possible_truncation)] // It is what the format does.
    let (code, version) = (header.code as i16, header.version as i16);
    out.extend_from_slice(&code.to_be_bytes());
    out.push(header.language);
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&header.opaque.to_be_bytes());
    out.extend_from_slice(&header.flag.to_be_bytes());
    let remark = header.remark.as_ref().map_or("", Cow::as_ref);
    out.extend_from_slice(&size("remark length", remark.len())?.to_be_bytes());
    out.extend_from_slice(remark.as_bytes());
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    for (name, value) in ext {
        if name.is_empty() || value.is_empty() {
            continue;
        }
        let name_size = i16::try_from(name.len())
            .map_err(|_| length("length of a name", name.len(), EXT_NAME_MAX))?;
        out.extend_from_slice(&name_size.to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&size("length of a value", value.len())?.to_be_bytes());
        out.extend_from_slice(value.as_bytes());
    }
    let ext_size = size("extFields length", out.len() - at - 4)?;
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&ext_size.to_be_bytes());
    }
    Ok(())
}

fn size(what: &'static str, found: usize) -> Result<i32, CodecError> {
    i32::try_from(found).map_err(|_| length(what, found, i32::MAX as usize))
}
