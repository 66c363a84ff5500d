//! The server of gRPC for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use pyo3::prelude::{pyclass, pymethods, Bound, IntoPyObject, PyAny, PyResult, Python};
use pyo3::types::PyBytes;
use pyo3::{BoundObject, PyErr};
use roquet_core::grpc::{Head, Limits, News, Server};

use crate::buffer::Lent;

/// A thread that serves connections of gRPC.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct GrpcServer {
    server: Server,
}

#[pymethods]
impl GrpcServer {
    /// Serve a listening socket, which is no longer Python's.
    #[new]
    #[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
    #[pyo3(signature = (fd, streaming, *, connections, calls, header_bytes, message_bytes, inbound_bytes, outbound_bytes, resets, idle_ms, patience_ms))]
    fn new(
        fd: RawFd,
        streaming: Vec<String>,
        connections: usize,
        calls: u32,
        header_bytes: u32,
        message_bytes: usize,
        inbound_bytes: usize,
        outbound_bytes: usize,
        resets: u32,
        idle_ms: u64,
        patience_ms: u64,
    ) -> PyResult<Self> {
        let limits = Limits {
            connections,
            calls,
            header_bytes,
            message_bytes,
            inbound_bytes,
            outbound_bytes,
            resets,
            idle: Duration::from_millis(idle_ms),
            patience: Duration::from_millis(patience_ms),
        };
        // SAFETY: the caller has detached the descriptor from its socket.
        let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let server = Server::start(listener, limits, streaming.into_iter().collect())?;
        Ok(Self { server })
    }

    /// The descriptor that is readable while there is news.
    fn descriptor(&self) -> RawFd {
        self.server.descriptor()
    }

    /// Take all news: tuples that begin with what happened and the number it is about.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let news = self.server.take();
        news.into_iter().map(|one| tuple(py, one)).collect()
    }

    /// Send a message of an answer; false when the call has ended.
    fn send(&self, call: u64, message: Lent<'_>) -> bool {
        self.server.send(call, message.as_slice())
    }

    /// End a call; false when it has ended.
    fn finish(&self, call: u64, status: u8, text: &str) -> bool {
        self.server.finish(call, status, text)
    }

    /// Tell whether the connection of a call has too much to read; then `drained` follows.
    fn is_slow(&self, call: u64) -> bool {
        self.server.is_slow(call)
    }

    /// End a connection at once.
    fn close(&self, connection: u64) {
        self.server.close(connection);
    }

    /// How many connections and calls there are.
    fn counts(&self) -> (usize, usize) {
        self.server.counts()
    }

    /// Tell clients to go elsewhere, wait for calls under way, and end the thread.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.server.stop());
    }
}

fn tuple(py: Python<'_>, news: News) -> PyResult<Bound<'_, PyAny>> {
    match news {
        News::Call {
            call,
            connection,
            head,
            message,
        } => {
            let Head {
                path,
                peer,
                local,
                metadata,
                authority,
            } = *head;
            let message = message.map(|data| PyBytes::new(py, &data));
            let (peer, local) = (&*peer, &*local);
            any(
                py,
                (
                    "call", call, connection, path, peer, local, authority, metadata, message,
                ),
            )
        }
        News::Message(call, data) => any(py, ("message", call, PyBytes::new(py, &data))),
        News::Ended(call) => any(py, ("ended", call)),
        News::Gone(call) => any(py, ("gone", call)),
        News::Drained(connection) => any(py, ("drained", connection)),
        News::Closed(connection) => any(py, ("closed", connection)),
    }
}

fn any<'py, T>(py: Python<'py>, value: T) -> PyResult<Bound<'py, PyAny>>
where
    T: IntoPyObject<'py>,
    PyErr: From<T::Error>,
{
    Ok(value.into_pyobject(py)?.into_any().into_bound())
}
