//! The thin shell that shows the core to Python. Nothing here decides anything about messaging.

use pyo3::prelude::*;

#[pymodule]
mod roquet_native {
    use super::*;

    /// Returns the CRC that RocketMQ stores for `data`: zlib CRC-32 without its top bit.
    #[pyfunction]
    fn crc32(data: &[u8]) -> u32 {
        roquet_core::crc::masked(data)
    }
}
