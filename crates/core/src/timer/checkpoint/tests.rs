//! What is written is read, and what is torn or damaged is not believed.

use super::{
    decode_sums, encode_sums, read_file, Eras, FileSum, Fired, Known, TimerCheckpoint, COPY_AT,
    JAVA_SIZE, OLD_BLOCKS, OURS_AT, SHORT_BLOCKS, SIZE,
};
use crate::recovery::checkpoint::fill;
use crate::timer::sums::SUMS_MAX;

fn checkpoint() -> TimerCheckpoint {
    TimerCheckpoint {
        read_ms: 1,
        log_position: 2,
        queue_offset: 3,
        master_queue_offset: -4,
        version: [5, -6, 7],
        known: Some(Known {
            whole: true,
            precision_ms: 8,
            replay_until: 9,
            eras: Eras::decode(&[10, 11, 13, 14]),
            fired: Fired::decode(&[20, 21, 22, 18, 23, 24]),
            gathered_ms: 25,
            wheel_sum: 12,
            log: Some((15, 16)),
        }),
    }
}

#[test]
fn what_is_written_is_read() {
    let ours = checkpoint();
    assert_eq!(TimerCheckpoint::decode(&ours.encode()), Some(ours));
    let known = ours.known.map(|known| Known {
        whole: false,
        log: None,
        ..known
    });
    let broken = TimerCheckpoint { known, ..ours };
    assert_eq!(TimerCheckpoint::decode(&broken.encode()), Some(broken));
    let java = TimerCheckpoint {
        known: None,
        ..ours
    };
    assert_eq!(TimerCheckpoint::decode(&java.encode()), Some(java));
    assert_eq!(java.encode()[..JAVA_SIZE], java.java());
    let numbers: Vec<u8> = [1_i64, 2, 3, -4, 5, -6, 7]
        .into_iter()
        .flat_map(i64::to_be_bytes)
        .collect();
    assert_eq!(ours.java().as_slice(), numbers);
}

#[test]
fn a_block_of_ours_counts_with_its_mark_and_its_sum_only() {
    let ours = checkpoint();
    let bytes = ours.encode();
    let java = Some(TimerCheckpoint {
        known: None,
        ..ours
    });
    for at in (OURS_AT..SIZE).chain([39, 55]) {
        let mut other = bytes;
        other[at] ^= 1;
        let found = TimerCheckpoint::decode(&other).expect("Java's numbers");
        assert_eq!(found.known, None, "{at}");
    }
    for cut in JAVA_SIZE..SIZE {
        assert_eq!(TimerCheckpoint::decode(&bytes[..cut]), java, "{cut}");
    }
    assert_eq!(TimerCheckpoint::decode(&bytes[..JAVA_SIZE - 1]), None);
    assert_eq!(TimerCheckpoint::decode(&[]), None);
    // Java goes on and leaves the block.
    let mut later = bytes;
    later[7] = 99;
    let found = TimerCheckpoint::decode(&later).expect("Java's numbers");
    assert_eq!((found.read_ms, found.known), (99, None));
}

#[test]
fn write_that_failed_anywhere_leaves_the_numbers_of_before_or_the_new_ones() {
    let old = checkpoint();
    let new = TimerCheckpoint {
        read_ms: 101,
        queue_offset: 103,
        version: [5, 107, 8],
        ..old
    };
    let mut file = [0; 4096];
    for at in [COPY_AT, 0] {
        file[at..at + SIZE].copy_from_slice(&old.encode());
    }
    for (at, done) in [(COPY_AT, 0), (0, SIZE)] {
        for cut in 0..=SIZE {
            let mut torn = file;
            torn[COPY_AT..COPY_AT + done].copy_from_slice(&new.encode()[..done]);
            torn[at..at + cut].copy_from_slice(&new.encode()[..cut]);
            let found = read_file(&torn);
            assert!(found == Some(old) || found == Some(new), "{at} {cut}");
        }
    }
    // Java rewrites its own numbers, and the block says nothing any more.
    file[..JAVA_SIZE].copy_from_slice(&new.java());
    let java = Some(TimerCheckpoint { known: None, ..new });
    assert_eq!(read_file(&file), java);
    // Damage to both blocks is not Java's, and its numbers would be believed.
    (file[OURS_AT], file[COPY_AT + OURS_AT]) = (1, 2);
    assert_eq!(read_file(&file), None);
    // A file without a copy is read as it is.
    assert_eq!(read_file(&old.encode()), Some(old));
    assert_eq!(read_file(&new.java()), java);
}

#[test]
fn blocks_of_earlier_releases_say_what_they_knew() {
    let ours = checkpoint();
    for (magic, size) in OLD_BLOCKS {
        let mut bytes = ours.encode();
        let has_sum = size == OURS_AT + 64;
        fill(&mut bytes, OURS_AT, &[magic, 1, 8, 9, 10, 11]);
        let wheel: &[u64] = if has_sum { &[12] } else { &[] };
        fill(&mut bytes, OURS_AT + 48, wheel);
        let sum = crc32fast::hash(&bytes[..size - 8]);
        fill(&mut bytes, size - 8, &[u64::from(sum)]);
        let known = Some(Known {
            whole: has_sum,
            precision_ms: 8,
            replay_until: 9,
            eras: Eras::decode(&[10, 11]),
            fired: Fired::default(),
            gathered_ms: 0,
            wheel_sum: if has_sum { 12 } else { 0 },
            log: None,
        });
        let found = TimerCheckpoint::decode(&bytes);
        assert_eq!(found, Some(TimerCheckpoint { known, ..ours }), "{size}");
    }
}

#[test]
fn block_without_its_last_numbers_is_read() {
    for (magic, size) in SHORT_BLOCKS {
        let mut bytes = checkpoint().encode();
        fill(&mut bytes, OURS_AT, &[magic]);
        let sum = crc32fast::hash(&bytes[..size - 8]);
        fill(&mut bytes, size - 8, &[u64::from(sum)]);
        let found = TimerCheckpoint::decode(&bytes).and_then(|found| found.known);
        let has_fired = size == SHORT_BLOCKS[0].1;
        let known = checkpoint().known.map(|known| Known {
            fired: if has_fired {
                known.fired
            } else {
                Fired::default()
            },
            gathered_ms: 0,
            ..known
        });
        assert_eq!(found, known, "{size}");
    }
}

#[test]
fn sums_of_closed_files_are_read_whole_or_not_at_all() {
    let row = |base: u64| FileSum {
        base,
        end: base + 52,
        sum: 7 + u32::try_from(base).unwrap(),
    };
    for count in [0, 1, 5, SUMS_MAX] {
        let rows: Vec<FileSum> = (0..count as u64).map(|at| row(at * 100)).collect();
        let bytes = encode_sums(&rows);
        assert!(bytes.len() <= 4096 - 512);
        assert_eq!(decode_sums(&bytes), rows);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(decode_sums(&other), [], "{count} {at}");
        }
    }
    let more: Vec<FileSum> = (0..SUMS_MAX as u64 + 3).map(|at| row(at * 100)).collect();
    assert_eq!(decode_sums(&encode_sums(&more)), more[3..]);
    assert_eq!(decode_sums(&[]), []);
}

#[test]
fn numbers_below_zero_are_no_checkpoint() {
    for at in [0, 8, 16] {
        let mut bytes = checkpoint().encode();
        bytes[at] = 0x80;
        assert_eq!(TimerCheckpoint::decode(&bytes), None, "{at}");
    }
    let zero = TimerCheckpoint::default();
    assert_eq!(TimerCheckpoint::decode(&zero.encode()), Some(zero));
}
