//! How fast the store appends, dispatches and recovers: 1 KiB messages with one key.
//!
//! `cargo run --release -p roquet-core --example store_bench -- [FOLDER] [MIB]`

use roquet_core::codec::record::NewRecord;
use roquet_core::commit_log::Prepared;
use roquet_core::store::config::{StoreConfig, Value};
use roquet_core::store::env::Env;
use roquet_core::store::error::StoreError;
use roquet_core::store::Store;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const BODY: usize = 1024;

/// Wall clock and, where the system tells, the time this thread was on a CPU.
struct Watch {
    start: Instant,
    cpu: Option<f64>,
}

impl Watch {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            cpu: on_cpu(),
        }
    }
}

fn on_cpu() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let mebibytes: u64 = arguments
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1024);
    let root = parent.join(format!("roquet-bench-{}", std::process::id()));
    let done = run(&root, mebibytes << 20);
    std::fs::remove_dir_all(&root)?;
    done
}

fn say(text: &str) {
    // A closed pipe is no reason to stop measuring.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn open(root: &Path) -> Result<Arc<Store>, StoreError> {
    let map = BTreeMap::from([(
        "storePathRootDir".to_owned(),
        Value::Text(root.display().to_string()),
    )]);
    Store::open(StoreConfig::read(&map)?, Env::system())
}

fn run(root: &Path, bytes: u64) -> Result<(), StoreError> {
    let store = open(root)?;
    store.start()?;
    for batch in [1, 32] {
        append(&store, bytes / 2, batch);
    }
    let start = Instant::now();
    while store.dispatched() < store.log().written() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    say(&format!(
        "dispatch lag at the end: {:.3} s",
        start.elapsed().as_secs_f64()
    ));
    store.close()?;
    drop(store);
    // As after a kill, without a checkpoint: all of it is read, queues and index are new.
    std::fs::write(root.join("abort"), b"0")?;
    for name in ["consumequeue", "index"] {
        std::fs::remove_dir_all(root.join(name))?;
    }
    std::fs::remove_file(root.join("checkpoint"))?;
    let start = Watch::start();
    let store = open(root)?;
    report(
        "recovery",
        &start,
        store.recovered().records,
        store.recovered().bytes,
    );
    store.close()?;
    let start = Watch::start();
    let store = open(root)?;
    report(
        "clean start",
        &start,
        store.recovered().records,
        store.recovered().bytes,
    );
    store.close()
}

fn append(store: &Store, bytes: u64, batch: usize) {
    let body = vec![b'x'; BODY];
    let start = Watch::start();
    let first = store.log().written();
    let mut count = 0u64;
    while store.log().written() - first < bytes {
        let keys: Vec<String> = (0..batch)
            .map(|index| format!("KEYS\u{1}{:016X}\u{2}", count + index as u64))
            .collect();
        let mut prepared = Prepared::with_capacity(batch * (BODY + 200));
        for key in &keys {
            let record = NewRecord {
                topic: b"Bench",
                queue_id: i32::try_from(count % 8).unwrap_or(0),
                flag: 0,
                sys_flag: 0,
                born_timestamp: 1,
                born_host: &[0; 8],
                store_host: &[0; 8],
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: &body,
                properties: key.as_bytes(),
            };
            if prepared
                .push("Bench", &record, store.body_max(), false)
                .is_err()
            {
                return;
            }
            count += 1;
        }
        if store.put(&mut prepared).placed.len() < batch {
            say(&format!("append failed: {:?}", store.writable()));
            return;
        }
    }
    let written = store.log().written() - first;
    report(&format!("append, {batch} a call"), &start, count, written);
}

fn report(what: &str, watch: &Watch, records: u64, bytes: u64) {
    let seconds = watch.start.elapsed().as_secs_f64();
    let cpu = watch
        .cpu
        .zip(on_cpu())
        .map_or(seconds, |(from, to)| to - from);
    #[allow(clippy::cast_precision_loss)] // It is only shown.
    let (records, mib) = (records as f64, bytes as f64 / 1_048_576.0);
    say(&format!(
        "{what}: {records} records, {mib:.0} MiB in {seconds:.3} s: {:.0} records/s, {:.0} MiB/s; \
         on the CPU {cpu:.3} s: {:.0} MiB/s, {:.2} us each",
        records / seconds,
        mib / seconds,
        mib / cpu,
        cpu * 1e6 / records
    ));
}
