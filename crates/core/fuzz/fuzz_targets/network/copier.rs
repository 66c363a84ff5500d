//! What a master sends, as a slave takes it: the same in one piece and in many.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::ha::copier::{Copier, CopierConfig};

const RULES: CopierConfig = CopierConfig {
    heartbeat: 5_000,
    housekeeping: 20_000,
};

/// Where the log then begins, its bytes, and why the connection ended.
#[derive(Debug, PartialEq)]
struct Copied {
    begin: u64,
    bytes: Vec<u8>,
    fault: Option<String>,
}

fn copy(end: u64, data: &[u8], step: usize) -> Copied {
    let mut copier = Copier::new(RULES, end);
    let mut copied = Copied {
        begin: end,
        bytes: Vec::new(),
        fault: None,
    };
    for (now, piece) in (0..).zip(data.chunks(step)) {
        let taken = copier.receive(piece, now, |offset, bytes| {
            if copied.bytes.is_empty() && end == 0 {
                copied.begin = offset;
            }
            assert_eq!(offset, copied.begin + copied.bytes.len() as u64);
            copied.bytes.extend_from_slice(bytes);
            Ok(())
        });
        if let Err(fault) = taken {
            copied.fault = Some(fault.0);
            break;
        }
        let there = copied.begin + copied.bytes.len() as u64;
        if let Some(report) = copier.report(there, now) {
            assert!(u64::from_be_bytes(report) >= end);
        }
        assert!(copier.check(now).is_ok());
        assert!(copier.patience(now) <= RULES.heartbeat);
    }
    copied
}

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<9>() else {
        return;
    };
    let [step, end @ ..] = *head;
    let end = u64::from_be_bytes(end) >> 1;
    let whole = copy(end, rest, usize::MAX);
    assert!(whole.bytes.len() <= rest.len());
    assert_eq!(whole, copy(end, rest, usize::from(step % 29) + 1));
});
