//! Arrow record batches for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pyfunction, pymethods, Bound, PyAny, PyErr, PyResult, Python};
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyCapsule;
use roquet_core::arrow::ffi;
use roquet_core::arrow::sums::{Chosen, Sums};
use roquet_core::arrow::{Batch, Builder, Failure, Field, Options};
use roquet_core::codec::{projection, record};

use crate::codec::bad_record;

/// A finished record batch; hand it to `pyarrow.record_batch`.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct ArrowBatch {
    batch: Arc<Batch>,
    next: Option<(usize, usize)>,
}

impl ArrowBatch {
    pub(crate) fn new(batch: Batch) -> Self {
        Self {
            batch: Arc::new(batch),
            next: None,
        }
    }
}

#[pymethods]
impl ArrowBatch {
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.rows
    }

    /// Body and byte where the next batch goes on, when this one was full before the end.
    #[getter]
    fn next(&self) -> Option<(usize, usize)> {
        self.next
    }

    /// The capsules of the Arrow C data interface; a wish for another schema is not heard.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let schema = ffi::export_schema(&self.batch);
        let array = ffi::export_array(&self.batch);
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

/// Decode pull response bodies into one batch with the columns of the Spark source.
#[pyfunction]
#[pyo3(signature = (bodies, broker_name, *, columns = None, begin = 0, end = i64::MAX, tags = None,
    decompress_max = 67_108_864, check_crc = true, rows_max = usize::MAX, bytes_max = usize::MAX,
    start = (0, 0), projected = false))]
#[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
pub(crate) fn records_to_arrow(
    py: Python<'_>,
    bodies: Vec<PyBackedBytes>,
    broker_name: &str,
    columns: Option<Vec<String>>,
    begin: i64,
    end: i64,
    tags: Option<Vec<String>>,
    decompress_max: usize,
    check_crc: bool,
    rows_max: usize,
    bytes_max: usize,
    start: (usize, usize),
    projected: bool,
) -> PyResult<ArrowBatch> {
    let fields = fields(columns)?;
    if projected && fields.contains(&Field::Body) {
        return Err(PyValueError::new_err("projected records have no body"));
    }
    let options = Options {
        fields,
        broker_name,
        begin,
        end,
        tags,
        topics: None,
        stored: i64::MIN..i64::MAX,
        rows_max,
        bytes_max,
        decompress_max,
    };
    let made = py.detach(|| {
        let mut builder = Builder::new(options);
        let mut next = None;
        for (number, body) in bodies.iter().enumerate().skip(start.0) {
            let from = if number == start.0 { start.1 } else { 0 };
            let rest = body.get(from..).unwrap_or_default();
            let added = if projected {
                builder.add(projection::records(rest, check_crc))
            } else {
                builder.add(record::records(rest, check_crc))
            };
            next = added
                .map_err(|failure| (number, from, failure))?
                .map(|at| (number, from + at));
            if next.is_some() {
                break;
            }
        }
        Ok((builder.finish(), next))
    });
    let (batch, next) = made.map_err(|(number, from, failure)| bad(number, from, &failure))?;
    Ok(ArrowBatch {
        batch: Arc::new(batch),
        next,
    })
}

/// Number, count, checksum, first and last offset of a bucket.
type BucketSum = (i64, u64, i64, i64, i64);

/// Sum up pull response bodies by buckets of a queue's offsets.
///
/// A row for each bucket that has messages: its number, count, checksum, first and last offset.
#[pyfunction]
#[pyo3(signature = (bodies, *, bucket, begin = 0, end = i64::MAX, stored_begin = i64::MIN,
    stored_end = i64::MAX, decompress_max = 67_108_864))]
#[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
pub(crate) fn sum_records(
    py: Python<'_>,
    bodies: Vec<PyBackedBytes>,
    bucket: i64,
    begin: i64,
    end: i64,
    stored_begin: i64,
    stored_end: i64,
    decompress_max: usize,
) -> PyResult<Vec<BucketSum>> {
    if bucket < 1 {
        return Err(PyValueError::new_err("a bucket has one offset at least"));
    }
    let chosen = Chosen {
        offsets: begin..end,
        stored: stored_begin..stored_end,
        bucket,
        decompress_max,
    };
    let found = py.detach(|| {
        let mut sums = Sums::new(chosen);
        for (number, body) in bodies.iter().enumerate() {
            sums.add(record::records(body, true))
                .map_err(|failure| (number, failure))?;
        }
        Ok(sums.finish())
    });
    let found = found.map_err(|(number, failure)| bad(number, 0, &failure))?;
    Ok(found
        .into_iter()
        .map(|(number, it)| (number, it.count, it.xor.cast_signed(), it.first, it.last))
        .collect())
}

/// The fields of a list of names, all of them without a list.
pub(crate) fn fields(columns: Option<Vec<String>>) -> PyResult<Vec<Field>> {
    match columns {
        None => Ok(Field::ALL.to_vec()),
        Some(names) => names.iter().map(|name| field(name)).collect(),
    }
}

fn field(name: &str) -> PyResult<Field> {
    Field::by_name(name).ok_or_else(|| {
        let known: Vec<_> = Field::ALL.into_iter().map(Field::name).collect();
        PyValueError::new_err(format!("no column {name}; there are {}", known.join(", ")))
    })
}

fn bad(number: usize, from: usize, failure: &Failure) -> PyErr {
    match failure {
        Failure::Record(at, why) => bad_record(&format!("body {number}, "), from + *at, *why),
        Failure::Content(offset, error) => PyValueError::new_err(format!(
            "body {number}, record at physical offset {offset}: {error}"
        )),
    }
}
