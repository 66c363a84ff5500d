//! Connections on native threads for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::net::TcpStream;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pymethods, Bound, PyErr, PyResult, Python};
use pyo3::types::{PyBytes, PyList, PyListMethods};
use roquet_core::ingest::pop::Popping;
use roquet_core::ingest::Shared;
use roquet_core::net::{Handle, Limits, Net, News, OwnFrame, Strangers};

use crate::buffer::Lent;
use crate::codec::frame_tuple;
use crate::ingest::Ingest;
use crate::tls::{RemotingTls, TlsSession};

/// (what, connection, frames, when they were read, how long they had waited, what they take, why it
/// is closed, how many frames, the frames as they were read instead of taken apart).
type NewsTuple<'py> = (
    &'static str,
    u64,
    Bound<'py, PyList>,
    i64,
    i64,
    usize,
    String,
    usize,
    Bound<'py, PyBytes>,
);

/// Threads that serve connections.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct NetThreads {
    net: Net,
    /// What the threads go by.
    shared: Option<Arc<Shared>>,
}

/// A connection that a thread serves.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct NetConnection {
    handle: Arc<Handle>,
}

#[pymethods]
impl NetThreads {
    /// Start `threads` threads; with an ingest made for as many they answer what it admits.
    #[new]
    #[pyo3(signature = (threads, ingest = None, *, frame_size_max, connection_max, total_max, water, strangers = None))]
    fn new(
        threads: usize,
        ingest: Option<Bound<'_, Ingest>>,
        frame_size_max: usize,
        connection_max: usize,
        total_max: usize,
        water: (usize, Option<usize>),
        strangers: Option<(usize, usize, usize)>,
    ) -> PyResult<Self> {
        let bounds = strangers.map_or(
            Strangers::ANY,
            |(nameless_max, nameless_total, named_total)| Strangers {
                nameless_max,
                nameless_total,
                named_total,
            },
        );
        let limits = Limits::new(
            frame_size_max,
            connection_max,
            total_max,
            (water.0, water.1.unwrap_or(water.0 / 4)),
            bounds,
        );
        let shared = ingest
            .as_ref()
            .map(|ingest| Arc::clone(&ingest.get().shared));
        let fast = ingest.map_or_else(Vec::new, |ingest| ingest.get().fast());
        Ok(Self {
            net: Net::start(threads, &fast, limits)?,
            shared,
        })
    }

    /// The descriptor of each thread that is readable while it has news.
    fn descriptors(&self) -> Vec<RawFd> {
        self.net.descriptors()
    }

    /// Give a connected socket, which is no longer Python's, to the thread with the fewest; with
    /// `tls` that agrees on it first.
    #[pyo3(signature = (fd, key, host, pulls, tls = None))]
    fn adopt(
        &self,
        fd: RawFd,
        key: u64,
        host: &[u8],
        pulls: bool,
        tls: Option<Bound<'_, RemotingTls>>,
    ) -> PyResult<NetConnection> {
        // SAFETY: the caller has detached the descriptor from its socket.
        let socket = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let session = tls.map(|tls| tls.get().begin()).transpose()?;
        Ok(NetConnection {
            handle: self.net.adopt(socket, key, (host, pulls), session),
        })
    }

    /// Take news of a thread.
    fn take<'py>(&self, py: Python<'py>, thread: usize) -> PyResult<Vec<NewsTuple<'py>>> {
        let news = self.net.take(thread);
        let popping = self
            .shared
            .as_ref()
            .and_then(|it| it.read().state.pop.clone());
        news.into_iter()
            .map(|one| tuple(py, one, popping.as_ref()))
            .collect()
    }

    /// Go by the loop's clock, which says this now, in Unix milliseconds; whether it stands until told.
    #[pyo3(signature = (now_ms, stands = false))]
    fn set_now(&self, now_ms: i64, stands: bool) {
        self.net.set_now(now_ms, stands);
    }

    /// Count bytes that the loop keeps for connections of its own towards the common bound.
    fn set_beside(&self, size: usize) {
        self.net.set_beside(size);
    }

    /// Bytes kept for all connections.
    fn used(&self) -> usize {
        self.net.used()
    }

    /// Wake the loop once when a peer writes; whether none has since this was asked before.
    fn listen(&self) -> bool {
        self.net.listen()
    }

    /// How many connections each thread has.
    fn connections(&self) -> Vec<usize> {
        self.net.connections()
    }

    /// Refuse all sends that wait for a flush.
    fn fail(&self, remark: &str) {
        self.net.fail(remark);
    }

    /// Slaves have copied the log up to an offset.
    fn set_replicated(&self, offset: u64) {
        self.net.replicated(offset);
    }

    /// No slave can prove a copy up to an offset.
    fn lapse(&self, offset: u64) {
        self.net.lapse(offset);
    }

    /// A topic has gone: pulls that wait for it are answered.
    fn removed(&self, topic: &str) {
        self.net.removed(topic);
    }

    /// Close all connections and end the threads.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.net.stop());
    }
}

#[pymethods]
impl NetConnection {
    /// Write whole frames behind all others; true when the peer does not take what is there.
    fn write(&self, data: Lent<'_>) -> bool {
        self.handle.write(data.as_slice().to_vec())
    }

    /// Bytes that are not in the socket's buffer yet.
    fn unsent(&self) -> usize {
        self.handle.unsent()
    }

    /// Read no further, or go on.
    fn pause(&self, paused: bool) {
        self.handle.pause(paused);
    }

    /// An account was proven on this connection.
    fn prove(&self) {
        self.handle.prove();
    }

    /// Close once everything is written.
    fn close(&self) {
        self.handle.close();
    }

    /// Close at once.
    fn abort(&self) {
        self.handle.abort();
    }

    /// The handlers have finished so many frames, and have no other.
    fn finish(&self, frames: u64) {
        self.handle.finish(frames);
    }

    /// The loop has begun with frames that take so many bytes.
    fn took(&self, size: usize) {
        self.handle.took(size);
    }

    /// Want it back from its thread: `back` or `stays` follows, unless it has ended.
    fn give_back(&self) {
        self.handle.give_back();
    }

    /// Take its descriptor after `back`, once.
    fn socket(&self) -> PyResult<RawFd> {
        let socket = self.handle.take_socket().ok_or_else(not_given_back)?;
        Ok(socket.into_raw_fd())
    }

    /// Take its TLS after `socket`, once; none when it is plain.
    fn session(&self) -> Option<TlsSession> {
        self.handle.take_session().map(TlsSession::of)
    }

    /// Take over what was known of its peer, once: the start of a frame, and whether pulls that it
    /// holds are due. The ingest of the loop, where there is one, knows the connection already;
    /// its handlers have requests of it in hand (`works`) or are to get some yet (`waits`).
    #[pyo3(signature = (ingest, *, works, waits))]
    fn take_back<'py>(
        &self,
        py: Python<'py>,
        ingest: Option<Bound<'_, Ingest>>,
        works: bool,
        waits: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, bool)> {
        let mut handed = self.handle.take_back().ok_or_else(not_given_back)?;
        let kept = PyBytes::new(py, &std::mem::take(&mut handed.kept));
        let due = ingest.is_some_and(|ingest| {
            let key = self.handle.key();
            ingest.get().take_over(key, handed, (works, waits))
        });
        Ok((kept, due))
    }

    /// A number that moves with everything that is read or written.
    fn traffic(&self) -> u64 {
        self.handle.traffic()
    }
}

fn not_given_back() -> PyErr {
    PyValueError::new_err("it was not given back")
}

fn tuple<'py>(py: Python<'py>, news: News, popping: Option<&Popping>) -> PyResult<NewsTuple<'py>> {
    let list = PyList::empty(py);
    let none = PyBytes::new(py, &[]);
    Ok(match news {
        News::Frames {
            key,
            at_ms,
            waited_ms,
            size,
            frames,
            broken,
        } => {
            let mut raw = Vec::new();
            if broken.is_none() && popping.is_some_and(|it| are_popped(it, &frames)) {
                for frame in &frames {
                    frame.write_to(&mut raw);
                }
            } else {
                for frame in &frames {
                    push(py, &list, frame)?;
                }
            }
            let (why, count) = (broken.unwrap_or_default(), frames.len());
            let raw = PyBytes::new(py, &raw);
            ("frames", key, list, at_ms, waited_ms, size, why, count, raw)
        }
        News::Left(key, frame) => {
            push(py, &list, &frame)?;
            ("left", key, list, 0, 0, 0, String::new(), 1, none)
        }
        News::Agreed(key) => ("agreed", key, list, 0, 0, 0, String::new(), 0, none),
        News::Drained(key) => ("drained", key, list, 0, 0, 0, String::new(), 0, none),
        News::Stays(key) => ("stays", key, list, 0, 0, 0, String::new(), 0, none),
        News::GivenBack(key) => ("back", key, list, 0, 0, 0, String::new(), 0, none),
        News::Closed(key, why) => ("closed", key, list, 0, 0, 0, why, 0, none),
    })
}

/// Whether all frames are about popped messages and left to the loop for that alone.
fn are_popped(popping: &Popping, frames: &[OwnFrame]) -> bool {
    let code = |own: &OwnFrame| own.frame().decode_header().map(|header| header.code);
    let is_for_loop = |own| code(own).is_ok_and(|code| popping.is_for_processors(code));
    !frames.is_empty() && frames.iter().all(is_for_loop)
}

fn push<'py>(py: Python<'py>, list: &Bound<'py, PyList>, own: &OwnFrame) -> PyResult<()> {
    let frame = own.frame();
    // It was decoded once before.
    match frame.decode_header() {
        Ok(header) => list.append(frame_tuple(py, &frame, &header)?),
        Err(_) => Ok(()),
    }
}
