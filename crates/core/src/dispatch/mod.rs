//! Following the log: each record is offered to a list of sinks (spec: store §5.1, §6, §10).
//!
//! Invariants:
//!
//! * A sink is offered the records of the log in order, each at least once, and again only after a
//!   start or where it refused it. It has a position of its own.
//! * While the store runs all sinks move together: one that cannot take a record holds the others up
//!   behind it. Only sinks that take records in memory may be ahead of the others, by [`AHEAD_BYTES`],
//!   where a reader waited for them ([`Dispatcher::step_ahead`]). One that is behind when the store
//!   opens catches up before anything else happens.
//! * News of a queue are told in the order in which it grew.
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
use crate::disk::bad_pages;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::events::{News, Watcher};
use crate::store::health::hold;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Bytes of one step: readers hear of its records together.
const STEP_BYTES: usize = 1 << 20;

/// Bytes of the log that a reader may dispatch himself: what comes in about a millisecond.
const AHEAD_BYTES: u64 = 64 << 10;

/// Sinks, and where each goes on.
pub(crate) type Followers = Vec<(Arc<dyn DispatchSink>, Progress)>;

/// Follows one log; one thread steps it.
pub struct Dispatcher {
    log: Arc<CommitLog>,
    sinks: Vec<Arc<dyn DispatchSink>>,
    /// Whether only durable records are shown to readers (spec: store §10, confirmOffset).
    durable_only: bool,
    stepping: Mutex<NextOffsets>,
    /// Held while watchers hear of a step, from before the next one can begin.
    telling: Mutex<()>,
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
            telling: Mutex::default(),
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

    /// Takes somebody out who was added.
    pub fn unwatch(&self, watcher: &Arc<dyn Watcher>) {
        let mut watchers = self
            .watchers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|other| !Arc::ptr_eq(other, watcher));
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
        let end = self.reach(reached);
        self.tell(fresh);
        result.map(|()| end > start)
    }

    /// Offers records that are not dispatched yet to the sinks that take them in memory, on the thread
    /// of a reader that waits for them; true when any took one. Nothing waits here, and nothing fails:
    /// a record that cannot be taken so is left to the next step, and so is everything behind it.
    pub fn step_ahead(&self) -> bool {
        let Ok(mut fresh) = self.stepping.try_lock() else {
            return false;
        };
        let limit = self.limit();
        if limit.saturating_sub(self.position()) > AHEAD_BYTES {
            return false;
        }
        let mut reached = self.reached();
        let mut taken = false;
        for (sink, progress) in self.sinks.iter().zip(&mut reached) {
            taken |= self.hurry(sink.as_ref(), progress, limit, &mut fresh);
        }
        if taken {
            self.reach(reached);
            self.tell(fresh);
        }
        taken
    }

    /// Offers one sink what it takes in memory, in the file where it is; true when it took any.
    fn hurry(
        &self,
        sink: &dyn DispatchSink,
        progress: &mut Progress,
        limit: u64,
        fresh: &mut NextOffsets,
    ) -> bool {
        let start = progress.position.max(self.log.min());
        if start >= limit {
            return false;
        }
        let Some(lease) = self.log.rest(start, limit) else {
            return false;
        };
        let mut at = 0;
        while let Parsed::Record { view, size } = record::parse(&lease, at, false) {
            let topic = String::from_utf8_lossy(view.topic);
            let entry = Entry {
                topic: &topic,
                record: &view,
                found: Found::of(&view),
            };
            if !sink.takes_in_memory(&entry) || sink.take(&entry, fresh).is_err() {
                break;
            }
            *progress = behind(start + at as u64, &view, size);
            at += size as usize;
        }
        at > 0
    }

    /// Notes how far the sinks are; returns where the slowest is.
    fn reach(&self, reached: Vec<Progress>) -> u64 {
        let end = Progress::slowest(&reached).position;
        let mut held = hold(&self.reached);
        *held = reached;
        self.position.store(end, Ordering::Release);
        end
    }

    /// Ends a step: tells everybody which queues have grown.
    fn tell(&self, mut fresh: MutexGuard<'_, NextOffsets>) {
        let news: Vec<News> = fresh.drain();
        if news.is_empty() {
            return;
        }
        let _turn = hold(&self.telling);
        drop(fresh);
        for watcher in self.watchers() {
            watcher.dispatched(&news);
        }
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
                    let next = behind(here, &view, size);
                    if bad_pages::is_bad(lease.get(at..at + size as usize).unwrap_or_default()) {
                        return Err(lost(here, "the disk cannot read it"));
                    }
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

/// How far a sink is that has taken the record at `start`.
fn behind(start: u64, record: &RecordView<'_>, size: u32) -> Progress {
    Progress {
        position: start + u64::from(size),
        last: LastRecord {
            start,
            time: record.store_timestamp,
        },
    }
}

fn lost(at: u64, why: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!("the record at offset {at} of the log cannot be read again: {why}"),
    )
}
