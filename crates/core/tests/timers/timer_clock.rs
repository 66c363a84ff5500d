//! Clocks that are set: no timer message comes early, and none is lost.

#![allow(clippy::unwrap_used)]

use super::common::{setting, Rng};
use super::timer_help::{World, START, STEP};
use std::collections::BTreeSet;

const HOUR: i64 = 3_600_000;
const YEARS: i64 = 10 * 365 * 24 * HOUR;

/// A restart of some kind, or none.
fn again(world: &mut World, how: u64) {
    match how {
        0 => {}
        1 => world.restart(),
        2 => world.kill(),
        _ => {
            world.config.precision_ms = STEP / 2;
            world.restart();
        }
    }
}

#[test]
fn clock_ahead_for_seconds_fires_nothing_that_is_not_due() {
    for lead in [10_000, 2 * HOUR, 80 * HOUR, YEARS] {
        for how in 0..4 {
            let mut world = World::new();
            world.send("before", START + 15_000, None);
            world.pass_in_steps(2_000);
            world.set_clock(lead);
            world.pass_in_steps(3_000);
            assert!(world.delivered().is_empty(), "ahead by {lead}");
            world.set_clock(-lead);
            world.pass_in_steps(1_000);
            world.send("in 12 s", world.now() + 12_000, None);
            world.send("in 60 s", world.now() + 60_000, None);
            again(&mut world, how);
            world.pass_in_steps(4_000);
            world.check().unwrap();
            assert!(world.delivered().is_empty(), "{lead} {how}");
            world.pass_in_steps(70_000);
            world.check().unwrap();
            assert_eq!(world.delivered().len(), 3, "{lead} {how}");
        }
    }
}

#[test]
fn clock_set_back_lets_new_messages_wait_for_their_time() {
    for back in [300, 5_000, 30_000, HOUR, 80 * HOUR, YEARS] {
        for how in 0..4 {
            let mut world = World::new();
            // Behind more than a turn, what made several turns may come twice.
            world.crashes = u32::from(back >= HOUR);
            for number in 0..8 {
                world.send(&format!("k{number}"), START + 1_000 + number * 2_000, None);
            }
            world.pass_in_steps(10_000);
            let fired = world.delivered().len();
            assert!(fired >= 4);
            world.set_clock(-back);
            world.send("a", world.now() + 3_000, None);
            world.send("b", world.now() + 12_000, None);
            world.send("c", world.now() + 45_000, None);
            world.turn();
            again(&mut world, how);
            world.send("d", world.now() + 4_000, None);
            world.turn();
            world.pass_in_steps(2_000);
            let more = world.delivered().len() - fired;
            assert!(more == 0 || back < 5_000, "{back} {how}");
            world.pass_in_steps(48_000);
            // Once more, while the first time is not made up for.
            world.set_clock(-20_000);
            world.send("e", world.now() + 5_000, None);
            world.send("f", world.now() + 30_000, None);
            world.turn();
            again(&mut world, how);
            world.pass_in_steps(60_000);
            world
                .check()
                .map_err(|it| format!("{back} {how}: {it}"))
                .unwrap();
            for key in ["a", "b", "c", "d", "e", "f"] {
                assert!(
                    world.delivered().iter().any(|(it, _)| it == key),
                    "{key} {back}"
                );
            }
            // Right again: what is left is late, and comes.
            world.set_clock(back + 20_000);
            world.pass_in_steps(80_000);
            world
                .check()
                .map_err(|it| format!("{back} {how}: {it}"))
                .unwrap();
            let came = world.delivered();
            let keys: BTreeSet<&str> = came.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!(keys.len(), 14, "{back} {how}");
            assert!(came.len() == 14 || back >= HOUR, "{back} {how}");
        }
    }
}

#[test]
fn clock_that_stays_ahead_is_believed_after_a_minute() {
    let mut world = World::new();
    world.send("a", START + HOUR, None);
    world.turn();
    world.set_clock(2 * HOUR);
    world.pass_in_steps(55_000);
    assert!(world.delivered().is_empty());
    world.pass_in_steps(10_000);
    assert_eq!(world.delivered().len(), 1);
    // Then it turns out to have been wrong: what is sent now waits.
    world.set_clock(-2 * HOUR);
    world.send("b", world.now() + 20_000, None);
    world.pass_in_steps(10_000);
    world.kill();
    world.pass_in_steps(5_000);
    assert_eq!(world.delivered().len(), 1);
    world.pass_in_steps(10_000);
    assert_eq!(world.delivered().len(), 2);
}

#[test]
fn clock_that_stands_still_fires_nothing_and_loses_nothing() {
    let mut world = World::new();
    world.send("a", START + 5_000, None);
    world.pass_in_steps(2_000);
    for _ in 0..60 {
        // The time goes on, the clock does not.
        world.set_clock(-500);
        world.pass(500);
        world.turn();
    }
    assert!(world.delivered().is_empty());
    world.pass_in_steps(5_000);
    world.check().unwrap();
    assert_eq!(world.delivered().len(), 1);
}

/// Sends, clocks that are set and starts in a drawn order; then everything has arrived.
#[test]
fn drawn_clocks_and_starts_lose_nothing_and_fire_nothing_early() {
    let first = setting("TIMER_SEED", 0);
    for seed in first..first + setting("TIMER_STATES", 60) {
        let mut rng = Rng(seed);
        let mut world = World::new();
        world.crashes = 1;
        for number in 0..60 {
            match rng.below(8) {
                0..=3 => {
                    let wait = i64::try_from(rng.below(90_000)).unwrap() + 1;
                    world.send(&format!("k{number}"), world.now() + wait, None);
                }
                4 => {
                    let by = [700, 9_000, 40_000, HOUR][usize::try_from(rng.below(4)).unwrap()];
                    world.set_clock(if rng.below(2) == 0 { by } else { -by });
                    world.turn();
                }
                5 => match rng.below(3) {
                    0 => world.restart(),
                    1 => world.kill(),
                    _ => world.lose_power(&mut rng),
                },
                _ => world.pass_in_steps(i64::try_from(rng.below(20_000)).unwrap() + 1),
            }
        }
        world.set_clock(3 * HOUR);
        world.pass_in_steps(130_000);
        let early = world.check();
        assert!(early.is_ok(), "seed {seed}: {early:?}");
    }
}
