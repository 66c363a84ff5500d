//! What a slave reports: it never vouches for a byte that was not sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::ha::feed::{Feed, FeedConfig};

const RULES: FeedConfig = FeedConfig {
    batch: 1000,
    heartbeat: 5_000,
    housekeeping: 20_000,
    bytes_per_second: 10_000,
    linger: 3,
};

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<9>() else {
        return;
    };
    let [step, end @ ..] = *head;
    let end = u64::from_be_bytes(end) >> 1;
    let mut feed = Feed::new(RULES);
    let mut now = 0;
    for piece in rest.chunks(usize::from(step % 29) + 1) {
        now += u64::from(step);
        match feed.receive(piece, now) {
            Err(_) => return,
            Ok(None) => {}
            // Who decides where to begin refuses what lies behind the end.
            Ok(Some(first)) if first > end => return,
            Ok(Some(first)) => {
                assert!(!feed.listens());
                if feed.begin(first).is_err() {
                    return;
                }
            }
        }
        for _ in 0..2 {
            if feed.lingers(end, now) {
                continue;
            }
            if let Some((at, size)) = feed.due(end, now) {
                assert_eq!(at, feed.position());
                assert!(size > 0 && size <= RULES.batch && size <= end - at);
                feed.header(size, now);
            }
        }
        if feed.wants_heartbeat(now) {
            feed.header(0, now);
        }
        let _ = feed.check(now);
        feed.patience(end, now);
        assert!(feed.acked() <= feed.position() && feed.position() <= end);
    }
});
