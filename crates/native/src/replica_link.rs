//! The threads that copy a log between brokers, for Python: it starts and ends them, hears what
//! has happened, and decides where a slave begins.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::{pyclass, pyfunction, pymethods, PyRef, PyResult, Python};
use roquet_core::ha::copier::CopierRules;
use roquet_core::ha::feed::FeedRules;
use roquet_core::ha::feeder::{self, Greeting};
use roquet_core::ha::follower;
use roquet_core::ha::link::{End, Link, Tuning};

use crate::store::Store;

/// (first report, acknowledged offset, (kind of end, text)).
type NewsTuple = (Option<u64>, u64, Option<(&'static str, String)>);

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
    /// The descriptor that is readable while there is news.
    fn event_fd(&self) -> RawFd {
        self.core.event_fd()
    }

    /// The news; the first report comes once.
    fn take(&self) -> NewsTuple {
        let view = self.core.take();
        let end = view.end.map(|end| match end {
            End::Stopped => ("stopped", String::new()),
            End::Lost(text) => ("lost", text),
            End::Fault(text) => ("fault", text),
            End::Store(text) => ("store", text),
        });
        (view.first, view.acked, end)
    }

    /// How far it is.
    fn view(&self) -> ViewTuple {
        let view = self.core.view();
        let (read, write) = (age(view.last_read), age(view.last_write));
        (view.acked, view.position, view.moved, read, write)
    }

    /// Let the slave that has reported get the log from an offset on.
    fn begin(&self, position: u64) {
        self.core.begin(position);
    }

    /// Go by other rules from now on.
    #[pyo3(signature = (*, batch, heartbeat_ms, housekeeping_ms, bytes_per_second, linger_ms, loud))]
    fn tune(
        &self,
        batch: u64,
        heartbeat_ms: u64,
        housekeeping_ms: u64,
        bytes_per_second: u64,
        linger_ms: u64,
        loud: bool,
    ) {
        let feed = FeedRules {
            batch,
            heartbeat: heartbeat_ms,
            housekeeping: housekeeping_ms,
            bytes_per_second,
            linger: linger_ms,
        };
        self.core.tune(Tuning { feed, loud });
    }

    /// Ask for the end of the connection; the news say when it has come.
    fn stop(&self) {
        self.core.stop();
    }

    /// Wait for the thread.
    fn join(&self, py: Python<'_>) {
        py.detach(|| self.core.join());
    }
}

/// Take over a descriptor that the caller owns.
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller hands over an open descriptor that nothing else closes.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Feed the slave at the other end of a socket, which belongs to the thread from now on.
#[pyfunction]
#[pyo3(signature = (store, fd, *, say, heard, batch, heartbeat_ms,
    housekeeping_ms, bytes_per_second, linger_ms, loud))]
#[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
pub(crate) fn feed_log(
    store: PyRef<'_, Store>,
    fd: RawFd,
    say: Vec<u8>,
    heard: Vec<u8>,
    batch: u64,
    heartbeat_ms: u64,
    housekeeping_ms: u64,
    bytes_per_second: u64,
    linger_ms: u64,
    loud: bool,
) -> PyResult<LogLink> {
    let rules = FeedRules {
        batch,
        heartbeat: heartbeat_ms,
        housekeeping: housekeeping_ms,
        bytes_per_second,
        linger: linger_ms,
    };
    let greeting = Greeting { say, heard };
    let core = feeder::start(Arc::clone(store.core()), owned(fd), greeting, rules, loud)?;
    Ok(LogLink { core })
}

/// Copy the log of the master at the other end of a socket, which belongs to the thread from now on.
#[pyfunction]
#[pyo3(signature = (store, fd, *, heard, heartbeat_ms, housekeeping_ms))]
pub(crate) fn follow_log(
    store: PyRef<'_, Store>,
    fd: RawFd,
    heard: Vec<u8>,
    heartbeat_ms: u64,
    housekeeping_ms: u64,
) -> PyResult<LogLink> {
    let rules = CopierRules {
        heartbeat: heartbeat_ms,
        housekeeping: housekeeping_ms,
    };
    let say = Vec::new();
    let greeting = Greeting { say, heard };
    let core = follower::start(Arc::clone(store.core()), owned(fd), greeting, rules)?;
    Ok(LogLink { core })
}
