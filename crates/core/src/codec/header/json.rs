//! The JSON header encoding (spec: wire §3): strict JSON in, Java's key set and order out.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::codec::command::{self, Ext, Header};
use crate::codec::error::CodecError;
use crate::codec::header::scan;
use crate::codec::limits::{EXT_COUNT_MAX, EXT_NAME_MAX};

/// Reads a header that fills `bytes` exactly.
///
/// Unknown keys are ignored, whatever is in them. Text that holds a number counts as that number,
/// numbers and booleans among the extFields as their text, null as absent.
pub fn decode(bytes: &[u8]) -> Result<Header<'_>, CodecError> {
    let text = std::str::from_utf8(bytes).map_err(|error| CodecError::Text {
        what: "the JSON header is not UTF-8",
        at: error.valid_up_to(),
    })?;
    if let Some(header) = scan::read(text) {
        return Ok(header);
    }
    read_any(text)
}

/// Reads any header, the unusual ones as well.
pub(crate) fn read_any(text: &str) -> Result<Header<'_>, CodecError> {
    serde_json::from_str(text).map_err(|error| CodecError::Text {
        what: match error.classify() {
            serde_json::error::Category::Data => "a JSON header with an unfit value",
            serde_json::error::Category::Eof => "the JSON header ends too early",
            _ => "the header is not JSON",
        },
        at: error.column(),
    })
}

impl<'de> Deserialize<'de> for Header<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut header = Header::empty();
        while let Some(Text(key)) = map.next_key()? {
            match key.as_ref() {
                "code" => header.code = map.next_value::<Number>()?.0,
                "flag" => header.flag = map.next_value::<Number>()?.0,
                "version" => header.version = map.next_value::<Number>()?.0,
                "opaque" => header.opaque = map.next_value::<Number>()?.0,
                "language" => {
                    header.language = match map.next_value::<Scalar>()?.0 {
                        Some(name) => command::language_code(&name),
                        None => command::OTHER,
                    }
                }
                "remark" => header.remark = map.next_value::<Scalar>()?.0,
                "extFields" => header.ext = map.next_value::<MaybeExt>()?.0,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(header)
    }
}

/// A string, borrowed when it holds no escape.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// A string, or the text of a number or boolean; `None` for null.
struct Scalar<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, number, boolean or null")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Scalar(Some(Cow::Owned(value.to_string()))))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Scalar(Some(Cow::Owned(value.to_string()))))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Scalar(Some(Cow::Owned(value.to_string()))))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Scalar(Some(Cow::Owned(value.to_string()))))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Scalar(None))
    }
}

/// A 32-bit number, also as text; null is 0.
struct Number(i32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 32-bit number")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        i32::try_from(value).map(Number).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        i32::try_from(value).map(Number).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(Number).map_err(E::custom)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Number(0))
    }
}

/// An object of scalars, bounded in number and length of names; null is no object.
struct MaybeExt<'a>(Option<Ext<'a>>);

impl<'de> Deserialize<'de> for MaybeExt<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExtVisitor)
    }
}

struct ExtVisitor;

impl<'de> Visitor<'de> for ExtVisitor {
    type Value = MaybeExt<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an object of at most {EXT_COUNT_MAX} fields with short names"
        )
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(MaybeExt(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut ext = Ext::with_capacity(16);
        let mut count = 0;
        while let Some(Text(name)) = map.next_key()? {
            count += 1;
            if count > EXT_COUNT_MAX || name.len() > EXT_NAME_MAX {
                return Err(A::Error::invalid_length(count.max(name.len()), &self));
            }
            if let Scalar(Some(value)) = map.next_value()? {
                ext.push((name, value));
            }
        }
        Ok(MaybeExt(Some(ext)))
    }
}

/// Appends a header: Java's keys in Java's order, without those that have no value.
///
/// `ext` is `None` for a header without extFields; an empty iterator writes `{}`.
pub fn encode<'a>(
    header: &Header<'_>,
    ext: Option<impl Iterator<Item = (&'a str, &'a str)>>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"code\":");
    number(header.code, out);
    if let Some(ext) = ext {
        out.extend_from_slice(b",\"extFields\":{");
        for (at, (name, value)) in ext.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            string(name, out);
            out.push(b':');
            string(value, out);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b",\"flag\":");
    number(header.flag, out);
    out.extend_from_slice(b",\"language\":\"");
    out.extend_from_slice(command::language_name(header.language).as_bytes());
    out.extend_from_slice(b"\",\"opaque\":");
    number(header.opaque, out);
    if let Some(remark) = &header.remark {
        out.extend_from_slice(b",\"remark\":");
        string(remark, out);
    }
    out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    number(header.version, out);
    out.push(b'}');
}

/// Appends a decimal number.
pub fn number(value: impl Into<i64>, out: &mut Vec<u8>) {
    let value = value.into();
    let mut digits = [0u8; 20];
    let mut left = value.unsigned_abs();
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        #[allow(clippy::cast_possible_truncation)] // A digit.
        let digit = (left % 10) as u8;
        *place = b'0' + digit;
        start -= 1;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

/// Appends a JSON string; runs without anything to escape are copied whole.
pub fn string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let at = scan::run(rest);
        if at == rest.len() {
            break;
        }
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        if let Some((byte, tail)) = tail.split_first() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                8 => out.extend_from_slice(b"\\b"),
                12 => out.extend_from_slice(b"\\f"),
                _ => {
                    out.extend_from_slice(b"\\u00");
                    out.extend(HEX.get(usize::from(byte >> 4)));
                    out.extend(HEX.get(usize::from(byte & 15)));
                }
            }
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
