//! Frames on their way to the handlers, and cutting them where there is no fast path.

use crate::codec::command::{Encoding, Header};
use crate::codec::error::CodecError;
use crate::codec::frame::{self, Frame, PREFIX_SIZE};

/// What a frame takes apart from its bytes: as an object of Python, with its fields, about this.
const OBJECT_SIZE: usize = 512;

/// A whole frame with bytes of its own.
#[derive(Debug)]
pub struct OwnFrame {
    encoding: Encoding,
    header_size: usize,
    bytes: Box<[u8]>,
    size: usize,
}

impl OwnFrame {
    pub(super) fn of(frame: &Frame<'_>) -> Self {
        Self {
            encoding: frame.encoding,
            header_size: frame.header.len(),
            bytes: [frame.header, frame.body].concat().into(),
            size: frame.size,
        }
    }

    /// The frame.
    pub fn frame(&self) -> Frame<'_> {
        let (header, body) = self
            .bytes
            .split_at_checked(self.header_size)
            .unwrap_or_default();
        Frame {
            encoding: self.encoding,
            header,
            body,
            size: self.size,
        }
    }

    /// Appends it as it was read.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_SIZE]);
        let (header, body) = self
            .bytes
            .split_at_checked(self.header_size)
            .unwrap_or_default();
        out.extend_from_slice(header);
        let closed = frame::close_header(self.encoding, start, body.len(), out);
        debug_assert!(closed.is_ok(), "it was read with these lengths");
        out.extend_from_slice(body);
    }

    /// Bytes that it takes, here and as an object of Python.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + OBJECT_SIZE
    }
}

/// Cuts the whole frames of what was kept and came now; keeps the rest.
pub(super) fn cut_all(
    kept: &mut Vec<u8>,
    data: &[u8],
    frame_size_max: usize,
    sink: &mut dyn FnMut(&Frame<'_>, &Header<'_>),
) -> Result<(), CodecError> {
    // Grows with the bytes received, never with the length that a peer declares.
    kept.extend_from_slice(data);
    let mut used = 0;
    let done = loop {
        let rest = kept.get(used..).unwrap_or_default();
        let read = frame::cut(rest, frame_size_max).and_then(|found| {
            found
                .map(|frame| frame.decode_header().map(|header| (frame, header)))
                .transpose()
        });
        match read {
            Ok(Some((frame, header))) => {
                sink(&frame, &header);
                used += frame.size;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    kept.drain(..used);
    if kept.is_empty() {
        // An idle connection keeps nothing.
        *kept = Vec::new();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::OwnFrame;
    use crate::codec::command::{Encoding, Header};
    use crate::codec::frame;

    #[test]
    fn own_frame_is_written_as_it_was_read() {
        for encoding in [Encoding::Json, Encoding::Binary] {
            let mut bytes = b"before".to_vec();
            let header = Header {
                code: 200_050,
                opaque: 7,
                ..Header::empty()
            };
            frame::encode(encoding, &header, b"body", &mut bytes).unwrap();
            let read = frame::cut(&bytes[6..], 1 << 20).unwrap().unwrap();
            let mut written = b"before".to_vec();
            OwnFrame::of(&read).write_to(&mut written);
            assert_eq!(written, bytes);
        }
    }
}
