//! Frames and records for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyfunction, Bound, PyAny, PyErr, PyResult, Python};
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use pyo3::IntoPyObjectExt;
use roquet_core::record::{self, RecordView, Why};

use crate::buffer::Lent;

/// Returns the zlib CRC-32 of `data` without its top bit.
#[pyfunction]
pub(crate) fn crc32(data: Lent<'_>) -> u32 {
    roquet_core::crc::masked(data.as_slice())
}

/// Decode stored records that follow each other without a gap.
#[pyfunction]
#[pyo3(signature = (data, check_crc = true))]
pub(crate) fn decode_records<'py>(
    py: Python<'py>,
    data: Lent<'py>,
    check_crc: bool,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for found in record::records(data.as_slice(), check_crc) {
        let view = found.map_err(|(at, why)| bad_record(at, why))?;
        pyo3::types::PyListMethods::append(&list, record_tuple(py, &view)?)?;
    }
    Ok(list)
}

fn bad_record(at: usize, why: Why) -> PyErr {
    let text = match why {
        Why::Magic => "no record's magic number",
        Why::Length => "a length that does not fit",
        Why::Sum => "lengths that do not add up to its size",
        Why::Checksum => "a body CRC that differs",
    };
    PyValueError::new_err(format!("record at byte {at}: {text}"))
}

fn record_tuple<'py>(py: Python<'py>, view: &RecordView<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let fields: [Bound<'py, PyAny>; 17] = [
        view.total_size.into_bound_py_any(py)?,
        view.body_crc.into_bound_py_any(py)?,
        view.queue_id.into_bound_py_any(py)?,
        view.flag.into_bound_py_any(py)?,
        view.queue_offset.into_bound_py_any(py)?,
        view.physical_offset.into_bound_py_any(py)?,
        view.sys_flag.into_bound_py_any(py)?,
        view.born_timestamp.into_bound_py_any(py)?,
        PyBytes::new(py, view.born_host).into_any(),
        view.store_timestamp.into_bound_py_any(py)?,
        PyBytes::new(py, view.store_host).into_any(),
        view.reconsume_times.into_bound_py_any(py)?,
        view.prepared_transaction_offset.into_bound_py_any(py)?,
        PyBytes::new(py, view.body).into_any(),
        PyString::new(py, &String::from_utf8_lossy(view.topic)).into_any(),
        PyBytes::new(py, view.properties).into_any(),
        view.magic.into_bound_py_any(py)?,
    ];
    PyTuple::new(py, fields)
}
