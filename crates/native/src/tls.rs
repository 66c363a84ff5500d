//! TLS of the remoting ports for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pymethods, Bound, PyResult, Python};
use pyo3::types::PyBytes;
use roquet_core::tls::{ServerTls, Session, TlsFiles};

use crate::buffer::Lent;

const HAS_OUTPUT: u8 = 1;
const IS_HANDSHAKING: u8 = 2;
const IS_OVER: u8 = 4;

/// How a port speaks TLS, made of PEM files.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct RemotingTls {
    core: ServerTls,
}

impl RemotingTls {
    /// Begins a connection.
    pub(crate) fn begin(&self) -> PyResult<Session> {
        Session::new(&self.core).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl RemotingTls {
    /// Read the files, which may wait for their key to be opened.
    #[new]
    #[pyo3(signature = (*, cert, key, password, versions, trust = None, demands = false))]
    fn new(
        py: Python<'_>,
        cert: Vec<u8>,
        key: Option<Vec<u8>>,
        password: String,
        versions: (bool, bool),
        trust: Option<Vec<u8>>,
        demands: bool,
    ) -> PyResult<Self> {
        let made = py.detach(|| {
            ServerTls::new(TlsFiles {
                cert: &cert,
                key: key.as_deref(),
                password: &password,
                trust: trust.as_deref(),
                demands,
                versions,
                protocol: None,
            })
        });
        made.map(|core| Self { core })
            .map_err(PyValueError::new_err)
    }

    /// Begin a connection.
    fn session(&self) -> PyResult<TlsSession> {
        self.begin().map(TlsSession::of)
    }
}

/// One connection's TLS, without its socket.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct TlsSession {
    core: Mutex<Session>,
}

impl TlsSession {
    /// One that has begun elsewhere.
    pub(crate) fn of(core: Session) -> Self {
        Self {
            core: Mutex::new(core),
        }
    }

    fn core(&self) -> MutexGuard<'_, Session> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TlsSession {
    /// Take what the peer sent; return what it held, and flags of what is to be done.
    fn take<'py>(&self, py: Python<'py>, sealed: Lent<'_>) -> PyResult<(Bound<'py, PyBytes>, u8)> {
        let mut core = self.core();
        let mut plain = Vec::new();
        core.take(sealed.as_slice(), &mut plain)
            .map_err(PyValueError::new_err)?;
        let mut flags = 0;
        for (holds, flag) in [
            (core.has_output(), HAS_OUTPUT),
            (core.is_handshaking(), IS_HANDSHAKING),
            (core.is_over(), IS_OVER),
        ] {
            flags |= if holds { flag } else { 0 };
        }
        Ok((PyBytes::new(py, &plain), flags))
    }

    /// Return what has to be sent now.
    fn output<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut sealed = Vec::new();
        self.core().output(&mut sealed);
        PyBytes::new(py, &sealed)
    }

    /// Return the form in which bytes are sent.
    fn seal<'py>(&self, py: Python<'py>, plain: Lent<'_>) -> PyResult<Bound<'py, PyBytes>> {
        let mut sealed = Vec::new();
        self.core()
            .seal(plain.as_slice(), &mut sealed)
            .map_err(PyValueError::new_err)?;
        Ok(PyBytes::new(py, &sealed))
    }

    /// Return what tells the peer that nothing follows.
    fn farewell<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut sealed = Vec::new();
        self.core().farewell(&mut sealed);
        PyBytes::new(py, &sealed)
    }
}
