//! Following the log: each record is offered to a list of sinks (spec: store §5.1, §6, §10).
//!
//! Invariants:
//!
//! * A sink is offered the records of the log in order, each at least once, and again only after a
//!   start or where it refused it. It has a position of its own.
//! * While the store runs all sinks move together: one that cannot take a record holds the others up
//!   behind it, so that positions differ by one record at most. One that is behind when the store
//!   opens catches up before anything else happens.
//! * The slowest decides: what readers are told is dispatched, and what the checkpoint promises,
//!   is what every sink has, and has durably.

mod derived;
mod sinks;

pub(crate) use derived::{is_indexed, tags_code};
pub use derived::{Derived, Found};
pub(crate) use sinks::own_sinks;
pub use sinks::{DispatchSink, Entry, LastRecord, Progress};

use crate::codec::record::{self, Parsed, RecordView};
use crate::commit_log::{CommitLog, NextOffsets};
use crate::store::error::{ErrorKind, StoreError};
use crate::store::events::{News, Watcher};
use crate::store::health::hold;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Bytes of one step: readers hear of its records together.
const STEP_BYTES: usize = 1 << 20;

/// Sinks, and where each goes on.
pub(crate) type Followers = Vec<(Arc<dyn DispatchSink>, Progress)>;

/// Follows one log; one thread steps it.
pub struct Dispatcher {
    log: Arc<CommitLog>,
    sinks: Vec<Arc<dyn DispatchSink>>,
    /// Whether only durable records are shown to readers (spec: store §10, confirmOffset).
    durable_only: bool,
    stepping: Mutex<NextOffsets>,
    position: AtomicU64,
    /// How far each sink is.
    reached: Mutex<Vec<Progress>>,
    watchers: RwLock<Vec<Arc<dyn Watcher>>>,
}

impl Dispatcher {
    /// Makes one; each sink goes on where the number beside it says.
    pub(crate) fn new(log: Arc<CommitLog>, durable_only: bool, sinks: Followers) -> Self {
        let (sinks, reached): (Vec<_>, Vec<_>) = sinks.into_iter().unzip();
        Self {
            log,
            sinks,
            durable_only,
            stepping: Mutex::default(),
            position: AtomicU64::new(Progress::slowest(&reached).position),
            reached: Mutex::new(reached),
            watchers: RwLock::default(),
        }
    }

    /// Adds somebody who hears of each batch.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        let mut watchers = self
            .watchers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        watchers.push(watcher);
    }

    /// Everybody who wants to hear.
    pub fn watchers(&self) -> Vec<Arc<dyn Watcher>> {
        let watchers = self.watchers.read();
        watchers.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything before this offset is in every sink: in queues, index and the others.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Up to where records may be dispatched now.
    pub fn limit(&self) -> u64 {
        if self.durable_only {
            self.log.flushed_whole()
        } else {
            self.log.whole()
        }
    }

    /// How far the slowest sink is.
    pub fn progress(&self) -> Progress {
        Progress::slowest(&hold(&self.reached))
    }

    /// How far each sink is, as of one moment.
    pub(crate) fn reached(&self) -> Vec<Progress> {
        hold(&self.reached).clone()
    }

    /// Makes durable what the sinks had at an earlier moment; returns how far all of them are.
    pub(crate) fn sync(&self, reached: &[Progress]) -> Result<Progress, StoreError> {
        let mut durable = reached.to_vec();
        for (sink, taken) in self.sinks.iter().zip(reached) {
            durable.push(sink.sync(*taken)?);
        }
        Ok(Progress::slowest(&durable))
    }

    /// Lets all sinks give up what they have of records before `min`.
    pub(crate) fn clean(&self, min: u64) -> Result<(), StoreError> {
        self.sinks.iter().try_for_each(|sink| sink.clean(min))
    }

    /// Offers what is in the log already to sinks that are behind.
    pub(crate) fn catch_up(&self) -> Result<(), StoreError> {
        while self.step()? {}
        Ok(())
    }

    /// Dispatches what is there, about a mebibyte at most; false when there was nothing.
    ///
    /// On an error everything before the record concerned is dispatched, and the next step offers
    /// it again to the sinks that do not have it.
    pub fn step(&self) -> Result<bool, StoreError> {
        let mut fresh = hold(&self.stepping);
        let start = self.position().max(self.log.min());
        if start >= self.limit() {
            return Ok(false);
        }
        let mut reached = self.reached();
        let result = self.follow(start, &mut reached, &mut fresh);
        let end = Progress::slowest(&reached).position;
        {
            let mut held = hold(&self.reached);
            *held = reached;
            self.position.store(end, Ordering::Release);
        }
        let news: Vec<News> = fresh.drain();
        drop(fresh);
        if !news.is_empty() {
            for watcher in self.watchers() {
                watcher.dispatched(&news);
            }
        }
        result.map(|()| end > start)
    }

    /// Runs something while no record is being dispatched.
    pub fn between_steps<T>(&self, work: impl FnOnce() -> T) -> T {
        let _steps = hold(&self.stepping);
        work()
    }

    /// Dispatches the records of one file from `start` on, up to the limit of a step.
    fn follow(
        &self,
        start: u64,
        reached: &mut [Progress],
        fresh: &mut NextOffsets,
    ) -> Result<(), StoreError> {
        let Some(lease) = self.log.rest(start, self.limit()) else {
            return Err(lost(start, "its file is gone"));
        };
        let mut at = 0;
        while at < STEP_BYTES {
            let here = start + at as u64;
            match record::parse(&lease, at, false) {
                Parsed::Record { view, size } => {
                    let next = Progress {
                        position: here + u64::from(size),
                        last: LastRecord {
                            start: here,
                            time: view.store_timestamp,
                        },
                    };
                    self.offer(&view, next, reached, fresh)?;
                    at += size as usize;
                }
                Parsed::Blank { .. } => {
                    let next = self.log.next_file_start(here);
                    for progress in reached {
                        progress.position = progress.position.max(next);
                    }
                    return Ok(());
                }
                Parsed::End if at >= lease.len() => return Ok(()),
                Parsed::End => return Err(lost(here, "there is none")),
                Parsed::Broken { why, .. } => return Err(lost(here, &format!("{why:?}"))),
            }
        }
        Ok(())
    }

    /// Offers a record to the sinks that do not have it; they are at `next` then.
    fn offer(
        &self,
        record: &RecordView<'_>,
        next: Progress,
        reached: &mut [Progress],
        fresh: &mut NextOffsets,
    ) -> Result<(), StoreError> {
        let topic = String::from_utf8_lossy(record.topic);
        let entry = Entry {
            topic: &topic,
            record,
            found: Found::of(record),
        };
        for (sink, progress) in self.sinks.iter().zip(reached) {
            if progress.position < next.position {
                sink.take(&entry, fresh)?;
                *progress = next;
            }
        }
        Ok(())
    }
}

fn lost(at: u64, why: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!("the record at offset {at} of the log cannot be read again: {why}"),
    )
}
