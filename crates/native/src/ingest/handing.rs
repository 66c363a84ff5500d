//! Values between Python and the fast path.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{Bound, Py, PyResult, Python};
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyDictMethods};
use pyo3::FromPyObject;
use roquet_core::ingest::output::Output;
use roquet_core::ingest::{Handed, Outbound};

use super::Ingest;

impl Ingest {
    /// Goes on with a connection that a thread has handed over; true when pulls of it are due.
    pub(crate) fn take_over(&self, key: u64, handed: Handed, of_it: (bool, bool)) -> bool {
        self.core().take_over(&self.store, key, handed, of_it)
    }
}

pub(super) fn rest_of<'py>(
    py: Python<'py>,
    output: &Output,
    from: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, output.len() - from, |mut place| {
        for piece in output.pieces(from) {
            let (here, left) = place.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            place = left;
        }
        Ok(())
    })
}

pub(super) fn outbound(py: Python<'_>, all: Vec<Outbound>) -> Vec<(u64, Py<PyBytes>)> {
    all.into_iter()
        .map(|(key, bytes)| (key, PyBytes::new(py, &bytes).unbind()))
        .collect()
}

pub(super) fn required<'py, T>(values: &Bound<'py, PyDict>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = pyo3::PyErr>,
{
    values
        .get_item(name)?
        .ok_or_else(|| PyValueError::new_err(format!("{name} is missing")))?
        .extract()
}
