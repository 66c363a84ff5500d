//! Connections on native threads: from socket to socket without Python's lock and without its loop.
//!
//! **Invariant.** A connection belongs to one thread from [`Net::adopt`] until that thread tells of its
//! end with [`News::Closed`], or gives it back with [`News::GivenBack`], its last news. Only that thread reads and writes the socket, so that
//! bytes of two answers never mix. What a thread reads is judged by the one table of
//! [`crate::ingest::Shared`]; frames that it does not answer come out as [`News::Frames`], in the
//! order of their connection, and never before the answers of the same read were written or queued.
//!
//! **Order of locks.** Python's lock, then a thread's ingest, then the table, then the log. A thread
//! of this module never takes Python's lock. Whoever changes the table holds no ingest and not the
//! log ([`crate::ingest::Shared::write`]). The locks of inbox and outbox ([`lane`]) are held for a push
//! or a swap, and nothing else is taken meanwhile.
//!
//! **Ends.** A peer that is closed gets what was written for it, whatever it still sends: a socket
//! with unread input would reset it ([`worker`], `linger.rs`).
//!
//! **Bounds.** Input of a connection stops while its output is above the high-water mark, while Python
//! says so, and while the outbox of its thread is full and it had a part in that. What is kept for
//! a connection (start of a frame, unwritten output) and for all together is bounded; a connection
//! that passes a bound is closed with a reason.
//!
//! **Why accepting is not here.** The loop accepts, counts addresses, looks at the first byte and then
//! hands the descriptor over. That runs once a connection, and its limits (connections, rate of
//! accepts, silence, descriptors) are rules: they stay in one place, for TLS as well.
//!
//! **TLS.** The thread does the handshake and opens and seals; the loop limits how long a handshake may
//! take. Bytes are counted as they are on the wire, plain ones as soon as they are opened: a session
//! keeps none of them, and of sealed ones at most the start of a record.
//!
//! **Why no thread is woken per message.** A wake-up is a system call and a switch. Held pulls and
//! waiting sends note that they wait ([`lane::Lane`]), after that they look once more themselves,
//! and only then does the store's thread have to tell.

mod connection;
mod frames;
mod given_back;
mod handle;
mod lane;
mod limits;
mod poll;
mod watch;
mod worker;

use std::net::TcpStream;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::{io, thread};

use crate::ingest::Ingest;
use crate::store::health::hold;
use crate::store::Store;
use crate::tls::Session;
pub use frames::OwnFrame;
pub use handle::Handle;
pub use lane::News;
use lane::{Adopted, Lane, Order};
pub use limits::{Limits, Strangers};
use watch::Wakes;
use worker::Worker;

/// A store, and the ingest of one thread that answers from it.
#[derive(Clone)]
pub struct Fast {
    /// Where messages are.
    pub store: Arc<Store>,
    /// What answers; the thread locks it for each read.
    pub ingest: Arc<Mutex<Ingest>>,
}

/// Running threads and their connections.
pub struct Net {
    lanes: Vec<Arc<Lane>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    limits: Arc<Limits>,
}

impl Net {
    /// Starts `count` threads. With `fast`, one ingest each, they answer what the table admits;
    /// otherwise every frame comes out. Fails when there are no descriptors or threads left, or
    /// another number of ingests.
    pub fn start(count: usize, fast: &[Fast], limits: Limits) -> io::Result<Self> {
        if count == 0 || !(fast.is_empty() || fast.len() == count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut net = Self {
            lanes: Vec::new(),
            threads: Mutex::new(Vec::new()),
            limits: Arc::new(limits),
        };
        for index in 0..count {
            let lane = Arc::new(Lane::new()?);
            net.lanes.push(Arc::clone(&lane));
            let own = fast.get(index).cloned();
            let made = Worker::new(lane, own, Arc::clone(&net.limits));
            let started = made.and_then(|worker| {
                let name = format!("net-{index}");
                thread::Builder::new().name(name).spawn(|| worker.run())
            });
            match started {
                Ok(thread) => hold(&net.threads).push(thread),
                Err(error) => {
                    net.stop();
                    return Err(error);
                }
            }
        }
        if let Some(first) = fast.first() {
            let lanes = net.lanes.clone();
            first.store.watch(Arc::new(Wakes { lanes }));
        }
        Ok(net)
    }

    /// The descriptor of each thread that is readable while it has news.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.lanes.iter().map(|lane| lane.news_fd()).collect()
    }

    /// Gives a connected socket to the thread with the fewest connections. With `tls` its handshake
    /// is done there, and [`News::Agreed`] comes before anything else.
    pub fn adopt(
        &self,
        socket: TcpStream,
        key: u64,
        (host, pulls): (&[u8], bool),
        tls: Option<Session>,
    ) -> Arc<Handle> {
        let fewest = self.lanes.iter().min_by_key(|lane| lane.connections());
        let lane = match fewest {
            Some(lane) => Arc::clone(lane),
            None => unreachable!("there is at least one thread"),
        };
        lane.counted(1);
        let handle = Handle::new(key, Arc::clone(&lane), &self.limits);
        let handle = Arc::new(handle);
        lane.order(Order::Adopt(Box::new(Adopted {
            socket,
            handle: Arc::clone(&handle),
            host: host.to_vec(),
            pulls,
            tls,
        })));
        handle
    }

    /// Takes news of a thread: at most what one read may bring. The descriptor stays readable while
    /// there are more.
    pub fn take(&self, thread: usize) -> Vec<News> {
        self.lanes
            .get(thread)
            .map_or_else(Vec::new, |lane| lane.take())
    }

    /// Goes by the loop's clock, which says this now, in Unix milliseconds.
    /// `stands` says that it moves by what is told alone.
    pub fn set_now(&self, now_ms: i64, stands: bool) {
        self.limits.set_now(now_ms, stands);
    }

    /// Counts bytes that the loop keeps for connections of its own towards the common bound.
    pub fn set_beside(&self, bytes: usize) {
        self.limits.set_beside(bytes);
    }

    /// Bytes kept for all connections.
    pub fn used(&self) -> usize {
        self.limits.used()
    }

    /// Has the loop woken once, without news, when a peer of a thread writes; true when none has
    /// written since this was asked before.
    pub fn listen(&self) -> bool {
        let mut quiet = true;
        for lane in &self.lanes {
            quiet &= lane.listen();
        }
        quiet
    }

    /// How many connections each thread has.
    pub fn connections(&self) -> Vec<usize> {
        self.lanes.iter().map(|lane| lane.connections()).collect()
    }

    /// Has all threads refuse the sends that wait: a flush failed.
    pub fn fail(&self, remark: &str) {
        for lane in &self.lanes {
            lane.order(Order::Fail(remark.to_owned()));
        }
    }

    /// Tells all threads how far slaves have copied the log.
    pub fn replicated(&self, offset: u64) {
        for lane in &self.lanes {
            lane.replicated(offset);
        }
    }

    /// Tells all threads that no slave can prove a copy up to an offset.
    pub fn lapse(&self, offset: u64) {
        for lane in &self.lanes {
            lane.lapse(offset);
        }
    }

    /// Has all threads answer pulls that wait for a topic that has gone.
    pub fn removed(&self, topic: &str) {
        let topic: Arc<str> = topic.into();
        for lane in &self.lanes {
            lane.order(Order::Removed(Arc::clone(&topic)));
        }
    }

    /// Closes every connection at once and ends the threads. Twice is once.
    pub fn stop(&self) {
        let threads = std::mem::take(&mut *hold(&self.threads));
        for lane in &self.lanes {
            lane.order(Order::Stop);
        }
        for thread in threads {
            // A panic there has been noted by its hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.stop();
    }
}
