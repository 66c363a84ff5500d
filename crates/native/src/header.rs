//! Typed headers for Python: the fields of a request that are as they should be.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pymethods, Bound, Py, PyAny, PyResult, Python};
use pyo3::types::{PyDict, PyDictMethods, PyString, PyStringMethods};
use pyo3::IntoPyObjectExt;

/// Digits of a number that fits into 32 and 64 bits whatever they are.
const SHORT: usize = 9;
const LONG: usize = 18;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Boolean,
    /// A number of at most so many digits.
    Number(usize),
}

struct Row {
    field: Py<PyString>,
    name: Py<PyString>,
    kind: Kind,
    required: bool,
}

/// The fields of one header: (field, name on the wire, `str bool i32 i64`, whether required).
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct HeaderPlan {
    rows: Vec<Row>,
}

#[pymethods]
impl HeaderPlan {
    #[new]
    fn new(py: Python<'_>, rows: Vec<(String, String, String, bool)>) -> PyResult<Self> {
        let row = |(field, name, kind, required): (String, String, String, bool)| {
            let kind = match kind.as_str() {
                "str" => Kind::Text,
                "bool" => Kind::Boolean,
                "i32" => Kind::Number(SHORT),
                "i64" => Kind::Number(LONG),
                _ => return Err(PyValueError::new_err(format!("no kind {kind}"))),
            };
            Ok(Row {
                field: PyString::intern(py, &field).unbind(),
                name: PyString::intern(py, &name).unbind(),
                kind,
                required,
            })
        };
        let rows = rows.into_iter().map(row).collect::<PyResult<_>>()?;
        Ok(Self { rows })
    }

    /// The values by field; None when a required one is missing, or one is not plain: whoever
    /// asks looks closer then.
    fn read<'py>(
        &self,
        py: Python<'py>,
        ext: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let values = PyDict::new(py);
        for row in &self.rows {
            let Some(text) = ext.get_item(row.name.bind(py))? else {
                if row.required {
                    return Ok(None);
                }
                continue;
            };
            let Some(value) = value(py, row.kind, text)? else {
                return Ok(None);
            };
            values.set_item(row.field.bind(py), value)?;
        }
        Ok(Some(values))
    }
}

fn value<'py>(
    py: Python<'py>,
    kind: Kind,
    text: Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if matches!(kind, Kind::Text) {
        return Ok(Some(text));
    }
    let Ok(text) = text.cast::<PyString>() else {
        return Ok(None);
    };
    let Ok(text) = text.to_str() else {
        return Ok(None);
    };
    match kind {
        Kind::Number(digits) => match plain(text.as_bytes(), digits) {
            Some(number) => number.into_bound_py_any(py).map(Some),
            None => Ok(None),
        },
        _ if text.is_ascii() => text
            .eq_ignore_ascii_case("true")
            .into_bound_py_any(py)
            .map(Some),
        _ => Ok(None),
    }
}

/// A number of digits alone, at most so many of them.
fn plain(text: &[u8], digits: usize) -> Option<i64> {
    if text.is_empty() || text.len() > digits {
        return None;
    }
    let mut number = 0;
    for &digit in text {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(number)
}
