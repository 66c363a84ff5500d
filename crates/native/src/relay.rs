//! The relay's exchange for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::{pyclass, pymethods, Bound, PyResult, Python};
use pyo3::types::{PyBytes, PyDict, PyDictMethods, PyList, PyListMethods};
use roquet_core::relay::{Exchange as Core, Limits};

use crate::buffer::Lent;
use crate::codec::frame_tuple;

/// (frames for the services, why the connection must be closed, workers with new output).
type FedTuple<'py> = (Bound<'py, PyList>, Option<String>, Vec<usize>);

/// (bytes queued, requests to answer, drains, packets in, bytes in, packets out, bytes out,
/// packets refused).
type ServerTuple = (usize, usize, bool, u64, u64, u64, u64, u64);

/// Routes packets between inner servers on their raw bytes.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Exchange {
    core: Mutex<Core>,
}

impl Exchange {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Exchange {
    #[new]
    #[pyo3(signature = (*, workers, frame_size_max, queue_max, control_max, total_max, pending_max, timeout_ms))]
    fn new(
        workers: usize,
        frame_size_max: usize,
        queue_max: usize,
        control_max: usize,
        total_max: usize,
        pending_max: usize,
        timeout_ms: i64,
    ) -> Self {
        let limits = Limits {
            frame_size_max,
            queue_max,
            control_max,
            total_max,
            pending_max,
            timeout_ms,
        };
        Self {
            core: Mutex::new(Core::new(limits, workers)),
        }
    }

    /// Know a new connection.
    fn open(&self, key: u64, now_ms: i64) {
        self.core().open(key, now_ms);
    }

    /// Forget a connection.
    fn close(&self, key: u64) {
        self.core().close(key);
    }

    /// Bytes kept for a connection.
    fn held(&self, key: u64) -> usize {
        self.core().held(key)
    }

    /// Take what a connection received.
    fn feed<'py>(
        &self,
        py: Python<'py>,
        key: u64,
        data: Lent<'py>,
        now_ms: i64,
    ) -> PyResult<FedTuple<'py>> {
        let frames = PyList::empty(py);
        let mut failure = None;
        let mut core = self.core();
        let broken = core.feed(key, data.as_slice(), now_ms, &mut |frame, header| {
            let pushed = frame_tuple(py, frame, header).and_then(|tuple| frames.append(tuple));
            if let Err(error) = pushed {
                failure = Some(error);
            }
        });
        match failure {
            Some(error) => Err(error),
            None => Ok((
                frames,
                broken.map(|error| error.to_string()),
                core.ready_workers(),
            )),
        }
    }

    /// Set the configured ids.
    fn set_known(&self, ids: Vec<i32>) {
        self.core().set_known(ids);
    }

    /// Register a server on a connection.
    fn register(&self, server_id: i32, kind: i32, key: u64, worker: usize) -> bool {
        self.core().register(server_id, kind, key, worker)
    }

    /// Forget a server, if it is registered on this connection.
    fn unregister(&self, server_id: i32, key: u64) -> bool {
        self.core().unregister(server_id, key)
    }

    /// Give a server no new packets, or again.
    fn drain(&self, server_id: i32, drains: bool) {
        self.core().drain(server_id, drains);
    }

    /// Queue a frame of the relay's own.
    fn notify(&self, server_id: i32, frame: Lent<'_>) -> bool {
        self.core().notify(server_id, frame.as_slice())
    }

    /// Queue a frame for all servers of a worker.
    fn broadcast(&self, worker: usize, frame: Lent<'_>, but: i32) -> Vec<i32> {
        self.core().broadcast(worker, frame.as_slice(), but)
    }

    /// Workers with output.
    fn ready_workers(&self) -> Vec<usize> {
        self.core().ready_workers()
    }

    /// Servers of a worker with new output.
    fn take_ready(&self, worker: usize) -> Vec<i32> {
        self.core().take_ready(worker)
    }

    /// The next piece of a server's output.
    fn take<'py>(&self, py: Python<'py>, server_id: i32) -> Option<Bound<'py, PyBytes>> {
        self.core()
            .take(server_id)
            .map(|piece| PyBytes::new(py, &piece))
    }

    /// Servers of a worker from which nothing was read.
    fn silent(&self, worker: usize, before_ms: i64) -> Vec<i32> {
        self.core().silent(worker, before_ms)
    }

    /// Refuse requests that were not answered in time.
    fn expire(&self, now_ms: i64) -> Vec<i32> {
        self.core().expire(now_ms)
    }

    /// What is known of a server's link.
    fn server(&self, server_id: i32) -> Option<ServerTuple> {
        let (queued, pending, drains, traffic) = self.core().server(server_id)?;
        Some((
            queued,
            pending,
            drains,
            traffic.in_packets,
            traffic.in_bytes,
            traffic.out_packets,
            traffic.out_bytes,
            traffic.refused,
        ))
    }

    /// Bytes in all queues.
    fn queued(&self) -> usize {
        self.core().queued()
    }

    /// What happened so far.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.core().counters();
        let dict = PyDict::new(py);
        for (name, value) in [
            ("forwarded", counters.forwarded),
            ("forwarded_bytes", counters.forwarded_bytes),
            ("answers", counters.answers),
            ("refused_unknown", counters.refused_unknown),
            ("refused_gone", counters.refused_gone),
            ("refused_busy", counters.refused_busy),
            ("refused_draining", counters.refused_draining),
            ("refused_invalid", counters.refused_invalid),
            ("timed_out", counters.timed_out),
            ("abandoned", counters.abandoned),
            ("unanswered", counters.unanswered),
            ("stray_answers", counters.stray_answers),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}
