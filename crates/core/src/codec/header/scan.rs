//! JSON headers as clients really write them, read in one pass over the bytes.
//!
//! Whatever is out of the ordinary, wrong JSON above all, is left to the full reader
//! ([`super::json`]), so that there is one place which says what a header means.

use std::borrow::Cow;

use crate::codec::command::{self, Ext, Header};
use crate::codec::limits::{EXT_COUNT_MAX, EXT_NAME_MAX};

/// Reads a header without blanks, nulls, booleans or odd numbers; `None` leaves it to the full
/// reader.
pub(crate) fn read(text: &str) -> Option<Header<'_>> {
    let mut scan = Scan { text, at: 0 };
    let mut header = Header::empty();
    scan.expect(b'{')?;
    loop {
        let name = scan.plain()?;
        scan.expect(b':')?;
        match name {
            "code" => header.code = scan.number()?,
            "flag" => header.flag = scan.number()?,
            "version" => header.version = scan.number()?,
            "opaque" => header.opaque = scan.number()?,
            "language" => header.language = command::language_code(&scan.string()?),
            "remark" => header.remark = Some(scan.string()?),
            "extFields" => header.ext = Some(fields(&mut scan)?),
            "serializeTypeCurrentRPC" => drop(scan.plain()?),
            _ => return None,
        }
        match scan.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    (scan.at == text.len()).then_some(header)
}

fn fields<'a>(scan: &mut Scan<'a>) -> Option<Ext<'a>> {
    let mut ext = Ext::with_capacity(16);
    scan.expect(b'{')?;
    if scan.peek()? == b'}' {
        scan.at += 1;
        return Some(ext);
    }
    loop {
        let name = scan.plain()?;
        scan.expect(b':')?;
        if ext.len() == EXT_COUNT_MAX || name.len() > EXT_NAME_MAX {
            return None;
        }
        ext.push((Cow::Borrowed(name), scan.string()?));
        match scan.next()? {
            b',' => {}
            b'}' => return Some(ext),
            _ => return None,
        }
    }
}

/// A place in a text.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// A number as `i32` writes itself.
    fn number(&mut self) -> Option<i32> {
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let start = self.at;
        let mut value: i64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value * 10 + i64::from(digit - b'0');
            self.at += 1;
            if self.at - start > 10 {
                return None;
            }
        }
        let digits = self.at - start;
        let zero_first = self.text.as_bytes().get(start) == Some(&b'0');
        if digits == 0 || (zero_first && (digits > 1 || negative)) {
            return None;
        }
        i32::try_from(if negative { -value } else { value }).ok()
    }

    /// A string without escapes.
    fn plain(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        self.at += run(self.text.as_bytes().get(start..)?);
        let text = self.text.get(start..self.at)?;
        self.expect(b'"')?;
        Some(text)
    }

    /// Any string, as long as it has no surrogates.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let start = self.at;
        self.at += run(self.text.as_bytes().get(start..)?);
        let head = self.text.get(start..self.at)?;
        match self.next()? {
            b'"' => return Some(Cow::Borrowed(head)),
            b'\\' => {}
            _ => return None,
        }
        // Escapes only ever make a text shorter, and there are seldom more than a few dozen.
        let mut whole = String::with_capacity(head.len() + 256);
        whole.push_str(head);
        loop {
            whole.push(self.escaped()?);
            let start = self.at;
            self.at += run(self.text.as_bytes().get(start..)?);
            whole.push_str(self.text.get(start..self.at)?);
            match self.next()? {
                b'"' => return Some(Cow::Owned(whole)),
                b'\\' => {}
                _ => return None,
            }
        }
    }

    /// What stands for a backslash and what follows it.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            b'u' => {
                let mut code = 0;
                for _ in 0..4 {
                    code = code * 16 + char::from(self.next()?).to_digit(16)?;
                }
                return char::from_u32(code);
            }
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            same @ (b'"' | b'\\' | b'/') => char::from(same),
            _ => return None,
        })
    }
}

/// How many bytes come before the next quote, backslash or control character; eight at a time.
pub(crate) fn run(bytes: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    let mut rest = bytes;
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let zero = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
        // Exact for the lowest byte found, which is all that counts.
        let ends = zero(word ^ (LOW * u64::from(b'"')))
            | zero(word ^ (LOW * u64::from(b'\\')))
            | (word.wrapping_sub(LOW * 0x20) & !word & HIGH);
        if ends != 0 {
            return at + (ends.trailing_zeros() / 8) as usize;
        }
        at += 8;
        rest = tail;
    }
    let ends = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    at + rest.iter().position(ends).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::{read, run};

    #[test]
    fn the_run_ends_at_the_first_byte_that_matters() {
        for size in 0..40 {
            for end in [b'"', b'\\', 0x1f, 0, 1] {
                let mut bytes = vec![b'x'; size];
                bytes.extend([end, b'"', 0x80, 0xff, 0x20, b'!', b'z', b'#', b'[']);
                assert_eq!(run(&bytes), size, "{end}");
            }
            let plain = vec![0xC3; size];
            assert_eq!(run(&plain), size);
        }
    }

    proptest::proptest! {
        #[test]
        fn both_readers_understand_the_same(
            code in proptest::prelude::any::<i32>(),
            ext in proptest::collection::vec(("[a-zA-Z]{0,12}", "[\\x00-\\x30\\PC]{0,40}"), 0..6),
            remark in proptest::option::of("[\\x00-\\x7f\\PC]{0,30}"),
            cut in 0usize..400,
            junk in proptest::prelude::any::<u8>(),
        ) {
            let mut header = crate::codec::command::Header::empty();
            header.code = code;
            header.remark = remark.map(std::borrow::Cow::Owned);
            let pairs = ext.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let mut bytes = Vec::new();
            crate::codec::header::json::encode(&header, Some(pairs), &mut bytes);
            let text = String::from_utf8(bytes.clone()).unwrap();
            proptest::prop_assert_eq!(read(&text), crate::codec::header::json::read_any(&text).ok());
            // Damaged in one place, it is read the same or left to the full reader.
            if let Some(byte) = bytes.get_mut(cut) {
                *byte = junk;
            }
            if let Ok(text) = std::str::from_utf8(&bytes) {
                if let Some(found) = read(text) {
                    proptest::prop_assert_eq!(Some(found), crate::codec::header::json::read_any(text).ok());
                }
            }
        }
    }

    #[test]
    fn the_usual_is_read_and_the_unusual_left() {
        let usual = r#"{"code":310,"extFields":{"a":"g","i":"K\u0001v\u0002","e":""},"flag":0,"language":"JAVA","opaque":-7,"serializeTypeCurrentRPC":"JSON","version":399}"#;
        let header = read(usual).unwrap();
        assert_eq!((header.code, header.opaque, header.version), (310, -7, 399));
        assert_eq!(header.get("i"), Some("K\u{1}v\u{2}"));
        assert_eq!(header.get("e"), Some(""));
        for unusual in [
            "",
            "{}",
            r#"{"code":01}"#,
            r#"{"code":-0}"#,
            r#"{"code":1.0}"#,
            r#"{"code":2147483648}"#,
            r#"{"code":1 }"#,
            r#"{"code":null}"#,
            r#"{"code":1,"other":2}"#,
            r#"{"code":1}x"#,
            r#"{"remark":"\ud83d\ude00"}"#,
            r#"{"extFields":{"a":1}}"#,
            r#"{"extFields":{"a":"b",}}"#,
            "{\"remark\":\"a\nb\"}",
        ] {
            assert_eq!(read(unusual), None, "{unusual}");
        }
    }
}
