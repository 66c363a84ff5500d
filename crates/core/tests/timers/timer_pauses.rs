//! Pauses longer than the wheel reaches, also with a timer log that is gone: all enters once more while
//! what is overdue and what is still to come have the same places in the wheel.
//!
//! `TIMER_STATES=20000` draws more histories than the gate does; `TIMER_SEED` repeats a run.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::common::{setting, Rng};
use super::timer_help::{World, START, STEP};
use roquet_core::disk::Disk;
use std::path::Path;

/// A turn of the wheel.
const TURN: i64 = 128 * STEP;
/// More messages than enter in one step.
const MANY: usize = 600;

/// Loses what is filed, as damage does.
fn lose_timer_log(world: &World) {
    let files = world.disk.files().into_iter().map(|(path, _)| path);
    for path in files.filter(|path| path.starts_with("/s/store/timerlog")) {
        world.disk.remove(&path).unwrap();
    }
    world.disk.sync_dir(Path::new("/s/store/timerlog")).unwrap();
}

/// A world whose process was killed while messages waited and their log was lost, a turn ago. One is
/// due in the place of another one that is overdue; of the two that are cancelled one request has
/// entered before, the other has not.
fn paused(others: usize) -> World {
    let mut world = World::new();
    world.send("due", START + 5_000, None);
    world.send("late", START + 10_000, None);
    world.send("gone", START + 12_000, None);
    world.send("x", START + 12_000, Some("gone"));
    world.send("gone too", START + 14_000, None);
    for number in 0..others {
        let wait = i64::try_from(number % 100).unwrap() * 1_000;
        world.send(&format!("k{number}"), START + 15_000 + wait, None);
    }
    world.send("same place", START + 10_000 + TURN, None);
    world.pass_in_steps(7_000);
    world.timers.flush(false).unwrap();
    assert!(world.send("x too", START + 14_000, Some("gone too")));
    lose_timer_log(&world);
    world.pass(TURN - 5_000);
    world.kill();
    assert!(world.timers.recovered.replayed > 0);
    world
}

fn check(world: &World, others: usize, story: &str) {
    world.check().unwrap_or_else(|why| panic!("{story}: {why}"));
    let keys: Vec<String> = world.delivered().into_iter().map(|(key, _)| key).collect();
    assert!(keys.iter().any(|key| key == "same place"), "{story}");
    let once = |key: &str| keys.iter().filter(|it| *it == key).count() == 1;
    assert!(once("due") && once("late"), "{story}: {keys:?}");
    assert_eq!(world.timers.behind(), 0, "{story}");
    assert_eq!(world.timers.waiting(), 0, "{story}");
    assert!(keys.len() >= others + 3, "{story}: {}", keys.len());
}

#[test]
fn message_in_the_place_of_an_overdue_one_enters_after_the_log_was_lost() {
    let world = paused(0);
    world.pass_in_steps(25_000);
    check(&world, 0, "once");
    assert_eq!(world.delivered().len(), 3);
}

#[test]
fn overdue_messages_that_enter_once_more_survive_starts_at_every_step() {
    for steps in 0..8 {
        for how in 0..4 {
            let mut world = paused(MANY);
            for _ in 0..steps {
                let _ = world.timers.step();
            }
            match how {
                0 => world.kill(),
                1 => world.restart(),
                2 => {
                    world.config.precision_ms = [STEP / 2, STEP * 2][steps % 2];
                    world.restart();
                }
                _ => {
                    world.timers.flush(false).unwrap();
                    lose_timer_log(&world);
                    world.kill();
                }
            }
            world.pass_in_steps(100_000);
            check(&world, MANY, &format!("{steps} steps, start {how}"));
        }
    }
}

#[test]
fn overdue_messages_wait_for_their_time_when_the_clock_goes_back_before_they_fire() {
    for steps in 0..8 {
        for back in [STEP, 20_000, 60_000, TURN] {
            let mut world = paused(MANY);
            for _ in 0..steps {
                let _ = world.timers.step();
            }
            world.set_clock(-back);
            world.pass_in_steps(5_000);
            world.send("new", world.now() + 8_000, None);
            world.pass_in_steps(2 * TURN);
            let story = format!("{steps} steps, {back} ms back");
            world.check().unwrap_or_else(|why| panic!("{story}: {why}"));
            assert!(world.delivered().len() >= MANY + 4, "{story}");
        }
    }
}

#[test]
fn overdue_messages_of_other_steps_are_not_lost_with_the_log_that_was_made_anew() {
    let mut world = World::new();
    world.send("late", START + 10_000, None);
    world.send("gone", START + 12_000, None);
    world.pass_in_steps(5_000);
    assert!(world.send("x", START + 12_000, Some("gone")));
    world.stop();
    world.pass(TURN);
    world.config.precision_ms = STEP / 2;
    world.reopen();
    lose_timer_log(&world);
    world.kill();
    world.pass_in_steps(10_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 1);
}

#[test]
fn request_behind_a_message_that_waits_for_a_slot_cancels_before_slots_fire() {
    for precision_ms in [STEP, STEP / 2] {
        let mut world = World::new();
        world.send("late", START + 10_000, None);
        world.send("gone", START + 12_000, None);
        world.pass_in_steps(7_000);
        world.send("same place", START + 10_000 + TURN, None);
        assert!(world.send("x", START + 12_000, Some("gone")));
        world.stop();
        world.config.precision_ms = precision_ms;
        world.pass(TURN - 5_000);
        world.reopen();
        world.pass_in_steps(20_000);
        world.check().unwrap();
        assert_eq!(world.delivered().len(), 2);
        assert_eq!(world.timers.waiting(), 0);
    }
}

#[test]
fn slot_that_fires_ends_before_all_enter_again_for_a_message_without_a_place() {
    let mut world = World::new();
    for number in 0..4_200 {
        world.send(&format!("k{number}"), START + 10_000, None);
    }
    world.send("later", START + 16_000, None);
    world.pass_in_steps(7_000);
    world.restart();
    world.pass(TURN - 5_000);
    assert!(world.timers.step().unwrap());
    while matches!(world.store.dispatch(), Ok(true)) {}
    let fired = world.delivered().len();
    assert!((1..4_200).contains(&fired), "a part of the slot: {fired}");
    world.send("same place", START + 10_000 + TURN, None);
    world.pass_in_steps(20_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 4_202);
    assert_eq!(world.timers.waiting(), 0);
}

fn below(rng: &mut Rng, end: i64) -> i64 {
    i64::try_from(rng.below(end.unsigned_abs())).unwrap()
}

/// One act of a history; where clocks are set nothing is cancelled, since what a clock that stood ahead
/// had delivered may be due once more.
fn act(world: &mut World, rng: &mut Rng, number: u64, sets_clocks: bool) {
    match rng.below(16) {
        0..=4 => {
            let most = [20_000, 90_000, 3 * TURN][usize::try_from(rng.below(3)).unwrap()];
            let due_ms = world.now() + below(rng, most) + 1;
            world.send(&format!("k{number}"), due_ms, None);
        }
        5..=6 if sets_clocks => {
            let by = [3_000, 30_000, TURN, 30 * TURN][usize::try_from(rng.below(4)).unwrap()];
            world.set_clock(if rng.chance(2) { by } else { -by });
            let _ = world.timers.step();
        }
        5..=7 => {
            let target = format!("k{}", rng.below(number + 1));
            let due_ms = world.asked.get(&target).map(|asked| asked.due_ms);
            if let Some(due_ms) = due_ms.filter(|due_ms| !sets_clocks && *due_ms > world.now()) {
                world.send(&format!("x{number}"), due_ms, Some(&target));
            }
        }
        8..=9 => world.pass_in_steps(below(rng, 20_000) + 1),
        10 => world.pass(TURN - 20_000 + below(rng, 2 * TURN)),
        11 => {
            let _ = world.timers.step();
        }
        12 => world.restart(),
        13 => world.kill(),
        14 => world.lose_power(rng),
        _ => {
            let _ = world.timers.flush(false);
            lose_timer_log(world);
            world.kill();
        }
    }
}

#[test]
fn drawn_pauses_and_lost_logs_lose_nothing_and_undo_no_cancel() {
    let first = setting("TIMER_SEED", 0);
    let states = setting("TIMER_STATES", 60);
    for seed in first..first + states {
        let mut rng = Rng(seed);
        let mut world = World::new();
        world.crashes = 1;
        let sets_clocks = rng.chance(2);
        for number in 0..rng.below(60) + 5 {
            act(&mut world, &mut rng, number, sets_clocks);
        }
        // A clock that was set ahead counts after a minute.
        world.pass_in_steps(70_000);
        world
            .check()
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        // All that is left, whatever the clock has done.
        world.set_clock(100 * TURN);
        world.kill();
        world.pass_in_steps(60_000);
        let early = world.check();
        assert!(early.is_ok(), "seed {seed}: {early:?}");
        assert_eq!(world.timers.behind(), 0, "seed {seed}");
    }
}
