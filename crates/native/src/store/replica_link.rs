//! The threads that copy a log between brokers, for Python: it starts and ends them, hears what
//! has happened, and decides where a slave begins.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pyfunction, pymethods, Bound, PyRef, PyResult, Python};
use pyo3::types::PyBytes;
use roquet_core::ha::copier::CopierConfig;
use roquet_core::ha::feed::FeedConfig;
use roquet_core::ha::feeder;
use roquet_core::ha::follower;
use roquet_core::ha::link::{Begin, End, Link};
use roquet_core::ha::tls::{PairTls as CoreTls, Pem};
use roquet_core::ha::wire::Socket;

use crate::store::Store;

/// (what the peer has said before the start, acknowledged offset, (kind of end, text)).
type NewsTuple<'py> = (Bound<'py, PyBytes>, u64, Option<(&'static str, String)>);

/// (acknowledged offset, position, bytes moved, ms since the last read, ms since the last write).
type ViewTuple = (u64, u64, u64, u64, u64);

/// One connection between a master and a slave, copied by a thread that never takes the GIL.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct LogLink {
    core: Link,
}

fn age(then: Instant) -> u64 {
    u64::try_from(then.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[pymethods]
impl LogLink {
    /// The descriptor that is readable while there is news; -1 once the thread was waited for.
    fn event_fd(&self) -> RawFd {
        self.core.event_fd().unwrap_or(-1)
    }

    /// The news; what the peer has said comes once.
    fn take<'py>(&self, py: Python<'py>) -> NewsTuple<'py> {
        let view = self.core.take();
        let end = view.end.map(|end| match end {
            End::Stopped => ("stopped", String::new()),
            End::Lost(text) => ("lost", text),
            End::Fault(text) => ("fault", text),
            End::Store(text) => ("store", text),
        });
        (PyBytes::new(py, &view.heard), view.acked, end)
    }

    /// How far it is.
    fn view(&self) -> ViewTuple {
        let view = self.core.view();
        let (read, write) = (age(view.last_read), age(view.last_write));
        (view.acked, view.position, view.moved, read, write)
    }

    /// Say something to the peer, before the start.
    fn say(&self, data: &[u8]) {
        self.core.say(data);
    }

    /// End the connection, before the start, once what was said is written.
    fn finish(&self) {
        self.core.finish();
    }

    /// Start the copying: a slave gets the log from `position` on.
    fn begin(&self, position: u64, heard: Vec<u8>) {
        self.core.begin(Begin { position, heard });
    }

    /// Go by other rules from now on.
    #[pyo3(signature = (*, batch, heartbeat_ms, housekeeping_ms, bytes_per_second, linger_ms))]
    fn tune(
        &self,
        batch: u64,
        heartbeat_ms: u64,
        housekeeping_ms: u64,
        bytes_per_second: u64,
        linger_ms: u64,
    ) {
        self.core.tune(FeedConfig {
            batch,
            heartbeat: heartbeat_ms,
            housekeeping: housekeeping_ms,
            bytes_per_second,
            linger: linger_ms,
        });
    }

    /// Hear of each acknowledgement from now on, or not; with `counts` the core answers what waits
    /// for a copy by itself.
    #[pyo3(signature = (*, loud, counts))]
    fn tell_acks(&self, loud: bool, counts: bool) {
        self.core.hear(loud, counts);
    }

    /// Ask for the end of the connection; the news say when it has come.
    fn stop(&self) {
        self.core.stop();
    }

    /// Wait for the thread, and close the descriptor.
    fn join(&self, py: Python<'_>) {
        py.detach(|| self.core.join());
    }
}

/// How one side of a pair speaks TLS, made of PEM files.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct PairTls {
    core: CoreTls,
}

#[pymethods]
impl PairTls {
    /// A master's, or a slave's.
    #[new]
    #[pyo3(signature = (*, is_master, cert, key, trust))]
    fn new(
        is_master: bool,
        cert: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
        trust: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let pem = Pem {
            cert: cert.as_deref(),
            key: key.as_deref(),
            trust: trust.as_deref(),
        };
        let made = if is_master {
            CoreTls::master(pem)
        } else {
            CoreTls::slave(pem)
        };
        made.map(|core| Self { core })
            .map_err(PyValueError::new_err)
    }
}

/// Take over a descriptor that the caller owns.
fn owned(fd: RawFd, tls: Option<PyRef<'_, PairTls>>, handshake_ms: u64) -> Socket {
    Socket {
        // SAFETY: the caller hands over an open descriptor that nothing else closes.
        fd: unsafe { OwnedFd::from_raw_fd(fd) },
        tls: tls.map(|tls| tls.core.clone()),
        handshake: handshake_ms,
    }
}

/// Feed the slave at the other end of a socket, which belongs to the thread from now on.
#[pyfunction]
#[pyo3(signature = (store, fd, *, tls, handshake_ms, batch, heartbeat_ms,
    housekeeping_ms, bytes_per_second, linger_ms))]
#[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
pub(crate) fn feed_log(
    store: PyRef<'_, Store>,
    fd: RawFd,
    tls: Option<PyRef<'_, PairTls>>,
    handshake_ms: u64,
    batch: u64,
    heartbeat_ms: u64,
    housekeeping_ms: u64,
    bytes_per_second: u64,
    linger_ms: u64,
) -> PyResult<LogLink> {
    let rules = FeedConfig {
        batch,
        heartbeat: heartbeat_ms,
        housekeeping: housekeeping_ms,
        bytes_per_second,
        linger: linger_ms,
    };
    let socket = owned(fd, tls, handshake_ms);
    let core = feeder::start(Arc::clone(store.core()), socket, rules)?;
    Ok(LogLink { core })
}

/// Copy the log of the master at the other end of a socket, which belongs to the thread from now on.
#[pyfunction]
#[pyo3(signature = (store, fd, *, tls, handshake_ms, heartbeat_ms, housekeeping_ms))]
pub(crate) fn follow_log(
    store: PyRef<'_, Store>,
    fd: RawFd,
    tls: Option<PyRef<'_, PairTls>>,
    handshake_ms: u64,
    heartbeat_ms: u64,
    housekeeping_ms: u64,
) -> PyResult<LogLink> {
    let rules = CopierConfig {
        heartbeat: heartbeat_ms,
        housekeeping: housekeeping_ms,
    };
    let socket = owned(fd, tls, handshake_ms);
    let core = follower::start(Arc::clone(store.core()), socket, rules)?;
    Ok(LogLink { core })
}
