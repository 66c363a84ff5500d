//! Appending several messages with one call.

use pyo3::prelude::{Bound, PyResult, Python};
use pyo3::types::{PyBytes, PyBytesMethods, PyString, PyStringMethods};
use roquet_core::codec::record::NewRecord;
use roquet_core::commit_log::{Prepared, PutStatus};

use crate::buffer::Lent;
use crate::store::Store;

/// A message: (topic, queue, body, properties, flag, sysFlag, born time, born host, store host,
/// reconsume times, prepared transaction offset, whether it was accepted before).
pub(crate) type MessageTuple<'py> = (
    Bound<'py, PyString>,
    i32,
    Lent<'py>,
    Lent<'py>,
    i32,
    i32,
    i64,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    i32,
    i64,
    bool,
);

/// (status, physical offset, size, queue offset).
pub(crate) type PlacedTuple = (u8, i64, u64, i64);

/// (flag, body, properties).
pub(crate) type ElementTuple<'py> = (i32, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// (status, physical offsets, end, first queue offset, store time).
pub(crate) type BatchTuple = (u8, Vec<u64>, i64, i64, i64);

/// Bytes of a record beside its body and its properties, more or less.
const RECORD_ROOM: usize = 256;

pub(crate) fn many(
    store: &Store,
    py: Python<'_>,
    messages: &[MessageTuple<'_>],
) -> PyResult<(Vec<PlacedTuple>, i64)> {
    let body_max = store.core().body_max();
    let bytes = messages
        .iter()
        .map(|message| RECORD_ROOM + message.2.as_slice().len() + message.3.as_slice().len());
    let mut prepared =
        Prepared::with_capacity(bytes.sum()).in_light_queues(store.core().has_light_queues());
    let mut refusals = Vec::with_capacity(messages.len());
    for message in messages {
        let topic = message.0.to_str()?;
        let record = NewRecord {
            topic: topic.as_bytes(),
            queue_id: message.1,
            flag: message.4,
            sys_flag: message.5,
            born_timestamp: message.6,
            born_host: message.7.as_bytes(),
            store_host: message.8.as_bytes(),
            reconsume_times: message.9,
            prepared_transaction_offset: message.10,
            body: message.2.as_slice(),
            properties: message.3.as_slice(),
        };
        prepared.as_accepted(message.11);
        refusals.push(prepared.push(topic, &record, body_max, false).err());
    }
    if prepared.is_empty() {
        let outcomes = refusals.into_iter().flatten().map(refused);
        return Ok((outcomes.collect(), 0));
    }
    let done = store.append(py, &mut prepared);
    let mut stored = done.placed.iter();
    let outcomes = refusals.into_iter().map(|refusal| {
        if let Some(status) = refusal {
            return refused(status);
        }
        stored.next().map_or(refused(done.status), |place| {
            let at = place.physical_offset.cast_signed();
            (PutStatus::Ok as u8, at, place.size, place.queue_offset)
        })
    });
    Ok((outcomes.collect(), done.store_time))
}

fn refused(status: PutStatus) -> PlacedTuple {
    (status as u8, -1, 0, -1)
}

/// Appends elements that are else as `record` says.
pub(crate) fn batch<'a>(
    store: &Store,
    py: Python<'_>,
    topic: &'a str,
    record: &NewRecord<'a>,
    elements: &'a [ElementTuple<'_>],
) -> BatchTuple {
    let refused = |status: PutStatus| (status as u8, Vec::new(), -1, -1, 0);
    let mut prepared = Prepared::default().in_light_queues(store.core().has_light_queues());
    if elements.is_empty() {
        return refused(PutStatus::MessageIllegal);
    }
    for (flag, body, properties) in elements {
        let record = NewRecord {
            flag: *flag,
            body: body.as_bytes(),
            properties: properties.as_bytes(),
            ..*record
        };
        let pushed = prepared.push(topic, &record, store.core().body_max(), true);
        if let Err(status) = pushed {
            return refused(status);
        }
    }
    let done = store.append(py, &mut prepared);
    let (Some(first), Some(last)) = (done.placed.first(), done.placed.last()) else {
        return refused(done.status);
    };
    (
        done.status as u8,
        done.placed.iter().map(|p| p.physical_offset).collect(),
        (last.physical_offset + last.size).cast_signed(),
        first.queue_offset,
        done.store_time,
    )
}
