//! The message store for Python.
//!
//! What takes microseconds keeps the GIL: giving it up costs milliseconds beside a busy Python
//! thread. What may wait for a disk or for another writer gives it up.

// PyO3 hands arguments over by value, and Python's signatures are long.
#![allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use pyo3::prelude::{pyclass, pymethods, Bound, PyAny, PyResult, Python};
use pyo3::types::{PyAnyMethods, PyBool, PyBoolMethods, PyBytes};
use pyo3::types::{PyMapping, PyMappingMethods, PyTupleMethods};
use roquet_core::codec::record::NewRecord;
use roquet_core::commit_log::{Appended, Prepared, PutStatus};
use roquet_core::store::config::{StoreConfig, Value};
use roquet_core::store::env::Env;
use roquet_core::store::error::StoreError as CoreError;
use roquet_core::store::get::Wanted;
use roquet_core::store::Store as CoreStore;

use crate::buffer::{joined, Lent};
use crate::error::store_error;
use crate::filter::Filter;
use crate::store::puts;

/// 0.0.0.0:0, for callers that have no host.
const NO_HOST: &[u8] = &[0; 8];

/// Appends up to this many bytes are surely done within a millisecond.
const SHORT: usize = 256 * 1024;

/// Reads ask for at most this when the caller does not say.
const READ_MAX: u64 = 128 << 20;

/// (first unit's physical offset, size, tags code).
type UnitTuple = (u64, u32, i64);

/// (status, next, min, max, messages, records, suggest slave).
type GetTuple<'py> = (u8, i64, i64, i64, u64, Bound<'py, PyBytes>, bool);

/// One message store in one folder. Every method may be called from any thread.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Store {
    core: Arc<CoreStore>,
}

impl Store {
    /// The store itself, for other parts of this module.
    pub(crate) fn core(&self) -> &Arc<CoreStore> {
        &self.core
    }

    /// Appends at once if it is short and nobody else is appending, otherwise without the GIL.
    pub(crate) fn append(&self, py: Python<'_>, prepared: &mut Prepared<'_>) -> Appended {
        if prepared.bytes() <= SHORT {
            if let Some(done) = self.core.try_put(prepared) {
                return done;
            }
        }
        py.detach(|| self.core.put(prepared))
    }

    /// Whether what a get would read is probably in memory.
    pub(crate) fn is_hot(&self, topic: &str, queue_id: i32, offset: i64) -> bool {
        let mut unit = Vec::with_capacity(1);
        let Ok(offset) = u64::try_from(offset) else {
            return true;
        };
        let queues = self.core.queues();
        let found = queues.range(topic, queue_id, offset, 1, &mut unit);
        let is_hot = |place: u64| self.core.is_hot(place);
        found.is_err() || unit.first().is_none_or(|unit| is_hot(unit.physical_offset))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Whoever wants to know of an error calls `close` first.
        let _ = self.core.close();
    }
}

fn raise<T>(done: Result<T, CoreError>) -> PyResult<T> {
    done.map_err(|error| store_error(&error))
}

fn settings(config: &Bound<'_, PyMapping>) -> PyResult<BTreeMap<String, Value>> {
    let mut map = BTreeMap::new();
    for item in config.items()? {
        let pair = item.cast::<pyo3::types::PyTuple>()?;
        let name: String = pair.get_item(0)?.extract()?;
        map.insert(name, setting(&pair.get_item(1)?)?);
    }
    Ok(map)
}

fn setting(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Value::Bool(flag.is_true()));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Value::Int(number));
    }
    Ok(Value::Text(value.extract()?))
}

fn refused(status: PutStatus) -> (u8, i64, u64, i64, i64) {
    (status as u8, -1, 0, -1, 0)
}

#[pymethods]
impl Store {
    /// Load and recover.
    #[staticmethod]
    fn open(py: Python<'_>, config: Bound<'_, PyMapping>) -> PyResult<Self> {
        let settings = settings(&config)?;
        let opened = py.detach(|| CoreStore::open(StoreConfig::read(&settings)?, Env::system()));
        Ok(Self {
            core: raise(opened)?,
        })
    }

    /// Create `abort`, start the flush and dispatch threads.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        raise(py.detach(|| self.core.start()))
    }

    /// Drain dispatch, flush everything, write the checkpoint, remove `abort`, release `lock`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        raise(py.detach(|| self.core.close()))
    }

    /// Append one message: (status, physical offset, size, queue offset, store time).
    #[pyo3(signature = (
        topic, queue_id, body, properties, *, flag = 0, sys_flag = 0, born_timestamp = 0,
        born_host = NO_HOST, store_host = NO_HOST, reconsume_times = 0,
        prepared_transaction_offset = 0
    ))]
    fn put(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        body: Lent<'_>,
        properties: Lent<'_>,
        flag: i32,
        sys_flag: i32,
        born_timestamp: i64,
        born_host: &[u8],
        store_host: &[u8],
        reconsume_times: i32,
        prepared_transaction_offset: i64,
    ) -> (u8, i64, u64, i64, i64) {
        let record = NewRecord {
            topic: topic.as_bytes(),
            queue_id,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body: body.as_slice(),
            properties: properties.as_slice(),
        };
        let mut prepared = Prepared::default().in_light_queues(self.core.has_light_queues());
        if let Err(status) = prepared.push(topic, &record, self.core.body_max(), false) {
            return refused(status);
        }
        let done = self.append(py, &mut prepared);
        match done.placed.first() {
            Some(placed) => (
                done.status as u8,
                placed.physical_offset.cast_signed(),
                placed.size,
                placed.queue_offset,
                done.store_time,
            ),
            None => refused(done.status),
        }
    }

    /// Append messages one behind the other with one write: what became of each, and the store
    /// time. One that is refused leaves the others alone; when the log takes no more, those
    /// behind have its status.
    fn put_many(
        &self,
        py: Python<'_>,
        messages: Vec<puts::MessageTuple<'_>>,
    ) -> PyResult<(Vec<puts::PlacedTuple>, i64)> {
        puts::many(self, py, &messages)
    }

    /// Append (flag, body, properties) elements as consecutive messages, all or none.
    #[pyo3(signature = (
        topic, queue_id, elements, *, sys_flag = 0, born_timestamp = 0, born_host = NO_HOST,
        store_host = NO_HOST, reconsume_times = 0
    ))]
    fn put_batch(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        elements: Vec<puts::ElementTuple<'_>>,
        sys_flag: i32,
        born_timestamp: i64,
        born_host: &[u8],
        store_host: &[u8],
        reconsume_times: i32,
    ) -> puts::BatchTuple {
        let record = NewRecord {
            topic: topic.as_bytes(),
            queue_id,
            flag: 0,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset: 0,
            body: &[],
            properties: &[],
        };
        puts::batch(self, py, topic, &record, &elements)
    }

    /// Go by the settings of `config` that an open store can change: longest body, limits of a get,
    /// fill levels of the disk, pauses between flushes and checkpoints.
    fn tune(&self, config: Bound<'_, PyMapping>) -> PyResult<()> {
        let read = raise(StoreConfig::read(&settings(&config)?))?;
        self.core.tune(read.tuned);
        Ok(())
    }

    /// Read from a queue.
    #[pyo3(signature = (topic, queue_id, offset, max_messages, max_bytes = READ_MAX, tag_codes = None, filter_by = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        queue_id: i32,
        offset: i64,
        max_messages: u64,
        max_bytes: u64,
        tag_codes: Option<Vec<i64>>,
        filter_by: Option<Bound<'py, Filter>>,
    ) -> PyResult<GetTuple<'py>> {
        let wanted = Wanted {
            topic,
            queue_id,
            offset,
            messages: max_messages,
            bytes: max_bytes,
            tag_codes: tag_codes.as_deref(),
            filter: filter_by.as_ref().map(|filter| &*filter.get().core),
        };
        let (got, records) = if self.is_hot(topic, queue_id, offset) {
            let got = raise(self.core.get(wanted))?;
            let records = joined(py, &got)?;
            (got, records)
        } else {
            // Reading the bytes may wait for the disk: they are copied before the GIL is back.
            let (got, bytes) = raise(py.detach(|| {
                let got = self.core.get(wanted)?;
                let bytes = got
                    .parts
                    .iter()
                    .map(|part| &part[..])
                    .collect::<Vec<_>>()
                    .concat();
                Ok((got, bytes))
            }))?;
            (got, PyBytes::new(py, &bytes))
        };
        Ok((
            got.status as u8,
            got.next,
            got.min,
            got.max,
            got.messages,
            records,
            got.suggest_slave,
        ))
    }

    /// First queue offset still there.
    fn min_offset(&self, topic: &str, queue_id: i32) -> u64 {
        self.core.queues().min(topic, queue_id)
    }

    /// Queue offset after the last dispatched message.
    fn max_offset(&self, topic: &str, queue_id: i32) -> u64 {
        self.core.queues().max(topic, queue_id)
    }

    /// Queue offset that the next put gets (dispatched or not).
    fn next_offset(&self, py: Python<'_>, topic: &str, queue_id: i32) -> i64 {
        let log = self.core.log();
        let next = log.try_next_offset(topic, queue_id);
        next.unwrap_or_else(|| py.detach(|| log.next_offset(topic, queue_id)))
    }

    /// How many light queues there are.
    fn light_queues(&self) -> usize {
        self.core.light_queues()
    }

    /// Queue offset for a store time.
    #[pyo3(signature = (topic, queue_id, timestamp, upper = false))]
    fn offset_by_time(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        upper: bool,
    ) -> PyResult<u64> {
        raise(py.detach(|| self.core.offset_by_time(topic, queue_id, timestamp, upper)))
    }

    /// (physical offset, size, tags code) of one queue offset.
    fn unit(&self, topic: &str, queue_id: i32, offset: i64) -> PyResult<Option<UnitTuple>> {
        let units = raise(self.core.units(topic, queue_id, offset, 1))?;
        Ok(units.first().copied())
    }

    /// Up to `count` units in order.
    fn units(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        offset: i64,
        count: u64,
    ) -> PyResult<Vec<UnitTuple>> {
        raise(py.detach(|| self.core.units(topic, queue_id, offset, count)))
    }

    /// The record at an offset, or None when there is none there.
    #[pyo3(signature = (physical_offset, size = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        physical_offset: i64,
        size: Option<u64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Ok(at) = u64::try_from(physical_offset) else {
            return Ok(None);
        };
        raise(self.core.usable())?;
        let read = || {
            let lease = self.core.log().record(at)?;
            let fits = size.is_none_or(|size| size == lease.len() as u64);
            fits.then(|| lease.to_vec())
        };
        let bytes = if self.core.is_hot(at) {
            read()
        } else {
            py.detach(read)
        };
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// (physical offsets ascending, last index update time, last indexed physical offset).
    fn query(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &str,
        max_messages: usize,
        begin: i64,
        end: i64,
    ) -> PyResult<(Vec<u64>, i64, u64)> {
        raise(py.detach(|| self.core.query(topic, key, max_messages, begin, end)))
    }

    /// (topic, queue id, min, max) of every queue on disk.
    fn queues(&self, py: Python<'_>) -> Vec<(String, i32, u64, u64)> {
        py.detach(|| self.core.queues().list())
    }

    fn min_physical_offset(&self) -> u64 {
        self.core.log().min()
    }

    fn max_physical_offset(&self) -> u64 {
        self.core.log().written()
    }

    fn flushed_offset(&self) -> u64 {
        self.core.log().flushed()
    }

    fn dispatched_offset(&self) -> u64 {
        self.core.dispatched()
    }

    fn dispatch_behind(&self) -> u64 {
        self.core
            .log()
            .written()
            .saturating_sub(self.core.dispatched())
    }

    /// Store time of the oldest record, -1 when there is none.
    fn earliest_store_time(&self) -> i64 {
        self.core.earliest_store_time().unwrap_or(-1)
    }

    /// (whether sends are taken, why not).
    fn writable(&self) -> (bool, String) {
        self.core.writable()
    }

    /// How long the append now under way has taken; 0 when none is.
    fn append_busy_ms(&self) -> i64 {
        self.core.log().busy_ms()
    }

    /// Counters and gauges, flat.
    fn stats(&self) -> BTreeMap<&'static str, u64> {
        self.core.stats()
    }

    /// Make everything appended so far durable; return the flushed offset.
    fn flush(&self, py: Python<'_>) -> PyResult<u64> {
        raise(py.detach(|| self.core.flush()))
    }

    /// Sync queues and index, then the checkpoint.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        raise(py.detach(|| {
            self.core.usable()?;
            self.core.checkpoint()
        }))
    }

    /// Delete a topic's queues; returns how many.
    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<usize> {
        raise(py.detach(|| self.core.delete_topic(topic)))
    }

    /// Delete whole commit-log files last written before a time, oldest first, never the last.
    #[pyo3(signature = (before, limit = 10))]
    fn delete_expired(&self, py: Python<'_>, before: i64, limit: usize) -> PyResult<usize> {
        let before = u64::try_from(before).unwrap_or(0);
        raise(py.detach(|| self.core.delete_expired(before, limit)))
    }

    /// What is wrong with the files of log and queues.
    fn self_check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        raise(py.detach(|| self.core.self_check()))
    }

    /// What the start cut or made again, for people, and whether the last run stopped in order.
    fn recovery_notes(&self) -> (Vec<String>, bool) {
        (
            self.core.recovery_notes().to_vec(),
            self.core.last_run_stopped(),
        )
    }

    /// The last message that reads passed over, and the last record that no queue took.
    fn last_damage(&self) -> (String, String) {
        self.core.last_damage()
    }

    /// (flushes, microseconds that they took together).
    fn sync_times(&self) -> (u64, u64) {
        self.core.log().sync_times()
    }

    /// Hears whether a flush that the ingest does itself is news, too.
    fn set_flush_awaited(&self, awaited: bool) {
        self.core.events().set_flush_awaited(awaited);
    }

    /// Hears whether queues that have grown are news that the descriptor tells of.
    fn set_growth_awaited(&self, awaited: bool) {
        self.core.events().set_growth_awaited(awaited);
    }

    /// The descriptor that is readable while there is news.
    fn event_fd(&self) -> RawFd {
        self.core.events().fd()
    }

    /// (flushed offset, [(topic, queue id, max offset)] with news, failure text).
    fn take_events(&self) -> (u64, Vec<(String, i32, i64)>, Option<String>) {
        let (news, failure) = self.core.events().take();
        (self.core.log().flushed(), news, failure)
    }
}
