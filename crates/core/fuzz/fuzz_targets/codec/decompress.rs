//! Compressed bodies: never more than the limit comes out, and nothing of what is damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::codec::decompress::decompress;

const LIMIT: usize = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    let flag = 1 | i32::from(kind % 8) << 8;
    let mut out = b"before".to_vec();
    let done = decompress(flag, body, LIMIT, &mut out);
    assert!(out.starts_with(b"before") && out.len() <= 6 + LIMIT);
    assert!(done.is_ok() || out.len() == 6);
});
