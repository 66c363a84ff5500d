//! How long timers that wait take to enter the wheel, and a start with so many of them.
//!
//! `cargo run --release -p roquet-core --example timers_pending -- FOLDER [MESSAGES]`
//!
//! Needs some 300 bytes of disk a message. Prints seconds and the process's own memory.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use roquet_core::codec::record::NewRecord;
use roquet_core::commit_log::Prepared;
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::store::config::{StoreConfig, Value};
use roquet_core::store::env::Env;
use roquet_core::store::Store;
use roquet_core::timer::{TimerConfig, Timers, TIMER_TOPIC};

type Done<T> = Result<T, Box<dyn Error>>;

/// Messages appended together.
const BATCH: u64 = 128;
const HOUR_MS: i64 = 3_600_000;
/// Seconds that the messages are due within.
const SPREAD_S: i64 = 80_000;

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX))
}

fn main() -> Done<()> {
    let mut args = std::env::args().skip(1);
    let root = args.next().unwrap_or_else(|| "/tmp/pending".to_owned());
    let count: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let store = open_store(&root)?;
    let begin = Instant::now();
    fill(&store, count)?;
    report("filled the timer topic", begin, count);
    let timers = open_timers(&store, "the first start")?;
    let begin = Instant::now();
    while timers.behind() > 0 {
        timers.step()?;
    }
    report("all entered the wheel", begin, count);
    let begin = Instant::now();
    timers.flush(true)?;
    report("saved in good order", begin, 1);
    drop(timers);
    let timers = open_timers(&store, "start after an orderly stop")?;
    timers.step()?;
    drop(timers);
    let timers = open_timers(&store, "start after a kill")?;
    let begin = Instant::now();
    let wrong = timers.recount(i64::MAX).map_or(0, |wrong| wrong.len());
    report("counted anew", begin, wrong as u64);
    let begin = Instant::now();
    timers.set_snapshots(1);
    timers.step()?;
    report("snapshot", begin, 1);
    Ok(store.close()?)
}

fn open_store(root: &str) -> Done<Arc<Store>> {
    let settings = [
        ("storePathRootDir", Value::Text(root.to_owned())),
        ("messageIndexEnable", Value::Bool(false)),
    ];
    let settings: BTreeMap<String, Value> = settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let env = Env {
        disk: Arc::new(FileDisk::new()),
        clock: Arc::new(now_ms),
        steady: roquet_core::store::env::steady(),
        boot: 1,
        memory: 1 << 32,
        process: std::process::id(),
    };
    let store = Store::open(StoreConfig::read(&settings)?, env)?;
    store.start_stepped()?;
    Ok(store)
}

fn fill(store: &Store, count: u64) -> Done<()> {
    let (mut next, begin_ms) = (0, now_ms() + HOUR_MS);
    while next < count {
        let mut prepared = Prepared::default();
        for number in next..(next + BATCH).min(count) {
            let seconds = i64::try_from(number)? * 7919 % SPREAD_S;
            let out_ms = (begin_ms + seconds * 1000) / 1000 * 1000;
            let properties = format!(
                "UNIQ_KEY\u{1}{number:024X}\u{2}TIMER_DELIVER_MS\u{1}{}\u{2}TIMER_OUT_MS\u{1}{out_ms}\u{2}REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}0\u{2}",
                out_ms + 1
            );
            prepared
                .push(TIMER_TOPIC, &record(properties.as_bytes()), 4096, false)
                .map_err(|error| format!("{error:?}"))?;
        }
        store.put(&mut prepared);
        next += BATCH;
        while store.dispatch()? {}
    }
    store.flush()?;
    Ok(())
}

fn record(properties: &[u8]) -> NewRecord<'_> {
    NewRecord {
        topic: TIMER_TOPIC.as_bytes(),
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: now_ms(),
        born_host: &[127, 0, 0, 1, 0, 0, 42, 159],
        store_host: &[127, 0, 0, 1, 0, 0, 42, 159],
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"0123456789abcdef",
        properties,
    }
}

fn open_timers(store: &Arc<Store>, what: &str) -> Done<Timers> {
    let begin = Instant::now();
    let timers = Timers::open(Arc::clone(store), TimerConfig::default())?;
    timers.set_metrics(Vec::new());
    let waiting = timers.waiting();
    report(what, begin, u64::try_from(waiting).unwrap_or(0));
    Ok(timers)
}

fn report(what: &str, begin: Instant, count: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = status.lines().find(|line| line.starts_with("RssAnon"));
    println!(
        "{what}: {:.2} s, {count}, {}",
        begin.elapsed().as_secs_f64(),
        memory.unwrap_or_default()
    );
}
