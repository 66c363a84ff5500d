//! Records from a disk or a peer, and the columns made of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::arrow::{Builder, Field, Options};
use roquet_core::codec::record::{parse, patch, records, Parsed, RecordHead};

fuzz_target!(|data: &[u8]| {
    for at in 0..data.len().min(16) {
        if let Parsed::Record { view, size } = parse(data, at, false) {
            assert!(size as usize <= data.len() - at);
            let head = RecordHead::read(&data[at..]);
            assert_eq!(
                head.map(|head| head.store_timestamp),
                Some(view.store_timestamp)
            );
        }
    }
    let mut builder = Builder::new(Options {
        fields: Field::ALL.to_vec(),
        broker_name: "b",
        begin: i64::MIN,
        end: i64::MAX,
        tags: None,
        topics: None,
        stored: i64::MIN..i64::MAX,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
        decompress_max: 1 << 16,
    });
    let _ = builder.add(records(data, false));
    patch(&mut data.to_vec(), 1, 2, 3);
});
