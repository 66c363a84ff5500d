//! Bytes that Python lends us for one call, and bytes that it gets.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::{Bound, PyAny, PyResult, Python};
use pyo3::types::{PyBytes, PyBytesMethods};
use pyo3::{Borrowed, FromPyObject, PyErr};
use roquet_core::store::get::{GetStatus, Got};

/// `bytes`, or any other object with a contiguous buffer of bytes.
///
/// The GIL must be held for as long as the slice is used, since another thread could change a buffer
/// that is not `bytes`; other than that only buffers may be lent that nobody writes to once they are
/// made, as those of Arrow's arrays.
pub(crate) enum Lent<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyBuffer<u8>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Lent<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.to_owned()));
        }
        let buffer = PyBuffer::<u8>::get(&object)?;
        if buffer.is_c_contiguous() {
            Ok(Self::Buffer(buffer))
        } else {
            Err(PyValueError::new_err("the buffer is not contiguous"))
        }
    }
}

impl Lent<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous, `len_bytes` long and held by `self`; the caller
            // keeps the GIL while it uses the slice, or was lent what is never written to.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        }
    }
}

/// The records of a get in one `bytes`, copied once.
pub(crate) fn joined<'py>(py: Python<'py>, got: &Got) -> PyResult<Bound<'py, PyBytes>> {
    if got.status != GetStatus::Found {
        return Ok(PyBytes::new(py, b""));
    }
    let size = usize::try_from(got.bytes).unwrap_or(usize::MAX);
    PyBytes::new_with(py, size, |mut place| {
        for part in &got.parts {
            let (here, rest) = place.split_at_mut(part.len().min(place.len()));
            here.copy_from_slice(part.get(..here.len()).unwrap_or_default());
            place = rest;
        }
        Ok(())
    })
}
