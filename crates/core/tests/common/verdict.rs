//! Whether what a store recovered is what it promised.

use std::collections::hash_map::DefaultHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicI64;
use std::sync::Arc;

use roquet_core::codec::record::{self, Parsed};
use roquet_core::consume_queue::Unit;
use roquet_core::store::get::{GetStatus, Wanted};
use roquet_core::store::Store;

use super::sim_disk::SimDisk;
use super::world::{self, Deletion, Logged, Promise};

/// What was recovered: a number for telling images apart, and the messages.
pub struct Recovered {
    pub hash: u64,
    pub log: Vec<Logged>,
    /// The deletions that took place.
    pub deletions: Vec<Deletion>,
    pub store: Arc<Store>,
}

/// Opens a store and compares it with what was promised; `Err` says which promise is broken.
pub fn recover(
    disk: &SimDisk,
    sync_flush: bool,
    promise: &Promise,
    boot: u64,
) -> Result<Recovered, String> {
    let now = Arc::new(AtomicI64::new(1_800_000_000_000));
    let store = world::open(disk, sync_flush, boot, &now)
        .map_err(|error| format!("the store does not open: {error}"))?;
    let (hash, deletions) = check(&store, promise)?;
    let log = found(&store, promise)?;
    Ok(Recovered {
        hash,
        log,
        deletions,
        store,
    })
}

/// Compares an open store, everything dispatched, with a promise; says which deletions took place.
pub fn check(store: &Store, promise: &Promise) -> Result<(u64, Vec<Deletion>), String> {
    let log = found(store, promise)?;
    // What was interrupted may have been done or not, but nothing in between.
    let there = promise.deletions.iter().filter(|it| it.after <= log.len());
    let there: Vec<Deletion> = there.copied().collect();
    let unsure = there.iter().filter(|it| !it.sure).count();
    let mut last = Err("no deletion fits".to_owned());
    for choice in 0..1_u32 << unsure.min(8) {
        let mut number = 0;
        let mut done = there.clone();
        done.retain(|it| {
            let keep = it.sure || choice >> number & 1 == 0;
            number += u32::from(!it.sure);
            keep
        });
        for deletion in &mut done {
            deletion.sure = true;
        }
        last = check_deleted(store, promise, &log, &done).map(|hash| (hash, done));
        if last.is_ok() {
            break;
        }
    }
    last
}

fn check_deleted(
    store: &Store,
    promise: &Promise,
    log: &[Logged],
    deletions: &[Deletion],
) -> Result<u64, String> {
    if log.len() < promise.durable {
        let lost = promise.durable - log.len();
        return Err(format!(
            "{lost} of {} acknowledged messages are lost",
            promise.durable
        ));
    }
    let expired = expired(store, promise);
    let is_gone = |at: usize, message: &Logged| {
        let mut later = deletions.iter().filter(|it| it.after > at);
        later.any(|it| it.topic == message.topic)
    };
    let mut queues: BTreeMap<(String, i32), Queue> = BTreeMap::new();
    for (_, message) in (log[..expired].iter().enumerate()).filter(|(at, it)| !is_gone(*at, it)) {
        let queue = queues.entry((message.topic.to_owned(), message.queue));
        queue.or_default().first = message.offset.cast_unsigned() + 1;
    }
    let mut hasher = DefaultHasher::new();
    for ((at, message), (unit, raw)) in log.iter().enumerate().skip(expired).zip(units(store)) {
        raw.hash(&mut hasher);
        if is_gone(at, message) {
            continue;
        }
        let queue = queues.entry((message.topic.to_owned(), message.queue));
        let queue = queue.or_default();
        if queue.units.is_empty() {
            queue.first = message.offset.cast_unsigned();
        }
        queue.units.push(unit);
        let found = store
            .query(message.topic, &message.key, 64, 0, i64::MAX)
            .map_err(|error| error.to_string())?;
        if !found.0.contains(&unit.physical_offset) {
            return Err(format!("key {} is not in the index", message.key));
        }
    }
    for ((topic, id), queue) in &queues {
        check_queue(store, topic, *id, queue)?;
    }
    for row in store.queues().list() {
        row.hash(&mut hasher);
        let (topic, queue, min, max) = row;
        let known = queues.contains_key(&(topic.clone(), queue));
        if !known && (min != max || store.log().next_offset(&topic, queue) != 0) {
            return Err(format!(
                "{topic}-{queue} has {min}..{max}, the log nothing of it"
            ));
        }
    }
    Ok(hasher.finish())
}

/// What a queue must hold: its units, the first of them at offset `first`.
#[derive(Default)]
struct Queue {
    first: u64,
    units: Vec<Unit>,
}

fn check_queue(store: &Store, topic: &str, id: i32, queue: &Queue) -> Result<(), String> {
    let Queue { first, units } = queue;
    let next = store.log().next_offset(topic, id);
    if next.cast_unsigned() != first + units.len() as u64 {
        return Err(format!(
            "{topic}-{id}: the next offset would be {next} after {first} + {}",
            units.len()
        ));
    }
    if units.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    let min = store.queues().min(topic, id);
    let read = store.queues().range(topic, id, *first, 10_000, &mut found);
    read.map_err(|error| error.to_string())?;
    if found != *units || min != *first {
        let (has, wants) = (found.len(), units.len());
        let differ = found
            .iter()
            .zip(units)
            .position(|(has, wants)| has != wants);
        return Err(format!(
            "{topic}-{id} from {min}: {has} units, the log has {wants} from {first}; at {differ:?}: \
             {:?}, {:?}",
            differ.and_then(|at| found.get(at)),
            differ.and_then(|at| units.get(at)),
        ));
    }
    let wanted = Wanted {
        topic,
        queue_id: id,
        offset: first.cast_signed(),
        messages: 1,
        bytes: u64::MAX,
        tag_codes: None,
        filter: None,
    };
    let got = store.get(wanted).map_err(|error| error.to_string())?;
    match got.status {
        GetStatus::Found => Ok(()),
        other => Err(format!(
            "{topic}-{id}: a get of the first message says {other:?}"
        )),
    }
}

/// How many of the promised messages lay in files that were deleted since.
fn expired(store: &Store, promise: &Promise) -> usize {
    let min = store.log().min();
    promise.log.partition_point(|message| message.end <= min)
}

/// The messages in the log, which must be the promised ones in their order; expired ones in front.
fn found(store: &Store, promise: &Promise) -> Result<Vec<Logged>, String> {
    let expired = expired(store, promise);
    let mut log = promise.log[..expired].to_vec();
    let mut wanted = promise.log[expired..].iter().chain(&promise.maybe);
    let mut next: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    for message in &log {
        next.insert((message.topic, message.queue), message.offset + 1);
    }
    let mut at = store.log().min();
    while at < store.log().written() {
        let lease = store.log().rest(at, store.log().written());
        let lease = lease.ok_or_else(|| format!("no file has offset {at}"))?;
        let (view, size) = match record::parse(&lease, 0, true) {
            Parsed::Record { view, size } => (view, u64::from(size)),
            Parsed::Blank { .. } => {
                at = store.log().next_file_start(at);
                continue;
            }
            other => return Err(format!("offset {at} of the log: {other:?}")),
        };
        let message = wanted
            .next()
            .ok_or_else(|| format!("a message at {at} that nobody sent"))?;
        let offset = next.entry((message.topic, message.queue)).or_insert(0);
        let mut deletions = promise.deletions.iter();
        if view.queue_offset == 0
            && deletions.any(|it| it.topic == message.topic && it.after <= log.len())
        {
            *offset = 0;
        }
        let same = view.topic == message.topic.as_bytes()
            && view.queue_id == message.queue
            && view.queue_offset == *offset
            && view.physical_offset.cast_unsigned() == at
            && view.body == message.body
            && view.properties == message.properties();
        if !same {
            return Err(format!(
                "the message at {at} is not {} as it was sent",
                message.key
            ));
        }
        *offset += 1;
        at += size;
        log.push(Logged {
            end: at,
            offset: view.queue_offset,
            ..message.clone()
        });
    }
    Ok(log)
}

/// Every record of the log as the unit that a queue must have, and as bytes.
fn units(store: &Store) -> Vec<(Unit, Vec<u8>)> {
    let mut units = Vec::new();
    let mut at = store.log().min();
    while at < store.log().written() {
        let Some(lease) = store.log().rest(at, store.log().written()) else {
            break;
        };
        if let Parsed::Record { view, size } = record::parse(&lease, 0, false) {
            let tags = roquet_core::java_hash::tags_code(Some(b"t"));
            let unit = Unit {
                physical_offset: at,
                size,
                tags_code: tags,
            };
            // The store time is the clock's business, the rest makes the image.
            units.push((unit, [view.topic, view.body].concat()));
            at += u64::from(size);
        } else {
            at = store.log().next_file_start(at);
        }
    }
    units
}
