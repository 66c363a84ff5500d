//! Consume queues: putting, reading, cutting, and what is left after trouble.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::common::sim_disk::{Fault, Op, SimDisk};
use super::common::Rng;
use roquet_core::consume_queue::{ConsumeQueues, Unit};
use roquet_core::disk::file_cache::FileCache;
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::disk::Disk;

const FILE: u64 = 200;

fn open(disk: &SimDisk) -> ConsumeQueues {
    try_open(disk).expect("queues")
}

fn try_open(disk: &SimDisk) -> std::io::Result<ConsumeQueues> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    ConsumeQueues::open(disk, "/s/consumequeue", FILE, Arc::new(FileCache::new(3)))
}

/// Puts message `n` of a log of 100-byte records.
fn put(queues: &ConsumeQueues, topic: &str, offset: u64, n: u64) -> bool {
    let tags = i64::try_from(n).unwrap();
    queues.put(topic, 0, offset, n * 100, 100, tags).unwrap()
}

fn units(queues: &ConsumeQueues, topic: &str) -> Vec<Unit> {
    let mut out = Vec::new();
    let (min, max) = (queues.min(topic, 0), queues.max(topic, 0));
    queues.range(topic, 0, min, u64::MAX, &mut out).unwrap();
    assert_eq!(out.len() as u64, max - min);
    out
}

fn logged(numbers: std::ops::Range<u64>) -> Vec<Unit> {
    numbers
        .map(|n| Unit {
            physical_offset: n * 100,
            size: 100,
            tags_code: i64::try_from(n).unwrap(),
        })
        .collect()
}

fn queue_file(topic: &str, base: u64) -> PathBuf {
    PathBuf::from(format!("/s/consumequeue/{topic}/0/{base:020}"))
}

#[test]
fn a_unit_is_there_at_once_and_after_a_sync_for_ever() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    for n in 0..25 {
        assert!(put(&queues, "a", n, n));
        assert_eq!(units(&queues, "a"), logged(0..n + 1));
    }
    assert_eq!(queues.last("a", 0), logged(24..25).first().copied());
    assert_eq!(queues.position(), 2500);
    queues.sync().unwrap();
    let image = disk.after_power_loss(&mut Rng(1));
    let again = open(&image);
    assert_eq!(units(&again, "a"), logged(0..25));
    assert_eq!(again.repair_from(), None);
    assert!(put(&again, "a", 25, 25));
    assert_eq!(again.list(), [("a".to_owned(), 0, 0, 26)]);
}

#[test]
fn reads_from_memory_and_files_agree() {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let cache = Arc::new(FileCache::new(2));
    let queues = ConsumeQueues::open(shared, "/q", 20 * 300, cache).unwrap();
    for n in 0..2000 {
        put(&queues, "a", n, n);
    }
    for from in [0, 1, 299, 300, 1590, 1591, 1795, 1796, 1999] {
        for count in [1, 2, 32, 205, 900] {
            let mut out = Vec::new();
            queues.range("a", 0, from, count, &mut out).unwrap();
            assert_eq!(
                out,
                logged(from..(from + count).min(2000)),
                "{from} {count}"
            );
        }
    }
    let mut out = Vec::new();
    queues.range("a", 0, 2000, 5, &mut out).unwrap();
    queues.range("a", 1, 0, 5, &mut out).unwrap();
    queues.range("b", 0, 0, 5, &mut out).unwrap();
    assert_eq!(out, []);
}

#[test]
fn a_repeat_changes_nothing_and_a_taken_offset_is_counted() {
    let queues = open(&SimDisk::new());
    for n in 0..5 {
        put(&queues, "a", n, n);
    }
    assert!(!put(&queues, "a", 2, 2));
    assert!(!put(&queues, "a", 7, 3), "an old record at a new offset");
    assert_eq!(queues.conflicts(), 0);
    assert!(!put(&queues, "a", 3, 9));
    assert_eq!(queues.conflicts(), 1);
    assert_eq!(units(&queues, "a"), logged(0..5));
}

#[test]
fn a_queue_that_starts_in_the_middle_is_filled_from_its_file_start() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    put(&queues, "a", 34, 5);
    assert_eq!((queues.min("a", 0), queues.max("a", 0)), (34, 35));
    queues.sync().unwrap();
    let files = disk.files();
    let file = files.iter().find(|(path, _)| *path == queue_file("a", 600));
    let filler = [
        0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(file.unwrap().1[..80], filler.repeat(4));
    assert_eq!(files.len(), 1);
    let again = open(&disk);
    assert_eq!((again.min("a", 0), again.max("a", 0)), (34, 35));
    again.correct_min(0).unwrap();
    assert_eq!(units(&again, "a"), logged(5..6));
}

#[test]
fn a_gap_is_filled_and_a_senseless_one_refused() {
    let queues = open(&SimDisk::new());
    put(&queues, "a", 0, 0);
    put(&queues, "a", 15, 1);
    let found = units(&queues, "a");
    assert_eq!(found.len(), 16);
    assert!(found[1..15].iter().all(Unit::is_filler));
    let far = queues.put("a", 0, 1 << 40, 300, 100, 0);
    assert_eq!(far.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    let huge = queues.put("a", 0, u64::MAX, 300, 100, 0);
    assert_eq!(huge.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(queues.max("a", 0), 16);
}

#[test]
fn cve_2019_17572_names_stay_inside_the_store() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    let long = "x".repeat(256);
    for topic in ["", ".", "..", "../../x", "/etc", "a/b", "a\0b", &long] {
        let refused = queues.put(topic, 0, 0, 0, 100, 0);
        assert_eq!(
            refused.unwrap_err().kind(),
            std::io::ErrorKind::InvalidInput
        );
        assert_eq!(queues.delete_topic(topic).unwrap(), 0);
    }
    assert!(queues.put("a", -1, 0, 0, 100, 0).is_err());
    queues.sync().unwrap();
    assert_eq!(disk.files(), []);
    assert_eq!(queues.list(), []);
}

#[test]
fn cutting_leaves_nothing_behind_the_cut() {
    for cut in 0..40 {
        for synced in [false, true] {
            let disk = SimDisk::new();
            let queues = open(&disk);
            for n in 0..37 {
                put(&queues, "a", n, n);
            }
            if synced {
                queues.sync().unwrap();
            }
            queues.truncate(cut * 100).unwrap();
            let left = cut.min(37);
            assert_eq!(units(&queues, "a"), logged(0..left));
            for n in left..left + 3 {
                assert!(queues.put("a", 0, n, n * 100, 100, -7).unwrap());
            }
            queues.sync().unwrap();
            let again = open(&disk.after_power_loss(&mut Rng(cut)));
            assert_eq!(again.max("a", 0), left + 3, "cut at {cut}");
            assert_eq!(units(&again, "a")[..left as usize], logged(0..left));
        }
    }
}

#[test]
fn an_emptied_queue_keeps_its_next_offset() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    for n in 0..30 {
        put(&queues, "a", n, n);
    }
    queues.sync().unwrap();
    queues.delete_expired(2000).unwrap();
    queues.truncate(100).unwrap();
    assert_eq!((queues.min("a", 0), queues.max("a", 0)), (20, 20));
    queues.sync().unwrap();
    let again = open(&disk);
    assert_eq!((again.min("a", 0), again.max("a", 0)), (20, 20));
    assert_eq!(again.last("a", 0), None);
}

#[test]
fn min_follows_the_log_and_whole_files_go() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    for n in 0..35 {
        put(&queues, "a", n, n);
    }
    queues.sync().unwrap();
    queues.correct_min(450).unwrap();
    assert_eq!(queues.min("a", 0), 5);
    assert_eq!(queues.delete_expired(1000).unwrap(), 1);
    assert_eq!(queues.min("a", 0), 10);
    assert_eq!(queues.next_part("a", 0, 0), Some(10));
    assert_eq!(
        queues.delete_expired(1_000_000).unwrap(),
        2,
        "never the last"
    );
    assert_eq!((queues.min("a", 0), queues.max("a", 0)), (35, 35));
    queues.sync().unwrap();
    let again = open(&disk.after_power_loss(&mut Rng(3)));
    assert_eq!((again.min("a", 0), again.max("a", 0)), (30, 35));
}

#[test]
fn a_deleted_topic_is_gone_after_a_power_loss_too() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    put(&queues, "a", 0, 0);
    queues.put("a", 3, 0, 100, 100, 0).unwrap();
    put(&queues, "ab", 0, 2);
    queues.sync().unwrap();
    assert_eq!(queues.delete_topic("a").unwrap(), 2);
    queues.sync().unwrap();
    assert_eq!(queues.list(), [("ab".to_owned(), 0, 0, 1)]);
    put(&queues, "a", 0, 3);
    assert_eq!(units(&queues, "a"), logged(3..4));
}

#[test]
fn times_are_found_from_both_sides() {
    let queues = open(&SimDisk::new());
    let times = [10, 20, 20, 20, 30, 40];
    for n in 0..6 {
        put(&queues, "a", n, n);
    }
    let time = |phy: u64, _: u32| Some(times[(phy / 100) as usize]);
    let find = |ts, upper| queues.offset_by_time("a", 0, ts, upper, &time).unwrap();
    let lower: Vec<u64> = [5, 10, 15, 20, 25, 40, 41]
        .map(|ts| find(ts, false))
        .to_vec();
    assert_eq!(lower, [0, 0, 1, 1, 4, 5, 6]);
    let upper: Vec<u64> = [5, 10, 15, 20, 25, 40, 41]
        .map(|ts| find(ts, true))
        .to_vec();
    assert_eq!(upper, [0, 0, 0, 3, 3, 5, 5]);
    let gone = |phy: u64, _: u32| (phy >= 200).then(|| times[(phy / 100) as usize]);
    assert_eq!(queues.offset_by_time("a", 0, 0, false, &gone).unwrap(), 2);
    assert_eq!(queues.offset_by_time("x", 0, 0, false, &gone).unwrap(), 0);
}

#[test]
fn a_full_disk_refuses_and_the_same_call_works_later() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    disk.set_capacity(Some(0));
    let mut refused = 0;
    for n in 0..1000 {
        while let Err(error) = queues.put("a", 0, n, n * 100, 100, n.cast_signed()) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
            assert_eq!(queues.max("a", 0), n, "reads go on");
            assert_eq!(units(&queues, "a"), logged(0..n));
            refused += 1;
            disk.set_capacity(Some(if refused > 1 { 1 << 20 } else { 0 }));
        }
    }
    assert_eq!(refused, 2);
    assert_eq!(units(&queues, "a"), logged(0..1000));
}

#[test]
fn after_a_failed_sync_no_sync_is_believed() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    put(&queues, "a", 0, 0);
    let errno = libc::EIO;
    disk.set_fault(Some(Fault {
        op: Some(Op::Sync),
        nth: 0,
        sticky: false,
        errno,
    }));
    assert!(queues.sync().is_err());
    assert!(queues.sync().is_err());
    put(&queues, "a", 1, 1);
    assert!(queues.sync().is_err());
}

#[test]
fn damage_in_the_newest_files_is_cut_and_named_for_repair() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    for n in 0..48 {
        put(&queues, "a", n, n);
    }
    queues.sync().unwrap();
    disk.damage(&queue_file("a", 600), 60, &[0; 20]);
    let again = open(&disk);
    assert_eq!(units(&again, "a"), logged(0..33));
    assert_eq!(again.repair_from(), Some(3300));
    for n in 33..48 {
        assert!(put(&again, "a", n, n), "dispatched again");
    }
    again.sync().unwrap();
    let whole = open(&disk.after_power_loss(&mut Rng(9)));
    assert_eq!(units(&whole, "a"), logged(0..48));
    assert_eq!(whole.repair_from(), None);
}

#[test]
fn files_without_length_and_missing_ones_are_survived() {
    for lost in [200, 400] {
        let disk = SimDisk::new();
        let queues = open(&disk);
        for n in 0..25 {
            put(&queues, "a", n, n);
        }
        queues.sync().unwrap();
        disk.remove(&queue_file("a", lost)).unwrap();
        if lost == 400 {
            disk.plant(&queue_file("a", 400), b"");
        }
        let again = open(&disk);
        let left = lost / 20;
        assert_eq!(units(&again, "a"), logged(0..left));
        assert_eq!(again.repair_from(), (lost == 200).then_some(1000));
        assert!(put(&again, "a", left, left));
    }
    let disk = SimDisk::new();
    disk.plant(&queue_file("a", 0), &[0; 60]);
    let refused = try_open(&disk).err().expect("a file of the wrong length");
    assert!(refused.to_string().contains("60 bytes"), "{refused}");
}

#[test]
fn any_power_loss_leaves_a_prefix_that_dispatch_completes() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let disk = SimDisk::new();
        let queues = open(&disk);
        let (total, mut synced) = (1 + rng.below(70), 0);
        for n in 0..total {
            put(&queues, "a", n, n);
            if rng.chance(20) {
                queues.sync().unwrap();
                synced = n + 1;
            }
        }
        let again = open(&disk.after_power_loss(&mut rng));
        // The store's recovery: nothing after the checkpoint is trusted, all of it dispatched again.
        again.truncate(synced * 100).unwrap();
        assert_eq!(units(&again, "a"), logged(0..synced), "seed {seed}");
        for n in synced..total {
            assert!(put(&again, "a", n, n));
        }
        assert_eq!(units(&again, "a"), logged(0..total));
        lengths.insert((synced, total));
    }
    assert!(
        lengths.len() > 150,
        "only {} different cases",
        lengths.len()
    );
}

#[test]
fn many_topics_are_loaded_by_several_threads_as_few_are() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    let topics: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
    for (topic, number) in topics.iter().zip(0..) {
        // One file, several files, and queues that begin with what stands for no message.
        for offset in number % 5..=number % 23 {
            put(&queues, topic, offset, 1000 * number + offset);
        }
    }
    queues.sync().unwrap();
    let again = open(&disk);
    assert_eq!(again.list(), queues.list());
    assert!(again.list().len() > 150);
    assert_eq!(again.position(), queues.position());
    assert_eq!(again.repair_from(), None);
    for topic in &topics {
        assert_eq!(units(&again, topic), units(&queues, topic));
        assert_eq!(again.last(topic, 0), queues.last(topic, 0));
    }
    disk.plant(&queue_file("t77", 0), &[0; 30]);
    let error = try_open(&disk).err().expect("a file of another length");
    assert!(error.to_string().contains("t77"), "{error}");
}

#[test]
fn what_is_remembered_of_the_first_message_ends_with_it() {
    let disk = SimDisk::new();
    let queues = open(&disk);
    for n in 0..25 {
        put(&queues, "a", n, n);
    }
    queues.sync().unwrap();
    let again = open(&disk);
    for (phy, min) in [(0, 0), (0, 0), (1150, 12), (1200, 12), (1201, 13)] {
        again.correct_min(phy).unwrap();
        assert_eq!(again.min("a", 0), min);
    }
    again.truncate(500).unwrap();
    assert_eq!((again.min("a", 0), again.max("a", 0)), (5, 5));
    for n in 5..9 {
        put(&again, "a", n, 100 + n);
    }
    for (phy, min) in [(0, 5), (10_500, 5), (10_501, 6), (20_000, 9)] {
        again.correct_min(phy).unwrap();
        assert_eq!(again.min("a", 0), min, "from {phy} on");
    }
}

#[test]
fn queues_of_the_java_broker_are_read_and_written_alike() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/store");
    for state in ["clean", "running"] {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new());
        let source = root.join(state).join("consumequeue");
        let copy = SimDisk::new();
        for (topic, _, _) in disk.list(&source).unwrap() {
            for (queue, _, _) in disk.list(&topic).unwrap() {
                for (file, _, _) in disk.list(&queue).unwrap() {
                    let name = Path::new("/j").join(file.strip_prefix(&source).unwrap());
                    copy.plant(&name, &disk.read(&file).unwrap().unwrap());
                }
            }
        }
        let cache = Arc::new(FileCache::new(100));
        let java = ConsumeQueues::open(Arc::new(copy.clone()), "/j", 2000, cache).unwrap();
        let cache = Arc::new(FileCache::new(100));
        let ours = ConsumeQueues::open(Arc::new(copy.clone()), "/o", 2000, cache).unwrap();
        assert_eq!(java.repair_from(), None);
        let rows = java.list();
        assert!(rows.len() >= 10, "{rows:?}");
        for (topic, queue, min, max) in rows {
            let mut found = Vec::new();
            java.range(&topic, queue, min, max, &mut found).unwrap();
            assert!(!found.is_empty());
            for (offset, unit) in (min..max).zip(&found) {
                let Unit {
                    physical_offset: phy,
                    size,
                    tags_code,
                } = *unit;
                ours.put(&topic, queue, offset, phy, size, tags_code)
                    .unwrap();
            }
        }
        ours.sync().unwrap();
        assert_eq!(java.list(), ours.list());
        for (path, bytes) in copy.files() {
            let Ok(name) = path.strip_prefix("/j") else {
                continue;
            };
            let file = copy.open(&Path::new("/o").join(name)).unwrap();
            let mut same = vec![0; bytes.len()];
            file.read_at(&mut same, 0).unwrap();
            assert_eq!(same, bytes, "{}", name.display());
        }
    }
}
