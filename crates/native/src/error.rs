//! The one place where errors of the core become Python exceptions.

use pyo3::exceptions::PyException;
use pyo3::PyErr;
use roquet_core::store::error::StoreError as CoreError;

pyo3::create_exception!(
    roquet_native,
    StoreError,
    PyException,
    "The store cannot do it; `args` is (kind, text)."
);

/// The exception for an error of the store.
pub(crate) fn store_error(error: &CoreError) -> PyErr {
    StoreError::new_err((error.kind.name(), error.text.clone()))
}
