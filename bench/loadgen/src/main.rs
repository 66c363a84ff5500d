//! Load on one broker over the remoting protocol; prints one JSON line. See `options.rs`.

mod frames;
mod measure;
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
    let (work, count): (Work, u64) = match options.mode.as_str() {
        "send" => (send::run, options.number("conns", 1)),
        "transactions" => (send::transactions, options.number("conns", 1)),
        "pull" => (pull::run, options.number("conns", 1)),
        "pop" => (pop::run, options.number("conns", 1)),
        "tail" => (pull::tail, options.number("groups", 1)),
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
    std::thread::sleep(Duration::from_secs(options.number("secs", 10)));
    shared.stop.store(true, Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    let fine = threads.into_iter().all(|thread| thread.join().unwrap_or(false));
    shared.print(&options.mode, seconds);
    std::process::exit(i32::from(!fine));
}
