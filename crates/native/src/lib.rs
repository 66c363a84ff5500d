//! The thin shell that shows the core to Python. Nothing here decides anything about messaging.

mod codec;

#[pyo3::pymodule]
mod roquet_native {
    #[pymodule_export]
    use crate::codec::crc32;
}
