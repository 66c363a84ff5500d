//! Encoding for the Spark sink: buffers of Arrow arrays in, bodies of batch sends out.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::sync::Mutex;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::{pyclass, pyfunction, pymethods, Bound, PyResult, Python};
use pyo3::types::PyBytes;
use pyo3::FromPyObject;
use roquet_core::arrow::rows;
use roquet_core::java_hash;
use roquet_core::sink::columns::{Keys, Lists, Rows, Texts, Validity};
use roquet_core::sink::{self, Encoder, Frame, Problem, Rules};

use crate::buffer::Lent;

/// (rows in front, validity, offsets, data): the buffers of a `StringArray` or `BinaryArray`.
type GivenTexts<'py> = (usize, Option<Lent<'py>>, Lent<'py>, Option<Lent<'py>>);
/// (rows in front, validity, offsets): the buffers of a `ListArray` or `MapArray`.
type GivenLists<'py> = (usize, Option<Lent<'py>>, Lent<'py>);

#[derive(FromPyObject)]
enum GivenKeys<'py> {
    Text(GivenTexts<'py>),
    List((GivenLists<'py>, GivenTexts<'py>)),
}

/// (lot, body, rows, unique key of the first).
type GivenFrame<'py> = (i32, Bound<'py, PyBytes>, u32, String);
/// (row, kind, detail).
type GivenProblem = (usize, &'static str, String);

fn texts<'a>(given: &'a GivenTexts<'_>) -> Texts<'a> {
    Texts {
        offset: given.0,
        validity: Validity(given.1.as_ref().map(Lent::as_slice)),
        offsets: given.2.as_slice(),
        data: given.3.as_ref().map_or(&[], Lent::as_slice),
    }
}

fn lists<'a>(given: &'a GivenLists<'_>) -> Lists<'a> {
    Lists {
        offset: given.0,
        validity: Validity(given.1.as_ref().map(Lent::as_slice)),
        offsets: given.2.as_slice(),
    }
}

/// Encodes the rows of a task.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct SinkEncoder {
    encoder: Mutex<Encoder>,
}

impl SinkEncoder {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Encoder) -> T + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            self.encoder
                .lock()
                .map(|mut encoder| call(&mut encoder))
                .ok()
        })
        .ok_or_else(|| PyRuntimeError::new_err("an earlier call failed"))
    }
}

#[pymethods]
impl SinkEncoder {
    #[new]
    #[pyo3(signature = (key_prefix, left_out, *, size_max, chunk_rows, alone = false))]
    fn new(
        key_prefix: String,
        left_out: Vec<String>,
        size_max: usize,
        chunk_rows: u32,
        alone: bool,
    ) -> PyResult<Self> {
        if chunk_rows == 0 {
            return Err(PyValueError::new_err("a frame has at least one row"));
        }
        let rules = Rules {
            size_max,
            chunk_rows,
            left_out: left_out.into_iter().map(String::into_bytes).collect(),
            key_prefix,
            alone,
        };
        Ok(Self {
            encoder: Mutex::new(Encoder::new(rules)),
        })
    }

    /// Bytes of the frames that are not full.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |encoder| encoder.bytes())
    }

    #[pyo3(signature = (rows, lots, body, *, keys = None, tags = None, properties = None,
        sharding = None, unique = None, delay = None))]
    #[allow(clippy::too_many_arguments)] // Keywords, a column each.
    fn add<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        lots: Lent<'py>,
        body: GivenTexts<'py>,
        keys: Option<GivenKeys<'py>>,
        tags: Option<GivenTexts<'py>>,
        properties: Option<(GivenLists<'py>, GivenTexts<'py>, GivenTexts<'py>)>,
        sharding: Option<GivenTexts<'py>>,
        unique: Option<GivenTexts<'py>>,
        delay: Option<Lent<'py>>,
    ) -> PyResult<(Vec<GivenFrame<'py>>, Option<GivenProblem>)> {
        let lent = Rows {
            rows,
            body: texts(&body),
            keys: keys.as_ref().map(|given| match given {
                GivenKeys::Text(given) => Keys::Text(texts(given)),
                GivenKeys::List((of, given)) => Keys::List(lists(of), texts(given)),
            }),
            tags: tags.as_ref().map(texts),
            properties: properties
                .as_ref()
                .map(|(of, names, values)| (lists(of), texts(names), texts(values))),
            sharding: sharding.as_ref().map(texts),
            unique: unique.as_ref().map(texts),
            delay: delay.as_ref().map(Lent::as_slice),
            lots: lots.as_slice(),
        };
        // The slices are of Arrow's arrays, which nobody writes to once they are made: Arrow's own
        // functions read them without the GIL as well. `lots` and `delay` are arrays too.
        Ok(match self.with(py, |encoder| encoder.add(&lent))? {
            Ok(full) => (given(py, full), None),
            Err((row, problem)) => {
                let (kind, detail) = named(problem);
                (Vec::new(), Some((row, kind, detail)))
            }
        })
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<GivenFrame<'py>>> {
        Ok(given(py, self.with(py, Encoder::finish)?))
    }
}

fn given(py: Python<'_>, frames: Vec<Frame>) -> Vec<GivenFrame<'_>> {
    frames
        .into_iter()
        .map(|frame| {
            let key = String::from_utf8_lossy(&frame.first_key).into_owned();
            (frame.lot, PyBytes::new(py, &frame.body), frame.rows, key)
        })
        .collect()
}

fn named(problem: Problem) -> (&'static str, String) {
    match problem {
        Problem::NoBody => ("no body", String::new()),
        Problem::BodySize(bytes) => ("body size", bytes.to_string()),
        Problem::Key => ("key", String::new()),
        Problem::Property(name) => ("property", name),
        Problem::PropertiesSize => ("properties size", String::new()),
        Problem::BatchSize => ("batch size", String::new()),
    }
}

/// The unique key of the row of a number, behind the prefix of its run and partition.
#[pyfunction]
pub(crate) fn sink_key(prefix: &str, row: u64) -> String {
    sink::key_of_row(prefix, row)
}

/// Java's hashes of the texts of a column, as 32-bit numbers in the machine's order; 0 for null.
#[pyfunction]
pub(crate) fn java_hashes<'py>(
    py: Python<'py>,
    rows: usize,
    column: GivenTexts<'py>,
) -> Bound<'py, PyBytes> {
    let column = texts(&column);
    let hashes: Vec<u8> = (0..rows)
        .flat_map(|row| column.get(row).map_or(0, java_hash::hash).to_ne_bytes())
        .collect();
    PyBytes::new(py, &hashes)
}

/// The sum of the checksums of rows of a lake: of queue offset, unique key and body.
#[pyfunction]
pub(crate) fn sum_rows<'py>(
    py: Python<'py>,
    rows: usize,
    offsets: Lent<'py>,
    unique: GivenTexts<'py>,
    body: GivenTexts<'py>,
) -> PyResult<u64> {
    let given = rows::Rows {
        rows,
        offsets: offsets.as_slice(),
        unique: texts(&unique),
        body: texts(&body),
    };
    py.detach(|| rows::checksum(&given))
        .ok_or_else(|| PyValueError::new_err("fewer offsets than rows"))
}
