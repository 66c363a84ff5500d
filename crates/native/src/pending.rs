//! Names of the stub that are not built yet, so that the door `roquet/_native.py` opens.

use pyo3::prelude::pyclass;

/// Answers the frames that the admission table covers.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Ingest;
