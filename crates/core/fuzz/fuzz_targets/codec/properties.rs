//! Property texts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::codec::properties::{delay_level, entries, find, push};

fuzz_target!(|data: &[u8]| {
    let mut again = Vec::new();
    for (name, value) in entries(data) {
        assert!(!name.is_empty() && !value.is_empty());
        assert!(find(data, name).is_some());
        push(&mut again, name, value);
    }
    assert!(entries(&again).eq(entries(data)));
    delay_level(data);
    roquet_core::java_hash::hash(data);
});
