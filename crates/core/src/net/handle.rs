//! One connection as the loop sees it.
//!
//! `unsent` counts what was ordered and is not in the socket's buffer yet, wherever it is; the loop
//! adds to it, the thread takes away. A connection whose output the loop found above the high-water
//! mark is `stuck` until the thread has found it below the low one: whoever changes either of
//! the two looks at the other afterwards. `backlog` and `behind` are the same for frames that the
//! loop was given: the thread adds to the backlog, the loop takes away what it has begun with.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::given_back::GivenBack;
use super::lane::{Lane, Order};
use super::limits::Limits;

/// A connection as the loop sees it.
pub struct Handle {
    key: u64,
    pub(super) lane: Arc<Lane>,
    pub(super) limits: Arc<Limits>,
    pub(super) unsent: AtomicUsize,
    stuck: AtomicBool,
    /// Bytes of frames that the loop has and has not begun with.
    pub(super) backlog: AtomicUsize,
    behind: AtomicBool,
    /// Frames that the handlers have finished.
    pub(super) finished: AtomicU64,
    /// Moves with everything that is read or written.
    traffic: AtomicU64,
    /// What the thread has left for the loop.
    pub(super) given_back: Mutex<Option<GivenBack>>,
}

impl Handle {
    pub(super) fn new(key: u64, lane: Arc<Lane>, limits: &Arc<Limits>) -> Self {
        Self {
            key,
            lane,
            limits: Arc::clone(limits),
            unsent: AtomicUsize::new(0),
            stuck: AtomicBool::new(false),
            backlog: AtomicUsize::new(0),
            behind: AtomicBool::new(false),
            finished: AtomicU64::new(0),
            traffic: AtomicU64::new(0),
            given_back: Mutex::default(),
        }
    }

    /// Its number.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Has whole frames written behind all others; true when the peer does not take what is there,
    /// until [`super::News::Drained`].
    pub fn write(&self, bytes: Vec<u8>) -> bool {
        let size = bytes.len();
        let unsent = self.unsent.fetch_add(size, Ordering::SeqCst) + size;
        self.lane.order(Order::Write(self.key, bytes));
        if unsent <= self.limits.high_water {
            return false;
        }
        self.stuck.store(true, Ordering::SeqCst);
        !self.unstick()
    }

    /// Whether the connection was stuck and is not any more.
    pub(super) fn unstick(&self) -> bool {
        self.unsent() <= self.limits.low_water() && self.stuck.swap(false, Ordering::SeqCst)
    }

    /// Bytes that are not in the socket's buffer yet.
    pub fn unsent(&self) -> usize {
        self.unsent.load(Ordering::SeqCst)
    }

    /// Reads no further, or goes on.
    pub fn pause(&self, paused: bool) {
        self.lane.order(Order::Pause(self.key, paused));
    }

    /// An account was proven on this connection.
    pub fn prove(&self) {
        self.lane.order(Order::Prove(self.key));
    }

    /// Closes once everything is written and no send waits for its answer.
    pub fn close(&self) {
        self.lane.order(Order::Close(self.key));
    }

    /// Closes at once.
    pub fn abort(&self) {
        self.lane.order(Order::Abort(self.key));
    }

    /// The handlers have finished so many frames of this connection, and have no other.
    pub fn finish(&self, frames: u64) {
        self.finished.store(frames, Ordering::SeqCst);
    }

    /// The loop has begun with frames that take so many bytes, by [`super::News::Frames`].
    pub fn took(&self, bytes: usize) {
        let rest = |now: usize| Some(now.saturating_sub(bytes));
        let (Ok(before) | Err(before)) =
            self.backlog
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest);
        self.limits.drop_backlog(bytes.min(before));
        if before <= bytes && self.behind.swap(false, Ordering::SeqCst) {
            self.lane.order(Order::CaughtUp(self.key));
        }
    }

    /// Counts frames that the loop is about to be given; true when the connection is not to be read
    /// until [`Order::CaughtUp`].
    pub(super) fn give(&self, bytes: usize) -> bool {
        self.limits.add_backlog(bytes);
        let now = self.backlog.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let behind = now > self.limits.backlog_max();
        if behind {
            self.behind.store(true, Ordering::SeqCst);
        }
        behind
    }

    /// A number that moves with everything that is read or that is tried to be written: no clock is
    /// needed to see that there was nothing.
    pub fn traffic(&self) -> u64 {
        self.traffic.load(Ordering::Relaxed)
    }

    /// Only its thread counts, so that a load and a store are enough.
    pub(super) fn heard(&self) {
        let count = self.traffic.load(Ordering::Relaxed);
        self.traffic.store(count.wrapping_add(1), Ordering::Relaxed);
    }
}
