//! The log as one of a pair, for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::Arc;

use pyo3::prelude::{pyfunction, Bound, PyRef, PyResult, Python};
use pyo3::types::PyBytes;
use roquet_core::store::error::StoreError as CoreError;

use crate::error::store_error;
use crate::store::Store;

fn raise<T>(done: Result<T, CoreError>) -> PyResult<T> {
    done.map_err(|error| store_error(&error))
}

/// Bytes of the log from an offset on, of one file; empty when there are none yet.
#[pyfunction]
pub(crate) fn log_bytes<'py>(
    py: Python<'py>,
    store: PyRef<'py, Store>,
    start: u64,
    size_max: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let core = store.core();
    let Some(lease) = raise(core.copyable(start, size_max))? else {
        return Ok(PyBytes::new(py, b""));
    };
    if core.is_hot(start) {
        return Ok(PyBytes::new(py, &lease));
    }
    // Reading an old file may wait for the disk.
    let bytes = py.detach(|| lease.to_vec());
    Ok(PyBytes::new(py, &bytes))
}

/// Up to where slaves may copy the log now.
#[pyfunction]
pub(crate) fn log_limit(store: PyRef<'_, Store>) -> u64 {
    store.core().copy_limit()
}

/// Make all of the log durable, without what was copied of a record that is not whole. Returns
/// where it ends.
#[pyfunction]
pub(crate) fn settle_log(py: Python<'_>, store: PyRef<'_, Store>) -> PyResult<u64> {
    let core = Arc::clone(store.core());
    raise(py.detach(|| core.settle_copies()))
}

/// Have the log be another broker's: messages are refused from now on. Returns where it ends.
#[pyfunction]
pub(crate) fn follow_another_log(py: Python<'_>, store: PyRef<'_, Store>) -> PyResult<u64> {
    let core = Arc::clone(store.core());
    raise(py.detach(|| core.follow_another()))
}

/// Have the log be this broker's own: copies are refused from now on. Returns where it ends.
#[pyfunction]
pub(crate) fn lead_log(py: Python<'_>, store: PyRef<'_, Store>) -> PyResult<u64> {
    let core = Arc::clone(store.core());
    raise(py.detach(|| core.lead()))
}

/// Have topics be deleted as the master said, each before an offset; returns those to which the
/// log does not reach yet.
#[pyfunction]
pub(crate) fn follow_deletions(
    py: Python<'_>,
    store: PyRef<'_, Store>,
    rows: Vec<(String, u64)>,
) -> PyResult<Vec<String>> {
    let core = Arc::clone(store.core());
    raise(py.detach(|| core.follow_deletions(rows)))
}

/// The topics that were deleted, each with the end of the log at that moment.
#[pyfunction]
pub(crate) fn log_deletions(store: PyRef<'_, Store>) -> Vec<(String, u64)> {
    store.core().deletions()
}

/// The topics that began anew in what was copied since this was asked last.
#[pyfunction]
pub(crate) fn take_renewed(store: PyRef<'_, Store>) -> Vec<String> {
    store.core().take_renewed()
}
