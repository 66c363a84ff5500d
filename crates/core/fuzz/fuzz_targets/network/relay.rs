//! What inner servers send through a relay, in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::relay::{Exchange, Limits};

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        frame_size_max: 1 << 16,
        queue_max: 1 << 14,
        control_max: 1 << 12,
        total_max: 1 << 15,
        pending_max: 64,
        timeout_ms: 1000,
    };
    let mut exchange = Exchange::new(limits, 2);
    for id in 1..4_i32 {
        let key = u64::from(id.cast_unsigned());
        exchange.open(key, 0);
        exchange.register(id, 1 + id % 2, key, 0);
    }
    for (turn, piece) in data.chunks(97).enumerate() {
        let key = 1 + turn as u64 % 3;
        let _ = exchange.feed(key, piece, 0, &mut |_, _| ());
        assert!(exchange.queued() <= 3 * ((1 << 14) + (1 << 12)));
    }
    exchange.expire(i64::MAX);
    for id in 1..4 {
        while exchange.take(id).is_some() {}
    }
    assert_eq!(exchange.queued(), 0);
});
