//! What all connections count together, and how it is printed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Default)]
pub struct Shared {
    pub messages: AtomicU64,
    pub errors: AtomicU64,
    pub bytes: AtomicU64,
    pub requests: AtomicU64,
    pub stop: AtomicBool,
    times_us: Mutex<Vec<u32>>,
}

impl Shared {
    pub fn running(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    pub fn refused(&self, header: &str) {
        if self.errors.fetch_add(1, Relaxed) < 3 {
            eprintln!("refused: {header}");
        }
    }

    pub fn add_times(&self, mine: Vec<u32>) {
        if let Ok(mut times) = self.times_us.lock() {
            times.extend(mine);
        }
    }

    pub fn print(&self, mode: &str, seconds: f64) {
        let mut times = self.times_us.lock().map(|times| times.clone()).unwrap_or_default();
        times.sort_unstable();
        let at = |part: f64| times.get(((times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0);
        let messages = self.messages.load(Relaxed);
        println!(
            "{{\"mode\":\"{mode}\",\"messages\":{messages},\"requests\":{},\"errors\":{},\"bytes\":{},\"seconds\":{seconds:.3},\"per_second\":{:.0},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\"max_us\":{}}}",
            self.requests.load(Relaxed),
            self.errors.load(Relaxed),
            self.bytes.load(Relaxed),
            messages as f64 / seconds,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        );
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A small generator of random numbers, the same for the same seed (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
