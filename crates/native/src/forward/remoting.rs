//! Sends of the remoting protocol on their way to brokers.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::{pyclass, pymethods, Bound};
use pyo3::types::PyBytes;
use pyo3::Python;
use roquet_core::forwarded::{self, SendForwarding, Unanswered};

use crate::buffer::Lent;

/// Keys of the client's and the broker's connection, the client's opaque, the frame.
type Send<'py> = (u64, u64, i32, Bound<'py, PyBytes>);
/// Frames to write and the numbers of the sends that they are, by connection.
type Asked<'py> = Vec<(u64, Bound<'py, PyBytes>, Vec<i32>)>;
/// Frames to write, by connection.
type Answers<'py> = Vec<(u64, Bound<'py, PyBytes>)>;

/// Takes plain sends to brokers, and the answers back.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct SendForwarder {
    core: Mutex<forwarded::SendForwarder>,
}

impl SendForwarder {
    fn core(&self) -> MutexGuard<'_, forwarded::SendForwarder> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl SendForwarder {
    /// Say what is allowed, and which properties give a message a type.
    #[new]
    #[pyo3(signature = (*, frame_max, patience_ms, sends_max, typed))]
    fn new(frame_max: usize, patience_ms: i64, sends_max: usize, typed: Vec<String>) -> Self {
        let rules = SendForwarding {
            frame_max,
            patience_ms,
            sends_max,
            typed,
        };
        Self {
            core: Mutex::new(forwarded::SendForwarder::new(rules)),
        }
    }

    /// Let sends to a topic of a broker pass by a connection until a steady time.
    fn put(&self, topic: &str, broker: &str, line: u64, until_ms: i64) {
        self.core().put(topic, broker, line, until_ms);
    }

    /// Forget what counts no more at a steady time; with None, everything.
    #[pyo3(signature = (steady_ms))]
    fn forget(&self, steady_ms: Option<i64>) {
        self.core().forget(steady_ms);
    }

    /// How many sends wait for a broker.
    fn waits(&self) -> usize {
        self.core().waits()
    }

    /// Bytes of a connection's incomplete frame.
    fn held(&self, key: u64) -> usize {
        self.core().held(key)
    }

    /// Forget a connection of either side; the sends whose answers cannot come any more.
    fn close<'py>(&self, py: Python<'py>, key: u64) -> Vec<Send<'py>> {
        let sends = self.core().close(key);
        sends.into_iter().map(|send| shown(py, send)).collect()
    }

    /// The sends that have waited for too long.
    fn late<'py>(&self, py: Python<'py>, steady_ms: i64) -> Vec<Send<'py>> {
        let sends = self.core().late(steady_ms);
        sends.into_iter().map(|send| shown(py, send)).collect()
    }

    /// Take sends back, as frames, that were not written.
    fn take_back<'py>(&self, py: Python<'py>, numbers: Vec<i32>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.core().take_back(&numbers))
    }

    /// Take bytes of a client: frames to write, frames for the handlers, and why it is broken.
    fn ask<'py>(
        &self,
        py: Python<'py>,
        client: u64,
        data: Lent<'_>,
        steady_ms: i64,
    ) -> (Asked<'py>, Bound<'py, PyBytes>, String) {
        let passed = self.core().ask(client, data.as_slice(), steady_ms);
        let out = passed.out.into_iter();
        let out = out.filter(|(_, out)| !out.numbers.is_empty());
        let out = out.map(|(line, out)| (line, PyBytes::new(py, &out.frames), out.numbers));
        let broken = passed.broken.map(|why| why.to_string()).unwrap_or_default();
        (out.collect(), PyBytes::new(py, &passed.rest), broken)
    }

    /// Take bytes of a broker: answers to write, frames for others, sends that it has not looked at,
    /// and why it is broken.
    #[allow(clippy::type_complexity)] // What it is made of is said above.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        line: u64,
        data: Lent<'_>,
    ) -> (Answers<'py>, Bound<'py, PyBytes>, Vec<Send<'py>>, String) {
        let passed = self.core().answer(line, data.as_slice());
        let out = passed.out.into_iter();
        let out = out.map(|(client, out)| (client, PyBytes::new(py, &out.frames)));
        let again = passed.again.into_iter().map(|send| shown(py, send));
        let broken = passed.broken.map(|why| why.to_string()).unwrap_or_default();
        let rest = PyBytes::new(py, &passed.rest);
        (out.collect(), rest, again.collect(), broken)
    }
}

fn shown(py: Python<'_>, send: Unanswered) -> Send<'_> {
    let frame = PyBytes::new(py, &send.frame);
    (send.client, send.line, send.opaque, frame)
}
