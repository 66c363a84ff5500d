//! The three threads of a store: one flushes, one dispatches, one tends files and checkpoint.
//!
//! None of them takes Python's lock or calls anything that may; each only repeats a method of the
//! store until it stops.

use crate::panics;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::Store;
use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pause between two looks at the log while messages come in: one wake-up serves many of them, and
/// a message that comes after a pause is looked at once.
const TICK: Duration = Duration::from_millis(1);
/// The same while nobody waits for messages: the queues are seldom looked at so soon.
const CALM_TICK: Duration = Duration::from_millis(2);
/// Pause after an error that may pass.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two looks at the disk.
const TEND: Duration = Duration::from_secs(1);

type Work = fn(&Store, &AtomicBool);

/// The running threads; they keep the store until it is closed.
pub(crate) struct Threads {
    stopping: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn start(store: &Arc<Store>) -> Result<Self, StoreError> {
        let mut threads = Self {
            stopping: Arc::new(AtomicBool::new(false)),
            handles: Vec::new(),
        };
        let works: [(&str, Work); 3] = [
            ("store-flush", flush),
            ("store-dispatch", dispatch),
            ("store-tend", tend),
        ];
        for (name, work) in works {
            let store = Arc::clone(store);
            let stopping = Arc::clone(&threads.stopping);
            let run = move || {
                let done = panic::catch_unwind(AssertUnwindSafe(|| work(&store, &stopping)));
                if let Err(payload) = done {
                    fail(&store, name, payload.as_ref());
                }
            };
            let handle = thread::Builder::new().name(name.to_owned()).spawn(run)?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }

    pub(crate) fn stop(self, store: &Store) {
        self.stopping.store(true, Ordering::SeqCst);
        store.log.flush_wanted.notify();
        store.log.grown.notify();
        store.log.file_wanted.notify();
        for handle in self.handles {
            // A panic in a thread has been shown by its own message.
            let _ = handle.join();
        }
    }
}

/// A thread that panicked does its work no more: what it left undone is never acknowledged.
fn fail(store: &Store, name: &str, payload: &(dyn Any + Send)) {
    let why = panics::message(payload);
    let text = format!("the thread {name} has panicked: {why}");
    let _ = store.note::<()>(Err(StoreError::new(ErrorKind::Corrupt, text)));
}

fn stops(stopping: &AtomicBool) -> bool {
    stopping.load(Ordering::SeqCst)
}

fn flush(store: &Store, stopping: &AtomicBool) {
    let sync = store.config.sync_flush;
    while !stops(stopping) {
        let interval = Duration::from_millis(store.tuned().flush_interval_ms);
        store.log.flush_wanted.wait(interval, || {
            stops(stopping) || (sync && store.log.written() > store.events().told())
        });
        if store.flush().is_err() {
            // It has been made known; nothing is flushed any more.
            return;
        }
    }
}

fn dispatch(store: &Store, stopping: &AtomicBool) {
    let mut woken = Instant::now();
    while !stops(stopping) {
        match store.dispatch() {
            Ok(more) => {
                store.health.unstuck();
                if more {
                    continue;
                }
            }
            Err(error) => {
                if error.kind == ErrorKind::Corrupt {
                    let _ = store.note::<()>(Err(error));
                    return;
                }
                let why = format!("queues cannot be written: {error}");
                store.health.stuck(why);
                thread::sleep(RETRY);
                continue;
            }
        }
        let tick = if store.is_awaited() { TICK } else { CALM_TICK };
        if woken.elapsed() < 2 * tick {
            thread::sleep(tick);
            continue;
        }
        let has_grown = || store.dispatcher.position() < store.dispatcher.limit();
        store
            .log
            .grown
            .wait(RETRY, || stops(stopping) || has_grown());
        if has_grown() {
            woken = Instant::now();
        }
    }
}

fn tend(store: &Store, stopping: &AtomicBool) {
    let mut last = Instant::now();
    let mut looked: Option<Instant> = None;
    while !stops(stopping) {
        let interval = Duration::from_millis(store.tuned().checkpoint_interval_ms);
        // A file that cannot be made is tried again by the append that needs it.
        let _ = store.log.make_next();
        if looked.is_none_or(|at| at.elapsed() >= TEND) {
            looked = Some(Instant::now());
            store.tend();
        }
        if last.elapsed() >= interval {
            // A failure has been made known, and a full disk passes.
            let _ = store.checkpoint();
            last = Instant::now();
        }
        let pause = TEND.min(interval);
        store
            .log
            .file_wanted
            .wait(pause, || stops(stopping) || store.log.wants_file());
    }
}
