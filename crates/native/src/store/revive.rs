//! Redelivery of popped messages for Python: what moves bytes of it.

// PyO3 hands arguments over by value, and Python's signatures are long.
#![allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]

use pyo3::prelude::{pyfunction, PyRef, PyResult, Python};
use roquet_core::commit_log::Prepared;
use roquet_core::pop::copies::{self, Wish};

use crate::error::store_error;
use crate::store::Store;

/// Store copies of popped messages for another try, in order and with one append.
///
/// Returns the sizes of the first that are stored; behind them comes one that is not plain, or that
/// the log did not take, or enough is done for one call.
#[pyfunction]
#[pyo3(signature = (
    store, topic, queue_id, offsets, *, to_topic, to_queue, group, pop_time_ms, host, of_retry,
    tries, tries_max, left
))]
pub(crate) fn copy_popped(
    py: Python<'_>,
    store: PyRef<'_, Store>,
    topic: &str,
    queue_id: i32,
    offsets: Vec<i64>,
    to_topic: &str,
    to_queue: i32,
    group: &str,
    pop_time_ms: i64,
    host: &[u8],
    of_retry: bool,
    tries: i32,
    tries_max: i32,
    left: Vec<String>,
) -> PyResult<Vec<u64>> {
    let wish = Wish {
        topic,
        queue_id,
        of_retry,
        group,
        pop_time_ms,
        to_topic,
        to_queue,
        host,
        tries,
        tries_max,
        left: left.iter().map(String::as_bytes).collect(),
    };
    let core = store.core();
    let prepare = || {
        let mut prepared = Prepared::default().in_light_queues(core.has_light_queues());
        prepared.as_accepted(true);
        copies::prepare(core, &wish, &offsets, &mut prepared).map(|()| prepared)
    };
    let is_hot = offsets
        .first()
        .is_none_or(|first| store.is_hot(topic, queue_id, *first));
    let prepared = if is_hot {
        prepare()
    } else {
        py.detach(prepare)
    };
    let mut prepared = prepared.map_err(|error| store_error(&error))?;
    if prepared.is_empty() {
        return Ok(Vec::new());
    }
    let done = store.append(py, &mut prepared);
    Ok(done.placed.iter().map(|place| place.size).collect())
}
