//! Queues as they are found: where they end, what is cleared behind their end, and reading over a
//! file that is gone.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::common::sim_disk::{Op, SimDisk};
use roquet_core::commit_log::{CommitLog, LogConfig};
use roquet_core::consume_queue::{ConsumeQueues, Unit};
use roquet_core::disk::file_cache::FileCache;
use roquet_core::disk::Disk;
use roquet_core::store::config::GetConfig;
use roquet_core::store::get::{GetStatus, Getter, Wanted};
use roquet_core::store::health::Health;

/// Units of a long file: it is read in four steps of growing length.
const UNITS: u64 = 4000;
/// The first two steps end within the units of these numbers.
const STEPS: [u64; 2] = [4096 / 20, 16_384 / 20];

fn open(disk: &SimDisk, file_units: u64) -> ConsumeQueues {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let cache = Arc::new(FileCache::new(1));
    ConsumeQueues::open(disk, "/q", file_units * 20, cache).expect("queues")
}

/// A queue of `count` messages of 100 bytes in files of `file_units`, all of it on disk.
fn filled(file_units: u64, count: u64) -> SimDisk {
    let disk = SimDisk::new();
    let queues = open(&disk, file_units);
    for n in 0..count {
        put(&queues, n);
    }
    queues.sync().unwrap();
    disk
}

fn put(queues: &ConsumeQueues, n: u64) {
    let tags = i64::try_from(n).unwrap();
    assert!(queues.put("T", 0, n, n * 100, 100, tags).unwrap());
}

fn path(first: u64) -> PathBuf {
    PathBuf::from(format!("/q/T/0/{:020}", first * 20))
}

fn bytes(disk: &SimDisk, file: &Path) -> Vec<u8> {
    let files = disk.files();
    files.into_iter().find(|(it, _)| it == file).unwrap().1
}

fn is_whole(queues: &ConsumeQueues, count: u64) {
    let mut found = Vec::new();
    queues.range("T", 0, 0, u64::MAX, &mut found).unwrap();
    let want = (0..count).map(|n| Unit {
        physical_offset: n * 100,
        size: 100,
        tags_code: i64::try_from(n).unwrap(),
    });
    assert!(want.eq(found), "{count}");
    let ends = (queues.min("T", 0), queues.max("T", 0), queues.position());
    assert_eq!(ends, (0, count, count * 100));
}

/// How many reads loading a queue of so many messages takes.
fn reads(count: u64) -> u64 {
    let disk = filled(UNITS, count);
    let before = disk.count(Op::Read);
    drop(open(&disk, UNITS));
    disk.count(Op::Read) - before
}

#[test]
fn a_queue_ends_where_it_ended_whatever_its_length() {
    let around = STEPS.iter().flat_map(|at| at - 1..=at + 2);
    for count in around.chain([1, 3890, 3891, 3892, UNITS - 1, UNITS, UNITS + 1]) {
        let disk = filled(UNITS, count);
        let again = open(&disk, UNITS);
        assert_eq!(again.repair_from(), None, "{count}");
        is_whole(&again, count);
        put(&again, count);
        is_whole(&again, count + 1);
    }
}

#[test]
fn a_queue_is_read_in_few_steps_and_a_short_one_in_one() {
    let short = reads(1);
    assert_eq!(reads(STEPS[0] - 1), short);
    // The next step, its first message and its last one.
    assert!(reads(STEPS[0]) > short);
    for count in [STEPS[0], STEPS[1], UNITS - 1] {
        assert!(reads(count) <= short + 6, "{count}: {}", reads(count));
    }
}

#[test]
fn every_byte_behind_the_end_is_cleared() {
    let last = UNITS * 20 - 1;
    for count in [1, STEPS[0] - 1, STEPS[0], STEPS[0] + 1, UNITS - 1] {
        let end = count * 20;
        let near = [
            end,
            end + 1,
            end + 19,
            end + 20,
            4095,
            4096,
            4097,
            65_535,
            65_536,
        ];
        let far = [end + 65_535, end + 65_536, end + 65_537, last];
        for at in near.into_iter().chain(far) {
            if !(end..=last).contains(&at) {
                continue;
            }
            let disk = filled(UNITS, count);
            let clean = bytes(&disk, &path(0));
            disk.damage(&path(0), usize::try_from(at).unwrap(), &[1]);
            let again = open(&disk, UNITS);
            assert_eq!(again.repair_from(), Some(count * 100), "{count} {at}");
            is_whole(&again, count);
            assert!(bytes(&disk, &path(0)) == clean, "{count} {at}");
        }
    }
}

#[test]
fn a_new_file_has_those_before_the_newest_made_durable_and_no_others() {
    // 204 units are written at a time: into the files 0, 0 and 1, and 1 and 2.
    for (count, syncs) in [(205, 0), (410, 0), (620, 1), (900, 1), (1230, 3)] {
        let disk = SimDisk::new();
        let queues = open(&disk, 300);
        for n in 0..count {
            put(&queues, n);
        }
        assert_eq!(disk.count(Op::Sync), syncs, "{count}");
    }
}

#[test]
fn units_are_written_in_blocks_and_read_all_the_same() {
    for (count, writes) in [(1, 0), (204, 0), (205, 1), (408, 1), (409, 2)] {
        let disk = SimDisk::new();
        let queues = open(&disk, UNITS);
        for n in 0..count {
            put(&queues, n);
        }
        assert_eq!(disk.count(Op::Write), writes, "{count}");
        is_whole(&queues, count);
        // What a kill leaves is what was written.
        let again = open(&disk, UNITS);
        assert_eq!(again.max("T", 0), writes * 204, "{count}");
    }
}

#[test]
fn units_that_were_written_do_not_count_as_held_in_memory() {
    // All of them together are more than queues may hold: each would be written by itself then.
    let count = (16 << 20) / 20 + 20_000;
    let disk = SimDisk::new();
    let queues = open(&disk, 1 << 20);
    for n in 0..count {
        put(&queues, n);
    }
    assert_eq!(disk.count(Op::Write), (count - 1) / 204);
}

#[test]
fn a_gap_of_sixteen_files_is_filled_and_a_wider_one_refused() {
    for (gap, filled) in [(0, true), (159, true), (160, true), (161, false)] {
        let queues = open(&SimDisk::new(), 10);
        put(&queues, 0);
        let found = queues.put("T", 0, 1 + gap, 100, 100, 1);
        assert_eq!(found.is_ok(), filled, "{gap}");
        assert_eq!(queues.max("T", 0), if filled { 2 + gap } else { 1 });
        assert_eq!(queues.min("T", 0), 0);
    }
    // A queue without messages begins with the file of its first one, however far that is.
    for first in [9, 10, 11, 19, 20, 1 << 30] {
        let disk = SimDisk::new();
        let queues = open(&disk, 10);
        assert!(queues.put("T", 0, first, 0, 100, 0).unwrap());
        queues.sync().unwrap();
        let ends = (queues.min("T", 0), queues.max("T", 0));
        assert_eq!(ends, (first, first + 1));
        let files: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(files, [path(first / 10 * 10)]);
    }
}

/// Reads from `offset`; returns status, next offset and how many messages are counted as lacking.
fn get(log: &CommitLog, queues: &ConsumeQueues, offset: i64) -> (GetStatus, i64, u64) {
    let getter = Getter {
        log,
        queues,
        settings: GetConfig {
            filter_bytes: 16_000,
            memory: (1 << 18, 32),
            disk: (1 << 16, 8),
            memory_percent: 40,
        },
        hot_bytes: 1 << 30,
    };
    let before = log.damage.total();
    let wanted = Wanted {
        topic: "T",
        queue_id: 0,
        offset,
        messages: 32,
        bytes: 1 << 20,
        tag_codes: None,
        filter: None,
    };
    let got = getter.get(wanted).unwrap();
    assert_eq!((got.messages, got.bytes, got.parts.len()), (0, 0, 0));
    (got.status, got.next, log.damage.total() - before)
}

#[test]
fn where_a_file_of_a_queue_is_gone_a_reader_goes_on_behind_it() {
    let disk = filled(10, 45);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = LogConfig {
        folders: vec![PathBuf::from("/log")],
        read_only: Vec::new(),
        file_size: 4096,
        sync_flush: false,
        warm: false,
    };
    let clock = Arc::new(|| 1000);
    let log = CommitLog::open(shared, settings, clock, Arc::new(Health::default())).unwrap();
    let queues = open(&disk, 10);
    disk.remove(&path(10)).unwrap();
    disk.remove(&path(40)).unwrap();
    // Its handle may be kept open.
    let mut others = Vec::new();
    queues.range("T", 0, 0, 1, &mut others).unwrap();

    let null = GetStatus::OffsetFoundNull;
    assert_eq!(get(&log, &queues, 10), (null, 20, 10));
    assert_eq!(get(&log, &queues, 19), (null, 20, 1));
    let said = log.damage.last();
    assert_eq!(said, "queue 0 of topic T lacks the file of offset 19");
    // Units that are there, of messages that are not, are passed over one by one.
    let gone = GetStatus::MessageWasRemoving;
    assert_eq!(get(&log, &queues, 8), (gone, 10, 2));
    assert_eq!(get(&log, &queues, 20), (gone, 40, 20));
    // No file comes behind it.
    assert_eq!(get(&log, &queues, 40), (null, 45, 5));
    assert_eq!(get(&log, &queues, 44), (null, 45, 1));
    let end = GetStatus::OffsetOverflowOne;
    assert_eq!(get(&log, &queues, 45), (end, 45, 0));
}

#[test]
fn first_message_behind_many_fillers_is_found_in_few_reads() {
    let disk = SimDisk::new();
    let queues = open(&disk, 5_000);
    assert!(queues.put("T", 0, 4_500, 0, 100, 7).unwrap());
    queues.sync().unwrap();
    let before = disk.count(Op::Read);
    let again = open(&disk, 5_000);
    assert_eq!((again.min("T", 0), again.max("T", 0)), (4_500, 4_501));
    // The pieces grow: 1, 16, 256 and 4,096 units, after those in which the end was found.
    let reads = disk.count(Op::Read) - before;
    assert!(reads < 20, "{reads} reads");
}

#[test]
fn older_file_that_lost_its_last_unit_ends_the_queue() {
    for lost in [9, 0] {
        let disk = filled(10, 60);
        disk.damage(&path(10), lost * 20, &[0; 20]);
        let again = open(&disk, 10);
        assert_eq!((again.min("T", 0), again.max("T", 0)), (0, 10), "{lost}");
        assert_eq!(again.repair_from(), Some(1_000), "{lost}");
    }
}

#[test]
fn files_behind_a_short_one_go_and_their_messages_are_dispatched_again() {
    let disk = filled(10, 30);
    // Nothing is left to be cleared in it: all that is behind its end are zeros.
    disk.damage(&path(10), 60, &[0; 140]);
    let again = open(&disk, 10);
    assert_eq!(again.max("T", 0), 13);
    assert_eq!(again.repair_from(), Some(1_300));
    for n in 13..30 {
        put(&again, n);
    }
    again.sync().unwrap();
    is_whole(&open(&disk, 10), 30);
}

#[test]
fn units_long_written_are_read_from_the_file_wherever_the_blocks_began() {
    for ahead in [0, 1] {
        let disk = SimDisk::new();
        let queues = open(&disk, UNITS);
        for n in 0..ahead {
            put(&queues, n);
        }
        queues.sync().unwrap();
        for n in ahead..5 * 204 {
            put(&queues, n);
        }
        let before = disk.count(Op::Read);
        let mut found = Vec::new();
        queues.range("T", 0, 0, 1, &mut found).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(disk.count(Op::Read), before + 1, "{ahead}");
    }
}

#[test]
fn units_read_are_added_behind_those_that_are_there() {
    let queues = open(&SimDisk::new(), UNITS);
    for n in 0..5 * 204 {
        put(&queues, n);
    }
    // The first are in the file, the last in memory.
    let mut found = vec![Unit::FILLER];
    queues.range("T", 0, 0, u64::MAX, &mut found).unwrap();
    assert_eq!(found.len(), 1 + 5 * 204);
    assert_eq!(found[5 * 204].physical_offset, (5 * 204 - 1) * 100);
}
