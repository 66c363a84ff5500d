//! The server of gRPC for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pymethods, Bound, IntoPyObject, PyAny, PyRef, PyResult, Python};
use pyo3::types::PyBytes;
use pyo3::{BoundObject, PyErr};
use roquet_core::grpc::shown::{begun, ended, Named, View};
use roquet_core::grpc::{Door, Limits, News, SendRules, Sends, Server, SystemNames};
use roquet_core::ingest::pop::give::{Batch, Wish};
use roquet_core::store::get::Got;
use roquet_core::tls::{ServerTls, TlsFiles};

use crate::buffer::Lent;
use crate::ingest::pop::{given, GivenTuple, WishTuple};
use crate::ingest::Ingest;

/// How the port speaks TLS, made of PEM files.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct GrpcTls {
    core: ServerTls,
}

#[pymethods]
impl GrpcTls {
    /// Read the files, which may wait for their key to be opened.
    #[new]
    #[pyo3(signature = (*, cert, key, password, trust, demands, versions))]
    fn new(
        py: Python<'_>,
        cert: Vec<u8>,
        key: Option<Vec<u8>>,
        password: String,
        trust: Option<Vec<u8>>,
        demands: bool,
        versions: (bool, bool),
    ) -> PyResult<Self> {
        let made = py.detach(|| {
            ServerTls::new(TlsFiles {
                cert: &cert,
                key: key.as_deref(),
                password: &password,
                trust: trust.as_deref(),
                demands,
                versions,
                protocol: Some(b"h2"),
            })
        });
        made.map(|core| Self { core })
            .map_err(PyValueError::new_err)
    }
}

/// What a balancer says of a client before anything else: a header of the PROXY protocol.
#[pyclass(module = "roquet.roquet_native")]
#[derive(Default)]
pub(crate) struct BalancerHeader {
    header: roquet_core::grpc::BalancerHeader,
}

#[pymethods]
impl BalancerHeader {
    /// Begin with nothing.
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Return how many bytes have to be taken next, 0 when the header is whole.
    fn wanted(&self) -> PyResult<usize> {
        self.header.wanted().map_err(PyValueError::new_err)
    }

    /// Take bytes, of which there may be no more than are wanted.
    fn take(&mut self, data: Lent<'_>) {
        self.header.take(data.as_slice());
    }

    /// Return `ip:port` of the client that a whole header names, None for nobody.
    fn client(&self) -> PyResult<Option<String>> {
        let found = self.header.client().map_err(PyValueError::new_err)?;
        Ok(found.map(|address| address.to_string()))
    }
}

/// A thread that serves connections of gRPC.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct GrpcServer {
    pub(crate) server: Server,
}

/// Answers plain sends of one port from the fast path of a broker of this process.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct GrpcSends {
    pub(crate) core: Sends,
}

#[pymethods]
impl GrpcSends {
    /// Say what a message may have; sizes are bytes, of which 0 stands for no limit.
    #[new]
    #[pyo3(signature = (*, body, properties, property_bytes, group, checks_type, reserved))]
    fn new(
        body: usize,
        properties: usize,
        property_bytes: usize,
        group: usize,
        checks_type: bool,
        reserved: HashSet<String>,
    ) -> Self {
        let rules = SendRules {
            body,
            properties,
            property_bytes,
            group,
            checks_type,
            reserved,
        };
        Self {
            core: Sends::new(rules),
        }
    }

    /// The queue of a message group.
    #[staticmethod]
    fn queue_of_group(group: &str, queues: u32) -> u32 {
        roquet_core::grpc::queue_of_group(group, queues)
    }

    /// Take all news of a server, but for the sends that are answered here.
    fn take<'py>(
        &self,
        py: Python<'py>,
        server: PyRef<'_, GrpcServer>,
        ingest: PyRef<'_, Ingest>,
        now_ms: i64,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let server = &server.server;
        let news = ingest.with_calls(|fast| self.core.answer(server, server.take(), fast, now_ms));
        news.into_iter().map(|one| tuple(py, one)).collect()
    }
}

/// Answers plain receives and acknowledgements of one port in the same way.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct GrpcConsumers {
    pub(crate) system: SystemNames,
    reserved: HashSet<String>,
    broker: String,
}

#[pymethods]
impl GrpcConsumers {
    /// Say which names clients may not use, which no user's property has, and what the broker is called.
    #[new]
    #[pyo3(signature = (*, topics, topic_prefix, group_prefix, reserved, broker))]
    fn new(
        topics: HashSet<String>,
        topic_prefix: String,
        group_prefix: String,
        reserved: HashSet<String>,
        broker: String,
    ) -> Self {
        let system = SystemNames {
            topics,
            topic_prefix,
            group_prefix,
        };
        Self {
            system,
            reserved,
            broker,
        }
    }

    /// The parts of a receive's answer, framed, with (id, receipt handle) of each message and what
    /// `Ingest.give` says; None: there are none, or the services have to look.
    fn give(
        &self,
        py: Python<'_>,
        ingest: PyRef<'_, Ingest>,
        wish: WishTuple,
        tags: Vec<String>,
        attempts_max: i32,
    ) -> Option<(GivenTuple, Vec<Named>)> {
        wish.read(|wish| {
            let (mut found, named) = ingest.with_calls(|(core, shared, store)| {
                if !shared.read().answers_at_once() {
                    return None;
                }
                let mut named = Vec::new();
                let view = self.view(&wish, &tags, attempts_max);
                let mut show = |batch: &Batch, got: &Got| view.show(batch, got, &mut named);
                let given = core.give_shown(store, &wish, Some(&mut show))?;
                Some((given, named))
            })?;
            let mut named = named;
            named.truncate(found.batches.iter().map(|batch| batch.diffs.len()).sum());
            let parts = [begun(), found.reply, ended(wish.now_ms)];
            found.reply = parts.concat();
            Some((given(py, found), named))
        })
    }

    /// The parts of a receive's answer, framed, of what another broker answers to a pop, with (id, receipt
    /// handle) of each message; `pop` is its time, its invisible time and its revive queue. None leaves
    /// the answer to the front.
    #[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
    #[pyo3(signature = (stored, *, topic, broker, pop, tables, tags, attempts_max, now_ms))]
    fn popped<'py>(
        &self,
        py: Python<'py>,
        stored: Lent<'_>,
        topic: &str,
        broker: &str,
        pop: (i64, i64, i32),
        tables: (String, String),
        tags: Vec<String>,
        attempts_max: i32,
        now_ms: i64,
    ) -> Option<(Bound<'py, PyBytes>, Vec<Named>)> {
        let (pop_time_ms, invisible_ms, revive_queue) = pop;
        let view = View {
            topic,
            tags: &tags,
            attempts_max,
            reserved: &self.reserved,
            pop_time_ms,
            invisible_ms,
            revive_queue,
            broker,
        };
        let (parts, named) = view.popped(stored.as_slice(), (&tables.0, &tables.1), now_ms)?;
        Some((PyBytes::new(py, &parts), named))
    }

    /// The answer to acknowledgements that are stored; None leaves them to the front.
    fn acknowledge<'py>(
        &self,
        py: Python<'py>,
        ingest: PyRef<'_, Ingest>,
        peer: &str,
        request: Lent<'_>,
        now_ms: i64,
    ) -> Option<Bound<'py, PyBytes>> {
        let asked = (peer, request.as_slice());
        let answer = ingest.with_calls(|fast| self.system.acknowledge(asked, fast, now_ms))?;
        Some(PyBytes::new(py, &answer))
    }
}

impl GrpcConsumers {
    fn view<'a>(&'a self, wish: &Wish<'a>, tags: &'a [String], attempts_max: i32) -> View<'a> {
        View {
            topic: wish.topic,
            tags,
            attempts_max,
            reserved: &self.reserved,
            pop_time_ms: wish.now_ms,
            invisible_ms: wish.invisible_ms,
            revive_queue: wish.revive_queue,
            broker: &self.broker,
        }
    }
}

#[pymethods]
impl GrpcServer {
    /// Serve a listening socket, which is no longer Python's.
    #[new]
    #[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
    #[pyo3(signature = (fd, streaming, *, connections, address_connections, calls, header_bytes, message_bytes, inbound_bytes, connection_inbound_bytes, account_inbound_bytes, outbound_bytes, resets, idle_ms, patience_ms, tls=None, only_tls=false, balancers=vec![], secrets=None))]
    fn new(
        fd: RawFd,
        streaming: Vec<String>,
        connections: usize,
        address_connections: usize,
        calls: u32,
        header_bytes: u32,
        message_bytes: usize,
        inbound_bytes: usize,
        connection_inbound_bytes: usize,
        account_inbound_bytes: usize,
        outbound_bytes: usize,
        resets: u32,
        idle_ms: u64,
        patience_ms: u64,
        tls: Option<PyRef<'_, GrpcTls>>,
        only_tls: bool,
        balancers: Vec<(IpAddr, u8)>,
        secrets: Option<HashMap<String, Vec<u8>>>,
    ) -> PyResult<Self> {
        let limits = Limits {
            connections,
            address_connections,
            calls,
            header_bytes,
            message_bytes,
            inbound_bytes,
            connection_inbound_bytes,
            account_inbound_bytes,
            outbound_bytes,
            resets,
            idle: Duration::from_millis(idle_ms),
            patience: Duration::from_millis(patience_ms),
        };
        let door = Door {
            tls: tls.map(|tls| tls.core.clone()),
            only_tls,
            balancers,
        };
        // SAFETY: the caller has detached the descriptor from its socket.
        let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let server = Server::start(
            listener,
            limits,
            streaming.into_iter().collect(),
            door,
            secrets,
        )?;
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

    /// Have connections that are accepted from now on use a certificate.
    fn set_tls(&self, tls: PyRef<'_, GrpcTls>) {
        self.server.set_tls(tls.core.clone());
    }

    /// Say anew by which secrets calls may be signed; without any nobody has to sign.
    #[pyo3(signature = (secrets))]
    fn set_secrets(&self, secrets: Option<HashMap<String, Vec<u8>>>) {
        self.server.set_secrets(secrets);
    }

    /// Have a call read that no account has signed; false when it has ended.
    fn admit(&self, call: u64, most: usize) -> bool {
        self.server.admit(call, most)
    }

    /// Send a message of an answer; false when the call has ended.
    fn send(&self, call: u64, message: Lent<'_>) -> bool {
        self.server.send(call, message.as_slice())
    }

    /// Send messages of an answer that are framed already; false when the call has ended.
    fn send_framed(&self, call: u64, messages: Lent<'_>) -> bool {
        self.server.send_framed(call, messages.as_slice())
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

    /// Accept no further connections and tell clients to go elsewhere.
    fn leave(&self) {
        self.server.leave();
    }

    /// Leave, wait for calls under way, and end the thread.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.server.stop());
    }
}

pub(crate) fn tuple(py: Python<'_>, news: News) -> PyResult<Bound<'_, PyAny>> {
    match news {
        News::Call {
            call,
            connection,
            head,
            message,
        } => {
            let metadata: Vec<_> = head.metadata().collect();
            let message = message.map(|data| PyBytes::new(py, &data));
            any(
                py,
                (
                    "call",
                    call,
                    connection,
                    head.path(),
                    head.peer(),
                    head.local(),
                    head.authority(),
                    metadata,
                    message,
                ),
            )
        }
        News::Message(call, data) => any(py, ("message", call, PyBytes::new(py, &data))),
        News::Ended(call) => any(py, ("ended", call)),
        News::Gone(call) => any(py, ("gone", call)),
        News::Drained(connection) => any(py, ("drained", connection)),
        News::Closed(connection) => any(py, ("closed", connection)),
        News::Refused(peer, why) => any(py, ("refused", 0, peer, why)),
    }
}

fn any<'py, T>(py: Python<'py>, value: T) -> PyResult<Bound<'py, PyAny>>
where
    T: IntoPyObject<'py>,
    PyErr: From<T::Error>,
{
    Ok(value.into_pyobject(py)?.into_any().into_bound())
}
