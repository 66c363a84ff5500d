//! SQL92 filters for Python, which parses the expressions.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pymethods, Borrowed, Bound, FromPyObject, PyAny, PyErr, PyResult};
use pyo3::types::{PyAnyMethods, PyBool, PyBytes, PyFloat, PyString, PyTuple};
use roquet_core::filter::{Filter as CoreFilter, Literal, Place, Program, Relation, Step};

/// A compiled filter; it may be used from any thread.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Filter {
    pub(crate) core: Arc<CoreFilter>,
}

#[pymethods]
impl Filter {
    /// Checks the steps. Raises ValueError.
    #[new]
    fn new(steps: Vec<WrittenStep>) -> PyResult<Self> {
        Ok(Self {
            core: Arc::new(CoreFilter::All(program(steps)?)),
        })
    }

    /// Makes the filter of a retry topic from the steps for each topic of origin. Raises ValueError.
    #[staticmethod]
    fn by_origin(steps: HashMap<String, Vec<WrittenStep>>) -> PyResult<Self> {
        let mut programs = HashMap::new();
        for (topic, steps) in steps {
            programs.insert(topic.into_bytes().into_boxed_slice(), program(steps)?);
        }
        Ok(Self {
            core: Arc::new(CoreFilter::ByOrigin(programs)),
        })
    }

    /// Runs the filter on a property text. Raises ValueError where the values do not fit.
    fn evaluate(&self, properties: &[u8]) -> PyResult<Option<bool>> {
        match &*self.core {
            CoreFilter::All(program) => program
                .evaluate(properties)
                .map_err(|fault| PyValueError::new_err(fault.to_string())),
            CoreFilter::ByOrigin(_) => Ok(Some(self.core.matches(properties))),
        }
    }

    /// Tells whether a message with this property text is wanted.
    fn matches(&self, properties: &[u8]) -> bool {
        self.core.matches(properties)
    }
}

fn program(steps: Vec<WrittenStep>) -> PyResult<Program> {
    let steps = steps.into_iter().map(|step| step.0).collect();
    Program::new(steps).map_err(PyValueError::new_err)
}

/// A step as Python writes it: a tuple of its name and what it needs.
struct WrittenStep(Step);

impl<'a, 'py> FromPyObject<'a, 'py> for WrittenStep {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let step = object.cast::<PyTuple>()?;
        let name: String = step.get_item(0)?.extract()?;
        let index = |at: usize| step.get_item(at)?.extract::<usize>();
        let text = |at: usize| -> PyResult<Box<[u8]>> { bytes_of(&step.get_item(at)?) };
        let flag = |at: usize| step.get_item(at)?.extract::<bool>();
        Ok(Self(match name.as_str() {
            "literal" => Step::Literal(literal(&step.get_item(1)?)?),
            "property" => Step::Property(text(1)?),
            "not" => Step::Not(index(1)?),
            "cast" => Step::Cast(index(1)?),
            "negate" => Step::Negate(index(1)?),
            "and" => Step::And(index(1)?, index(2)?),
            "or" => Step::Or(index(1)?, index(2)?),
            "=" => Step::Compare(Relation::Equal, index(1)?, index(2)?),
            ">" => Step::Compare(Relation::Greater, index(1)?, index(2)?),
            ">=" => Step::Compare(Relation::GreaterOrEqual, index(1)?, index(2)?),
            "<" => Step::Compare(Relation::Less, index(1)?, index(2)?),
            "<=" => Step::Compare(Relation::LessOrEqual, index(1)?, index(2)?),
            "contains" => Step::Search(Place::Anywhere, index(1)?, text(2)?, flag(3)?),
            "startswith" => Step::Search(Place::Start, index(1)?, text(2)?, flag(3)?),
            "endswith" => Step::Search(Place::End, index(1)?, text(2)?, flag(3)?),
            "in" => {
                let mut wanted = Vec::new();
                for item in step.get_item(2)?.try_iter()? {
                    wanted.push(bytes_of(&item?)?);
                }
                Step::In(index(1)?, wanted.into_boxed_slice(), flag(3)?)
            }
            _ => return Err(PyValueError::new_err(format!("no step is called {name}"))),
        }))
    }
}

fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Box<[u8]>> {
    Ok(object
        .cast::<PyBytes>()?
        .extract::<Vec<u8>>()?
        .into_boxed_slice())
}

/// A literal: None, a bool, an int, a float or bytes.
fn literal(object: &Bound<'_, PyAny>) -> PyResult<Literal> {
    if object.is_none() {
        return Ok(Literal::Null);
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(Literal::Bool(object.extract()?));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Literal::Double(object.extract()?));
    }
    if object.is_instance_of::<PyBytes>() {
        return Ok(Literal::Text(bytes_of(object)?));
    }
    if object.is_instance_of::<PyString>() {
        return Err(PyValueError::new_err("a text literal is given as bytes"));
    }
    let number: i64 = object.extract()?;
    Ok(i32::try_from(number).map_or(Literal::Long(number), Literal::Int))
}
