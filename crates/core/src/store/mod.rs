//! One message store in one folder: opening, writing, reading, closing.
//!
//! All work of the background threads (`threads`) is a method here, so that tests can run a
//! store without any thread, on a disk that crashes.

pub mod config;
mod config_names;
pub mod env;
pub mod error;
pub mod events;
pub mod get;
pub mod health;
mod lights;
pub mod open;
pub mod query;
mod replica;
pub mod threads;

use crate::commit_log::{Appended, CommitLog, Prepared, PutStatus};
use crate::consume_queue::ConsumeQueues;
use crate::disk::resident;
use crate::disk::segment::make_folder;
use crate::dispatch::{Derived, Dispatcher, LastRecord, Progress};
use crate::recovery::checkpoint::{CheckpointFile, Notes};
use crate::recovery::queue_ends::Ends;
use crate::recovery::{self, Before, Recovered};
use crate::store::config::{GetConfig, StoreConfig, Tuned};
use crate::store::env::Env;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::events::{Events, Watcher};
use crate::store::get::{Getter, Got, Wanted};
use crate::store::health::{hold, Health};
use crate::store::lights::Gone;
use crate::store::open::{all_sinks, is_there, lock, next_offsets, open_derived, open_log, Parts};
use crate::store::threads::Threads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// The store. Every method may be called from any thread.
pub struct Store {
    pub(crate) config: StoreConfig,
    pub(crate) env: Env,
    pub(crate) health: Arc<Health>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) derived: Arc<Derived>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) recovered: Recovered,
    /// Whether the last run stopped in order.
    pub(crate) clean: bool,
    events: Arc<Events>,
    /// Held for as long as a checkpoint takes.
    checkpoint: Mutex<()>,
    notes: Arc<Notes>,
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
    threads: Mutex<Option<Threads>>,
    started: AtomicBool,
    announced: AtomicBool,
    awaited: AtomicBool,
    pub(crate) gone_lights: Gone,
    tuned: RwLock<Tuned>,
}

impl Store {
    /// Locks the folder, loads what is there and recovers it. Nothing is written by messages
    /// before [`Self::start`].
    pub fn open(config: StoreConfig, env: Env) -> Result<Arc<Self>, StoreError> {
        Self::open_with(config, env, Parts::default())
    }

    /// As [`Self::open`], with some parts of another form.
    pub fn open_with(config: StoreConfig, env: Env, parts: Parts) -> Result<Arc<Self>, StoreError> {
        let disk = Arc::clone(&env.disk);
        let root = config.root.clone();
        make_folder(disk.as_ref(), &root)?;
        let lock = lock(disk.as_ref(), &root)?;
        let clean = !is_there(disk.as_ref(), &root.join("abort"))?;
        let health = Arc::new(Health::default());
        let log = open_log(&config, &env, &health)?;
        let (checkpoint_file, checkpoint) = CheckpointFile::open(disk.as_ref(), &root)?;
        let ends = Ends::read(disk.as_ref(), &root, checkpoint)?;
        let derived = Arc::new(open_derived(
            &config,
            disk,
            clean,
            checkpoint,
            parts.queues,
        )?);
        let recovered = recovery::recover(
            &log,
            &derived,
            &Before {
                settings: &config.recovery,
                clean,
                checkpoint,
                boot: env.boot,
                ends,
            },
        )?;
        let checkpoint = checkpoint.unwrap_or_default();
        let notes = Arc::new(Notes::new(checkpoint_file, checkpoint, env.boot));
        log.note_in(Arc::clone(&notes));
        let last = recovered.last.unwrap_or(LastRecord {
            start: checkpoint.queue_offset.cast_unsigned(),
            time: checkpoint.queue_time,
        });
        let next = next_offsets(&derived.queues, &recovered);
        log.resume(recovered.end, last.time, next);
        let own = Progress {
            position: recovered.end,
            last,
        };
        let sinks = all_sinks(&derived, parts.sinks, own, checkpoint)?;
        let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&log), config.sync_flush, sinks));
        dispatcher.catch_up()?;
        let events = Arc::new(Events::new()?);
        log.limit_lights(config.tuned.lights_max);
        dispatcher.watch(Arc::clone(&events) as Arc<dyn Watcher>);
        let store = Self {
            tuned: RwLock::new(config.tuned),
            config,
            env,
            health,
            log,
            derived,
            dispatcher,
            recovered,
            clean,
            events,
            checkpoint: Mutex::new(()),
            notes,
            lock: Mutex::new(Some(lock)),
            threads: Mutex::new(None),
            started: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            gone_lights: Gone::default(),
        };
        if !clean {
            store.checkpoint()?;
        }
        Ok(Arc::new(store))
    }

    /// Notes on disk that the store runs, and starts the background threads.
    pub fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.start_stepped()? {
            *hold(&self.threads) = Some(Threads::start(self)?);
        }
        Ok(())
    }

    /// As [`Self::start`], without threads: the caller runs [`Self::flush`], [`Self::dispatch`],
    /// [`Self::checkpoint`] and [`Self::tend`]. False when it was started before.
    pub fn start_stepped(&self) -> Result<bool, StoreError> {
        if self.health.is_closed() {
            return Err(StoreError::new(ErrorKind::Closed, "the store is closed"));
        }
        if self.started.load(Ordering::Acquire) {
            return Ok(false);
        }
        // What recovery reads was told before, or nobody has copied what is told of it.
        hold(&self.derived.renewed).clear();
        let (disk, root) = (self.env.disk.as_ref(), &self.config.root);
        let path = root.join("abort");
        let backup = root.join("abort.bak");
        let refuse = |error: std::io::Error| StoreError::io("write", &path, &error);
        if !is_there(disk, &backup)? {
            disk.write(&backup, b"").map_err(refuse)?;
        }
        disk.write(&path, self.env.process.to_string().as_bytes())
            .and_then(|()| disk.sync_file(&path))
            .and_then(|()| disk.sync_dir(root))
            .map_err(refuse)?;
        // From now on a kill can be told from a power cut, and a torn record from a durable one.
        self.note_flushed()?;
        self.started.store(true, Ordering::Release);
        Ok(true)
    }

    /// Stops the threads, makes everything durable and lets go of the folder. Twice is once.
    ///
    /// The folder is let go of in any case; after an error the next start recovers.
    pub fn close(&self) -> Result<(), StoreError> {
        if !self.health.close() {
            return Ok(());
        }
        self.log.settle();
        if let Some(threads) = hold(&self.threads).take() {
            threads.stop(self);
        }
        let done = self.finish();
        drop(hold(&self.lock).take());
        done
    }

    fn finish(&self) -> Result<(), StoreError> {
        self.log.flush()?;
        while self.dispatcher.step()? {}
        self.checkpoint()?;
        self.log.drop_unused()?;
        if self.started.load(Ordering::Acquire) {
            let (disk, path) = (self.env.disk.as_ref(), self.config.root.join("abort"));
            disk.remove(&path)
                .and_then(|()| disk.sync_dir(&self.config.root))
                .map_err(|error| StoreError::io("remove", &path, &error))?;
        }
        Ok(())
    }

    /// Longest body that a put takes.
    pub fn body_max(&self) -> u64 {
        self.tuned().body_max
    }

    /// Whether messages are put into the light queues that they name.
    pub fn has_light_queues(&self) -> bool {
        self.config.light_queues
    }

    /// Appends records, waiting for other writers.
    pub fn put(&self, prepared: &mut Prepared<'_>) -> Appended {
        let done = self.put_unflushed(prepared);
        self.want_flush();
        done
    }

    /// As [`Self::put`]; the caller has to call [`Self::want_flush`].
    pub fn put_unflushed(&self, prepared: &mut Prepared<'_>) -> Appended {
        if !self.started.load(Ordering::Acquire) {
            return Appended::refused(PutStatus::ServiceNotAvailable);
        }
        self.log.append(prepared)
    }

    /// Appends records unless somebody else is appending: `None` then.
    pub fn try_put(&self, prepared: &mut Prepared<'_>) -> Option<Appended> {
        let done = self.try_put_unflushed(prepared);
        self.want_flush();
        done
    }

    /// As [`Self::try_put`]; the caller has to call [`Self::want_flush`] or [`Self::flush`].
    pub fn try_put_unflushed(&self, prepared: &mut Prepared<'_>) -> Option<Appended> {
        if !self.started.load(Ordering::Acquire) {
            return Some(Appended::refused(PutStatus::ServiceNotAvailable));
        }
        self.log.try_append(prepared)
    }

    /// Has the flush thread sync at once what was appended, if each append is to be durable.
    ///
    /// Also when it is synced already and nobody was told: who waits may not have seen it.
    pub fn want_flush(&self) {
        if self.config.sync_flush && self.log.written() > self.events.told() {
            self.log.flush_wanted.notify();
        }
    }

    /// Reads from a queue.
    pub fn get(&self, wanted: Wanted<'_>) -> Result<Got, StoreError> {
        self.timed(|getter| getter.get(wanted))
    }

    /// Reads from a queue; `None` when that would wait for the disk.
    pub fn get_resident(&self, wanted: Wanted<'_>) -> Result<Option<Got>, StoreError> {
        self.timed(|getter| getter.get_resident(wanted, resident::is_resident))
    }

    /// As [`Self::get_resident`], for an answer without bodies: more messages at once.
    pub fn get_projected(&self, wanted: Wanted<'_>) -> Result<Option<Got>, StoreError> {
        self.timed(|getter| {
            let settings = getter.settings.without_bodies();
            Getter { settings, ..getter }.get_resident(wanted, resident::is_resident)
        })
    }

    fn timed<T>(
        &self,
        read: impl FnOnce(Getter<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.usable()?;
        let tuned = self.tuned().get;
        let getter = Getter {
            log: &self.log,
            queues: &self.derived.queues,
            settings: tuned,
            hot_bytes: self.hot_bytes_by(tuned),
        };
        let begun = Instant::now();
        let got = read(getter);
        self.log.counters.get_time.add(begun.elapsed());
        got
    }

    fn hot_bytes_by(&self, settings: GetConfig) -> u64 {
        self.env.memory / 100 * settings.memory_percent
    }

    /// The settings of the moment of those that may change.
    pub fn tuned(&self) -> Tuned {
        *self.tuned.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes by other settings from now on, as far as an open store can: see [`Tuned`].
    pub fn tune(&self, tuned: Tuned) {
        *self.tuned.write().unwrap_or_else(PoisonError::into_inner) = tuned;
        self.log.limit_lights(tuned.lights_max);
    }

    /// Whether a place in the log is so recent that it is probably in memory.
    pub fn is_hot(&self, at: u64) -> bool {
        self.log.written().saturating_sub(at) <= self.hot_bytes_by(self.tuned().get)
    }

    /// The log, for reading.
    pub fn log(&self) -> &CommitLog {
        &self.log
    }

    /// The queues, for reading.
    pub fn queues(&self) -> &ConsumeQueues {
        &self.derived.queues
    }

    /// Hears whether somebody waits for messages to come: they are dispatched sooner then.
    pub fn set_awaited(&self, awaited: bool) {
        self.awaited.store(awaited, Ordering::Relaxed);
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    /// Everything before this offset can be read from its queue.
    pub fn dispatched(&self) -> u64 {
        self.dispatcher.position()
    }

    /// What opening the store found.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// News for Python.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Adds somebody who hears of flushes and dispatched messages on the background threads.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.dispatcher.watch(watcher);
    }

    /// Makes everything appended so far durable; returns the flushed offset.
    pub fn flush(&self) -> Result<u64, StoreError> {
        self.flush_and_tell(true)
    }

    /// As [`Self::flush`], by the reader of the news, who hears nothing of it unless something
    /// else of his waits for it.
    pub fn flush_in_place(&self) -> Result<u64, StoreError> {
        self.flush_and_tell(self.events.is_flush_awaited())
    }

    fn flush_and_tell(&self, tell: bool) -> Result<u64, StoreError> {
        let flushed = self.note(self.log.flush())?;
        // By what was told and not by what was flushed before: others flush without telling.
        if tell && self.events.tells_up_to(flushed) {
            for watcher in self.dispatcher.watchers() {
                watcher.flushed(flushed);
            }
        }
        Ok(flushed)
    }

    /// Dispatches what is there, a step at a time; false when there was nothing.
    pub fn dispatch(&self) -> Result<bool, StoreError> {
        self.dispatcher.step()
    }

    /// Brings what was appended just now into its queues, as far as that takes no wait; true when any
    /// of it is readable now that was not. For a reader that has found nothing.
    pub fn dispatch_ahead(&self) -> bool {
        self.dispatcher.step_ahead()
    }

    /// Makes queues and index durable, then says so in the checkpoint, and notes the queues' ends.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let ends = Ends::of(&self.derived.queues, self.dispatcher.position());
        self.quick_checkpoint()?;
        ends.write(self.env.disk.as_ref(), &self.config.root)
    }

    /// As [`Self::checkpoint`] without the note of the queues' ends, which takes a row for each.
    pub(crate) fn quick_checkpoint(&self) -> Result<(), StoreError> {
        let _one_at_a_time = hold(&self.checkpoint);
        let reached = self.dispatcher.reached();
        let flushed = self.log.flushed();
        if reached.iter().any(|sink| sink.position > flushed) {
            self.flush()?;
        }
        let Progress { last, .. } = self.note(self.dispatcher.sync(&reached))?;
        let index = self.derived.index.as_ref();
        self.notes.write(self.log.flushed(), |checkpoint| {
            checkpoint.log_time = last.time;
            checkpoint.queue_time = last.time;
            checkpoint.index_time = index.map_or(0, |index| index.last().0);
            checkpoint.queue_offset = last.start.cast_signed();
        })?;
        self.note(self.notes.sync())
    }

    /// Runs something while nothing is dispatched and no checkpoint is under way.
    pub(crate) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _checkpoint = hold(&self.checkpoint);
        self.dispatcher.between_steps(work)
    }

    /// Makes a failed sync known to all, for good; a full disk passes, and so does a lack of
    /// descriptors, unless the log could not be flushed for it.
    pub(crate) fn note<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &done {
            if !error.passes() || self.health.failure().is_some() {
                self.health.fail(error);
                self.announce();
            }
        }
        done
    }

    /// Tells everybody why the store failed, once.
    fn announce(&self) {
        let Some(failure) = self.health.failure() else {
            return;
        };
        if !self.announced.swap(true, Ordering::AcqRel) {
            for watcher in self.dispatcher.watchers() {
                watcher.failed(&failure.to_string());
            }
        }
    }

    /// Writes down durably how far the log is durable.
    pub(crate) fn note_flushed(&self) -> Result<(), StoreError> {
        self.notes.write(self.log.flushed(), |_| {})?;
        self.note(self.notes.sync())
    }

    /// Fails when the store is closed.
    pub fn usable(&self) -> Result<(), StoreError> {
        if self.health.is_closed() {
            return Err(StoreError::new(ErrorKind::Closed, "the store is closed"));
        }
        Ok(())
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }
}
