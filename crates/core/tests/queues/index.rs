//! The index from keys to messages: finding, rolling, and what is left after trouble.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::common::sim_disk::{Fault, Op, SimDisk};
use super::common::Rng;
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::disk::Disk;
use roquet_core::index::Index;

const SLOTS: u32 = 7;
const ENTRIES: u32 = 20;
const NONE: [u64; 0] = [];
const ALWAYS: (i64, i64) = (0, i64::MAX);

fn open(disk: &SimDisk, safe_since: Option<i64>) -> Index {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Index::open(disk, "/s/index", SLOTS, ENTRIES, safe_since).expect("index")
}

/// Message `n`: 100 bytes, one second after the one before, two keys.
fn put(index: &Index, n: u64) {
    let own = format!("key{n}");
    let shared = format!("group{}", n % 3);
    let keys: [&[u8]; 2] = [own.as_bytes(), shared.as_bytes()];
    let time = 1_000_000 + i64::try_from(n).unwrap() * 1000;
    index.put("T", &keys, n * 100, time).unwrap();
}

fn find(index: &Index, key: &str, max: usize) -> Vec<u64> {
    index
        .query("T", key.as_bytes(), max, ALWAYS.0, ALWAYS.1)
        .unwrap()
}

fn assert_has(index: &Index, numbers: std::ops::Range<u64>) {
    for n in numbers.clone() {
        let found = find(index, &format!("key{n}"), 64);
        assert!(found.contains(&(n * 100)), "key{n}: {found:?}");
    }
    for group in 0..3 {
        let wanted: Vec<u64> = numbers.clone().filter(|n| n % 3 == group).collect();
        let found = find(index, &format!("group{group}"), 1000);
        assert!(
            wanted.iter().all(|n| found.contains(&(n * 100))),
            "{found:?}"
        );
    }
}

fn names(disk: &SimDisk) -> Vec<PathBuf> {
    disk.files().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn keys_are_found_at_once_over_many_files() {
    let disk = SimDisk::new();
    let index = open(&disk, None);
    for n in 0..100 {
        put(&index, n);
        assert_eq!(
            index.last(),
            (1_000_000 + i64::try_from(n).unwrap() * 1000, n * 100)
        );
    }
    assert_has(&index, 0..100);
    assert_eq!(
        find(&index, "group0", 3),
        [9300, 9600, 9900],
        "the newest, ascending"
    );
    assert_eq!(find(&index, "nobody", 64), NONE);
    assert_eq!(names(&disk).len(), 11, "19 entries a file");
    index.sync().unwrap();
    let again = open(&disk.after_power_loss(&mut Rng(1)), None);
    assert_has(&again, 0..100);
    put(&again, 100);
    assert_has(&again, 0..101);
}

#[test]
fn only_times_asked_for() {
    let index = open(&SimDisk::new(), None);
    for n in 0..40 {
        put(&index, n);
    }
    let found = |begin, end| index.query("T", b"group1", 64, begin, end).unwrap();
    assert_eq!(found(1_010_000, 1_016_000), [1000, 1300, 1600]);
    assert_eq!(found(0, 999_999), NONE);
    assert_eq!(found(1_040_000, i64::MAX), NONE);
    assert_eq!(found(i64::MIN, i64::MAX).len(), 13);
}

#[test]
fn a_record_indexed_before_changes_nothing() {
    let index = open(&SimDisk::new(), None);
    for n in 0..5 {
        put(&index, n);
    }
    for n in 0..5 {
        put(&index, n);
    }
    for n in 0..5 {
        assert_eq!(find(&index, &format!("key{n}"), 64), [n * 100]);
    }
}

#[test]
fn old_files_go_and_the_newest_stays() {
    let disk = SimDisk::new();
    let index = open(&disk, None);
    for n in 0..40 {
        put(&index, n);
    }
    index.sync().unwrap();
    assert_eq!(index.delete_expired(1900).unwrap(), 2);
    assert_eq!(find(&index, "key0", 1), NONE);
    assert_eq!(find(&index, "key39", 1), [3900]);
    assert_eq!(index.delete_expired(u64::MAX).unwrap(), 2);
    assert_eq!(names(&disk).len(), 1);
    index.sync().unwrap();
    assert_eq!(names(&disk.after_power_loss(&mut Rng(5))).len(), 1);
}

#[test]
fn whatever_power_loss_leaves_dispatch_completes() {
    let mut images = std::collections::BTreeSet::new();
    for seed in 0..500 {
        let mut rng = Rng(seed);
        let disk = SimDisk::new();
        let index = open(&disk, None);
        let total = 1 + rng.below(60);
        let (mut synced, mut safe) = (0, 0);
        for n in 0..total {
            put(&index, n);
            if rng.chance(15) {
                index.sync().unwrap();
                // A crash between the sync and the checkpoint leaves the older promise.
                if rng.chance(2) {
                    synced = n + 1;
                    safe = index.last().0;
                }
            }
        }
        let image = disk.after_power_loss(&mut rng);
        images.insert(image.files());
        let again = open(&image, Some(safe));
        assert_has(&again, 0..synced);
        let known = again.last().1;
        assert!(
            known + 100 >= synced * 100,
            "seed {seed} {known} {synced} {total} {:?}",
            names(&image)
        );
        for n in synced.min(known / 100)..total {
            put(&again, n);
        }
        assert_has(&again, 0..total);
    }
    assert!(images.len() > 150, "only {} images", images.len());
}

#[test]
fn cutting_frees_the_place_for_other_messages() {
    for cut in 0..40 {
        let disk = SimDisk::new();
        let index = open(&disk, None);
        for n in 0..38 {
            put(&index, n);
        }
        if cut % 2 == 0 {
            index.sync().unwrap();
        }
        index.truncate(cut * 100).unwrap();
        let left = cut.min(38);
        assert_has(&index, 0..left);
        for n in left..38 {
            assert_eq!(find(&index, &format!("key{n}"), 1), NONE, "cut at {cut}");
        }
        index.put("T", &[b"new"], cut * 100, 2_000_000).unwrap();
        assert_eq!(find(&index, "new", 1), [cut * 100]);
        index.sync().unwrap();
        let again = open(&disk.after_power_loss(&mut Rng(cut)), None);
        assert_has(&again, 0..left);
        assert_eq!(find(&again, "new", 1), [cut * 100]);
    }
}

#[test]
fn names_sort_like_the_files_even_when_the_clock_does_not() {
    let disk = SimDisk::new();
    let index = open(&disk, None);
    for n in 0..60u64 {
        let time = 5_000_000 - i64::try_from(n).unwrap() * 60_000;
        index
            .put("T", &[format!("k{n}").as_bytes()], n * 100, time)
            .unwrap();
    }
    let names = names(&disk);
    assert_eq!(names.len(), 4);
    assert!(
        names
            .iter()
            .all(|name| name.file_name().unwrap().len() == 17),
        "{names:?}"
    );
    index.sync().unwrap();
    assert_eq!(open(&disk, None).last().1, 5900);
}

#[test]
fn rocketmq_7539_trouble_is_an_error_and_no_sync_is_believed_after_a_failed_one() {
    let disk = SimDisk::new();
    let index = open(&disk, None);
    disk.set_capacity(Some(0));
    put(&index, 0);
    assert!(index.sync().is_err());
    disk.set_capacity(None);
    assert!(index.sync().is_err());
    assert_eq!(find(&index, "key0", 1), [0]);

    let disk = SimDisk::new();
    let index = open(&disk, None);
    let errno = libc::EIO;
    disk.set_fault(Some(Fault {
        op: Some(Op::Create),
        nth: 0,
        sticky: false,
        errno,
    }));
    assert!(index.put("T", &[b"k"], 0, 1).is_err());
    index.put("T", &[b"k"], 0, 1).unwrap();
    assert_eq!(find(&index, "k", 1), [0]);

    disk.plant(Path::new("/s/index/20200101000000000"), &[1; 99]);
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let refused = Index::open(shared, "/s/index", SLOTS, ENTRIES, None).err();
    assert!(refused
        .expect("wrong length")
        .to_string()
        .contains("99 bytes"));
}

#[test]
fn rocketmq_7539_a_disk_that_refuses_for_good_is_not_filled_with_files() {
    // So many puts that all fit into one file, where they may succeed in memory.
    for (op, puts, files) in [(Op::Create, 100, 0), (Op::Write, 15, 1), (Op::Sync, 15, 1)] {
        let disk = SimDisk::new();
        let index = open(&disk, None);
        disk.set_fault(Some(Fault {
            op: Some(op),
            nth: 0,
            sticky: true,
            errno: libc::EIO,
        }));
        let mut refused = 0;
        for n in 0..puts {
            let stored = index.put("T", &[b"k"], n * 100, 1).is_ok();
            refused += u64::from(!(stored && index.sync().is_ok()));
            assert!(names(&disk).len() <= files, "{op:?}: {:?}", names(&disk));
        }
        assert_eq!(refused, puts, "{op:?}");
    }
}

#[test]
fn an_index_of_the_java_broker_is_read_and_rebuilt() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/store");
    for (state, safe) in [("clean", None), ("clean", Some(0)), ("running", Some(0))] {
        let source: Arc<dyn Disk> = Arc::new(FileDisk::new());
        let disk = SimDisk::new();
        let mut before = Vec::new();
        for (file, _, _) in source.list(&root.join(state).join("index")).unwrap() {
            let name = Path::new("/j").join(file.file_name().unwrap());
            before = source.read(&file).unwrap().unwrap();
            disk.plant(&name, &before);
        }
        let index = Index::open(Arc::new(disk.clone()), "/j", 500, 2000, safe).unwrap();
        for n in 0..20 {
            let key = format!("key-{n}");
            let found = index
                .query("GoldenTopic", key.as_bytes(), 32, 0, i64::MAX)
                .unwrap();
            assert!(!found.is_empty(), "{state}: {key}");
        }
        let tagged = index.query("GoldenTopic", b"T#TagA", 64, 0, i64::MAX);
        assert_eq!(tagged.unwrap().len(), 10);
        // What is rebuilt from the entries is what Java wrote, byte for byte.
        let (path, after) = disk.files().remove(0);
        let file = disk.open(&path).unwrap();
        assert_eq!(file.len().unwrap(), after.len() as u64);
        assert!(after == before, "{state}: the file changed");
    }
}

#[test]
fn a_damaged_count_of_slots_stops_nobody() {
    let disk = SimDisk::new();
    let index = open(&disk, None);
    put(&index, 1);
    index.sync().unwrap();
    drop(index);
    let path = names(&disk).remove(0);
    disk.damage(&path, 32, &i32::MAX.to_be_bytes());
    let index = open(&disk, None);
    put(&index, 2);
    index.sync().unwrap();
    assert_has(&index, 1..3);
}
