//! How long a put into the consume queues and the index takes on a real disk.
//!
//! `cargo run --release -p roquet-core --example queue_put -- FOLDER [QUEUES] [MESSAGES]`
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use roquet_core::consume_queue::ConsumeQueues;
use roquet_core::disk::file_cache::FileCache;
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::disk::Disk;
use roquet_core::index::Index;

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let root = PathBuf::from(args.next().unwrap_or_else(|| "/tmp/queue_put".to_owned()));
    let number =
        |text: Option<String>, default| text.and_then(|t| t.parse().ok()).unwrap_or(default);
    let queues_count: u64 = number(args.next(), 64);
    let messages: u64 = number(args.next(), 3_000_000);
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new());
    let cache = Arc::new(FileCache::for_process());
    let queues = ConsumeQueues::open(Arc::clone(&disk), root.join("q"), 6_000_000, cache)?;
    let topics: Vec<String> = (0..queues_count.div_ceil(8))
        .map(|n| format!("topic-{n}"))
        .collect();
    let begin = Instant::now();
    for n in 0..messages {
        let queue = n % queues_count;
        let topic = topics
            .get(usize::try_from(queue / 8).unwrap_or(0))
            .map_or("", String::as_str);
        let id = i32::try_from(queue % 8).unwrap_or(0);
        queues.put(topic, id, n / queues_count, n * 1100, 1100, 7)?;
    }
    report("queue put", begin, messages);
    let begin = Instant::now();
    queues.sync()?;
    report("queue sync (a queue)", begin, queues_count);
    let index = Index::open(disk, root.join("i"), 5_000_000, 20_000_000, None)?;
    let begin = Instant::now();
    for n in 0..messages {
        let (unique, key) = (format!("7F0000010000{n:020X}"), format!("N{}", n % 5000));
        index.put(
            "topic-1",
            &[unique.as_bytes(), key.as_bytes()],
            n * 1100,
            1_700_000_000_000,
        )?;
    }
    report("index put of two keys (format included)", begin, messages);
    let begin = Instant::now();
    index.sync()?;
    report("index sync (a message)", begin, messages);
    Ok(())
}

fn report(what: &str, begin: Instant, count: u64) {
    let nanos = begin.elapsed().as_nanos() / u128::from(count.max(1));
    println!("{what}: {nanos} ns");
}
