//! Between the loop and one thread: orders one way, news the other, and what the thread waits for.
//!
//! Both boxes are bounded: orders by what their connections may keep unwritten, news by
//! [`OUTBOX_MAX`], above which the thread reads no further from connections that add to them.
//!
//! A waiting thread notes that it waits (`holds`, `parks`) before it looks for the last time at what
//! it waits for; whoever changes that looks at the note after the change. Both in one total
//! order, so that at least one of them sees the other.

use std::io;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::frames::OwnFrame;
use super::handle::Handle;
use crate::commit_log::NextOffsets;
use crate::notifier::Notifier;
use crate::store::events;
use crate::store::health::hold;
use crate::tls::Session;

/// Bytes of news that may wait for the loop.
pub(super) const OUTBOX_MAX: usize = 16 << 20;
/// Bytes of news that the loop takes at a time: as many as one read may bring.
const TAKEN_MAX: usize = 256 << 10;
/// What news cost apart from their frames.
const NEWS_SIZE: usize = 128;

/// A connection that the thread is to serve.
pub(super) struct Adopted {
    pub(super) socket: TcpStream,
    pub(super) handle: Arc<Handle>,
    /// The peer's address as records keep it; empty when it is not known.
    pub(super) host: Vec<u8>,
    /// Whether its port serves pulls.
    pub(super) pulls: bool,
    /// What is between socket and frames, if anything.
    pub(super) tls: Option<Session>,
}

/// What the loop wants of the thread.
pub(super) enum Order {
    Adopt(Box<Adopted>),
    Write(u64, Vec<u8>),
    /// Read no further, or go on.
    Pause(u64, bool),
    /// An account was proven on it.
    Prove(u64),
    /// Write what there is, then close.
    Close(u64),
    Abort(u64),
    /// Give it back to the loop, if nothing is left to do for it.
    GiveBack(u64),
    Fail(String),
    Replicated(u64),
    Lapse(u64),
    /// A topic has gone.
    Removed(Arc<str>),
    /// The outbox was emptied.
    Emptied,
    /// The loop has begun with all frames of it.
    CaughtUp(u64),
    Stop,
}

/// What the thread tells the loop.
#[derive(Debug)]
pub enum News {
    /// Frames for the handlers that one read of a connection brought.
    Frames {
        /// The connection.
        key: u64,
        /// When they were read, Unix milliseconds.
        at_ms: i64,
        /// For how many milliseconds they had waited in the kernel by then, as far as known: not
        /// looked at where the connection was read as soon as something came.
        waited_ms: i64,
        /// What they take, for [`super::Handle::took`].
        size: usize,
        /// In order.
        frames: Vec<OwnFrame>,
        /// Why the connection must be closed.
        broken: Option<String>,
    },
    /// A held pull that may not be answered here any more.
    Left(u64, OwnFrame),
    /// A handshake is done: what comes from now on are frames.
    Agreed(u64),
    /// The peer takes again what was written for it.
    Drained(u64),
    /// It cannot be given back now: everything stays as it was.
    Stays(u64),
    /// It is the loop's from now on ([`Handle::take_socket`]): the last news of it.
    GivenBack(u64),
    /// The connection has ended, and why if that is the peer's fault.
    Closed(u64, String),
}

impl News {
    fn size(&self) -> usize {
        let frames = match self {
            Self::Frames { size, .. } => *size,
            Self::Left(_, frame) => frame.size(),
            Self::Agreed(_)
            | Self::Drained(_)
            | Self::Stays(_)
            | Self::GivenBack(_)
            | Self::Closed(..) => 0,
        };
        NEWS_SIZE + frames
    }
}

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) orders: Vec<Order>,
    /// Queues that have grown.
    pub(super) arrived: NextOffsets,
    pub(super) flushed: bool,
}

#[derive(Default)]
struct Outbox {
    news: std::collections::VecDeque<News>,
    bytes: usize,
    /// Whether the thread wants to hear when it is empty.
    full: bool,
}

/// One thread as the others see it.
pub(super) struct Lane {
    inbox: Mutex<Inbox>,
    /// Whether there is anything in it.
    filled: AtomicBool,
    wake: Notifier,
    outbox: Mutex<Outbox>,
    told: Notifier,
    connections: AtomicUsize,
    holds: AtomicBool,
    parks: AtomicBool,
    /// Whether the loop wants to be woken when a peer writes.
    listens: AtomicBool,
    /// How far slaves have copied the log.
    copied: AtomicU64,
    /// Up to where copies that no slave has proven do not count.
    lapsed: AtomicU64,
}

impl Lane {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            inbox: Mutex::default(),
            filled: AtomicBool::new(false),
            wake: Notifier::new()?,
            outbox: Mutex::default(),
            told: Notifier::new()?,
            connections: AtomicUsize::new(0),
            holds: AtomicBool::new(false),
            parks: AtomicBool::new(false),
            listens: AtomicBool::new(false),
            copied: AtomicU64::new(0),
            lapsed: AtomicU64::new(0),
        })
    }

    // --- for everybody ---

    pub(super) fn order(&self, order: Order) {
        self.tell(|inbox| inbox.orders.push(order));
    }

    pub(super) fn arrived(&self, news: &[events::News]) {
        self.tell(|inbox| {
            for (topic, queue_id, max) in news {
                inbox.arrived.set(topic, *queue_id, *max);
            }
        });
    }

    pub(super) fn flushed(&self) {
        self.tell(|inbox| inbox.flushed = true);
    }

    /// Notes how far slaves have copied the log, and wakes the thread if a send of it waits. Who says
    /// what was said before changes nothing: the loop comes behind the thread that heard the slave.
    pub(super) fn replicated(&self, offset: u64) {
        let before = self.copied.fetch_max(offset, Ordering::SeqCst);
        if offset > before && self.parks() {
            self.order(Order::Replicated(offset));
        }
    }

    /// Notes up to where no slave can prove a copy, and tells the thread, even when nothing waits: it
    /// may have a send in hand and not have noted yet that it waits.
    pub(super) fn lapse(&self, offset: u64) {
        self.lapsed.fetch_max(offset, Ordering::SeqCst);
        self.order(Order::Lapse(offset));
    }

    fn tell(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut hold(&self.inbox));
        self.filled.store(true, Ordering::SeqCst);
        self.wake.notify();
    }

    pub(super) fn holds(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }

    pub(super) fn parks(&self) -> bool {
        self.parks.load(Ordering::SeqCst)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts a connection more, or (-1) less.
    pub(super) fn counted(&self, change: isize) {
        self.connections
            .fetch_add(change.cast_unsigned(), Ordering::Relaxed);
    }

    // --- for the loop ---

    pub(super) fn news_fd(&self) -> RawFd {
        self.told.fd()
    }

    /// Wakes the loop once when a peer writes from now on; true when none has written since this was
    /// asked before.
    pub(super) fn listen(&self) -> bool {
        self.listens.swap(true, Ordering::SeqCst)
    }

    pub(super) fn take(&self) -> Vec<News> {
        self.told.clear();
        let mut outbox = hold(&self.outbox);
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < TAKEN_MAX {
            let Some(news) = outbox.news.pop_front() else {
                break;
            };
            bytes += news.size();
            taken.push(news);
        }
        outbox.bytes -= bytes;
        let more = !outbox.news.is_empty();
        let goes_on = outbox.full && outbox.bytes <= OUTBOX_MAX / 2;
        outbox.full &= !goes_on;
        drop(outbox);
        if more {
            self.told.notify();
        }
        if goes_on {
            self.order(Order::Emptied);
        }
        taken
    }

    // --- for the thread ---

    pub(super) fn wake_fd(&self) -> RawFd {
        self.wake.fd()
    }

    pub(super) fn awake(&self) {
        self.wake.clear();
    }

    /// Notes that a peer has written.
    pub(super) fn heard(&self) {
        if self.listens.load(Ordering::Relaxed) && self.listens.swap(false, Ordering::SeqCst) {
            self.told.notify();
        }
    }

    /// What has come for the thread, if anything.
    pub(super) fn empty_inbox(&self) -> Option<Inbox> {
        if !self.filled.load(Ordering::SeqCst) {
            return None;
        }
        self.filled.store(false, Ordering::SeqCst);
        Some(std::mem::take(&mut *hold(&self.inbox)))
    }

    /// Tells the loop; true when it is far behind, and whoever adds to that should wait for
    /// [`Order::Emptied`].
    pub(super) fn push(&self, news: News) -> bool {
        let mut outbox = hold(&self.outbox);
        outbox.bytes += news.size();
        outbox.news.push_back(news);
        outbox.full |= outbox.bytes > OUTBOX_MAX;
        let full = outbox.full;
        drop(outbox);
        self.told.notify();
        full
    }

    /// How far slaves have copied the log, and up to where that does not count for what waits now.
    ///
    /// A report without a proof is noted as lapsed first and as copied then. So they are read the
    /// other way round: whoever sees the copy sees that it is none.
    pub(super) fn copied(&self) -> (u64, u64) {
        let copied = self.copied.load(Ordering::SeqCst);
        (copied, self.lapsed.load(Ordering::SeqCst))
    }

    /// Notes whether pulls are held and sends wait; true for what has begun.
    pub(super) fn waits(&self, holds: bool, parks: bool) -> (bool, bool) {
        let begins = |note: &AtomicBool, now: bool| {
            note.load(Ordering::SeqCst) != now && {
                note.store(now, Ordering::SeqCst);
                now
            }
        };
        (begins(&self.holds, holds), begins(&self.parks, parks))
    }
}
