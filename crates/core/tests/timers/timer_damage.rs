//! Damage to the timers' files that only a checksum or the delivered messages show.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use super::timer_help::{World, START, STEP};
use roquet_core::disk::Disk;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

fn bytes(world: &World, path: &Path) -> Vec<u8> {
    let mut files = world.disk.files().into_iter();
    files.find(|(name, _)| name == path).unwrap().1
}

#[test]
fn unit_moved_to_a_later_slot_is_noticed_after_a_kill() {
    // In a file that is closed, in the one that is being written, and in the last unit.
    for unit in [0_usize, 5, 11, 19] {
        let mut world = World::new();
        world.config.window = 100;
        world.restart();
        for number in 0..20 {
            world.send(&format!("k{number}"), START + 9_500 + number * STEP, None);
        }
        world.pass_in_steps(2_000);
        world.timers.flush(false).unwrap();
        let base = unit / 9 * 500;
        let log = PathBuf::from(format!("/s/store/timerlog/{base:020}"));
        let at = unit % 9 * 52;
        let found = bytes(&world, &log);
        // It is alone in its slot, and in the other one: nothing in the log contradicts it.
        let wait_ms = i32::from_be_bytes(found[at + 24..at + 28].try_into().unwrap());
        let moved_ms = wait_ms + 60_000;
        world.disk.damage(&log, at + 24, &moved_ms.to_be_bytes());
        world.kill();
        assert!(world.timers.recovered.cut_bytes > 0, "unit {unit}");
        world.pass_in_steps(40_000);
        world.check().unwrap();
        assert_eq!(world.delivered().len(), 20, "unit {unit}");
    }
}

#[test]
fn checkpoint_of_java_with_a_read_time_to_come_hides_no_message() {
    let check = PathBuf::from("/s/store/config/timercheck");
    for wrong_ms in [2_000, 5_000, 12_000, 40_000, 3_600_000] {
        for paused_ms in [0, 30_000] {
            let mut world = World::new();
            for number in 0..12 {
                world.send(&format!("k{number}"), START + 4_000 + number * 1_000, None);
            }
            world.send("far", START + 70_000, None);
            world.send("x", START + 9_000, Some("k5"));
            world.pass_in_steps(8_000);
            world.stop();
            let read_ms = world.now() / STEP * STEP + wrong_ms;
            // Our block is void with it, as after a run of Java.
            world.disk.damage(&check, 0, &read_ms.to_be_bytes());
            world.pass(paused_ms);
            world.reopen();
            world.pass_in_steps(90_000);
            world.check().unwrap();
            let count = world.delivered().len();
            assert_eq!(count, 12, "{wrong_ms} {paused_ms}");
        }
    }
}

#[test]
fn checkpoint_of_java_that_is_right_fires_nothing_twice() {
    let check = PathBuf::from("/s/store/config/timercheck");
    for paused_ms in [0, 30_000] {
        let mut world = World::new();
        for number in 0..12 {
            world.send(&format!("k{number}"), START + 4_000 + number * 1_000, None);
        }
        world.send("far", START + 70_000, None);
        world.pass_in_steps(8_000);
        world.stop();
        // Java changes its numbers, and ours count no more.
        world.disk.damage(&check, 40, &7_i64.to_be_bytes());
        world.pass(paused_ms);
        world.reopen();
        world.pass_in_steps(90_000);
        world.check().unwrap();
        assert_eq!(world.delivered().len(), 13, "{paused_ms}");
    }
}

#[test]
fn damage_noticed_before_units_were_written_loses_nothing() {
    let mut world = World::new();
    for number in 0..3 {
        world.send(&format!("k{number}"), START + 6_000 + number * 1_000, None);
    }
    world.pass_in_steps(2_000);
    world.config.flush_ms = i64::MAX;
    world.restart();
    let log = PathBuf::from("/s/store/timerlog/00000000000000000000");
    world.disk.damage(&log, 0, &[0xFF; 52]);
    // They enter in the turn in which the damaged slot fires.
    world.pass(6_000);
    for number in 3..6 {
        world.send(&format!("k{number}"), START + 40_000 + number * 1_000, None);
    }
    world.pass_in_steps(60_000);
    world.check().unwrap();
    let broken = world.timers.counters.broken_chains.load(Ordering::Relaxed);
    assert_eq!((broken, world.delivered().len()), (1, 6));
}

#[test]
fn any_file_of_the_log_that_is_lost_is_made_again_from_the_timer_topic() {
    for (is_killed, is_first) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut world = World::new();
        for number in 0..30 {
            world.send(&format!("k{number}"), START + 9_000 + number * 500, None);
        }
        world.pass_in_steps(3_000);
        if !is_killed {
            world.stop();
        }
        let files = world.disk.files().into_iter().map(|(path, _)| path);
        let mut logs: Vec<_> = files
            .filter(|path| path.starts_with("/s/store/timerlog"))
            .collect();
        assert!(logs.len() >= 3, "{logs:?}");
        let lost = logs.remove(if is_first { 0 } else { logs.len() - 1 });
        world.disk.remove(&lost).unwrap();
        world.reopen();
        assert!(world.timers.recovered.replayed > 0, "{lost:?}");
        world.crashes = u32::from(is_killed);
        world.pass_in_steps(30_000);
        let judged = world.check();
        assert!(judged.is_ok(), "killed {is_killed}, {lost:?}: {judged:?}");
        world.restart();
        assert_eq!(world.timers.recovered.replayed, 0, "once");
    }
}
