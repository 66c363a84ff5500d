//! Bodies of batch sends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::codec::batch::{elements, encode};

fuzz_target!(|data: &[u8]| {
    let mut again = Vec::new();
    for element in elements(data).flatten() {
        assert!(encode(&element, &mut again).is_ok());
    }
    assert!(again.len() <= data.len());
});
