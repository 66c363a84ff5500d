//! Names of the stub that are not built yet, so that the door `roquet/_native.py` opens.

use pyo3::exceptions::{PyException, PyNotImplementedError};
use pyo3::prelude::{pyclass, pyfunction, PyResult};

pyo3::create_exception!(roquet_native, StoreError, PyException);

/// One message store in one folder.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Store;

/// Answers the frames that the admission table covers.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Ingest;

/// A finished record batch.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct ArrowBatch;

/// Decode pull response bodies into one batch.
#[pyfunction]
pub(crate) fn records_to_arrow() -> PyResult<()> {
    Err(PyNotImplementedError::new_err("records_to_arrow"))
}
