//! JSON headers from a peer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = roquet_core::codec::header::json::decode(data) {
        let ext = header.ext.unwrap_or_default();
        // The text of a number may be longer than it was written: 1e300 has 301 digits.
        let held: usize = ext
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(held <= 128 * data.len());
    }
});
