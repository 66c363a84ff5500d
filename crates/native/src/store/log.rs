//! Commit-log files of a store that nobody has opened, for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::{pyclass, pyfunction, pymethods, Py, PyAny, PyErr, PyResult, Python};
use pyo3::pybacked::PyBackedBytes;
use roquet_core::arrow::{Builder, Field, Options};
use roquet_core::commit_log::scan::{self, Damage, LogScan, Place, ReadAt, Step};
use roquet_core::disk::at_path::bare;
use roquet_core::disk::file_disk;
use roquet_core::recovery::checkpoint::Checkpoint;

use crate::arrow::{fields, ArrowBatch};

/// Damage reported at a time.
const DAMAGES_MAX: usize = 4096;

type Answer = (ArrowBatch, Vec<(u64, u64, String)>);

/// The records of one part of one commit-log file, batch by batch.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct LogReader {
    path: PathBuf,
    scan: Mutex<LogScan>,
    begin: u64,
    end: u64,
    wanted: Wanted,
}

/// Bytes that a function of Python returns: `read(at, size)`, fewer only where the file ends.
struct Called(Py<PyAny>);

impl ReadAt for Called {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let found: PyResult<PyBackedBytes> = Python::attach(|py| {
            let made = self.0.call1(py, (at, into.len()))?;
            made.extract(py).map_err(PyErr::from)
        });
        let found = found.map_err(io::Error::other)?;
        let count = found.len();
        let wrong = || io::Error::other("more bytes than were asked for");
        let target = into.get_mut(..count).ok_or_else(wrong)?;
        target.copy_from_slice(&found);
        Ok(count)
    }
}

struct Wanted {
    fields: Vec<Field>,
    broker_name: String,
    tags: Option<Vec<String>>,
    topics: Option<Vec<String>>,
    stored: (i64, i64),
    rows_max: usize,
    bytes_max: usize,
    decompress_max: usize,
}

impl Wanted {
    fn builder(&self) -> Builder<'_> {
        Builder::new(Options {
            fields: self.fields.clone(),
            broker_name: &self.broker_name,
            begin: i64::MIN,
            end: i64::MAX,
            tags: self.tags.clone(),
            topics: self.topics.clone(),
            stored: self.stored.0..self.stored.1,
            rows_max: self.rows_max,
            bytes_max: self.bytes_max,
            decompress_max: self.decompress_max,
        })
    }
}

#[pymethods]
impl LogReader {
    #[new]
    #[pyo3(signature = (path, base, file_end, begin, end, *, broker_name = "", columns = None,
        tags = None, topics = None, stored = (i64::MIN, i64::MAX), last = false, live = false,
        stop = u64::MAX, stop_time = i64::MAX, rows_max = 16_384, bytes_max = 33_554_432,
        decompress_max = 67_108_864, read = None))]
    #[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
    fn new(
        path: PathBuf,
        base: u64,
        file_end: u64,
        begin: u64,
        end: u64,
        broker_name: &str,
        columns: Option<Vec<String>>,
        tags: Option<Vec<String>>,
        topics: Option<Vec<String>>,
        stored: (i64, i64),
        last: bool,
        live: bool,
        stop: u64,
        stop_time: i64,
        rows_max: usize,
        bytes_max: usize,
        decompress_max: usize,
        read: Option<(Py<PyAny>, u64)>,
    ) -> PyResult<Self> {
        let place = Place {
            base,
            end: file_end,
            last,
            live,
            stop,
            stop_time,
        };
        let scan = match read {
            Some((read, size)) => LogScan::over(Box::new(Called(read)), size, place),
            None => LogScan::open(&path, place).map_err(|error| refused(&path, error))?,
        };
        Ok(Self {
            path,
            scan: Mutex::new(scan),
            begin,
            end,
            wanted: Wanted {
                fields: fields(columns)?,
                broker_name: broker_name.to_owned(),
                tags,
                topics,
                stored,
                rows_max,
                bytes_max,
                decompress_max,
            },
        })
    }

    /// The next batch and the damage passed over meanwhile; `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Answer>> {
        py.detach(|| {
            let mut scan = self.scan.lock().unwrap_or_else(PoisonError::into_inner);
            self.read(&mut scan)
        })
        .map_err(|error| refused(&self.path, error))
    }
}

impl LogReader {
    fn read(&self, scan: &mut LogScan) -> io::Result<Option<Answer>> {
        let mut builder = self.wanted.builder();
        let mut damages: Vec<Damage> = Vec::new();
        let mut ended = false;
        while !builder.is_full() && damages.len() < DAMAGES_MAX {
            let here = scan.offset();
            if here >= self.end {
                ended = true;
                break;
            }
            let ours = here >= self.begin;
            // Behind a damaged place the next record may belong to the next part.
            let step = scan.step(ours, |view| {
                if !ours {
                    return None;
                }
                let made = builder.add_record(view);
                made.err()
                    .map(|error| scan::content(here, view.total_size, &error))
            })?;
            match step {
                Step::Record(damage) => damages.extend(damage),
                Step::Damage(damage) if ours => damages.push(damage),
                Step::Damage(_) => {}
                Step::End => {
                    ended = true;
                    break;
                }
            }
        }
        let batch = builder.finish();
        if ended && batch.rows == 0 && damages.is_empty() {
            return Ok(None);
        }
        let damages = damages
            .into_iter()
            .map(|it| (it.begin, it.end, it.why))
            .collect();
        Ok(Some((ArrowBatch::new(batch), damages)))
    }
}

/// The exception for an error of a file; one that Python raised is raised again.
pub(crate) fn refused(path: &std::path::Path, error: io::Error) -> PyErr {
    let error = match error.downcast::<PyErr>() {
        Ok(raised) => return raised,
        Err(error) => error,
    };
    let error = bare(&error);
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string(), path.to_path_buf())),
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

/// Whether a broker holds the lock of a store; `path` is its file `lock`.
#[pyfunction]
pub(crate) fn is_locked(path: PathBuf) -> PyResult<bool> {
    file_disk::is_locked(&path).map_err(|error| refused(&path, error))
}

/// The numbers of a `checkpoint` file: log time, confirmed offset, and the durable end of the log
/// when we wrote it last.
#[pyfunction]
pub(crate) fn checkpoint_of(data: &[u8]) -> (i64, i64, Option<u64>) {
    let found = Checkpoint::decode(data);
    (
        found.log_time,
        found.confirm,
        found.known.map(|known| known.flushed),
    )
}
