//! What the ingests have counted, as tuples for Python.

use std::collections::HashMap;

use pyo3::prelude::{Bound, Py};
use pyo3::types::{PyBytes, PyList};
use roquet_core::ingest::answered::{Kind, Took, Way};
use roquet_core::ingest::books::{Halves, Line};
use roquet_core::ingest::{Counters, Stored};

/// (offset asked for, offset to commit, commits, reads, misses, messages, bytes, behind,
/// microseconds of the reads).
pub(crate) type SumsTuple = (Option<i64>, Option<i64>, u64, u64, u64, u64, u64, u64, u64);

/// (request code, response code, whether it was held, whether it was one-way, counts by class,
/// microseconds together).
pub(crate) type AnsweredTuple = (i32, i32, bool, bool, Vec<u64>, u64);

/// (topic, queue, messages, bytes, sends, microseconds of the sends).
pub(crate) type StoredTuple = (String, i32, u64, u64, u64, u64);

/// (answers, held pulls for Python, whether more are due).
pub(crate) type ServedTuple<'py> = (Vec<(u64, Py<PyBytes>)>, Bound<'py, PyList>, bool);

pub(crate) fn pulled((group, topic, queue_id, sums): Line) -> (String, String, i32, SumsTuple) {
    let sums = (
        sums.offset,
        sums.commit,
        sums.commits,
        sums.reads,
        sums.misses,
        sums.messages,
        sums.bytes,
        sums.behind,
        sums.took_us,
    );
    (group.into(), topic.into(), queue_id, sums)
}

pub(crate) fn answered((kind, took): (Kind, Took)) -> AnsweredTuple {
    (
        kind.request,
        kind.response,
        kind.way == Way::Held,
        kind.way == Way::OneWay,
        took.counts.to_vec(),
        took.sum_us,
    )
}

pub(crate) fn stored(all: Vec<Stored>) -> Vec<StoredTuple> {
    all.into_iter()
        .flatten()
        .flat_map(|(topic, queues)| {
            queues.into_iter().map(move |(queue, put)| {
                let sums = (put.messages, put.bytes, put.sends, put.took_us);
                (topic.to_string(), queue, sums.0, sums.1, sums.2, sums.3)
            })
        })
        .collect()
}

pub(crate) fn halves(all: Vec<Halves>) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for (topic, count) in all.into_iter().flatten() {
        *sums.entry(topic.into()).or_insert(0) += count;
    }
    sums
}

pub(crate) fn counters(all: Vec<Counters>, waiting: usize) -> HashMap<&'static str, u64> {
    let mut sums = HashMap::from([("waiting", waiting as u64)]);
    for counters in all {
        for (name, count) in [
            ("sends", counters.sends),
            ("halves", counters.halves),
            ("acks", counters.acks),
            ("pops", counters.pops),
            ("pulls", counters.pulls),
            ("held", counters.held),
            ("passed", counters.passed),
            ("returned", counters.returned),
            ("parked", counters.parked),
            ("refused", counters.refused),
            ("synced", counters.synced),
        ] {
            *sums.entry(name).or_insert(0) += count;
        }
    }
    sums
}
