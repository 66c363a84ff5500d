//! News of the background threads: nobody is called, a file descriptor becomes readable.
//!
//! **Invariant.** News of queues that grew are kept until the reader takes them, whether it waits for
//! them or not. While it does not, they alone do not make the descriptor readable: a reader that begins
//! to wait says so, and finds what it has missed.

use crate::commit_log::NextOffsets;
use crate::notifier::channel;
use crate::store::health::hold;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

/// What has changed in one queue: (topic, queue, max offset).
pub type News = (String, i32, i64);

/// Somebody in Rust who wants to hear at once; called on the background threads, must not block.
pub trait Watcher: Send + Sync {
    /// The log is durable up to an offset.
    fn flushed(&self, _offset: u64) {}

    /// Queues have grown.
    fn dispatched(&self, _news: &[News]) {}

    /// As many slaves as an acknowledgement asks for have the log up to an offset. Called by the
    /// thread of a slave's connection.
    fn copied(&self, _offset: u64) {}

    /// The store takes no more writes.
    fn failed(&self, _text: &str) {}
}

/// Topics of which news may wait for a reader that does not wait for them.
const UNTAKEN_MAX: usize = 1_000;

#[derive(Default)]
struct State {
    queues: NextOffsets,
    failure: Option<String>,
    notified: bool,
    /// Whether the reader waits for queues to grow.
    growth_awaited: bool,
}

/// Collects news for a reader that is woken through a descriptor.
pub struct Events {
    reader: File,
    writer: File,
    state: Mutex<State>,
    flush_awaited: AtomicBool,
    /// Up to where watchers have heard of flushes.
    told: AtomicU64,
}

impl Events {
    /// Opens the descriptor.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = channel()?;
        Ok(Self {
            reader,
            writer,
            state: Mutex::new(State {
                growth_awaited: true,
                ..State::default()
            }),
            flush_awaited: AtomicBool::new(false),
            told: AtomicU64::new(0),
        })
    }

    /// Hears whether the reader waits for a flush, of which it may do one itself.
    pub fn set_flush_awaited(&self, awaited: bool) {
        self.flush_awaited.store(awaited, Ordering::SeqCst);
    }

    /// Hears whether the reader waits for queues to grow: it is woken for them only then. A reader that
    /// begins to wait is woken for those that have grown since it took the news last.
    pub fn set_growth_awaited(&self, awaited: bool) {
        let mut state = hold(&self.state);
        state.growth_awaited = awaited;
        if awaited && state.queues.topics() > 0 {
            self.notify(&mut state);
        }
    }

    pub(crate) fn is_flush_awaited(&self) -> bool {
        self.flush_awaited.load(Ordering::SeqCst)
    }

    /// Up to where all watchers have heard of flushes.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }

    /// Notes that they are about to hear of a flush; false when they have heard as much.
    pub(crate) fn tells_up_to(&self, flushed: u64) -> bool {
        flushed > self.told.fetch_max(flushed, Ordering::SeqCst)
    }

    /// The descriptor that is readable while there is news.
    pub fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Takes the news: queues that grew, and why the store failed.
    pub fn take(&self) -> (Vec<News>, Option<String>) {
        let mut state = hold(&self.state);
        if state.notified {
            state.notified = false;
            let mut bytes = [0; 8];
            // An empty descriptor only means that somebody else has read it.
            let _ = (&self.reader).read(&mut bytes);
        }
        (state.queues.drain(), state.failure.take())
    }

    fn notify(&self, state: &mut State) {
        if !state.notified {
            state.notified = true;
            // It cannot be full: it is written once between two reads.
            let _ = (&self.writer).write(&1u64.to_ne_bytes());
        }
    }
}

impl Watcher for Events {
    fn flushed(&self, _offset: u64) {
        self.notify(&mut hold(&self.state));
    }

    fn dispatched(&self, news: &[News]) {
        let mut state = hold(&self.state);
        for (topic, queue_id, max) in news {
            state.queues.set(topic, *queue_id, *max);
        }
        if state.growth_awaited || state.queues.topics() > UNTAKEN_MAX {
            self.notify(&mut state);
        }
    }

    fn failed(&self, text: &str) {
        let mut state = hold(&self.state);
        state.failure = Some(text.to_owned());
        self.notify(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::{Events, Watcher};

    fn readable(events: &Events) -> bool {
        let mut poll = libc::pollfd {
            fd: events.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn readable_until_taken_and_merged() {
        let events = Events::new().unwrap();
        assert!(!readable(&events));
        events.dispatched(&[("T".into(), 0, 4), ("T".into(), 1, 1)]);
        events.dispatched(&[("T".into(), 0, 6)]);
        events.failed("broken");
        assert!(readable(&events));
        let (mut news, failure) = events.take();
        news.sort();
        assert_eq!(news, [("T".into(), 0, 6), ("T".into(), 1, 1)]);
        assert_eq!(failure.as_deref(), Some("broken"));
        assert!(!readable(&events));
        assert_eq!(events.take(), (Vec::new(), None));
        events.flushed(1);
        assert!(readable(&events));
    }

    #[test]
    fn news_of_queues_wait_for_a_reader_who_waits_for_them() {
        let events = Events::new().unwrap();
        events.set_growth_awaited(false);
        events.dispatched(&[("T".into(), 0, 4)]);
        assert!(!readable(&events), "nobody waits");
        events.set_growth_awaited(true);
        assert!(readable(&events), "what came before is not lost");
        assert_eq!(events.take().0, [("T".into(), 0, 4)]);
        assert!(!readable(&events));
        events.set_growth_awaited(true);
        assert!(!readable(&events), "nothing has come");
        events.set_growth_awaited(false);
        events.dispatched(&[("T".into(), 0, 5)]);
        events.flushed(9);
        assert!(readable(&events), "flushes are told at once");
        assert_eq!(events.take().0, [("T".into(), 0, 5)]);
    }

    #[test]
    fn untaken_news_are_bounded() {
        let events = Events::new().unwrap();
        events.set_growth_awaited(false);
        for topic in 0..super::UNTAKEN_MAX {
            events.dispatched(&[(format!("T{topic}"), 0, 1)]);
        }
        assert!(!readable(&events));
        events.dispatched(&[("one more".into(), 0, 1)]);
        assert!(readable(&events));
    }
}
