//! Frames: round trips, any split, and bytes changed at random.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::borrow::Cow;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, Just, Strategy};
use proptest::prop_oneof;
use roquet_core::codec::command::{Encoding, Ext, Header};
use roquet_core::codec::frame::{cut, encode};
use roquet_core::codec::limits::FRAME_SIZE_MAX;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::string::string_regex("[a-zA-Z0-9_%]{1,12}").unwrap(),
        proptest::collection::vec(any::<char>(), 1..8).prop_map(|c| c.into_iter().collect()),
        Just("a\u{1}b\u{2}\"\\\n\t\u{7f}".to_owned()),
    ]
}

/// A code or a version, mostly one that 16 bits hold.
fn number() -> impl Strategy<Value = i32> {
    prop_oneof![3 => any::<i16>().prop_map(i32::from), 1 => any::<i32>()]
}

fn header() -> impl Strategy<Value = Header<'static>> {
    (
        (number(), any::<i32>(), number(), any::<i32>()),
        0..14u8,
        proptest::option::of(text()),
        proptest::option::of(proptest::collection::btree_map(text(), text(), 1..12)),
    )
        .prop_map(
            |((code, flag, version, opaque), language, remark, ext)| Header {
                code,
                // A response, so that no code is taken for one that lost bits.
                flag: flag | 1,
                language,
                version,
                opaque,
                remark: remark.map(Cow::Owned),
                ext: ext.map(|ext| -> Ext<'static> {
                    ext.into_iter()
                        .map(|(name, value)| (Cow::Owned(name), Cow::Owned(value)))
                        .collect()
                }),
            },
        )
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Json), Just(Encoding::Binary)]
}

proptest! {
    #[test]
    fn round_trip_and_any_split(
        encoding in encoding(),
        header in header(),
        body in proptest::collection::vec(any::<u8>(), 0..200),
        behind in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut bytes = Vec::new();
        encode(encoding, &header, &body, &mut bytes).unwrap();
        let size = bytes.len();
        for end in 0..size {
            prop_assert_eq!(cut(&bytes[..end], FRAME_SIZE_MAX), Ok(None));
        }
        bytes.extend(behind);
        let frame = cut(&bytes, FRAME_SIZE_MAX).unwrap().unwrap();
        let fits = i16::try_from(header.code).is_ok() && i16::try_from(header.version).is_ok();
        let written = if fits { encoding } else { Encoding::Json };
        prop_assert_eq!((frame.encoding, frame.size, frame.body), (written, size, &body[..]));
        prop_assert_eq!(frame.decode_header().unwrap(), header);
    }

    #[test]
    fn changed_bytes_never_panic_and_never_read_outside(
        encoding in encoding(),
        header in header(),
        changes in proptest::collection::vec(any::<(u16, u8)>(), 1..6),
    ) {
        let mut bytes = Vec::new();
        encode(encoding, &header, b"body", &mut bytes).unwrap();
        for (at, value) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        if let Ok(Some(frame)) = cut(&bytes, FRAME_SIZE_MAX) {
            prop_assert!(frame.size <= bytes.len());
            prop_assert_eq!(frame.size, 8 + frame.header.len() + frame.body.len());
            if let Ok(read) = frame.decode_header() {
                let ext = read.ext.unwrap_or_default();
                let held: usize = ext.iter().map(|(name, value)| name.len() + value.len()).sum();
                prop_assert!(held <= 3 * frame.header.len(), "memory follows the bytes received");
            }
        }
    }

    #[test]
    fn bytes_at_random_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(Some(frame)) = cut(&bytes, FRAME_SIZE_MAX) {
            let _ = frame.decode_header();
        }
        let _ = roquet_core::codec::header::binary::decode(&bytes);
        let _ = roquet_core::codec::header::json::decode(&bytes);
        let _ = roquet_core::codec::batch::elements(&bytes).count();
        let _ = roquet_core::codec::properties::entries(&bytes).count();
    }
}
