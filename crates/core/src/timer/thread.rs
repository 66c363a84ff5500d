//! The thread that turns the wheel.
//!
//! It waits until the clock has passed a step, the files are to be saved or a message comes. Messages
//! that come one after the other wake it once in [`PACE`]: many are filed together then.

use super::{Timers, TIMER_TOPIC};
use crate::store::events::{News, Watcher};
use crate::store::health::Wake;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Least time between two looks, for a step of a second.
const PACE: Duration = Duration::from_millis(100);
/// Pause while the queue of the timer topic is not told of all that is stored.
const SHORT: Duration = Duration::from_millis(5);
/// Longest pause: a clock that was set is noticed, and what was switched on or off is obeyed.
const LONG: Duration = Duration::from_secs(1);
/// Pause after an error that may pass.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two looks for files that can go.
const CLEAN: Duration = Duration::from_secs(30);

/// What the thread waits for.
#[derive(Default)]
struct Signal {
    stopping: AtomicBool,
    stopped: Wake,
    came: Wake,
}

impl Signal {
    fn stops(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

impl Watcher for Signal {
    fn dispatched(&self, news: &[News]) {
        if news.iter().any(|(topic, _, _)| topic == TIMER_TOPIC) {
            self.came.notify();
        }
    }
}

/// The running thread; it keeps the engine until it is stopped.
pub struct TimerThread {
    timers: Arc<Timers>,
    signal: Arc<Signal>,
    watcher: Arc<dyn Watcher>,
    handle: JoinHandle<()>,
}

impl TimerThread {
    /// Starts it.
    pub fn start(timers: Arc<Timers>) -> std::io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let watcher: Arc<dyn Watcher> = Arc::clone(&signal) as Arc<dyn Watcher>;
        let (turned, seen) = (Arc::clone(&timers), Arc::clone(&signal));
        let run = move || turn(&turned, &seen);
        let handle = thread::Builder::new()
            .name("store-timers".to_owned())
            .spawn(run)?;
        timers.store.dispatcher.watch(Arc::clone(&watcher));
        Ok(Self {
            timers,
            signal,
            watcher,
            handle,
        })
    }

    /// Stops it and waits for it.
    pub fn stop(self) {
        self.timers.store.dispatcher.unwatch(&self.watcher);
        self.signal.stopping.store(true, Ordering::SeqCst);
        self.signal.stopped.notify();
        self.signal.came.notify();
        // A panic in the thread has been shown by its own message.
        let _ = self.handle.join();
    }
}

fn turn(timers: &Timers, signal: &Signal) {
    let steps = u32::try_from(timers.config.precision_ms).unwrap_or(1000);
    let pace = (PACE * steps / 1000).max(SHORT);
    let mut cleaned = Instant::now();
    while !signal.stops() {
        let looked = Instant::now();
        let (pause, heeds_news) = match timers.step() {
            Ok(true) => {
                timers.set_trouble(None);
                continue;
            }
            Ok(false) => {
                timers.set_trouble(None);
                (timers.pause(SHORT, pace).min(LONG), true)
            }
            Err(error) => {
                timers.set_trouble(Some(error.to_string()));
                (RETRY, false)
            }
        };
        if cleaned.elapsed() >= CLEAN {
            cleaned = Instant::now();
            if let Err(error) = timers.clean() {
                timers.set_trouble(Some(error.to_string()));
            }
        }
        let end = Instant::now() + pause;
        if heeds_news {
            let is_awaited = || signal.stops() || timers.has_news();
            signal.came.wait(pause, is_awaited);
        }
        // What came within the pace of the last look waits for the next one, with what comes then.
        let until = if heeds_news {
            end.min(looked + pace)
        } else {
            end
        };
        let rest = until.saturating_duration_since(Instant::now());
        if !rest.is_zero() {
            signal.stopped.wait(rest, || signal.stops());
        }
    }
}
