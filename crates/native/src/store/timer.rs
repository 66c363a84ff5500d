//! The timer wheel for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::{pyclass, pymethods, Bound, Py, PyRef, PyResult, Python};
use pyo3::types::PyBytes;
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::store::error::StoreError as CoreError;
use roquet_core::timer::{TimerCheckpointFile, TimerConfig, TimerThread, Timers as Core};

use crate::error::store_error;
use crate::store::Store;

/// (topic, waiting messages, time of the last change in Unix milliseconds).
type MetricTuple = (String, i64, i64);
type TrafficTuple = (String, u64, u64, Vec<u64>, i64);

/// Messages of any delay of one store, and the thread that fires them.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct TimerWheel {
    core: Arc<Core>,
    thread: Mutex<Option<TimerThread>>,
    /// The store must outlive the wheel.
    _store: Py<Store>,
}

fn raise<T>(done: Result<T, CoreError>) -> PyResult<T> {
    done.map_err(|error| store_error(&error))
}

#[pymethods]
impl TimerWheel {
    /// Load and recover; nothing fires before `start`.
    #[staticmethod]
    #[pyo3(signature = (store, *, log_file_size, precision_ms, window, flush_ms, key_has_topic))]
    fn open(
        py: Python<'_>,
        store: PyRef<'_, Store>,
        log_file_size: u64,
        precision_ms: i64,
        window: u64,
        flush_ms: i64,
        key_has_topic: bool,
    ) -> PyResult<Self> {
        let config = TimerConfig {
            log_file_size,
            precision_ms,
            window,
            flush_ms,
            key_has_topic,
            ..TimerConfig::default()
        };
        let core = Arc::clone(store.core());
        let opened = py.detach(|| Core::open(core, config));
        Ok(Self {
            core: Arc::new(raise(opened)?),
            thread: Mutex::new(None),
            _store: store.into(),
        })
    }

    /// The 56 bytes of the checkpoint that a wheel of this folder saved last; None without one.
    #[staticmethod]
    fn saved_checkpoint(py: Python<'_>, folder: PathBuf) -> PyResult<Option<Bound<'_, PyBytes>>> {
        let saved = py.detach(|| TimerCheckpointFile::saved(&FileDisk::new(), &folder));
        Ok(raise(saved)?.map(|found| PyBytes::new(py, &found.java())))
    }

    /// Start the thread; twice is once.
    fn start(&self) -> PyResult<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            *thread = Some(TimerThread::start(Arc::clone(&self.core))?);
        }
        Ok(())
    }

    /// Stop the thread and make everything durable. Call it before the store is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = held.take();
        drop(held);
        let done = py.detach(|| {
            if let Some(thread) = thread {
                thread.stop();
            }
            self.core.flush(true)
        });
        raise(done)
    }

    /// Whether messages enter the wheel, and whether due ones fire.
    fn allow(&self, enqueues: bool, dequeues: bool) {
        self.core.set_enqueues(enqueues);
        self.core.set_dequeues(dequeues);
    }

    /// Make snapshots of the wheel, each so many milliseconds; 0: none.
    fn set_snapshots(&self, every_ms: i64) {
        self.core.set_snapshots(every_ms);
    }

    /// Messages waiting in the slot of a time, Unix milliseconds.
    fn waiting_at(&self, py: Python<'_>, time_ms: i64) -> i64 {
        py.detach(|| self.core.waiting_at(time_ms))
    }

    /// Waiting messages by how far off they are: one number a bound, milliseconds, ascending.
    fn distribution(&self, py: Python<'_>, bounds_ms: Vec<i64>) -> Vec<i64> {
        py.detach(|| self.core.distribution(&bounds_ms))
    }

    /// Waiting messages by topic.
    fn metrics(&self, py: Python<'_>) -> Vec<MetricTuple> {
        py.detach(|| self.core.metrics())
    }

    /// What entered and left for each topic since the start: (topic, entered, stored where it was
    /// meant for, entered by class of delay, sum of the delays in seconds).
    fn traffic(&self, py: Python<'_>) -> Vec<TrafficTuple> {
        let rows = py.detach(|| self.core.traffic()).into_iter();
        rows.map(|(topic, row)| {
            let delays = row.delays.to_vec();
            (topic, row.enqueued, row.fired, delays, row.delay_s)
        })
        .collect()
    }

    /// Take over waiting messages by topic from the last run.
    fn set_metrics(&self, rows: Vec<MetricTuple>) {
        self.core.set_metrics(rows);
    }

    /// Count what waits for topics with fewer than `below` messages, and mend the counts: (topic,
    /// before, after) of each that was wrong. None when it has to be tried again later.
    fn recount(&self, py: Python<'_>, below: i64) -> Option<Vec<MetricTuple>> {
        py.detach(|| self.core.recount(below))
    }

    /// The 56 bytes of the checkpoint.
    fn checkpoint<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.core.checkpoint());
        PyBytes::new(py, &bytes)
    }

    /// Why the wheel cannot go on at the moment.
    fn trouble(&self) -> Option<String> {
        self.core.trouble()
    }

    /// Counters and gauges by name.
    fn stats(&self) -> BTreeMap<&'static str, i64> {
        let counters = &self.core.counters;
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let total = |counter: &std::sync::atomic::AtomicU64| count(counter.load(Ordering::Relaxed));
        let recovered = &self.core.recovered;
        BTreeMap::from([
            ("enqueued", total(&counters.enqueued)),
            ("fired", total(&counters.fired)),
            ("rolled", total(&counters.rolled)),
            ("cancelled", total(&counters.cancelled)),
            ("unreadable", total(&counters.unreadable)),
            ("refused", total(&counters.refused)),
            ("waits", total(&counters.waits)),
            ("broken_chains", total(&counters.broken_chains)),
            ("read_ms", counters.read_ms.load(Ordering::Relaxed)),
            ("write_ms", counters.write_ms.load(Ordering::Relaxed)),
            ("behind", self.core.behind()),
            (
                "clock_lead_ms",
                counters.clock_lead_ms.load(Ordering::Relaxed),
            ),
            ("set_backs", total(&counters.set_backs)),
            ("rebuilt_units", recovered.rebuilt_units.map_or(-1, count)),
            ("cut_bytes", count(recovered.cut_bytes)),
            ("replayed", count(recovered.replayed)),
        ])
    }
}
