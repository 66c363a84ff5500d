//! Frames and records for Python.

use pyo3::prelude::pyfunction;

/// Returns the zlib CRC-32 of `data` without its top bit.
#[pyfunction]
pub(crate) fn crc32(data: &[u8]) -> u32 {
    roquet_core::crc::masked(data)
}
