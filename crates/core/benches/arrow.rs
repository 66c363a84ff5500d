//! How fast stored records become Arrow columns: `cargo bench --bench arrow`.
//!
//! Prints records/s and bytes/s of one core for all 19 columns with the CRC checked.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::hint::black_box;
use std::time::Instant;

use roquet_core::arrow::{Builder, Field, Options};
use roquet_core::codec::host;
use roquet_core::codec::record::{encode, patch, records, NewRecord};

const ROWS: i64 = 16_384;
const ROUNDS: usize = 7;

fn sample(body_size: usize) -> Vec<u8> {
    let born = host::encode("10.1.2.3:50000".parse().unwrap());
    let store = host::encode("127.0.0.1:10911".parse().unwrap());
    let body: Vec<u8> = (0..body_size)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let mut log = Vec::new();
    for row in 0..ROWS {
        let properties = format!(
            "UNIQ_KEY\u{1}7F00000100002A9F{row:016X}\u{2}KEYS\u{1}k{row}\u{2}TAGS\u{1}TagA\u{2}WAIT\u{1}true\u{2}"
        );
        let start = log.len();
        let record = NewRecord {
            topic: b"BenchTopic",
            queue_id: 3,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1_700_000_000_000,
            born_host: &born,
            store_host: &store,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            properties: properties.as_bytes(),
        };
        encode(&record, &mut log).unwrap();
        patch(log.get_mut(start..).unwrap(), row, row, row);
    }
    log
}

fn main() {
    for body_size in [100, 1024] {
        let log = sample(body_size);
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut builder = Builder::new(Options {
                fields: Field::ALL.to_vec(),
                broker_name: "broker-a",
                begin: 0,
                end: i64::MAX,
                tags: None,
                topics: None,
                stored: i64::MIN..i64::MAX,
                rows_max: usize::MAX,
                bytes_max: usize::MAX,
                decompress_max: 1 << 26,
            });
            builder.add(records(&log, true)).unwrap();
            black_box(builder.finish());
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!(
            "body {body_size:5} B: {:6.2} M records/s  {:6.2} GB/s  ({:.0} ns a record)",
            ROWS as f64 / best / 1e6,
            log.len() as f64 / best / 1e9,
            best / ROWS as f64 * 1e9,
        );
    }
}
