//! Timer messages: on time, once, in order, and through power cuts at any operation of the disk.
//!
//! `TIMER_STATES=20000` draws more histories than the gate does; `TIMER_SEED` repeats a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::common::{setting, Rng};
use super::timer_help::{open, World, START, STEP};
use roquet_core::disk::Disk;
use roquet_core::timer::{TimerCheckpointFile, TIMER_TOPIC};
use std::path::Path;
use std::sync::atomic::Ordering;

#[test]
fn message_fires_after_its_time_and_within_one_step() {
    let mut world = World::new();
    for (number, delay) in [1, 999, 1000, 1001, 2500, 3000, 15_000]
        .into_iter()
        .enumerate()
    {
        world.send(&format!("k{number}"), START + 17 + delay, None);
    }
    world.pass_in_steps(30_000);
    world.check().unwrap();
    let delivered = world.delivered();
    assert_eq!(delivered.len(), 7);
    for (key, stored_ms) in delivered {
        let late = stored_ms - world.asked[&key].due_ms;
        assert!(
            (0..=STEP + STEP / 2).contains(&late),
            "{key} is {late} ms late"
        );
    }
    assert_eq!(world.timers.waiting(), 0);
    assert_eq!(
        world.timers.metrics(),
        vec![("T".to_owned(), 0, world.timers.metrics()[0].2)]
    );
}

#[test]
fn messages_of_one_step_fire_in_the_order_they_were_sent() {
    let mut world = World::new();
    for number in 0..300 {
        world.send(&format!("k{number}"), START + 5_000, None);
    }
    world.turn();
    assert_eq!(world.timers.waiting_at(START + 4_000), 300);
    world.pass_in_steps(8_000);
    let keys: Vec<_> = world.delivered().into_iter().map(|(key, _)| key).collect();
    let wanted: Vec<_> = (0..300).map(|number| format!("k{number}")).collect();
    assert_eq!(keys, wanted);
}

#[test]
fn message_beyond_the_window_waits_in_turns_and_is_counted_once() {
    let mut world = World::new();
    world.send("far", START + 95_500, None);
    world.pass_in_steps(95_000);
    assert_eq!(world.delivered(), vec![]);
    assert!(world.timers.counters.rolled.load(Ordering::Relaxed) >= 4);
    world.pass_in_steps(3_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 1);
    assert_eq!(world.timers.metrics()[0].1, 0);
}

#[test]
fn cancelled_message_does_not_fire_and_others_do() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.send(key, START + 5_000, None);
    }
    world.send("x", START + 5_000, Some("b"));
    world.send("y", START + 50_000, Some("nobody"));
    world.pass_in_steps(60_000);
    let keys: Vec<_> = world.delivered().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "c"]);
    assert_eq!(world.timers.counters.cancelled.load(Ordering::Relaxed), 1);
}

#[test]
fn cancel_stored_before_a_kill_counts_though_its_time_passes_while_nobody_turns() {
    for (entered, between) in [(true, 0), (false, 0), (true, 600), (false, 600)] {
        let mut world = World::new();
        world.send("kept", START + 5_000, None);
        world.send("gone", START + 5_000, None);
        if entered {
            world.turn();
            world.timers.flush(false).unwrap();
        }
        for number in 0..between {
            world.send(&format!("k{number}"), START + 5_000, None);
        }
        assert!(world.send("x", START + 5_000, Some("gone")));
        world.pass(20_000);
        world.kill();
        world.pass_in_steps(2_000);
        world.check().unwrap();
        let delivered = world.delivered();
        assert_eq!(delivered.len(), 1 + between, "{entered} {between}");
        assert!(delivered.iter().all(|(key, _)| key != "gone"));
    }
}

#[test]
fn cancel_does_not_reach_a_message_of_another_topic() {
    for key_has_topic in [false, true] {
        let mut world = World::new();
        world.config.key_has_topic = key_has_topic;
        world.restart();
        world.send("a", START + 5_000, None);
        let key = if key_has_topic { "T+a" } else { "a" };
        let cancel = format!(
            "TIMER_OUT_MS\u{1}{}\u{2}UNIQ_KEY\u{1}x\u{2}TIMER_DEL_UNIQKEY\u{1}{key}\u{2}\
             REAL_TOPIC\u{1}Mine\u{2}REAL_QID\u{1}0\u{2}",
            START + 4_000
        );
        assert!(world.put(TIMER_TOPIC, b"0", cancel.as_bytes()));
        world.pass_in_steps(10_000);
        assert_eq!(world.delivered().len(), 1, "{key_has_topic}");
    }
}

#[test]
fn message_that_rolls_is_not_early_after_the_steps_became_shorter() {
    let mut world = World::new();
    world.send("far", START + 70_000, None);
    world.pass_in_steps(3_000);
    world.stop();
    world.config.precision_ms = 100;
    world.config.slots = 1280;
    world.config.window = 200;
    world.reopen();
    world.pass_in_steps(80_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 1);
}

#[test]
fn kill_after_the_steps_became_shorter_makes_no_message_early() {
    let mut world = World::new();
    for number in 0..30 {
        world.send(&format!("k{number}"), START + 8_017 + number * 300, None);
    }
    world.turn();
    world.stop();
    world.config.precision_ms = 100;
    world.reopen();
    for _ in 0..3 {
        world.pass_in_steps(1_000);
        world.kill();
    }
    world.pass_in_steps(20_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 30);
}

#[test]
fn cancel_of_a_message_beyond_the_window_rolls_with_it() {
    let mut world = World::new();
    world.send("far", START + 70_000, None);
    world.send("x", START + 70_000, Some("far"));
    world.pass_in_steps(90_000);
    assert_eq!(world.delivered(), vec![]);
    assert_eq!(world.timers.counters.cancelled.load(Ordering::Relaxed), 1);
}

#[test]
fn cancelled_message_beyond_the_window_does_not_fire_after_a_stop_until_it_was_due() {
    let mut world = World::new();
    world.send("far", START + 70_000, None);
    world.send("x", START + 70_000, Some("far"));
    world.turn();
    world.stop();
    world.pass(100_000);
    world.reopen();
    world.pass_in_steps(5_000);
    assert_eq!(world.delivered(), vec![]);
    assert_eq!(world.timers.counters.cancelled.load(Ordering::Relaxed), 1);
    assert!(world
        .timers
        .metrics()
        .iter()
        .all(|(_, count, _)| *count == 0));
}

#[test]
fn start_after_a_pause_longer_than_the_wheel_fires_everything() {
    let mut world = World::new();
    for number in 1..=19 {
        world.send(&format!("k{number}"), START + number * 1_000, None);
    }
    world.turn();
    world.stop();
    // Almost the whole wheel later new messages want the places of old ones.
    world.pass(125_000);
    world.reopen();
    for number in 1..=19 {
        let due = world.now() + number * 1_000;
        world.send(&format!("n{number}"), due, None);
    }
    world.pass_in_steps(30_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 38);
}

#[test]
fn slaves_are_told_how_far_a_wheel_has_turned_in_which_nothing_fires() {
    let mut world = World::new();
    world.send("one", START + 2_000, None);
    world.send("far", START + 90_000, None);
    world.pass_in_steps(5_000);
    for _ in 0..6 {
        world.pass_in_steps(10_000);
        let told = world.timers.checkpoint();
        let read_ms = i64::from_be_bytes(told[..8].try_into().unwrap());
        let behind = world.now() - read_ms;
        assert!((0..STEP).contains(&behind), "{behind} ms behind");
    }
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 1);
}

#[test]
fn what_a_wheel_saved_last_is_read_as_a_start_reads_it() {
    let config = Path::new("/s/store/config");
    let mut world = World::new();
    world.send("one", START + 2_000, None);
    world.pass_in_steps(5_000);
    let told = world.timers.checkpoint();
    world.stop();
    let saved = || TimerCheckpointFile::saved(&world.disk, config).unwrap();
    let whole = saved();
    assert_eq!(whole.unwrap().java()[..32], told[..32]);
    // A write that was cut off has torn what stands first.
    let check = config.join("timercheck");
    world.disk.damage(&check, 0, &[7; 100]);
    assert_eq!(saved(), whole);
    // What stands behind it is torn as well.
    world.disk.damage(&check, 256, &[6; 100]);
    assert_eq!(saved(), None);
}

#[test]
fn orderly_restart_neither_loses_nor_repeats() {
    let mut world = World::new();
    for round in 0..12_i64 {
        for number in 0..3 {
            let due = world.now() + 700 * number + 3_000;
            world.send(&format!("k{round}-{number}"), due, None);
        }
        world.pass_in_steps(1_500);
        world.restart();
        assert_eq!(world.timers.recovered.rebuilt_units, None);
    }
    world.pass_in_steps(10_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 36);
}

#[test]
fn lost_files_are_made_anew_from_the_timer_topic() {
    for lost in ["timerwheel", "timerlog", "config/timercheck"] {
        let mut world = World::new();
        world.send("early", START + 2_000, None);
        for number in 0..30 {
            world.send(&format!("k{number}"), START + 10_000 + number * 500, None);
        }
        world.pass_in_steps(5_000);
        assert_eq!(world.delivered().len(), 1);
        world.stop();
        let root = Path::new("/s/store").join(lost);
        for (path, _) in world.disk.files() {
            if path.starts_with(&root) {
                world.disk.remove(&path).unwrap();
            }
        }
        world.reopen();
        // Without the checkpoint nobody knows what has fired.
        world.crashes = u32::from(lost == "config/timercheck");
        world.pass_in_steps(30_000);
        world
            .check()
            .unwrap_or_else(|why| panic!("without {lost}: {why}"));
        assert!(world.delivered().len() >= 31, "without {lost}");
    }
}

#[test]
fn damaged_wheel_and_log_lose_no_message() {
    let mut rng = Rng(setting("TIMER_SEED", 7));
    for round in 0..60 {
        let mut world = World::new();
        for number in 0..25 {
            world.send(&format!("k{number}"), START + 3_000 + number * 700, None);
        }
        world.pass_in_steps(2_000);
        world.kill();
        let files: Vec<_> = world
            .disk
            .files()
            .into_iter()
            .filter(|(path, _)| {
                let name = path.to_string_lossy();
                name.contains("timerlog") || name.contains("timerwheel")
            })
            .collect();
        for _ in 0..4 {
            let (path, bytes) = &files[usize::try_from(rng.below(files.len() as u64)).unwrap()];
            let at = usize::try_from(rng.below(bytes.len() as u64 - 64)).unwrap();
            let junk = [0_u8, 255, 52, 1][usize::try_from(rng.below(4)).unwrap()];
            world.disk.damage(path, at, &[junk; 64]);
        }
        world.kill();
        world.pass_in_steps(30_000);
        let lost = world.check();
        let named = world.timers.counters.unreadable.load(Ordering::Relaxed)
            + world.timers.counters.broken_chains.load(Ordering::Relaxed);
        assert!(
            lost.is_ok() || named > 0,
            "round {round}: {lost:?} and nothing is counted"
        );
    }
}

#[test]
fn shorter_steps_keep_messages_that_are_further_off_than_the_wheel_reaches_then() {
    let mut world = World::new();
    // With steps of 100 ms this wheel reaches 13 s, and a turn is 2 s.
    for number in 0..19 {
        world.send(&format!("k{number}"), START + 1_500 + number * 1_000, None);
    }
    world.turn();
    world.stop();
    world.pass(3_000);
    world.config.precision_ms = 100;
    world.config.slots = 130;
    world.reopen();
    for number in 0..40 {
        let due = world.now() + 150 + number * 100;
        world.send(&format!("n{number}"), due, None);
    }
    world.pass_in_steps(30_000);
    world.check().unwrap();
    let delivered = world.delivered();
    assert_eq!(delivered.len(), 59);
    for (key, stored_ms) in delivered {
        let late = stored_ms - world.asked[&key].due_ms;
        assert!(
            key.starts_with('k') || late <= STEP,
            "{key} is {late} ms late"
        );
    }
}

#[test]
fn other_precision_after_a_restart_keeps_every_message() {
    for precision in [100, 500, 2_000] {
        let mut world = World::new();
        for number in 0..30 {
            world.send(&format!("k{number}"), START + 3_000 + number * 300, None);
        }
        world.turn();
        world.stop();
        world.config.precision_ms = precision;
        world.reopen();
        world.pass_in_steps(20_000);
        world.check().unwrap();
        assert_eq!(world.delivered().len(), 30, "precision {precision}");
    }
}

#[test]
fn clock_set_back_fires_nothing_early_and_nothing_twice() {
    let mut world = World::new();
    for number in 0..10 {
        world.send(&format!("k{number}"), START + 5_000 + number * 1_000, None);
    }
    world.pass_in_steps(8_000);
    world.set_clock(-3_600_000);
    world.turn();
    world.check().unwrap();
    world.restart();
    world.turn();
    world.set_clock(3_600_000);
    // A jump ahead counts after a minute.
    world.pass_in_steps(80_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 10);
}

#[test]
fn full_store_makes_due_messages_wait_and_drops_none() {
    let mut world = World::new();
    for number in 0..20 {
        world.send(&format!("k{number}"), START + 2_000, None);
    }
    world.turn();
    world.disk.set_fault(Some(super::common::sim_disk::Fault {
        op: Some(super::common::sim_disk::Op::Write),
        nth: 0,
        sticky: false,
        errno: libc_enospc(),
    }));
    world.pass_in_steps(1_000);
    world.pass_in_steps(2_500);
    world.disk.set_fault(None);
    world.pass_in_steps(3_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 20);
}

fn libc_enospc() -> i32 {
    28
}

/// One history with a power cut at a drawn operation; then everything that was promised arrives.
fn history(seed: u64) -> Result<(), String> {
    let mut rng = Rng(seed);
    let mut world = World::new();
    world.disk.power_off_at(rng.below(260));
    for number in 0..rng.below(40) + 5 {
        if world.disk.is_off() {
            break;
        }
        match rng.below(10) {
            0..=4 => {
                let wait = i64::try_from(rng.below(45_000)).unwrap();
                let due = world.now() + wait;
                world.send(&format!("k{number}"), due, None);
            }
            5 => {
                let target = format!("k{}", rng.below(number + 1));
                let due = world.asked.get(&target).map(|asked| asked.due_ms);
                if let Some(due) = due.filter(|due| *due > world.now() + 2 * STEP) {
                    world.send(&format!("x{number}"), due, Some(&target));
                }
            }
            6..=7 => {
                world.pass(i64::try_from(rng.below(3_000)).unwrap());
                world.turn();
            }
            8 => {
                let _ = world.timers.flush(false);
            }
            _ => {
                let closed = world.timers.flush(true).and_then(|()| world.store.close());
                if closed.is_err() || world.disk.is_off() {
                    break;
                }
                let disk = world.disk.clone();
                disk.release_locks();
                match open(&disk, &world.now, &world.config, world.boot) {
                    Ok((store, timers)) => (world.store, world.timers) = (store, timers),
                    Err(_) => break,
                }
            }
        }
    }
    world.crashes += 1;
    world.disk = world.disk.after_power_loss(&mut rng);
    world.boot += 1;
    let opened = open(&world.disk, &world.now, &world.config, world.boot);
    (world.store, world.timers) = opened.map_err(|error| format!("no start: {error}"))?;
    if rng.chance(2) {
        world.pass_in_steps(2_000);
        world.disk = world.disk.after_power_loss(&mut rng);
        world.boot += 1;
        let opened = open(&world.disk, &world.now, &world.config, world.boot);
        (world.store, world.timers) =
            opened.map_err(|error| format!("no second start: {error}"))?;
    }
    world.pass_in_steps(60_000);
    world.check()
}

#[test]
fn power_cut_at_any_operation_loses_no_acknowledged_message() {
    let states = setting("TIMER_STATES", 400);
    let first = setting("TIMER_SEED", 1);
    let failures: Vec<_> = (first..first + states)
        .filter_map(|seed| history(seed).err().map(|why| format!("seed {seed}: {why}")))
        .collect();
    let some = &failures[..failures.len().min(5)];
    assert!(
        failures.is_empty(),
        "{} of {states}: {some:#?}",
        failures.len()
    );
}
