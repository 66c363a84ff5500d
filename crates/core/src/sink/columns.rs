//! Columns of an Arrow batch as borrowed buffers, read with every access checked.
//!
//! The buffers are those that Arrow's layout describes: a bit a row for what is not null, 32-bit
//! offsets in the machine's order, data. What they say is not believed: an offset outside of the
//! data reads as `None`, which callers take for a null.

/// Bits of the rows that have a value; without them every row has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validity<'a>(pub Option<&'a [u8]>);

impl Validity<'_> {
    fn has(self, row: usize) -> bool {
        self.0.is_none_or(|bits| {
            bits.get(row / 8)
                .is_some_and(|byte| byte >> (row % 8) & 1 == 1)
        })
    }
}

/// The 32-bit number at a place of a buffer.
pub fn number32(buffer: &[u8], at: usize) -> Option<i32> {
    let bytes = buffer.get(at.checked_mul(4)?..)?.first_chunk()?;
    Some(i32::from_ne_bytes(*bytes))
}

fn range(offsets: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let begin = usize::try_from(number32(offsets, at)?).ok()?;
    let end = usize::try_from(number32(offsets, at + 1)?).ok()?;
    Some(begin..end)
}

/// Text in UTF-8, or bytes.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// Rows of the buffers in front of the first row.
    pub offset: usize,
    /// Which rows are not null.
    pub validity: Validity<'a>,
    /// Where each value begins, and behind the last the end of all.
    pub offsets: &'a [u8],
    /// The values.
    pub data: &'a [u8],
}

impl<'a> Texts<'a> {
    /// The value of a row, `None` for a null.
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        let at = self.offset.checked_add(row)?;
        if !self.validity.has(at) {
            return None;
        }
        self.data.get(range(self.offsets, at)?)
    }

    /// The value of a row that is neither null nor empty.
    pub fn filled(&self, row: usize) -> Option<&'a [u8]> {
        self.get(row).filter(|value| !value.is_empty())
    }
}

/// Where the entries of each row's list or map are.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// Rows of the buffers in front of the first row.
    pub offset: usize,
    /// Which rows are not null.
    pub validity: Validity<'a>,
    /// Where the entries of each row begin, and behind the last the end of all.
    pub offsets: &'a [u8],
}

impl Lists<'_> {
    /// The entries of a row; none for a null.
    pub fn entries(&self, row: usize) -> std::ops::Range<usize> {
        let at = self.offset.saturating_add(row);
        if !self.validity.has(at) {
            return 0..0;
        }
        range(self.offsets, at).unwrap_or_default()
    }
}

/// The keys of messages: a text with white space between them, or a list of them.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// `a b`.
    Text(Texts<'a>),
    /// `["a", "b"]`.
    List(Lists<'a>, Texts<'a>),
}

/// The rows of a batch that say what messages are made of.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Bodies.
    pub body: Texts<'a>,
    /// Keys, if there is such a column.
    pub keys: Option<Keys<'a>>,
    /// Tags, if there is such a column.
    pub tags: Option<Texts<'a>>,
    /// Properties as maps, their names and their values.
    pub properties: Option<(Lists<'a>, Texts<'a>, Texts<'a>)>,
    /// Sharding keys, if there is such a column.
    pub sharding: Option<Texts<'a>>,
    /// Unique keys, if there is such a column.
    pub unique: Option<Texts<'a>>,
    /// Levels of delay as 32-bit numbers, a row each; 0 for none.
    pub delay: Option<&'a [u8]>,
    /// Where each row goes, as 32-bit numbers.
    pub lots: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::{Lists, Texts, Validity};

    fn offsets(of: &[i32]) -> Vec<u8> {
        of.iter().flat_map(|it| it.to_ne_bytes()).collect()
    }

    #[test]
    fn values_of_a_slice_are_found_and_nulls_are_none() {
        let ends = offsets(&[0, 1, 1, 3, 3]);
        let texts = Texts {
            offset: 1,
            validity: Validity(Some(&[0b1101])),
            offsets: &ends,
            data: b"abc",
        };
        assert_eq!(texts.get(0), None);
        assert_eq!(texts.get(1), Some(&b"bc"[..]));
        assert_eq!((texts.get(2), texts.filled(2)), (Some(&b""[..]), None));
        assert_eq!(texts.get(3), None, "behind the last row");
    }

    #[test]
    fn offsets_outside_of_the_data_are_nulls() {
        for wrong in [[-1, 2], [0, 9], [3, 1], [i32::MAX, i32::MIN]] {
            let ends = offsets(&wrong);
            let (validity, data) = (Validity(None), b"abc");
            let texts = Texts {
                offset: 0,
                validity,
                offsets: &ends,
                data,
            };
            assert_eq!(texts.get(0), None, "{wrong:?}");
        }
        let lists = Lists {
            offset: usize::MAX,
            validity: Validity(None),
            offsets: &[],
        };
        assert_eq!(lists.entries(1), 0..0);
    }
}
