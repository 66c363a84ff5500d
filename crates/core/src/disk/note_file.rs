//! Small files of ours beside the checkpoint: written whole or not at all, and checked when read.

use crate::disk::Disk;
use crate::store::error::StoreError;
use std::path::Path;

/// What a note holds: rows of a name and numbers.
pub(crate) type Rows<const N: usize> = Vec<(String, [u64; N])>;

/// What was found on the disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<const N: usize> {
    /// There is no such file.
    Absent,
    /// The file is damaged.
    Damaged,
    /// These rows.
    Rows(Rows<N>),
}

/// Reads a note.
pub(crate) fn read<const N: usize>(
    disk: &dyn Disk,
    path: &Path,
    magic: u64,
) -> Result<Found<N>, StoreError> {
    let found = disk
        .read(path)
        .map_err(|error| StoreError::io("read", path, &error))?;
    Ok(match found {
        None => Found::Absent,
        Some(bytes) => decode(&bytes, magic).map_or(Found::Damaged, Found::Rows),
    })
}

/// Replaces a note; it is durable when this returns.
pub(crate) fn write<const N: usize>(
    disk: &dyn Disk,
    path: &Path,
    magic: u64,
    rows: &Rows<N>,
) -> Result<(), StoreError> {
    let side = path.with_extension("tmp");
    let folder = path.parent().unwrap_or(path);
    disk.write(&side, &encode(rows, magic))
        .and_then(|()| disk.sync_file(&side))
        .and_then(|()| disk.rename(&side, path))
        .and_then(|()| disk.sync_dir(folder))
        .map_err(|error| StoreError::io("write", path, &error))
}

fn encode<const N: usize>(rows: &Rows<N>, magic: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + rows.len() * 64);
    bytes.extend(magic.to_be_bytes());
    bytes.extend((rows.len() as u64).to_be_bytes());
    for (name, numbers) in rows {
        bytes.extend((name.len() as u64).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    }
    let sum = u64::from(crc32fast::hash(&bytes));
    bytes.extend(sum.to_be_bytes());
    bytes
}

/// The rows in `bytes`; `None` when they are none.
fn decode<const N: usize>(bytes: &[u8], magic: u64) -> Option<Rows<N>> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if u64::from_be_bytes(*sum) != u64::from(crc32fast::hash(body)) {
        return None;
    }
    let mut rest = body;
    if number(&mut rest)? != magic {
        return None;
    }
    let count = number(&mut rest)?;
    let mut rows = Rows::new();
    for _ in 0..count {
        let size = usize::try_from(number(&mut rest)?).ok()?;
        let (name, behind) = rest.split_at_checked(size)?;
        rest = behind;
        let mut numbers = [0; N];
        for place in &mut numbers {
            *place = number(&mut rest)?;
        }
        rows.push((std::str::from_utf8(name).ok()?.to_owned(), numbers));
    }
    rest.is_empty().then_some(rows)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    Some(u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, Rows};

    #[test]
    fn a_note_is_read_back_whole_or_not_at_all() {
        let rows: Rows<2> = vec![
            ("a".to_owned(), [7, 0]),
            ("%RETRY%b c\n".to_owned(), [u64::MAX, 1]),
        ];
        let bytes = encode(&rows, 5);
        assert_eq!(decode(&bytes, 5), Some(rows));
        assert_eq!(decode::<2>(&bytes, 6), None);
        assert_eq!(decode::<1>(&encode(&Rows::<1>::new(), 5), 5), Some(vec![]));
        for cut in 0..bytes.len() {
            assert_eq!(decode::<2>(&bytes[..cut], 5), None);
            let mut flipped = bytes.clone();
            flipped[cut] ^= 4;
            assert_eq!(decode::<2>(&flipped, 5), None);
        }
    }
}
