//! What the fast path is told and tells of POP, as tuples for Python.

use pyo3::prelude::{Bound, Py, PyResult, Python};
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyDictMethods};
use roquet_core::ingest::pop::{Merge, Popping};
use roquet_core::pop::is_plain;

/// (broker name, revive topic, its queues, longest delay and step of the timer wheel in ms, whether
/// checkpoints are in memory).
type PoppingTuple = (String, String, i32, i64, i64, bool);

/// ((topic, group, queue, start offset, pop time), offsets, correlation numbers, frames).
pub(crate) type MergeTuple = (
    (String, String, i32, i64, i64),
    Vec<i64>,
    Vec<i32>,
    Py<PyBytes>,
);

pub(crate) fn popping(values: &Bound<'_, PyDict>) -> PyResult<Option<Popping>> {
    let Some(value) = values.get_item("pop")?.filter(|value| !value.is_none()) else {
        return Ok(None);
    };
    let (broker, revive_topic, revive_queues, delay_max_ms, precision_ms, merges): PoppingTuple =
        value.extract()?;
    if precision_ms <= 0 || !(is_plain(&broker) && is_plain(&revive_topic)) {
        return Ok(None);
    }
    Ok(Some(Popping {
        broker,
        revive_topic,
        revive_queues,
        delay_max_ms,
        precision_ms,
        merges,
    }))
}

pub(crate) fn merge(py: Python<'_>, it: Merge) -> MergeTuple {
    let of = (
        it.topic,
        it.group,
        it.queue_id,
        it.start_offset,
        it.pop_time_ms,
    );
    let frames = PyBytes::new(py, &it.frames).unbind();
    (of, it.offsets, it.opaques, frames)
}
