//! Cutting queues and moving their beginning, at every record, in memory and as loaded.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::PathBuf;
use std::sync::Arc;

use super::common::sim_disk::SimDisk;
use roquet_core::consume_queue::{ConsumeQueues, Unit};
use roquet_core::disk::file_cache::FileCache;
use roquet_core::disk::Disk;

/// Offsets of the messages of a queue, and units of its files. Between them are fillers. The record
/// of the `n`th message is at `n * 100`.
const QUEUES: [(&[u64], u64); 7] = [
    (&[0, 1, 2], 10),
    (&[3, 4, 5, 9, 10, 25, 26], 10),
    (&[9, 10, 19, 20, 21], 10),
    (&[17, 18, 300, 301, 620], 1000),
    (&[273, 274, 700, 999, 1000, 1500], 1000),
    (&[4500, 4501, 4999], 5000),
    (&[900], 1000),
];

fn open(disk: &SimDisk, file_units: u64) -> ConsumeQueues {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let cache = Arc::new(FileCache::new(2));
    ConsumeQueues::open(disk, "/q", file_units * 20, cache).expect("queues")
}

fn put(queues: &ConsumeQueues, offset: u64, phy: u64) {
    assert!(queues.put("T", 0, offset, phy, 100, 7).unwrap());
}

/// The queue, as it was made or as it is loaded.
fn made(offsets: &[u64], file_units: u64, is_loaded: bool) -> (SimDisk, ConsumeQueues) {
    let disk = SimDisk::new();
    let queues = open(&disk, file_units);
    for (n, offset) in offsets.iter().enumerate() {
        put(&queues, *offset, n as u64 * 100);
    }
    queues.sync().unwrap();
    if !is_loaded {
        return (disk, queues);
    }
    let again = open(&disk, file_units);
    assert_eq!(again.repair_from(), None);
    (disk, again)
}

/// Messages from the beginning on: (offset, place of the record).
fn messages(queues: &ConsumeQueues) -> Vec<(u64, u64)> {
    let (min, max) = (queues.min("T", 0), queues.max("T", 0));
    let mut units = Vec::new();
    queues.range("T", 0, min, u64::MAX, &mut units).unwrap();
    assert_eq!(units.len() as u64, max - min);
    let there = |(at, unit): (usize, &Unit)| {
        (!unit.is_filler()).then_some((min + at as u64, unit.physical_offset))
    };
    units.iter().enumerate().filter_map(there).collect()
}

/// Calls `check` for each queue, made and loaded, and each place around its records.
fn at_each_place(mut check: impl FnMut(&[u64], u64, bool, u64)) {
    for (offsets, file_units) in QUEUES {
        for is_loaded in [false, true] {
            for n in 0..=offsets.len() as u64 {
                for phy in [n * 100, n * 100 + 1] {
                    check(offsets, file_units, is_loaded, phy);
                }
            }
        }
    }
}

fn pairs(offsets: &[u64]) -> Vec<(u64, u64)> {
    let places = (0..).step_by(100);
    offsets.iter().copied().zip(places).collect()
}

#[test]
fn a_queue_that_is_loaded_is_the_one_that_was_made() {
    for (offsets, file_units) in QUEUES {
        for is_loaded in [false, true] {
            let (_, queues) = made(offsets, file_units, is_loaded);
            assert_eq!(messages(&queues), pairs(offsets), "{offsets:?}");
            assert_eq!(queues.min("T", 0), offsets[0], "{offsets:?} {is_loaded}");
        }
    }
}

#[test]
fn units_of_records_that_are_cut_go_with_all_behind_them() {
    at_each_place(|offsets, file_units, is_loaded, phy| {
        let (disk, queues) = made(offsets, file_units, is_loaded);
        queues.truncate(phy).unwrap();
        let (kept, cut): (Vec<_>, Vec<_>) =
            pairs(offsets).into_iter().partition(|(_, at)| *at < phy);
        let end = cut
            .first()
            .map_or(offsets[offsets.len() - 1] + 1, |(offset, _)| *offset);
        let what = format!("{offsets:?} {is_loaded} {phy}");
        assert_eq!(queues.max("T", 0), end, "{what}");
        assert_eq!(queues.min("T", 0), offsets[0].min(end), "{what}");
        assert_eq!(messages(&queues), kept, "{what}");
        let last = queues.last("T", 0).map(|unit| unit.physical_offset);
        assert_eq!(last, kept.last().map(|(_, at)| *at), "{what}");
        // It goes on where it was cut, and nothing of before comes back.
        put(&queues, end, 90_000);
        queues.sync().unwrap();
        let again = open(&disk, file_units);
        let mut want = kept;
        want.push((end, 90_000));
        assert_eq!(messages(&again), want, "{what}");
        assert_eq!(again.max("T", 0), end + 1, "{what}");
        assert_eq!(again.repair_from(), None, "{what}");
    });
}

#[test]
fn a_queue_begins_with_the_first_message_that_the_log_has() {
    at_each_place(|offsets, file_units, is_loaded, phy| {
        for expires in [false, true] {
            let (disk, queues) = made(offsets, file_units, is_loaded);
            let before = disk.files().len() as u64;
            let deleted = if expires {
                queues.delete_expired(phy).unwrap()
            } else {
                queues.correct_min(phy).unwrap();
                0
            };
            let mut kept = pairs(offsets);
            kept.retain(|(_, at)| *at >= phy);
            let max = offsets[offsets.len() - 1] + 1;
            let min = kept.first().map_or(max, |(offset, _)| *offset);
            let what = format!("{offsets:?} {is_loaded} {phy} {expires}");
            assert_eq!(queues.min("T", 0), min, "{what}");
            assert_eq!(queues.max("T", 0), max, "{what}");
            assert_eq!(messages(&queues), kept, "{what}");
            // Nothing is read before it, nor at the end or behind it.
            for from in [min.checked_sub(1), Some(0), Some(max), Some(max + 5)] {
                let from = from.filter(|from| *from < min || *from >= max);
                let mut units = Vec::new();
                queues
                    .range("T", 0, from.unwrap_or(max), 10, &mut units)
                    .unwrap();
                assert!(units.is_empty(), "{what} from {from:?}");
            }
            // Whole files before it go, never the last.
            let first = offsets[0] / file_units;
            let last = (max - 1) / file_units;
            let gone = (min / file_units).min(last) - first;
            assert_eq!(deleted as u64, if expires { gone } else { 0 }, "{what}");
            let files = disk.files().len() as u64;
            assert_eq!(files, before - deleted as u64, "{what}");
            // Once more changes nothing, and what is older is not asked for again.
            queues.correct_min(phy).unwrap();
            queues.correct_min(0).unwrap();
            assert_eq!(queues.min("T", 0), min, "{what}");
        }
    });
}

#[test]
fn a_queue_whose_messages_are_all_gone_goes_on_wherever_the_next_one_is() {
    for (next, files) in [(3, 1), (4, 1), (9, 1), (10, 1), (25, 1), (1 << 40, 1)] {
        let (disk, queues) = made(&[0, 1, 2], 10, true);
        queues.correct_min(300).unwrap();
        assert_eq!((queues.min("T", 0), queues.max("T", 0)), (3, 3));
        put(&queues, next, 300);
        queues.sync().unwrap();
        assert_eq!(messages(&queues), [(next, 300)], "{next}");
        assert_eq!(queues.min("T", 0), next);
        assert_eq!(disk.files().len(), files, "{next}");
    }
    // Files in between are not made either.
    let (disk, queues) = made(&[500], 10, true);
    queues.correct_min(100).unwrap();
    put(&queues, 995, 100);
    queues.sync().unwrap();
    assert_eq!(messages(&queues), [(995, 100)]);
    assert_eq!(disk.files().len(), 1);
    // As long as one is there, so wide a gap is refused.
    let (_, queues) = made(&[0, 1, 2], 10, true);
    queues.correct_min(200).unwrap();
    assert!(queues.put("T", 0, 1 << 40, 300, 100, 0).is_err());
    assert_eq!(queues.max("T", 0), 3);
}

#[test]
fn bytes_behind_the_units_of_a_queue_are_zeroed_whatever_they_are() {
    let unit = [&500_u64.to_be_bytes()[..], &100_u32.to_be_bytes(), &[0; 8]].concat();
    for (file_units, end) in [(10, 200), (1000, 20_000)] {
        let mut odd = vec![
            (60, vec![0xFF; end - 60]),
            (60, vec![0xFF; 100]),
            (60, vec![0xFF]),
            (79, vec![1]),
            (100, unit.clone()),
            (end - 1, vec![0xFF]),
        ];
        if file_units > 500 {
            // Behind what is read first, and around its end.
            odd.extend([
                (5000, unit.clone()),
                (4090, vec![1; 12]),
                (60, vec![0xFE; 4036]),
            ]);
        }
        for (at, bytes) in odd {
            let (disk, queues) = made(&[0, 1, 2], file_units, false);
            drop(queues);
            let path = PathBuf::from("/q/T/0/00000000000000000000");
            disk.damage(&path, at, &bytes);
            let again = open(&disk, file_units);
            let what = format!("{file_units} units, {} bytes at {at}", bytes.len());
            assert_eq!(messages(&again), pairs(&[0, 1, 2]), "{what}");
            assert_eq!(again.repair_from(), Some(300), "{what}");
            let found = disk.files().into_iter().find(|(name, _)| *name == path);
            let (_, content) = found.unwrap();
            assert!(content[60..].iter().all(|byte| *byte == 0), "{what}");
        }
    }
}
