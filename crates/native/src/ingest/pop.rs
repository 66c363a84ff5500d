//! What the fast path is told and tells of POP, as tuples for Python.

use pyo3::prelude::{Bound, Py, PyResult, Python};
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyDictMethods};
use pyo3::FromPyObject;
use roquet_core::ingest::pop::give::{Batch, Given, Place, Wish};
use roquet_core::ingest::pop::pops::Pop;
use roquet_core::ingest::pop::{Merge, Popping, Unwaited};
use roquet_core::pop::is_plain;

/// (broker name, revive topic, its queues, longest delay and step of the timer wheel in ms, whether
/// checkpoints are in memory, whether pops are read here, whether acknowledgements and checkpoints
/// wait for no flush and no slave, when something was deleted last).
type PoppingTuple = (String, String, i32, i64, i64, bool, bool, bool, bool, i64);

/// (correlation number, topic, group, queue, messages, invisible, waiting and born time in ms,
/// expression, frame).
pub(crate) type PopTuple = (
    i32,
    String,
    String,
    i32,
    i32,
    i64,
    i64,
    i64,
    String,
    Py<PyBytes>,
);

/// (whether it is of the retry topic, queue, where the group goes on).
type PlaceTuple = (bool, i32, i64);

/// A decided pop: correlation number, (group, topic, retry topic), places, messages, tag codes,
/// (now, invisible ms, when it came), queue of the revive topic, whether the retry topic is first, whether the
/// caller keeps the checkpoints, whether it has the pop wait when there is nothing.
#[derive(FromPyObject)]
pub(crate) struct WishTuple(
    i32,
    (String, String, String),
    Vec<PlaceTuple>,
    u64,
    Option<Vec<i64>>,
    (i64, i64, i64),
    i32,
    bool,
    bool,
    bool,
);

/// (queue, start offset, distances of the messages from it, where the group goes on).
pub(crate) type BatchTuple = (i32, i64, Vec<i64>, i64);

/// (answer, messages left, batches, queues without a wanted message and where they go on).
pub(crate) type GivenTuple = (Py<PyBytes>, i64, Vec<BatchTuple>, Vec<(i32, i64)>);

/// ((topic, group, queue, start offset, pop time), offsets, correlation numbers, frames, whether it
/// is one batch).
pub(crate) type MergeTuple = (
    (String, String, i32, i64, i64),
    Vec<i64>,
    Vec<i32>,
    Py<PyBytes>,
    bool,
);

pub(crate) fn popping(values: &Bound<'_, PyDict>) -> PyResult<Option<Popping>> {
    let Some(value) = values.get_item("pop")?.filter(|value| !value.is_none()) else {
        return Ok(None);
    };
    let given: PoppingTuple = value.extract()?;
    let (broker, revive_topic, revive_queues, delay_max_ms, precision_ms, ..) = given;
    let (.., merges, pops, acks, checkpoints, deleted_ms) = given;
    if precision_ms <= 0 || !(is_plain(&broker) && is_plain(&revive_topic)) {
        return Ok(None);
    }
    Ok(Some(Popping {
        broker,
        revive_topic,
        revive_queues,
        delay_max_ms,
        precision_ms,
        deleted_ms,
        merges,
        pops,
        unwaited: Unwaited { acks, checkpoints },
    }))
}

pub(crate) fn pop(py: Python<'_>, it: Pop) -> PopTuple {
    (
        it.opaque,
        it.topic,
        it.group,
        it.queue_id,
        it.messages,
        it.invisible_ms,
        it.poll_ms,
        it.born_ms,
        it.expression,
        PyBytes::new(py, &it.frame).unbind(),
    )
}

impl WishTuple {
    /// Has `work` take the pop.
    pub(crate) fn read<T>(&self, work: impl FnOnce(Wish<'_>) -> T) -> T {
        let Self(opaque, names, places, messages, codes, times, revive_queue, first, merges, waits) =
            self;
        let place = |&(of_retry, queue_id, offset): &PlaceTuple| Place {
            of_retry,
            queue_id,
            offset,
        };
        let places: Vec<Place> = places.iter().map(place).collect();
        work(Wish {
            opaque: *opaque,
            group: &names.0,
            topic: &names.1,
            retry_topic: &names.2,
            retry_first: *first,
            places: &places,
            messages: *messages,
            codes: codes.as_deref(),
            now_ms: times.0,
            invisible_ms: times.1,
            since_ms: times.2,
            revive_queue: *revive_queue,
            merges: *merges,
            waits: *waits,
        })
    }
}

pub(crate) fn given(py: Python<'_>, it: Given) -> GivenTuple {
    let batch = |it: Batch| (it.queue_id, it.start, it.diffs, it.next);
    let batches = it.batches.into_iter().map(batch).collect();
    let reply = PyBytes::new(py, &it.reply).unbind();
    (reply, it.rest, batches, it.passed)
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
    (of, it.offsets, it.opaques, frames, it.is_batch)
}
