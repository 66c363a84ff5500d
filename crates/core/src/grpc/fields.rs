//! The fields of protobuf messages, as far as plain calls need them.

/// Why a message is not read here: whoever knows its definition says what is wrong, or accepts it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Odd;

/// What a field holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number, of whatever kind.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Result<u64, Odd> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(Odd),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Odd> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Odd),
        }
    }

    /// A text without control characters.
    pub(super) fn text(self) -> Result<&'a str, Odd> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes).map_err(|_| Odd)?;
        // Most texts have no other letters than these, which are told apart byte by byte.
        let is_odd = if bytes.is_ascii() {
            bytes.iter().any(u8::is_ascii_control)
        } else {
            text.chars().any(char::is_control)
        };
        if is_odd {
            return Err(Odd);
        }
        Ok(text)
    }
}

/// Reads the fields of a message, one after the other.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the number of the next field and what it holds; None at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Odd> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Odd)?;
                let (value, rest) = self.0.split_at_checked(length).ok_or(Odd)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            _ => return Err(Odd),
        };
        Ok(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, Odd> {
        let mut value = 0;
        // Nine bytes hold 63 bits: no field of a plain send has more.
        for shift in (0..63).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Odd)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Odd)
    }
}

/// A message that is being written.
#[derive(Default)]
pub(super) struct Written(pub(super) Vec<u8>);

impl Written {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push((value & 0x7F) as u8);
    }

    /// Adds a number; 0 is what a field has that is not there.
    pub(super) fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value == 0 {
            return self;
        }
        self.given(field, value)
    }

    /// Adds a number that is there, be it 0.
    pub(super) fn given(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// Begins a message of so many bytes, which are for the caller to add.
    pub(super) fn begin(&mut self, field: u64, size: usize) {
        self.varint(field << 3 | 2);
        self.varint(size as u64);
    }

    /// Adds a message, empty or not.
    pub(super) fn message(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.begin(field, value.len());
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a text; an empty one is what a field has that is not there.
    pub(super) fn text(&mut self, field: u64, value: &str) -> &mut Self {
        if value.is_empty() {
            return self;
        }
        self.message(field, value.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, Odd, Value, Written};

    #[test]
    fn what_is_written_is_read() {
        let mut written = Written::default();
        written
            .number(1, 300)
            .text(2, "a")
            .number(3, 0)
            .text(4, "")
            .message(5, &[]);
        let mut fields = Fields(&written.0);
        assert_eq!(fields.next(), Ok(Some((1, Value::Number(300)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(b"a")))));
        assert_eq!(fields.next(), Ok(Some((5, Value::Bytes(b"")))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn fields_that_end_behind_their_message_are_odd() {
        for bad in [
            &[0x0A, 2, 1][..],
            &[0x08],
            &[0x08, 0x80],
            &[0x0D, 0, 0, 0, 0],
            &[0xFF; 12],
        ] {
            assert_eq!(Fields(bad).next(), Err(Odd), "{bad:?}");
        }
    }

    #[test]
    fn texts_with_control_characters_or_broken_utf8_are_odd() {
        assert_eq!(Value::Bytes("caf\u{e9}".as_bytes()).text(), Ok("caf\u{e9}"));
        for bad in [&b"a\x01"[..], b"\x7f", b"\xff", "\u{85}".as_bytes()] {
            assert_eq!(Value::Bytes(bad).text(), Err(Odd), "{bad:?}");
        }
    }
}
