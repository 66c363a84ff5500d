//! The thread: waits for its connections, its inbox and the store, and serves them in turn.

mod give_back;
mod late;
mod linger;
mod together;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::frames::{self, OwnFrame};
use super::lane::{Adopted, Inbox, Lane, News, Order};
use super::limits::Limits;
use super::poll::{Poll, Ready};
use super::Fast;
use crate::ingest::output::Output;
use crate::ingest::{FeedResult, Ingest, Standing};
use crate::store::health::hold;
use linger::Linger;

/// Bytes read at a time.
const RECEIVE_SIZE: usize = 256 << 10;
/// Connections have other keys: they begin at 1.
const WAKE: u64 = 0;
/// Pause between two looks at what has waited too long, in milliseconds.
const TICK_MS: i32 = 50;
/// Longest pause while nothing but pulls wait: the clock may be set meanwhile.
const REST_MS: i32 = 1_000;
/// How long a peer that has left may keep its connection for requests that are worked on.
const LEAVE: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    lane: Arc<Lane>,
    fast: Option<Fast>,
    limits: Arc<Limits>,
    poll: Poll,
    connections: HashMap<u64, Connection>,
    buffer: Vec<u8>,
    /// What was sealed in `buffer`.
    plain: Vec<u8>,
    /// Connections that wait until the outbox is emptied.
    crowd: Vec<u64>,
    /// Connections that end when what they wait for is written.
    closing: Vec<u64>,
    /// What is left of connections that have ended.
    lingers: HashMap<u64, Linger>,
    /// A buffer for answers that may be used again.
    spare: Output,
    looked: Instant,
    stops: bool,
}

impl Worker {
    pub(super) fn new(
        lane: Arc<Lane>,
        fast: Option<Fast>,
        limits: Arc<Limits>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let wanted = Ready {
            read: true,
            ..Ready::default()
        };
        poll.add(lane.wake_fd(), WAKE, wanted)?;
        Ok(Self {
            lane,
            fast,
            limits,
            poll,
            connections: HashMap::new(),
            buffer: vec![0; RECEIVE_SIZE],
            plain: Vec::new(),
            crowd: Vec::new(),
            closing: Vec::new(),
            lingers: HashMap::new(),
            spare: Output::default(),
            looked: Instant::now(),
            stops: false,
        })
    }

    /// Serves until it is told to stop; then all its connections end.
    pub(super) fn run(mut self) {
        let mut found = Vec::new();
        while !self.stops {
            found.clear();
            let waited = self.poll.wait(self.pause_ms(), &mut found);
            assert!(waited.is_ok(), "epoll fails: {waited:?}");
            // Before the inbox is emptied, never after: an order in between would wake nobody.
            if found.iter().any(|(key, _)| *key == WAKE) {
                self.lane.awake();
            }
            // Before anything is read: a frame that the handlers have finished is not waited for.
            if let Some(inbox) = self.lane.empty_inbox() {
                self.obey(inbox);
            }
            self.read_together(&mut found);
            for (key, ready) in &found {
                if *key != WAKE {
                    self.happened(*key, *ready);
                }
            }
            self.late();
        }
        for key in self.connections.keys().copied().collect::<Vec<_>>() {
            self.end(key, String::new());
        }
    }

    /// For how many milliseconds to wait when nothing happens; below 0: for ever.
    fn pause_ms(&self) -> i32 {
        let ends = !self.closing.is_empty() || !self.lingers.is_empty();
        let ticks = self.lane.parks() || ends;
        if !ticks && !self.lane.holds() {
            return -1;
        }
        let Some(core) = self.ingest() else {
            return TICK_MS;
        };
        if core.has_due() {
            return 0;
        }
        if ticks || self.limits.stands() {
            return TICK_MS;
        }
        // Whatever a held pull waits for wakes the thread: only its deadline does not.
        let left_ms = core.held_until_ms().map_or(i64::MAX, |until_ms| {
            until_ms.saturating_sub(self.limits.now_ms())
        });
        let longest_ms = i64::from(REST_MS);
        i32::try_from(left_ms.clamp(i64::from(TICK_MS), longest_ms)).unwrap_or(TICK_MS)
    }

    fn ingest(&self) -> Option<MutexGuard<'_, Ingest>> {
        self.fast.as_ref().map(|fast| hold(&fast.ingest))
    }

    // --- orders ---

    fn obey(&mut self, inbox: Inbox) {
        for order in inbox.orders {
            match order {
                Order::Adopt(adopted) => self.adopt(*adopted),
                Order::Write(key, bytes) => {
                    if let Some(connection) = self.connections.get_mut(&key) {
                        connection.queue(bytes);
                        self.flush(key);
                    }
                }
                Order::Pause(key, paused) => self.with(key, |one| one.paused = paused),
                Order::Prove(key) => self.prove(key),
                Order::Close(key) => {
                    self.with(key, |one| one.left = None);
                    self.close(key);
                }
                Order::CaughtUp(key) => self.with(key, |one| one.behind = false),
                Order::Abort(key) => self.end(key, String::new()),
                Order::GiveBack(key) => self.give_back(key),
                Order::Fail(remark) => self.answer_late(|core, now_ms| core.fail(&remark, now_ms)),
                Order::Replicated(offset) => {
                    self.answer_late(|core, now_ms| core.replicated(offset, now_ms));
                }
                Order::Lapse(offset) => self.answer_late(|core, now_ms| core.lapse(offset, now_ms)),
                Order::Removed(topic) => {
                    if let Some(mut core) = self.ingest() {
                        core.arrived(&topic, -1, i64::MAX);
                    }
                }
                Order::Emptied => {
                    for key in std::mem::take(&mut self.crowd) {
                        self.with(key, |one| one.crowds = false);
                    }
                }
                Order::Stop => self.stops = true,
            }
        }
        let mut arrived = inbox.arrived;
        let news = arrived.drain();
        if let Some(mut core) = self.ingest().filter(|_| !news.is_empty()) {
            for (topic, queue_id, max) in news {
                core.arrived(&topic, queue_id, max);
            }
        }
        if inbox.flushed {
            self.release_flushed();
        }
    }

    fn adopt(&mut self, adopted: Adopted) {
        let key = adopted.handle.key();
        if let Some(mut core) = self.ingest() {
            core.open(key, &adopted.host, adopted.pulls);
        }
        let connection = Connection::new(adopted.socket, adopted.handle, adopted.tls);
        self.connections.insert(key, connection);
        self.watch(key);
    }

    fn close(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(&key) {
            if !connection.closing {
                connection.closing = true;
                self.closing.push(key);
            }
            self.watch(key);
        }
    }

    fn with(&mut self, key: u64, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.connections.get_mut(&key) {
            change(connection);
            self.watch(key);
        }
    }

    fn prove(&mut self, key: u64) {
        if let Some(mut core) = self.ingest() {
            core.prove(key);
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.standing = Standing::Proven;
        }
        self.settle(key);
    }

    /// Watches a connection for what it can do now.
    fn watch(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let wanted = connection.wanted();
        if wanted == connection.watched {
            return;
        }
        connection.waited |= wanted.is_none_or(|wanted| !wanted.read);
        let fd = connection.fd();
        let done = match (std::mem::replace(&mut connection.watched, wanted), wanted) {
            (Some(_), Some(wanted)) => self.poll.change(fd, key, wanted),
            (None, Some(wanted)) => self.poll.add(fd, key, wanted),
            (_, None) => self.poll.remove(fd, key),
        };
        if let Err(error) = done {
            self.end(key, format!("it cannot be watched: {error}"));
        }
    }

    /// Ends a connection now.
    fn end(&mut self, key: u64, why: String) {
        if let Some(connection) = self.connections.remove(&key) {
            if let Some(mut core) = self.ingest() {
                core.close(key);
            }
            // First the news, so that a peer who sees the end is no longer counted here.
            self.lane.push(News::Closed(key, why));
            drop(connection);
        }
    }

    // --- reading and writing ---

    fn happened(&mut self, key: u64, ready: Ready) {
        if self.drop_input(key) {
            return;
        }
        let watched = self.connections.get(&key).and_then(|one| one.watched);
        let readable = watched.is_some_and(|watched| watched.read) && (ready.read || ready.gone);
        // First, as a write that fails says nothing of what the peer had written before.
        if readable {
            self.read(key);
        }
        if ready.write {
            self.flush(key);
        }
        if ready.gone && !readable {
            self.mute(key, true);
        }
    }

    /// The peer reads nothing more. What it wrote may still be there, and is read in its turn.
    fn mute(&mut self, key: u64, hung: bool) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.hung |= hung;
            if connection.mute() {
                self.lane.push(News::Drained(key));
            }
            self.settle(key);
        }
    }

    /// The peer has written its last.
    fn leave(&mut self, key: u64) {
        self.with(key, |one| one.left = Some(Instant::now() + LEAVE));
        self.close(key);
    }

    fn read(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let most = self.limits.read_size().min(buffer.len());
        let waited_ms = connection.waited_ms();
        let speaks_tls = connection.speaks_tls();
        let got = connection.read(buffer.get_mut(..most).unwrap_or_default());
        if let Some(got) = self.received(key, got) {
            let data = buffer.get(..got).unwrap_or_default();
            if speaks_tls {
                self.open(key, data, waited_ms);
            } else {
                self.feed(key, data, waited_ms);
            }
        }
        self.buffer = buffer;
    }

    /// How many bytes were read, if any; the end of a connection is noted.
    fn received(&mut self, key: u64, got: io::Result<usize>) -> Option<usize> {
        match got {
            // Nobody half-closes a RocketMQ connection.
            Ok(0) => self.leave(key),
            Ok(got) => {
                self.lane.heard();
                return Some(got);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                self.mute(key, true);
                self.leave(key);
            }
        }
        None
    }

    /// Takes sealed bytes, and feeds what they held.
    fn open(&mut self, key: u64, sealed: &[u8], waited_ms: i64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let opened = connection.open(sealed, &mut plain);
        if opened.has_agreed {
            self.lane.push(News::Agreed(key));
        }
        self.flush(key);
        if !plain.is_empty() {
            self.feed(key, &plain, waited_ms);
        }
        self.plain = plain;
        if let Some(why) = opened.broken {
            self.end_softly(key, why);
        } else if opened.is_over {
            self.leave(key);
        }
    }

    fn feed(&mut self, key: u64, data: &[u8], waited_ms: i64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let at_ms = self.limits.now_ms();
        let mut given = Vec::new();
        let (mut parks, mut flush) = (false, false);
        let broken = if let Some(fast) = &self.fast {
            let mut core = hold(&fast.ingest);
            core.recycle(std::mem::take(&mut self.spare));
            let fed = answer(fast, &mut core, connection, (key, at_ms), data, &mut given);
            parks = note_waits(&self.lane, fast, &mut core);
            drop(core);
            if !fed.replies.is_empty() {
                connection.answer(&fed.replies);
            }
            self.spare = fed.replies;
            flush = fed.flush;
            fed.broken
        } else {
            let most = self.limits.frame_size_max;
            let cut = frames::cut_all(&mut connection.kept, data, most, &mut |frame, _| {
                given.push(OwnFrame::of(frame));
            });
            connection.held = connection.kept.len();
            cut.err()
        };
        if !given.is_empty() || broken.is_some() {
            connection.given += given.len() as u64;
            // What is broken stays so: nothing behind it is looked at.
            connection.paused |= broken.is_some();
            let size = given.iter().map(OwnFrame::size).sum();
            // Before the loop can have them.
            connection.behind |= size > 0 && connection.handle.give(size);
            let news = News::Frames {
                key,
                at_ms,
                waited_ms,
                size,
                frames: given,
                broken: broken.map(|error| error.to_string()),
            };
            if self.lane.push(news) {
                connection.crowds = true;
                self.crowd.push(key);
            }
        }
        self.settle(key);
        if flush {
            self.flush_store();
        }
        if parks {
            self.release();
        }
    }

    fn flush(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        match connection.flush() {
            Ok(true) => {
                self.lane.push(News::Drained(key));
            }
            Ok(false) => {}
            Err(_) => return self.mute(key, false),
        }
        self.settle(key);
    }

    /// After anything has changed: bounds, and what to watch for.
    fn settle(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        if let Some(why) = connection.account() {
            return self.end(key, why);
        }
        self.watch(key);
    }
}

/// Has the ingest look at what was read.
fn answer(
    fast: &Fast,
    core: &mut Ingest,
    connection: &mut Connection,
    (key, at_ms): (u64, i64),
    data: &[u8],
    given: &mut Vec<OwnFrame>,
) -> FeedResult {
    if connection.busy && connection.is_finished() {
        connection.busy = false;
        core.set_busy(key, false);
    }
    let fed = core.feed(&fast.store, key, data, at_ms, &mut |frame, _| {
        given.push(OwnFrame::of(frame));
    });
    if !given.is_empty() && !connection.busy {
        connection.busy = true;
        core.set_busy(key, true);
    }
    connection.held = fed.held;
    connection.standing = fed.standing;
    fed
}

/// Notes what waits, and looks once more at held pulls of whose queues nobody told before; true when
/// sends have begun to wait, which the caller has to look at in the same way.
fn note_waits(lane: &Lane, fast: &Fast, core: &mut Ingest) -> bool {
    let (holds, parks) = lane.waits(core.held_pulls() > 0, core.parked() > 0);
    if holds {
        core.look_again(&fast.store);
    }
    parks
}
