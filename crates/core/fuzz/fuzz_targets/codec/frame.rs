//! Frames from a peer: cutting never reads outside, and what was read is written again alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::codec::command::Encoding;
use roquet_core::codec::frame::{cut, encode};
use roquet_core::codec::header;
use roquet_core::codec::limits::FRAME_SIZE_MAX;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some(frame)) = cut(rest, FRAME_SIZE_MAX) {
        assert_eq!(frame.size, 8 + frame.header.len() + frame.body.len());
        if let Ok(header) = frame.decode_header() {
            if frame.encoding == Encoding::Json {
                // A blank in front keeps the quick reader of usual headers away: both agree.
                let spaced = [b" ", frame.header].concat();
                assert_eq!(header::json::decode(&spaced).as_ref(), Ok(&header));
            }
            let mut again = Vec::new();
            // JSON can say all that either encoding holds, except that a later repeat wins.
            if encode(Encoding::Json, &header, frame.body, &mut again).is_ok() {
                if let Ok(Some(second)) = cut(&again, usize::MAX) {
                    assert_eq!(second.decode_header().as_ref(), Ok(&header));
                }
            }
        }
        rest = &rest[frame.size..];
    }
});
