//! The timers' files: snapshots of the wheel, damage to each file, counts that are wrong.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use super::timer_help::{World, START, STEP};
use roquet_core::disk::Disk;
use roquet_core::timer::Wheel;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The positions of the snapshots, ascending.
fn snapshots(world: &World) -> Vec<u64> {
    let files = world.disk.files().into_iter();
    let mut found: Vec<u64> = files
        .filter_map(|(path, _)| {
            let name = path.file_name()?.to_str()?.to_owned();
            let position = name.strip_prefix("timerwheel.")?;
            Some(position.parse().expect("no side file is left"))
        })
        .collect();
    found.sort_unstable();
    found
}

fn bytes(world: &World, path: &Path) -> Vec<u8> {
    let mut files = world.disk.files().into_iter();
    files.find(|(name, _)| name == path).unwrap().1
}

fn waits(world: &World) -> i64 {
    let rows = world.timers.metrics();
    rows.iter().map(|(_, count, _)| count).sum()
}

/// A world that waits for 25 messages, some of them further off than a turn.
fn waiting() -> World {
    let mut world = World::new();
    world.timers.set_metrics(vec![]);
    for number in 0..25 {
        world.send(&format!("k{number}"), START + 6_000 + number * 1_300, None);
    }
    world.pass_in_steps(2_000);
    world
}

#[test]
fn snapshots_are_the_wheel_of_their_position_and_two_are_kept() {
    let mut world = World::new();
    world.pass_in_steps(12_000);
    assert_eq!(snapshots(&world), [] as [u64; 0], "off by default");
    world.timers.set_snapshots(3_000);
    for number in 0..5 {
        world.send(&format!("k{number}"), world.now() + 19_000, None);
        world.pass_in_steps(3_000);
        assert_eq!(snapshots(&world).len(), 2.min(number + 1));
    }
    let before = snapshots(&world);
    world.pass_in_steps(9_000);
    assert_eq!(snapshots(&world), before, "nothing was new");
    // Five units of 52 bytes in files of 500: the newest knows of all of them.
    assert_eq!(before, [208, 260]);
    world.stop();
    let wheel = bytes(&world, Path::new("/s/store/timerwheel"));
    assert_eq!(bytes(&world, Path::new("/s/store/timerwheel.260")), wheel);
    let path = Path::new("/s/store/timerwheel.208");
    let (older, found) = Wheel::open(&world.disk, path, 128, STEP).unwrap();
    assert!(found);
    let counts: Vec<i32> = older.used().map(|(_, slot)| slot.count).collect();
    assert_eq!(counts.iter().sum::<i32>(), 4);
    assert!(older.used().all(|(_, slot)| slot.last < 208));
}

#[test]
fn snapshots_of_more_than_the_log_has_are_removed() {
    for lost in ["timerlog", "precision", "nothing"] {
        let mut world = waiting();
        world.timers.set_snapshots(1_000);
        world.pass_in_steps(2_000);
        let before = snapshots(&world);
        assert!(before.last() > Some(&0));
        world.stop();
        // One that was being written when the power went.
        let side = PathBuf::from("/s/store/timerwheel.99.tmp");
        world.disk.write(&side, b"half").unwrap();
        if lost == "timerlog" {
            for (path, _) in world.disk.files() {
                if path.starts_with("/s/store/timerlog") {
                    world.disk.remove(&path).unwrap();
                }
            }
        } else if lost == "precision" {
            world.config.precision_ms = 500;
        }
        world.reopen();
        let after = snapshots(&world);
        if lost == "nothing" {
            assert_eq!(after, before);
        } else {
            assert_eq!(after, [] as [u64; 0], "{lost}");
        }
        world.pass_in_steps(60_000);
        world.check().unwrap();
    }
}

#[test]
fn damage_to_any_file_after_an_orderly_stop_loses_no_message() {
    // A page of the wheel, units of the log and the numbers of the checkpoint, zeroed and torn.
    for name in ["timerwheel", "timerlog", "config/timercheck"] {
        for junk in [0_u8, 255, 52] {
            for at in [0_usize, 16, 60, 104, 260] {
                let mut world = waiting();
                world.stop();
                let files = world.disk.files().into_iter();
                let path = files
                    .map(|(path, _)| path)
                    .find(|path| path.starts_with(Path::new("/s/store").join(name)))
                    .unwrap();
                world.disk.damage(&path, at, &[junk; 52]);
                world.reopen();
                world.crashes = 1;
                world.pass_in_steps(60_000);
                let judged = world.check();
                assert!(judged.is_ok(), "{name} {junk} at {at}: {judged:?}");
            }
        }
    }
}

#[test]
fn chain_that_passes_over_a_unit_is_noticed_and_read_again() {
    let mut world = World::new();
    for number in 0..4 {
        world.send(&format!("k{number}"), START + 9_000, None);
    }
    world.pass_in_steps(2_000);
    world.stop();
    // The last of four units names the first one instead of the third.
    let path = PathBuf::from("/s/store/timerlog/00000000000000000000");
    world.disk.damage(&path, 3 * 52 + 4, &0_i64.to_be_bytes());
    world.reopen();
    assert_eq!(world.timers.recovered.rebuilt_units, None, "not looked at");
    world.pass_in_steps(20_000);
    world.check().unwrap();
    let broken = world.timers.counters.broken_chains.load(Ordering::Relaxed);
    assert_eq!((broken, world.delivered().len()), (1, 4));
    assert_eq!(waits(&world), 0);
}

#[test]
fn recount_mends_counts_below_the_bound_and_names_what_was_wrong() {
    let world = waiting();
    let right = waits(&world);
    assert_eq!(right, 25);
    assert_eq!(world.timers.recount(i64::MAX), Some(vec![]));
    let wrong = |count| vec![("T".to_owned(), count, 5), ("Gone".to_owned(), 3, 5)];
    world.timers.set_metrics(wrong(77));
    let gone = ("Gone".to_owned(), 3, 0);
    assert_eq!(world.timers.recount(77), Some(vec![gone.clone()]));
    assert_eq!(waits(&world), 77, "a topic with so many is left alone");
    let mended = vec![gone, ("T".to_owned(), 78, 25)];
    world.timers.set_metrics(wrong(78));
    assert_eq!(world.timers.recount(79), Some(mended));
    assert_eq!(waits(&world), right);
    // A topic that nobody counted is named by a message of its own.
    world.timers.set_metrics(vec![]);
    assert_eq!(
        world.timers.recount(1),
        Some(vec![("T".to_owned(), 0, right)])
    );
    assert_eq!(waits(&world), right);
    world.pass_in_steps(60_000);
    assert_eq!(waits(&world), 0);
}

#[test]
fn topics_with_one_hash_are_told_apart_by_their_messages() {
    let world = waiting();
    // "Aa" and "BB" are one to Java's hash.
    world.timers.set_metrics(vec![
        ("T".to_owned(), 1, 5),
        ("Aa".to_owned(), 4, 5),
        ("BB".to_owned(), 6, 5),
    ]);
    let mended = vec![
        ("Aa".to_owned(), 4, 0),
        ("BB".to_owned(), 6, 0),
        ("T".to_owned(), 1, 25),
    ];
    assert_eq!(world.timers.recount(i64::MAX), Some(mended));
}

#[test]
fn start_after_a_kill_counts_what_the_log_says() {
    let mut world = waiting();
    world.kill();
    world.timers.set_metrics(vec![("T".to_owned(), 19, 5)]);
    assert_eq!(waits(&world), 25);
    world.restart();
    world.timers.set_metrics(vec![("T".to_owned(), 19, 5)]);
    assert_eq!(waits(&world), 19, "an orderly stop wrote the counts down");
}

#[test]
fn request_to_cancel_finds_a_message_of_before_a_change_of_the_steps() {
    for (old_ms, new_ms) in [
        (1000, 100),
        (1000, 500),
        (500, 200),
        (200, 500),
        (100, 1000),
    ] {
        for (named, killed) in [(true, false), (true, true), (false, false)] {
            let mut world = World::new();
            world.config.precision_ms = old_ms;
            world.restart();
            let (due_ms, kept_ms) = (START + 9_400, START + 9_300);
            world.send("gone", due_ms, None);
            world.send("kept", kept_ms, None);
            world.turn();
            world.config.precision_ms = new_ms;
            world.restart();
            // The handle of a message names its step and a millisecond; a sender, the time itself.
            let out_ms = (due_ms - 1).div_euclid(old_ms) * old_ms;
            let named_ms = if named { out_ms + 1 } else { due_ms };
            assert!(world.send("cancel", named_ms, Some("gone")));
            world.turn();
            if killed {
                world.kill();
                world.turn();
            }
            world.pass_in_steps(15_000);
            world.check().unwrap();
            let delivered: Vec<String> = world.delivered().into_iter().map(|it| it.0).collect();
            assert_eq!(delivered, ["kept"], "{old_ms} {new_ms} {named} {killed}");
        }
    }
}

#[test]
fn request_to_cancel_finds_messages_of_before_every_change_of_the_steps() {
    let changes: [&[i64]; 5] = [
        &[1000, 500, 100],
        &[200, 500, 1000],
        &[500, 200, 500],
        &[200, 500, 200, 500],
        &[100, 1000, 200, 500, 100],
    ];
    for steps in changes {
        for named in [true, false] {
            let mut world = World::new();
            world.config.slots = 1280;
            world.config.window = 600;
            let mut due: Vec<(i64, i64)> = Vec::new();
            for (era, steps_ms) in steps.iter().enumerate() {
                world.config.precision_ms = *steps_ms;
                world.restart();
                let due_ms = START + 20_400 + 1_100 * i64::try_from(era).unwrap();
                world.send(&format!("gone{era}"), due_ms, None);
                world.send(&format!("kept{era}"), due_ms - 100, None);
                world.turn();
                // The handle of a message names its step and a millisecond.
                let out_ms = (due_ms - 1).div_euclid(*steps_ms) * steps_ms;
                due.push((due_ms, out_ms));
            }
            for (era, (due_ms, out_ms)) in due.iter().enumerate() {
                let asked_ms = if named { out_ms + 1 } else { *due_ms };
                assert!(world.send(&format!("x{era}"), asked_ms, Some(&format!("gone{era}"))));
            }
            world.turn();
            world.kill();
            world.crashes = 0;
            world.pass_in_steps(40_000);
            world.check().unwrap();
            let delivered = world.delivered().into_iter().map(|it| it.0);
            let mut delivered: Vec<String> = delivered.collect();
            delivered.sort_unstable();
            let kept: Vec<String> = (0..steps.len()).map(|era| format!("kept{era}")).collect();
            assert_eq!(delivered, kept, "{steps:?} {named}");
        }
    }
}

/// What is wrong with a unit, and the field of it that says so: its place and its bytes.
type Damage = (&'static str, usize, Vec<u8>);

#[test]
fn unit_that_does_not_fit_its_message_loses_nothing_and_fires_nothing_early() {
    let log = PathBuf::from("/s/store/timerlog/00000000000000000000");
    let number = |world: &World, at: usize| {
        let bytes = bytes(world, &log);
        i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    for killed in [false, true] {
        for unit in [0_usize, 5, 8] {
            for kind in 0..8 {
                let mut world = World::new();
                for number in 0..9 {
                    world.send(&format!("k{number}"), START + 9_000 + number * 2_000, None);
                }
                world.pass_in_steps(2_000);
                world.timers.flush(false).unwrap();
                let at = unit * 52;
                let physical = number(&world, at + 28);
                let written_ms = number(&world, at + 16);
                let (what, field, value): Damage = match kind {
                    0 => ("place", 28, (physical + 1).to_be_bytes().to_vec()),
                    1 => ("size", 36, 7_i32.to_be_bytes().to_vec()),
                    2 => ("cancels", 12, 5_i32.to_be_bytes().to_vec()),
                    3 => ("rolls", 12, 3_i32.to_be_bytes().to_vec()),
                    4 => ("early", 24, 3_000_i32.to_be_bytes().to_vec()),
                    5 => ("late", 24, 1_000_000_000_i32.to_be_bytes().to_vec()),
                    6 => {
                        let turn_ms = 128 * STEP;
                        ("turn", 16, (written_ms + turn_ms).to_be_bytes().to_vec())
                    }
                    _ => ("future", 16, (written_ms << 10).to_be_bytes().to_vec()),
                };
                if !killed {
                    world.stop();
                }
                world.disk.damage(&log, at + field, &value);
                world.reopen();
                world.crashes = 1;
                world.pass_in_steps(60_000);
                let judged = world.check();
                assert!(judged.is_ok(), "{what} of {unit}, {killed}: {judged:?}");
            }
        }
    }
}

#[test]
fn message_that_is_damaged_itself_has_the_log_read_again_once() {
    let mut world = World::new();
    for number in 0..4 {
        world.send(&format!("k{number}"), START + 9_000 + number * 2_000, None);
    }
    world.pass_in_steps(2_000);
    let places: Vec<usize> = (0..4)
        .map(|unit| {
            let log = bytes(&world, Path::new("/s/store/timerlog/00000000000000000000"));
            let at = unit * 52 + 28;
            let place = i64::from_be_bytes(log[at..at + 8].try_into().unwrap());
            usize::try_from(place).unwrap()
        })
        .collect();
    let log = PathBuf::from("/s/store/commitlog/00000000000000000000");
    for number in [1, 2] {
        world.disk.damage(&log, places[number] + 90, &[0x55; 8]);
        let key = format!("k{number}");
        world.asked.get_mut(&key).unwrap().acknowledged = false;
    }
    world.pass_in_steps(30_000);
    world.check().unwrap();
    let counters = &world.timers.counters;
    let broken = counters.broken_chains.load(Ordering::Relaxed);
    assert_eq!((broken, world.delivered().len()), (1, 2));
}

#[test]
fn checkpoint_behind_its_log_hides_no_message_from_a_new_start() {
    let mut world = World::new();
    for number in 0..4 {
        world.send(&format!("k{number}"), START + 9_000 + number * 2_000, None);
    }
    world.pass_in_steps(2_000);
    world.stop();
    // Java's numbers: its queue offset may be ahead of what it says of the timer log.
    let check = PathBuf::from("/s/store/config/timercheck");
    world.disk.damage(&check, 8, &0_i64.to_be_bytes());
    world.reopen();
    world.crashes = 1;
    world.turn();
    // The chain breaks while it runs.
    let log = PathBuf::from("/s/store/timerlog/00000000000000000000");
    world.disk.damage(&log, 52, &[0xFF; 52]);
    world.pass_in_steps(30_000);
    world.check().unwrap();
}

#[test]
fn damage_before_the_checkpoint_loses_nothing_that_was_filed_behind_it() {
    let mut world = World::new();
    for number in 0..3 {
        world.send(&format!("k{number}"), START + 9_000 + number * 2_000, None);
    }
    world.pass_in_steps(2_000);
    world.timers.flush(false).unwrap();
    world.config.flush_ms = i64::MAX;
    world.reopen();
    for number in 3..6 {
        world.send(&format!("k{number}"), START + 9_000 + number * 2_000, None);
    }
    world.pass_in_steps(1_000);
    let check = bytes(&world, Path::new("/s/store/config/timercheck"));
    world.timers.flush(false).unwrap();
    // The units behind the checkpoint reached the disk, the next checkpoint did not.
    let path = PathBuf::from("/s/store/config/timercheck");
    world.disk.damage(&path, 0, &check);
    let log = PathBuf::from("/s/store/timerlog/00000000000000000000");
    // A unit all the same, but not the next one of its slot.
    world.disk.damage(&log, 52 + 4, &0_i64.to_be_bytes());
    world.kill();
    world.pass_in_steps(30_000);
    world.check().unwrap();
}
