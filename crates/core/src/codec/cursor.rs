//! Reads big-endian numbers and slices from bytes; every step that does not fit gives `None`.

/// A position in bytes that only moves forward.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// A signed byte.
    #[inline]
    pub fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    /// A signed 16-bit number.
    #[inline]
    pub fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// A signed 32-bit number.
    #[inline]
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned 32-bit number.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A signed 64-bit number.
    #[inline]
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn reads_in_order_and_stops_at_the_end() {
        let mut cursor = Cursor::new(&[0xFF, 0, 1, 0, 0, 0, 2, 9]);
        assert_eq!(cursor.i8(), Some(-1));
        assert_eq!(cursor.i16(), Some(1));
        assert_eq!(cursor.i32(), Some(2));
        assert_eq!(cursor.i64(), None);
        assert_eq!(cursor.take(2), None);
        assert_eq!(cursor.take(1), Some(&[9][..]));
        assert!(cursor.rest().is_empty());
    }
}
