//! Contents that try to look like what recovery looks for: pages never written, and records.

use roquet_core::codec::record::{self, NewRecord};

use super::world::Logged;
use super::Rng;

/// Gives a message, number `number` of its store, contents of an attacker's choice; its record will
/// begin at `at`, as far as the attacker can tell.
pub fn change(message: &mut Logged, number: u64, at: u64) {
    let mut rng = Rng(number.wrapping_mul(0x2545_F491_4F6C_DD1D));
    match rng.below(8) {
        0 => message.extra = vec![0; below(&mut rng, 1500)],
        1 => {
            let from = below(&mut rng, message.body.len() as u64);
            message.body[from..].fill(0);
            message.extra = vec![0; below(&mut rng, 600)];
        }
        2 => {
            // Words and zeros in turn, up to a drawn length.
            let size = below(&mut rng, 1500);
            message.extra = (0..size).map(|at| u8::from(at % 97 < 3) * b'x').collect();
        }
        3 => {
            let body_at = at + 88;
            message.body = forged(&mut rng, body_at, message.body.len());
        }
        4 => {
            let properties_at = at + message.size() as u64 + 6;
            message.extra = forged(&mut rng, properties_at, 900);
        }
        5 => {
            let body_at = at + 88;
            message.body = forged(&mut rng, body_at, message.body.len());
            message.extra = vec![0; below(&mut rng, 1500)];
        }
        _ => {}
    }
}

fn below(rng: &mut Rng, bound: u64) -> usize {
    usize::try_from(rng.below(bound)).expect("small")
}

/// Whole records with right checksums, each saying that it stands where it does, as many as `size`
/// bytes at `at` take; hours lie between them.
fn forged(rng: &mut Rng, at: u64, size: usize) -> Vec<u8> {
    let host = [127, 0, 0, 1, 0, 0, 42, 159];
    let mut bytes = Vec::new();
    loop {
        let body = vec![b'f'; below(rng, 40)];
        let new = NewRecord {
            topic: b"T",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: &host,
            store_host: &host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            properties: b"",
        };
        if bytes.len() + new.size() > size {
            break;
        }
        let from = bytes.len();
        record::encode(&new, &mut bytes).expect("a record within the limits");
        let time = i64::try_from(1_600_000_000_000 + rng.below(1 << 40)).expect("a time");
        let offset = (at + from as u64).cast_signed();
        let next = i64::try_from(rng.below(200)).expect("small");
        record::patch(&mut bytes[from..], next, offset, time);
    }
    bytes.resize(size, 0);
    bytes
}
