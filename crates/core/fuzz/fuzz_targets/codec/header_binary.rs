//! Binary headers from a peer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = roquet_core::codec::header::binary::decode(data) {
        let ext = header.ext.unwrap_or_default();
        let held: usize = ext
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(held <= 3 * data.len());
    }
});
