//! Names of the stub that are not built yet, so that the door `roquet/_native.py` opens.

use pyo3::exceptions::PyException;
use pyo3::prelude::pyclass;

pyo3::create_exception!(roquet_native, StoreError, PyException);

/// One message store in one folder.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Store;

/// Answers the frames that the admission table covers.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Ingest;
