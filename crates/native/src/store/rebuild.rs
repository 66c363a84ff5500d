//! Making queues and index of a store anew from its log, for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::{pyfunction, PyResult, Python};
use roquet_core::commit_log::scan::{Damage, LogScan, Place, Step};
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::disk::Disk;
use roquet_core::index::{self, Key};
use roquet_core::rebuild::{self, Collected, Collector, Floor, Run, KEY_BYTES};
use roquet_core::recovery::deleted::Deleted;

use crate::store::log::refused;

type Runs = Vec<(String, i32, u64, u64, i64, i64, u64, Vec<u64>, bool)>;
type Part = (
    (u64, u64, u64, u64),
    Option<(u64, u64, i64)>,
    Runs,
    Vec<(String, String, u64)>,
    Vec<(u64, u64, String)>,
);
/// Keys read at a time.
const KEYS: u64 = 8192;

/// Read one part of one commit-log file and write its piece: queue units and index keys.
#[pyfunction]
#[pyo3(signature = (piece, path, base, file_end, begin, end, *, delays, deleted, last = false))]
#[allow(clippy::too_many_arguments)] // Keywords, each of its own kind.
pub(crate) fn rebuild_piece(
    py: Python<'_>,
    piece: PathBuf,
    path: PathBuf,
    base: u64,
    file_end: u64,
    begin: u64,
    end: u64,
    delays: Vec<i64>,
    deleted: HashMap<String, u64>,
    last: bool,
) -> PyResult<Part> {
    let place = Place {
        base,
        end: file_end,
        last,
        live: false,
        stop: u64::MAX,
        stop_time: i64::MAX,
    };
    py.detach(|| {
        let scan = LogScan::open(&path, place).map_err(|error| refused(&path, error))?;
        let (collector, damages) = read(scan, begin..end, Collector::new(delays, deleted))
            .map_err(|error| refused(&path, error))?;
        let found = write(&piece, collector).map_err(|error| refused(&piece, error))?;
        Ok(answer(found, damages))
    })
}

fn read(
    mut scan: LogScan,
    ours: std::ops::Range<u64>,
    mut collector: Collector,
) -> io::Result<(Collector, Vec<Damage>)> {
    let mut damages = Vec::new();
    while scan.offset() < ours.end {
        let mine = scan.offset() >= ours.start;
        let step = scan.step(mine, |view| {
            if mine {
                collector.add(view);
            }
        })?;
        match step {
            Step::Damage(damage) if mine => damages.push(damage),
            Step::Record(()) | Step::Damage(_) => {}
            Step::End => break,
        }
    }
    Ok((collector, damages))
}

fn write(piece: &Path, collector: Collector) -> io::Result<Collected> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(piece)?);
    let found = collector.finish(&mut file)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    Ok(found)
}

fn answer(found: Collected, damages: Vec<Damage>) -> Part {
    let runs = found.runs.into_iter().map(|run| {
        (
            run.topic,
            run.queue_id,
            run.at,
            run.count,
            run.first,
            run.end,
            run.first_physical,
            run.zeros,
            run.gapless,
        )
    });
    (
        (found.records, found.bytes, found.keys_at, found.keys),
        found.last,
        runs.collect(),
        found.unplaced,
        damages
            .into_iter()
            .map(|it| (it.begin, it.end, it.why))
            .collect(),
    )
}

fn run_of((path, at, count): (PathBuf, u64, u64)) -> Run {
    Run { path, at, count }
}

/// What of a run counts behind log offset `cut` and from queue offset `floor` on: count, first queue
/// offset, the one behind the last, log offset behind the last record.
#[pyfunction]
pub(crate) fn rebuild_span(
    py: Python<'_>,
    run: (PathBuf, u64, u64),
    cut: u64,
    floor: u64,
) -> PyResult<(u64, u64, u64, u64)> {
    let run = run_of(run);
    py.detach(|| rebuild::span(&run, Floor { cut, next: floor }))
        .map(|span| (span.count, span.first, span.end, span.physical_end))
        .map_err(|error| refused(&run.path, error))
}

/// Write one consume-queue file; returns how many messages it holds.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Positions, each of its own kind.
pub(crate) fn rebuild_queue_file(
    py: Python<'_>,
    path: PathBuf,
    begin: u64,
    units: u64,
    first: u64,
    runs: Vec<(PathBuf, u64, u64)>,
    cut: u64,
    floor: u64,
) -> PyResult<u64> {
    let runs: Vec<Run> = runs.into_iter().map(run_of).collect();
    let floor = Floor { cut, next: floor };
    py.detach(|| rebuild::queue_file(&path, (begin, units), first, &runs, floor))
        .map_err(|error| refused(&path, error))
}

/// Write one index file of keys of pieces; returns how many it holds.
#[pyfunction]
pub(crate) fn rebuild_index_file(
    py: Python<'_>,
    path: PathBuf,
    slots: u32,
    entries: u32,
    runs: Vec<(PathBuf, u64, u64)>,
) -> PyResult<u64> {
    let keys = runs
        .into_iter()
        .map(run_of)
        .flat_map(|run| (0..run.count.div_ceil(KEYS)).map(move |part| (run.clone(), part * KEYS)))
        .flat_map(|(run, skip)| match block(&run, skip) {
            Ok(keys) => keys,
            Err(error) => vec![Err(error)],
        });
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new());
    py.detach(|| index::write_file(&disk, &path, (slots, entries), keys))
        .map_err(|error| refused(&path, error))
}

fn block(run: &Run, skip: u64) -> io::Result<Vec<io::Result<Key>>> {
    let count = KEYS.min(run.count - skip);
    let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * KEY_BYTES];
    let at = run.at + skip * KEY_BYTES as u64;
    File::open(&run.path)?.read_exact_at(&mut bytes, at)?;
    Ok(bytes.chunks_exact(KEY_BYTES).map(rebuild::key).collect())
}

/// The topics that a store's note calls deleted, each with the end of the log at that moment.
#[pyfunction]
pub(crate) fn deleted_topics(root: PathBuf) -> PyResult<Vec<(String, u64)>> {
    Deleted::open(Arc::new(FileDisk::new()), &root)
        .map(|found| found.list())
        .map_err(|error| crate::error::store_error(&error))
}
