//! Plain calls of gRPC on their way to brokers of a cluster, for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::{pyclass, pymethods, Bound, Py, PyAny, PyAnyMethods, PyErr, PyRef, PyResult};
use pyo3::types::PyBytes;
use pyo3::Python;
use roquet_core::grpc::forward::{ForwardRules, Forwarder, Kind, Target, Unsettled};
use roquet_core::grpc::Sends;

use crate::buffer::Lent;
use crate::grpc::{tuple, GrpcConsumers, GrpcSends, GrpcServer};

/// Frames for a line: its key, the bytes, the calls that they are of.
type Outgoing = (u64, Py<PyBytes>, Vec<u64>);
/// A call to be told: number, broker, whether it sends, when it began, request, answers by entry.
type Told = (
    u64,
    String,
    bool,
    i64,
    Py<PyBytes>,
    Vec<(usize, Py<PyBytes>)>,
);

/// Takes plain calls of one port to brokers, and their answers back.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct GrpcForwarder {
    core: Mutex<Forwarder>,
}

impl GrpcForwarder {
    fn core(&self) -> MutexGuard<'_, Forwarder> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl GrpcForwarder {
    /// Say what is plain, and how brokers are asked; times are milliseconds.
    #[new]
    #[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
    #[pyo3(signature = (sends, consumers, *, template, template_queues, version, frame_max, send_ms, ack_ms, calls_max))]
    fn new(
        sends: PyRef<'_, GrpcSends>,
        consumers: PyRef<'_, GrpcConsumers>,
        template: String,
        template_queues: u32,
        version: i32,
        frame_max: usize,
        send_ms: i64,
        ack_ms: i64,
        calls_max: usize,
    ) -> Self {
        let rules = ForwardRules {
            system: consumers.system.clone(),
            template,
            template_queues,
            version,
            frame_max,
            patience_ms: (send_ms, ack_ms),
            calls_max,
        };
        let sends = Sends::new(sends.core.rules().clone());
        Self {
            core: Mutex::new(Forwarder::new(rules, sends)),
        }
    }

    /// Let messages of a topic pass until a steady time.
    fn put(&self, topic: String, takes: (bool, bool), places: Vec<(String, u32)>, until_ms: i64) {
        let places = places.into_iter();
        let places = places.map(|(broker, queues)| (Arc::from(broker), queues));
        let target = Target {
            takes,
            places: places.collect(),
            until_ms,
        };
        self.core().put(topic, target);
    }

    /// Leave a topic to the front.
    fn forget(&self, topic: &str) {
        self.core().forget(topic);
    }

    /// Know the connection to a broker.
    fn open(&self, broker: &str, line: u64) {
        self.core().open(broker, line);
    }

    /// Ask a broker nothing more until it has another connection.
    fn retire(&self, broker: &str) {
        self.core().retire(broker);
    }

    /// Forget a connection that has ended; the calls whose answers cannot come any more.
    fn close(&self, py: Python<'_>, line: u64) -> Vec<Told> {
        let calls = self.core().close(line);
        calls.into_iter().map(|call| told(py, call)).collect()
    }

    /// The calls that have waited for too long.
    fn late(&self, py: Python<'_>, steady_ms: i64) -> Vec<Told> {
        let calls = self.core().late(steady_ms);
        calls.into_iter().map(|call| told(py, call)).collect()
    }

    /// Bytes of a line's incomplete frame.
    fn held(&self, line: u64) -> usize {
        self.core().held(line)
    }

    /// How many sends and how many calls with acknowledgements wait for a broker.
    fn counts(&self) -> (usize, usize) {
        self.core().counts()
    }

    /// Take all news of a server: what is for the front, frames to write, brokers without a line.
    #[allow(clippy::type_complexity)] // What it is made of is said above.
    fn take<'py>(
        &self,
        py: Python<'py>,
        server: PyRef<'_, GrpcServer>,
        now: (i64, i64),
        settles: Bound<'py, PyAny>,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Vec<Outgoing>, Vec<String>)> {
        let server = &server.server;
        let mut failed: Option<PyErr> = None;
        let mut asks = |client: &str| {
            let found = settles.call1((client,)).and_then(|told| told.is_truthy());
            found.unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        };
        let taken = self.core().take(server, server.take(), now, &mut asks);
        if let Some(error) = failed {
            // The front takes such a call, and meets the error where it is told and logged.
            error.write_unraisable(py, None);
        }
        let news = taken.news.into_iter().map(|one| tuple(py, one));
        let out = taken
            .out
            .into_iter()
            .filter(|(_, out)| !out.calls.is_empty());
        let out = out.map(|(line, out)| (line, PyBytes::new(py, &out.frames).unbind(), out.calls));
        Ok((news.collect::<PyResult<_>>()?, out.collect(), taken.wanted))
    }

    /// Take calls back, as news, whose frames were not written.
    fn take_back<'py>(&self, py: Python<'py>, calls: Vec<u64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let news = self.core().take_back(&calls);
        news.into_iter().map(|one| tuple(py, one)).collect()
    }

    /// Take bytes of a broker and answer the calls that they end: whether there was any, frames that
    /// are for others, calls to be told, calls that are news again, and why the connection is broken.
    /// None: whole frames, all plain.
    #[allow(clippy::type_complexity)] // What it is made of is said above.
    fn feed<'py>(
        &self,
        py: Python<'py>,
        server: PyRef<'_, GrpcServer>,
        line: u64,
        data: Lent<'_>,
    ) -> PyResult<Option<(bool, Py<PyBytes>, Vec<Told>, Vec<Bound<'py, PyAny>>, String)>> {
        let mut core = self.core();
        let fed = core.feed(&server.server, line, data.as_slice());
        let is_plain = fed.rest.is_empty() && fed.odd.is_empty() && fed.news.is_empty();
        if is_plain && fed.answered && fed.broken.is_none() && core.held(line) == 0 {
            return Ok(None);
        }
        let odd = fed.odd.into_iter().map(|call| told(py, call));
        let news = fed.news.into_iter().map(|one| tuple(py, one));
        Ok(Some((
            fed.answered,
            PyBytes::new(py, &fed.rest).unbind(),
            odd.collect(),
            news.collect::<PyResult<_>>()?,
            fed.broken.map(|why| why.to_string()).unwrap_or_default(),
        )))
    }
}

fn told(py: Python<'_>, call: Unsettled) -> Told {
    let answers = call.answers.into_iter();
    let answers = answers.map(|(entry, frame)| (entry, PyBytes::new(py, &frame).unbind()));
    (
        call.call,
        call.broker.to_string(),
        call.kind == Kind::Send,
        call.began_ms,
        PyBytes::new(py, &call.message).unbind(),
        answers.collect(),
    )
}
