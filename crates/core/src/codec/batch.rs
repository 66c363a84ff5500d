//! The body of a batch send: messages without topic, queue and time (spec: store §4.1).

use crate::codec::cursor::Cursor;
use crate::codec::error::CodecError;
use crate::codec::limits::PROPERTIES_SIZE_MAX;

/// Bytes of an element without body and properties.
pub const ELEMENT_SIZE_MIN: usize = 22;

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// The user's flag.
    pub flag: i32,
    /// Body.
    pub body: &'a [u8],
    /// Property text.
    pub properties: &'a [u8],
}

/// The elements of a batch body, ending after the first error.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

/// Iterates over the elements of a batch body.
pub fn elements(body: &[u8]) -> Elements<'_> {
    Elements { rest: body }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.rest);
        match element(bytes) {
            Ok((element, rest)) => {
                self.rest = rest;
                Some(Ok(element))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

fn element(bytes: &[u8]) -> Result<(Element<'_>, &[u8]), CodecError> {
    let left = bytes.len();
    let length = |what, found: i64| CodecError::Length {
        what,
        found,
        limit: left as u64,
    };
    let short = || {
        length(
            "size of a batch element",
            i64::try_from(left).unwrap_or(i64::MAX),
        )
    };
    let size = Cursor::new(bytes).i32().ok_or_else(short)?;
    let wrong_size = || length("size of a batch element", i64::from(size));
    let size_bytes = usize::try_from(size).map_err(|_| wrong_size())?;
    let (whole, rest) = bytes.split_at_checked(size_bytes).ok_or_else(wrong_size)?;
    let mut cursor = Cursor::new(whole);
    cursor.take(12).ok_or_else(wrong_size)?;
    let flag = cursor.i32().ok_or_else(wrong_size)?;
    let body_size = cursor.i32().ok_or_else(wrong_size)?;
    let body = usize::try_from(body_size)
        .ok()
        .and_then(|count| cursor.take(count))
        .ok_or_else(|| length("body length of a batch element", i64::from(body_size)))?;
    let properties_size = cursor.i16().ok_or_else(wrong_size)?;
    let properties = usize::try_from(properties_size)
        .ok()
        .and_then(|count| cursor.take(count))
        .ok_or_else(|| {
            length(
                "properties length of a batch element",
                i64::from(properties_size),
            )
        })?;
    if !cursor.rest().is_empty() {
        return Err(wrong_size());
    }
    let element = Element {
        flag,
        body,
        properties,
    };
    Ok((element, rest))
}

/// Appends an element to a batch body; fails for properties over 32,767 bytes or a size over 2 GiB.
pub fn encode(element: &Element<'_>, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let size = ELEMENT_SIZE_MIN + element.body.len() + element.properties.len();
    let too_long = |what, found: usize, limit: usize| CodecError::Length {
        what,
        found: i64::try_from(found).unwrap_or(i64::MAX),
        limit: limit as u64,
    };
    let properties_size = i16::try_from(element.properties.len()).map_err(|_| {
        too_long(
            "properties length of a batch element",
            element.properties.len(),
            PROPERTIES_SIZE_MAX,
        )
    })?;
    let total = i32::try_from(size)
        .map_err(|_| too_long("size of a batch element", size, i32::MAX as usize))?;
    let body_size = i32::try_from(element.body.len())
        .map_err(|_| too_long("size of a batch element", size, i32::MAX as usize))?;
    out.reserve(size);
    out.extend_from_slice(&total.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&element.flag.to_be_bytes());
    out.extend_from_slice(&body_size.to_be_bytes());
    out.extend_from_slice(element.body);
    out.extend_from_slice(&properties_size.to_be_bytes());
    out.extend_from_slice(element.properties);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{elements, encode, Element};

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        for (flag, body, properties) in [(1, &b"one"[..], &b"a\x01b\x02"[..]), (-1, b"", b"")] {
            let element = Element {
                flag,
                body,
                properties,
            };
            encode(&element, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn round_trip() {
        let body = sample();
        let found: Vec<_> = elements(&body).map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].flag, found[0].body), (1, &b"one"[..]));
        assert_eq!(found[0].properties, b"a\x01b\x02");
        assert_eq!((found[1].flag, found[1].body.len()), (-1, 0));
    }

    #[test]
    fn every_cut_and_flip_is_an_error_or_harmless() {
        let body = sample();
        let whole = elements(&body).count();
        for end in 0..body.len() {
            let cut = elements(&body[..end]);
            let good = cut.clone().flatten().count();
            assert!(good < whole);
            assert!(
                end == 0 || end == 29 || cut.last().unwrap().is_err(),
                "{end}"
            );
        }
        for at in 0..body.len() {
            let mut bad = body.clone();
            bad[at] ^= 0x80;
            assert!(elements(&bad).count() <= whole);
        }
    }
}
