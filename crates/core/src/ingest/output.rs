//! Answers on their way out: bytes that were made, and places in the log that need no copy.

use std::fmt;

use crate::disk::segment::Lease;

/// Shorter places in the log are copied: a piece of its own costs more than that.
const COPIED_BELOW: usize = 4096;
/// A buffer that has grown beyond this is not kept for the next answers.
const KEPT_MAX: usize = 1 << 20;

/// Bytes to write, in order.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Each goes before the byte at its position.
    leases: Vec<(usize, Lease)>,
    leased: usize,
}

impl Output {
    /// The bytes made so far, to be appended to.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a place in the log.
    pub fn lease(&mut self, lease: &Lease) {
        if lease.len() < COPIED_BELOW {
            self.bytes.extend_from_slice(lease);
        } else {
            self.leased += lease.len();
            self.leases.push((self.bytes.len(), lease.clone()));
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.leased
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order, without the first `skip` bytes; none of them is empty.
    pub fn pieces(&self, skip: usize) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        let made = move |end: usize| {
            let piece = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            piece
        };
        let ends = self.leases.iter().map(|(at, lease)| (*at, Some(lease)));
        let all = ends
            .chain(std::iter::once((self.bytes.len(), None)))
            .scan(made, |made, (end, lease)| Some((made(end), lease)))
            .flat_map(|(piece, lease)| [piece, lease.map_or(&[][..], |lease| &lease[..])]);
        let mut left = skip;
        all.filter_map(move |piece| {
            let skipped = left.min(piece.len());
            left -= skipped;
            piece.get(skipped..).filter(|rest| !rest.is_empty())
        })
    }

    /// Forgets everything but the room it took.
    pub fn clear(&mut self) {
        self.leases.clear();
        self.leased = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_MAX {
            self.bytes = Vec::new();
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Output;

    #[test]
    fn pieces_begin_where_they_are_told() {
        let mut output = Output::default();
        assert!(output.is_empty());
        output.bytes().extend_from_slice(b"abcdef");
        for skip in 0..=6 {
            let whole: Vec<u8> = output.pieces(skip).flatten().copied().collect();
            assert_eq!(whole, &b"abcdef"[skip..]);
        }
        assert_eq!(output.pieces(6).count(), 0);
        output.clear();
        assert_eq!(output.pieces(0).count(), 0);
    }
}
