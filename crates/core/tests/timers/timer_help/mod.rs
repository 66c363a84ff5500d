//! A store with timers on a simulated disk, driven step by step, and what it promised.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing
)]

use super::common::sim_disk::SimDisk;
use super::common::Rng;
use roquet_core::codec::properties::find;
use roquet_core::codec::record::{self, NewRecord};
use roquet_core::commit_log::{Prepared, PutStatus};
use roquet_core::disk::Disk;
use roquet_core::store::config::{StoreConfig, Value};
use roquet_core::store::env::Env;
use roquet_core::store::get::Wanted;
use roquet_core::store::Store;
use roquet_core::timer::{TimerConfig, Timers, TIMER_TOPIC};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

pub(crate) const START: i64 = 1_700_000_000_000;
pub(crate) const HOST: [u8; 8] = [127, 0, 0, 1, 0, 0, 42, 159];
pub(crate) const STEP: i64 = 1000;

pub(crate) fn timer_config() -> TimerConfig {
    TimerConfig {
        // A file holds nine units.
        log_file_size: 500,
        slots: 128,
        precision_ms: STEP,
        window: 20,
        flush_ms: 1000,
        key_has_topic: false,
    }
}

pub(crate) fn store_config(log_size: i64) -> StoreConfig {
    let settings = [
        ("storePathRootDir", Value::Text("/s/store".to_owned())),
        ("mappedFileSizeCommitLog", Value::Int(log_size)),
        ("mappedFileSizeConsumeQueue", Value::Int(2000)),
        ("messageIndexEnable", Value::Bool(false)),
        ("flushDiskType", Value::Text("SYNC_FLUSH".to_owned())),
    ];
    let settings: BTreeMap<String, Value> = settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    StoreConfig::read(&settings).unwrap()
}

/// What was asked for, by the message's key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) due_ms: i64,
    pub(crate) acknowledged: bool,
    pub(crate) cancelled: bool,
    /// A request to cancel it was acknowledged before it was due.
    pub(crate) recalled: bool,
}

pub(crate) struct World {
    pub(crate) disk: SimDisk,
    /// How far the clock is set ahead of the time that passed since `START`.
    pub(crate) lead: Arc<AtomicI64>,
    pub(crate) now: Arc<AtomicI64>,
    pub(crate) config: TimerConfig,
    pub(crate) boot: u64,
    pub(crate) store: Arc<Store>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) asked: BTreeMap<String, Asked>,
    /// A start after something else than an orderly stop may deliver twice.
    pub(crate) crashes: u32,
}

pub(crate) fn open(
    disk: &SimDisk,
    now: &Arc<AtomicI64>,
    config: &TimerConfig,
    boot: u64,
) -> Result<(Arc<Store>, Arc<Timers>), roquet_core::store::error::StoreError> {
    open_ticking(disk, (now, &Arc::default()), config, boot, 0)
}

/// Opens with a clock that moves by `tick_ms` at each look; `lead` is how far it was set ahead.
pub(crate) fn open_ticking(
    disk: &SimDisk,
    (now, lead): (&Arc<AtomicI64>, &Arc<AtomicI64>),
    config: &TimerConfig,
    boot: u64,
    tick_ms: i64,
) -> Result<(Arc<Store>, Arc<Timers>), roquet_core::store::error::StoreError> {
    let clock = Arc::clone(now);
    let (steady, lead) = (Arc::clone(now), Arc::clone(lead));
    let look = Ordering::Relaxed;
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let env = Env {
        disk: shared,
        clock: Arc::new(move || clock.fetch_add(tick_ms, look)),
        steady: Arc::new(move || steady.load(look) - lead.load(look)),
        boot,
        memory: 1 << 30,
        process: 4711,
    };
    let store = Store::open(store_config(32_768), env)?;
    store.start_stepped()?;
    let timers = Timers::open(Arc::clone(&store), config.clone())?;
    Ok((store, Arc::new(timers)))
}

impl World {
    pub(crate) fn new() -> Self {
        let (disk, now) = (SimDisk::new(), Arc::new(AtomicI64::new(START)));
        let config = timer_config();
        let lead = Arc::default();
        let (store, timers) = open_ticking(&disk, (&now, &lead), &config, 1, 0).unwrap();
        Self {
            disk,
            lead,
            now,
            config,
            boot: 1,
            store,
            timers,
            asked: BTreeMap::new(),
            crashes: 0,
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn pass(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sets the clock by so much.
    pub(crate) fn set_clock(&self, ms: i64) {
        self.lead.fetch_add(ms, Ordering::Relaxed);
        self.pass(ms);
    }

    /// Stores a timer message as the broker does; false when it could not be acknowledged.
    pub(crate) fn send(&mut self, key: &str, due_ms: i64, cancels: Option<&str>) -> bool {
        // The time is noted one step early (spec: store §16.1), since a slot fires one step late.
        let step = self.config.precision_ms;
        let floor = due_ms - due_ms.rem_euclid(step);
        let out = if floor == due_ms { floor - step } else { floor };
        let mut properties = format!(
            "TIMER_DELIVER_MS\u{1}{due_ms}\u{2}TIMER_OUT_MS\u{1}{out}\u{2}UNIQ_KEY\u{1}{key}\u{2}"
        );
        if let Some(target) = cancels {
            properties = format!("{properties}TIMER_DEL_UNIQKEY\u{1}{target}\u{2}");
        }
        properties += "REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}3\u{2}";
        let asked = Asked {
            due_ms,
            ..Asked::default()
        };
        if cancels.is_none() {
            self.asked.insert(key.to_owned(), asked);
        }
        let stored = self.put(TIMER_TOPIC, key.as_bytes(), properties.as_bytes());
        let durable = stored && self.store.flush().is_ok();
        if let Some(target) = cancels {
            let now = self.now();
            if let Some(asked) = self.asked.get_mut(target) {
                asked.cancelled = true;
                asked.recalled |= durable && now < asked.due_ms && asked.due_ms == due_ms;
            }
        } else if let Some(asked) = self.asked.get_mut(key) {
            asked.acknowledged = durable;
        }
        durable
    }

    pub(crate) fn put(&self, topic: &str, body: &[u8], properties: &[u8]) -> bool {
        let message = NewRecord {
            topic: topic.as_bytes(),
            queue_id: 0,
            flag: 7,
            sys_flag: 0,
            born_timestamp: START,
            born_host: &HOST,
            store_host: &HOST,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties,
        };
        let mut prepared = Prepared::default();
        prepared.push(topic, &message, 4096, false).unwrap();
        self.store.put(&mut prepared).status == PutStatus::Ok
    }

    /// Lets the engine and the store do all that is to be done now.
    pub(crate) fn turn(&self) {
        for _ in 0..1000 {
            let _ = self.store.flush();
            while matches!(self.store.dispatch(), Ok(true)) {}
            if !matches!(self.timers.step(), Ok(true)) {
                break;
            }
        }
        let _ = self.store.flush();
        while matches!(self.store.dispatch(), Ok(true)) {}
    }

    pub(crate) fn pass_in_steps(&self, ms: i64) {
        let mut left = ms;
        while left > 0 {
            let part = left.min(STEP / 2);
            self.pass(part);
            self.turn();
            left -= part;
        }
    }

    /// (key, store time) of everything delivered, in order.
    pub(crate) fn delivered(&self) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        let mut at = i64::try_from(self.store.queues().min("T", 3)).unwrap();
        let end = i64::try_from(self.store.queues().max("T", 3)).unwrap();
        while at < end {
            let wanted = Wanted {
                topic: "T",
                queue_id: 3,
                offset: at,
                messages: 32,
                bytes: 1 << 20,
                tag_codes: None,
                filter: None,
            };
            let got = self.store.get(wanted).unwrap();
            assert!(got.next > at, "{:?}", got.status);
            for part in &got.parts {
                for view in record::records(part, true) {
                    let view = view.unwrap();
                    let key = find(view.properties, b"UNIQ_KEY").unwrap();
                    assert_eq!(key, view.body, "the body is the message's own");
                    assert_eq!(view.flag, 7);
                    assert!(find(view.properties, b"TIMER_DEQUEUE_MS").is_some());
                    let key = String::from_utf8(key.to_vec()).unwrap();
                    found.push((key, view.store_timestamp));
                }
            }
            at = got.next;
        }
        found
    }

    pub(crate) fn stop(&self) {
        self.timers.flush(true).unwrap();
        self.store.close().unwrap();
    }

    pub(crate) fn reopen(&mut self) {
        self.disk.release_locks();
        let clocks = (&self.now, &self.lead);
        let opened = open_ticking(&self.disk, clocks, &self.config, self.boot, 0);
        (self.store, self.timers) = opened.unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        self.reopen();
    }

    pub(crate) fn kill(&mut self) {
        self.crashes += 1;
        self.reopen();
    }

    pub(crate) fn lose_power(&mut self, rng: &mut Rng) {
        self.disk = self.disk.after_power_loss(rng);
        self.boot += 1;
        self.kill();
    }

    /// Everything acknowledged arrived, nothing early, nothing that was not asked for.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let delivered = self.delivered();
        for (key, stored_ms) in &delivered {
            let asked = self
                .asked
                .get(key)
                .ok_or(format!("{key} was never asked for"))?;
            if *stored_ms < asked.due_ms {
                return Err(format!(
                    "{key} came at {stored_ms}, before {}",
                    asked.due_ms
                ));
            }
            *counts.entry(key).or_default() += 1;
        }
        for (key, asked) in &self.asked {
            let count = counts.get(key.as_str()).copied().unwrap_or(0);
            let is_due = asked.due_ms + 2 * STEP < self.now();
            if asked.acknowledged && is_due && !asked.cancelled && count == 0 {
                return Err(format!("{key}, due at {}, is lost", asked.due_ms));
            }
            if asked.recalled && count > 0 {
                return Err(format!("{key}, due at {}, was cancelled", asked.due_ms));
            }
            if count > 1 && self.crashes == 0 {
                return Err(format!("{key} came {count} times"));
            }
        }
        Ok(())
    }
}
