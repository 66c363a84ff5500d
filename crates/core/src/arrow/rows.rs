//! The checksum of rows of a lake, by which files are compared with what was read.
//!
//! A row has the CRC-32 of its queue offset in decimal, a space, its unique key, a space and its
//! body; a null key or body is empty. That is Spark's `crc32(concat(cast(concat(queueOffset, ' ',
//! coalesce(uniqKey, ''), ' ') as binary), coalesce(body, cast('' as binary))))`. Rows have the sum
//! of theirs, whatever their order.

use std::io::Write as _;

use crate::sink::columns::Texts;

/// The columns that the checksum is made of.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Queue offsets: 64-bit numbers in the machine's order, one for each row at least.
    pub offsets: &'a [u8],
    /// Unique keys.
    pub unique: Texts<'a>,
    /// Bodies.
    pub body: Texts<'a>,
}

/// The sum of the checksums of all rows; `None` when there are fewer offsets than rows.
pub fn checksum(given: &Rows<'_>) -> Option<u64> {
    let (numbers, _) = given.offsets.as_chunks::<8>();
    let mut text = Vec::with_capacity(24);
    let mut sum = 0_u64;
    for (row, number) in numbers.get(..given.rows)?.iter().enumerate() {
        text.clear();
        // Writing to memory does not fail.
        let _ = write!(text, "{} ", i64::from_ne_bytes(*number));
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&text);
        hasher.update(given.unique.get(row).unwrap_or_default());
        hasher.update(b" ");
        hasher.update(given.body.get(row).unwrap_or_default());
        sum = sum.wrapping_add(u64::from(hasher.finalize()));
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::{checksum, Rows};
    use crate::sink::columns::{Texts, Validity};

    #[test]
    fn sum_is_that_of_whole_texts_and_short_offsets_are_none() {
        let ends: Vec<u8> = [0_i32, 1, 3]
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        let texts = |validity| Texts {
            offset: 0,
            validity: Validity(validity),
            offsets: &ends,
            data: b"abc",
        };
        let offsets: Vec<u8> = [-7_i64, 1 << 40]
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        let mut given = Rows {
            rows: 2,
            offsets: &offsets,
            unique: texts(None),
            body: texts(Some(&[0b01])),
        };
        let wanted = crc32fast::hash(b"-7 a a");
        let other = crc32fast::hash(b"1099511627776 bc ");
        assert_eq!(checksum(&given), Some(u64::from(wanted) + u64::from(other)));
        given.rows = 3;
        assert_eq!(checksum(&given), None);
        given.rows = 0;
        assert_eq!(checksum(&given), Some(0));
    }
}
