//! The thread that turns the wheel.

use super::Timers;
use crate::store::health::hold;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pause between two looks, for a step of a second.
const IDLE: Duration = Duration::from_millis(100);
/// Pause while the queue of the timer topic is not told of all that is stored.
const SHORT: Duration = Duration::from_millis(5);
/// Pause after an error that may pass.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two looks for files that can go.
const CLEAN: Duration = Duration::from_secs(30);

/// The running thread; it keeps the engine until it is stopped.
pub struct TimerThread {
    stopping: Arc<(AtomicBool, Mutex<()>, Condvar)>,
    handle: JoinHandle<()>,
}

impl TimerThread {
    /// Starts it.
    pub fn start(timers: Arc<Timers>) -> std::io::Result<Self> {
        let stopping = Arc::new((AtomicBool::new(false), Mutex::new(()), Condvar::new()));
        let seen = Arc::clone(&stopping);
        let name = "store-timers".to_owned();
        let run = move || turn(&timers, &seen);
        let handle = thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { stopping, handle })
    }

    /// Stops it and waits for it.
    pub fn stop(self) {
        self.stopping.0.store(true, Ordering::SeqCst);
        drop(hold(&self.stopping.1));
        self.stopping.2.notify_all();
        // A panic in the thread has been shown by its own message.
        let _ = self.handle.join();
    }
}

fn turn(timers: &Timers, stopping: &(AtomicBool, Mutex<()>, Condvar)) {
    let steps = u32::try_from(timers.config.precision_ms).unwrap_or(1000);
    let idle = (IDLE * steps / 1000).max(SHORT);
    let mut cleaned = Instant::now();
    while !stopping.0.load(Ordering::SeqCst) {
        let pause = match timers.step() {
            Ok(true) => {
                timers.set_trouble(None);
                continue;
            }
            Ok(false) => {
                timers.set_trouble(None);
                if timers.awaits_queue() {
                    SHORT
                } else {
                    idle
                }
            }
            Err(error) => {
                timers.set_trouble(Some(error.to_string()));
                RETRY
            }
        };
        if cleaned.elapsed() >= CLEAN {
            cleaned = Instant::now();
            if let Err(error) = timers.clean() {
                timers.set_trouble(Some(error.to_string()));
            }
        }
        let held = hold(&stopping.1);
        if !stopping.0.load(Ordering::SeqCst) {
            drop(stopping.2.wait_timeout(held, pause));
        }
    }
}
