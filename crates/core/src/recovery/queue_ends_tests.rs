//! Queues held against a note and against the log, at the edges of each rule.

use super::{Audit, Ends, Last, Seen, JUMP_MAX};
use crate::codec::record::RecordView;
use crate::commit_log::NextOffsets;
use crate::consume_queue::ConsumeQueues;
use crate::disk::file_cache::FileCache;
use crate::disk::file_disk::FileDisk;
use crate::disk::Disk;
use crate::recovery::deleted::Deleted;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

struct World {
    folder: PathBuf,
    queues: ConsumeQueues,
    deleted: Deleted,
}

impl World {
    /// Queues in files of ten units: A/0 has offsets 0 to 3 of records of 100 bytes from 0 on.
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("roquet-ends-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new());
        let cache = Arc::new(FileCache::new(10));
        let root = folder.join("consumequeue");
        let queues = ConsumeQueues::open(Arc::clone(&disk), root, 200, cache).unwrap();
        let deleted = Deleted::open(disk, &folder).unwrap();
        let world = Self {
            folder,
            queues,
            deleted,
        };
        for offset in 0..3 {
            world.put("A", offset, offset * 100);
        }
        world
    }

    fn put(&self, topic: &str, offset: u64, at: u64) {
        assert!(self.queues.put(topic, 0, offset, at, 100, 0).unwrap());
    }

    fn audit(&self, position: u64, rows: &[(&str, [u64; 3])], log_min: u64) -> Audit {
        let head = (String::new(), [position, 0, 0]);
        let rows = rows.iter().map(|(topic, row)| ((*topic).to_owned(), *row));
        let ends = Ends {
            rows: std::iter::once(head).chain(rows).collect(),
            is_current: true,
        };
        Audit::of(
            &ends,
            &self.queues,
            (&self.deleted, true),
            (log_min, &|_, _| true),
        )
        .unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn has_none(audit: &Audit) -> bool {
    audit.floors == NextOffsets::default()
}

fn seen(rows: &[(&str, i32, u64, u64)]) -> Seen {
    let mut all = Seen::default();
    for (topic, id, next, at) in rows {
        let queues = all.0.entry(topic.as_bytes().to_vec()).or_default();
        queues.insert(
            *id,
            Last {
                next: *next,
                at: *at,
            },
        );
    }
    all
}

fn told(seen: &Seen) -> Vec<(String, i32, u64, u64)> {
    let sorted: BTreeMap<_, _> = seen.0.iter().collect();
    let rows = sorted.into_iter().flat_map(|(topic, queues)| {
        let topic = String::from_utf8_lossy(topic).into_owned();
        queues
            .iter()
            .map(move |(id, last)| (topic.clone(), *id, last.next, last.at))
    });
    rows.collect()
}

fn add(seen: &mut Seen, topic: &[u8], queue_id: i32, queue_offset: i64, at: u64) {
    let record = RecordView {
        total_size: 100,
        magic: 0,
        body_crc: 0,
        queue_id,
        flag: 0,
        queue_offset,
        physical_offset: 0,
        sys_flag: 0,
        born_timestamp: 0,
        born_host: &[],
        store_timestamp: 0,
        store_host: &[],
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &[],
        topic,
        properties: &[],
    };
    seen.add(&record, at);
}

#[test]
fn queue_that_ends_before_its_note_is_made_again_from_its_end() {
    // What the note says of A/0, from where on the log is dispatched again, and the next offset.
    for (row, repair, floor) in [
        ([0, 0, 2], None, 2),
        ([0, 0, 3], None, 3),
        ([0, 0, 4], Some(300), 4),
        ([0, 3, 3], None, 3),
        // The queue was empty then: only its next offset is known.
        ([0, 5, 5], None, 5),
    ] {
        let world = World::new();
        let audit = world.audit(300, &[("A", row)], 0);
        assert_eq!(audit.repair_from, repair, "{row:?}");
        assert_eq!(audit.floors.get("A", 0), floor, "{row:?}");
        assert_eq!(audit.notes.len(), usize::from(repair.is_some()));
        assert_eq!(world.queues.max("A", 0), 3);
    }
    // One that is not there at all is made from the beginning, which is the first of two.
    let world = World::new();
    let audit = world.audit(300, &[("A", [0, 0, 4]), ("B", [1, 0, 1])], 0);
    assert_eq!((audit.repair_from, audit.notes.len()), (Some(0), 2));
    let audit = world.audit(300, &[("B", [1, 0, 1]), ("A", [0, 0, 4])], 0);
    assert_eq!((audit.repair_from, audit.notes.len()), (Some(0), 2));
    assert_eq!(audit.floors.get("B", 1), 1);
}

#[test]
fn queue_that_begins_behind_its_note_is_made_again_whole() {
    // (first offset that the note has, begin of the log): whether it is dropped
    for (min, log_min, dropped) in [
        (20, 1999, false),
        (10, 1999, true),
        (19, 1999, true),
        // Its first message is where the log begins: older ones went with the log.
        (10, 2000, false),
        (10, 2001, false),
        (21, 1999, false),
    ] {
        let world = World::new();
        world.put("B", 20, 2000);
        world.put("B", 21, 2100);
        let audit = world.audit(3000, &[("B", [0, min, 22])], log_min);
        let found = world.queues.max("B", 0) == 0;
        assert_eq!(found, dropped, "{min} {log_min}");
        assert_eq!(audit.repair_from, dropped.then_some(0), "{min} {log_min}");
        assert_eq!(audit.floors.get("B", 0), 22);
    }
}

#[test]
fn note_counts_while_the_log_has_what_it_was_taken_of() {
    for (position, log_min, counts) in [(300, 299, true), (300, 300, true), (300, 301, false)] {
        let world = World::new();
        let audit = world.audit(position, &[("A", [0, 0, 9])], log_min);
        assert_eq!(audit.repair_from.is_some(), counts, "{position} {log_min}");
        assert_eq!(has_none(&audit), !counts);
    }
    let world = World::new();
    let ends = Ends {
        rows: Vec::new(),
        is_current: true,
    };
    let none = Audit::of(
        &ends,
        &world.queues,
        (&world.deleted, true),
        (0, &|_, _| true),
    )
    .unwrap();
    assert_eq!((none.repair_from, has_none(&none)), (None, true));
    // A number that is no queue.
    let audit = world.audit(300, &[("A", [1 << 31, 0, 9])], 0);
    assert!(has_none(&audit) && audit.repair_from.is_none());
}

#[test]
fn note_of_a_topic_that_was_deleted_later_says_nothing() {
    // The topic went with what lay before this offset; the note is of 300.
    for (end, gone) in [(299, false), (300, true), (301, true)] {
        let world = World::new();
        world.deleted.add("A", end).unwrap();
        let audit = world.audit(300, &[("A", [0, 0, 9])], 0);
        assert_eq!(has_none(&audit), gone, "{end}");
        assert_eq!(audit.repair_from.is_none(), gone, "{end}");
    }
}

#[test]
fn queue_that_is_not_what_the_log_says_is_dropped() {
    let far = 3 + JUMP_MAX;
    // What the log says of A/0 (its last record is at 200), from 200 on or from 201 on.
    for (log, from, fits) in [
        (Some((2, 100)), 200, true),
        (Some((3, 200)), 200, true),
        (Some((3, 199)), 200, true),
        (Some((3, 201)), 200, false),
        (Some((4, 200)), 200, false),
        (Some((far, 200)), 200, false),
        // So far behind the others is a damaged number.
        (Some((far + 1, 200)), 200, true),
        (None, 200, false),
        (None, 201, true),
    ] {
        let world = World::new();
        let rows: Vec<_> = log
            .map(|(next, at)| ("A", 0, next, at))
            .into_iter()
            .collect();
        let mut audit = Audit::default();
        let found = audit
            .compare(&seen(&rows), &world.queues, (from, false, false))
            .unwrap();
        assert_eq!(found, usize::from(!fits), "{log:?} {from}");
        let max = world.queues.max("A", 0);
        assert_eq!(max, if fits { 3 } else { 0 }, "{log:?} {from}");
        assert_eq!(audit.repair_from, (!fits).then_some(0));
        assert_eq!(audit.floors.get("A", 0), if fits { 0 } else { 3 });
    }
}

#[test]
fn queues_that_the_log_has_and_nobody_else_are_made_where_we_wrote_last() {
    let both = [("A", 0, 3, 200), ("B", 0, 1, 300), ("B", 2, 1, 400)];
    for (rows, ours, lacking) in [
        (&both[..], true, 2),
        (&both[..2], true, 1),
        (&both[..1], true, 0),
        (&both[..], false, 0),
    ] {
        let world = World::new();
        let mut audit = Audit::default();
        let found = audit
            .compare(&seen(rows), &world.queues, (0, ours, false))
            .unwrap();
        assert_eq!(found, lacking, "{ours}");
        assert_eq!(audit.repair_from, (lacking > 0).then_some(0));
        assert_eq!(audit.notes.len(), usize::from(lacking > 0));
    }
    // One that is dropped has the log dispatched again already.
    let world = World::new();
    let rows = [("A", 0, 9, 900), ("B", 0, 1, 300)];
    let found = Audit::default().compare(&seen(&rows), &world.queues, (0, true, false));
    assert_eq!(found.unwrap(), 1);
}

#[test]
fn queues_of_records_of_others_are_held_against_nothing() {
    let world = World::new();
    world.put("%LMQ%x", 0, 500);
    let rows = [("A", 0, 3, 200)];
    let mut audit = Audit::default();
    assert_eq!(
        audit
            .compare(&seen(&rows), &world.queues, (0, true, false))
            .unwrap(),
        0
    );
    assert_eq!(world.queues.max("%LMQ%x", 0), 1);
}

#[test]
fn offsets_that_the_log_gave_out_are_not_given_out_again() {
    let world = World::new();
    for (next, floor) in [
        (0, 0),
        (2, 2),
        (3, 3),
        (4, 4),
        (3 + JUMP_MAX, 3 + JUMP_MAX),
        (4 + JUMP_MAX, 0),
    ] {
        let mut audit = Audit::default();
        audit.take_floors(&seen(&[("A", 0, next, 0)]), &world.queues);
        assert_eq!(audit.floors.get("A", 0), floor.cast_signed(), "{next}");
    }
    let mut audit = Audit::default();
    audit.take_floors(&seen(&[("A", 0, 7, 0), ("B", 5, 2, 0)]), &world.queues);
    audit.take_floors(&seen(&[("A", 0, 6, 0), ("B", 5, 3, 0)]), &world.queues);
    assert_eq!((audit.floors.get("A", 0), audit.floors.get("B", 5)), (7, 3));
}

#[test]
fn last_record_of_a_queue_is_the_one_with_the_highest_offset() {
    let mut seen = Seen::default();
    add(&mut seen, b"T", 1, 5, 100);
    add(&mut seen, b"T", 1, 5, 200);
    add(&mut seen, b"T", 1, 4, 300);
    assert_eq!(told(&seen), [("T".to_owned(), 1, 6, 100)]);
    add(&mut seen, b"T", 1, 6, 400);
    add(&mut seen, b"T", 0, 9, 500);
    let both = [("T".to_owned(), 0, 10, 500), ("T".to_owned(), 1, 7, 400)];
    assert_eq!(told(&seen), both);
    // What is no place in a queue.
    add(&mut seen, b"T", -1, 9, 600);
    add(&mut seen, b"T", 1, -1, 600);
    add(&mut seen, b"a/b", 0, 3, 600);
    assert_eq!(told(&seen), both);
    // A jump this wide is believed, a wider one not.
    let jump = JUMP_MAX.cast_signed();
    add(&mut seen, b"T", 1, 7 + jump, 700);
    assert_eq!(told(&seen)[1].2, 7);
    add(&mut seen, b"T", 1, 6 + jump, 700);
    assert_eq!(told(&seen)[1], ("T".to_owned(), 1, 7 + JUMP_MAX, 700));
    // The topic begins anew, with all of its queues.
    add(&mut seen, b"T", 2, 0, 800);
    assert_eq!(told(&seen).len(), 3);
    add(&mut seen, b"T", 2, 0, 900);
    assert_eq!(told(&seen), [("T".to_owned(), 2, 1, 900)]);
}
