//! Load on one broker over RocketMQ's remoting protocol or gRPC, Kafka's or NATS's; prints one JSON line. See `options.rs`.

mod frames;
mod grpc;
mod kafka;
mod measure;
mod nats;
mod options;
mod pop;
mod pull;
mod send;
mod signer;
mod stream;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use measure::Shared;
use options::Options;

type Work = fn(&Arc<Options>, u64, &Arc<Shared>) -> std::io::Result<()>;

fn main() {
    let options = Arc::new(Options::from_args().unwrap_or_else(|usage| {
        eprintln!("{usage}");
        std::process::exit(2);
    }));
    let conns = options.number("conns", 1);
    let wire = options.text("wire", "rocketmq");
    let (work, count): (Work, u64) = match (wire.as_str(), options.mode.as_str()) {
        ("rocketmq", "send") => (send::run, conns),
        ("rocketmq", "transactions") => (send::transactions, conns),
        ("rocketmq", "pull") => (pull::run, conns),
        ("rocketmq", "pop") => (pop::run, conns),
        ("rocketmq", "tail") => (pull::tail, options.number("groups", 1)),
        ("grpc", "send") => (grpc::send, conns),
        ("grpc", "receive") => (grpc::receive, conns),
        ("grpc", "idle") => (grpc::idle, conns),
        ("kafka", "send") => (kafka::send, conns),
        ("kafka", "pull") => (kafka::pull, conns),
        ("nats", "create") => (nats::create, 1),
        ("nats", "send") => (nats::send, conns),
        ("nats", "pull") => (nats::pull, conns),
        _ => {
            eprintln!("{}", options::USAGE);
            std::process::exit(2);
        }
    };
    let shared = Arc::new(Shared::default());
    let start = Instant::now();
    let threads: Vec<_> = (0..count)
        .map(|index| {
            let (options, shared) = (options.clone(), shared.clone());
            std::thread::spawn(move || work(&options, index, &shared).map_err(|error| eprintln!("connection {index}: {error}")).is_ok())
        })
        .collect();
    let end = start + Duration::from_secs(options.number("secs", 10));
    while Instant::now() < end && !threads.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(5));
    }
    shared.stop.store(true, Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    let fine = threads.into_iter().all(|thread| thread.join().unwrap_or(false));
    shared.print(&options.mode, seconds);
    std::process::exit(i32::from(!fine));
}
