//! Values between Python and the fast path.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{Bound, Py, PyResult, Python};
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyDictMethods};
use pyo3::FromPyObject;
use roquet_core::ingest::output::Output;
use roquet_core::ingest::Outbound;

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
