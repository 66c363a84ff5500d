//! Timers whose steps change, with requests to cancel, through failed writes, kills and power cuts.
//!
//! `TIMER_STATES=20000` draws more histories than the gate does; `TIMER_SEED` repeats a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::common::sim_disk::{Fault, Op, SimDisk};
use super::common::{setting, Rng};
use super::timer_help::{World, START, STEP};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn fault(op: Option<Op>, nth: u64, errno: i32) -> Fault {
    Fault {
        op,
        nth,
        sticky: true,
        errno,
    }
}

#[test]
fn cancel_counts_when_every_write_fails_while_it_enters_after_the_steps_changed() {
    for op in [None, Some(Op::Write)] {
        for nth in 0..12 {
            for power_lost in [false, true] {
                let mut world = World::new();
                world.send("kept", START + 8_000, None);
                world.send("gone", START + 8_000, None);
                world.turn();
                world.stop();
                world.config.precision_ms = 100;
                world.reopen();
                assert!(world.send("x", START + 8_000, Some("gone")));
                world.disk.set_fault(Some(fault(op, nth, EIO)));
                world.pass_in_steps(2_000);
                world.disk.set_fault(None);
                if power_lost {
                    world.lose_power(&mut Rng(nth));
                } else {
                    world.kill();
                }
                world.pass_in_steps(20_000);
                world
                    .check()
                    .unwrap_or_else(|why| panic!("{op:?} {nth} {power_lost}: {why}"));
            }
        }
    }
}

/// How many units the log of the timers has on disk.
fn units(disk: &SimDisk) -> usize {
    const SIZE: usize = 52;
    let files = disk.files().into_iter();
    let logs = files.filter(|(path, _)| path.starts_with("/s/store/timerlog"));
    logs.map(|(_, bytes)| {
        let is_unit = |unit: &&[u8]| unit.starts_with(&52_i32.to_be_bytes());
        bytes.chunks_exact(SIZE).filter(is_unit).count()
    })
    .sum()
}

/// Has a request to cancel enter after two changes of the steps, so that it has several units, when
/// the log has `others` more; from the `nth` write on all of them fail. Returns the world, and the
/// units of the request on disk.
fn cancelled_over_changes(others: usize, nth: Option<u64>) -> (World, usize) {
    let mut world = World::new();
    world.send("gone", START + 3_100, None);
    for number in 0..others {
        world.send(&format!("kept{number}"), START + 3_100, None);
    }
    world.turn();
    for precision_ms in [500, 200] {
        world.stop();
        world.config.precision_ms = precision_ms;
        world.reopen();
    }
    assert!(world.send("x", START + 3_100, Some("gone")));
    let before = units(&world.disk);
    if let Some(nth) = nth {
        world.disk.set_fault(Some(fault(Some(Op::Write), nth, EIO)));
    }
    world.pass(500);
    world.turn();
    world.disk.set_fault(None);
    let units = units(&world.disk) - before;
    (world, units)
}

#[test]
fn cancel_counts_after_a_crash_between_its_units() {
    // A file of the log holds nine units: in some of the stories the request needs two.
    let mut between = [0; 3];
    for others in 1..9 {
        let (_, whole) = cancelled_over_changes(others, None);
        assert_eq!(whole, between.len(), "units of one request");
        for (nth, power_lost) in (0..6).flat_map(|nth| [(nth, false), (nth, true)]) {
            let (mut world, units) = cancelled_over_changes(others, Some(nth));
            if let Some(count) = between.get_mut(units) {
                *count += 1;
            }
            if power_lost {
                world.lose_power(&mut Rng(nth));
            } else {
                world.kill();
            }
            world.pass_in_steps(10_000);
            let story = format!("{others}, write {nth}, {units} units, {power_lost}");
            let delivered = world.delivered();
            assert!(delivered.iter().all(|(key, _)| key != "gone"), "{story}");
            assert!(delivered.len() >= others, "{story}");
            world.check().unwrap_or_else(|why| panic!("{story}: {why}"));
        }
    }
    assert!(between[1] > 0 && between[2] > 0, "{between:?}");
}

/// One act of a history.
fn act(world: &mut World, rng: &mut Rng, number: u64, changes: &mut u32) {
    match rng.below(20) {
        0..=6 => {
            let wait = i64::try_from(rng.below(30_000)).unwrap();
            world.send(&format!("k{number}"), world.now() + wait, None);
        }
        7..=11 => {
            let target = format!("k{}", rng.below(number + 1));
            let due_ms = world.asked.get(&target).map(|asked| asked.due_ms);
            if let Some(due_ms) = due_ms.filter(|due_ms| *due_ms > world.now()) {
                world.send(&format!("x{number}"), due_ms, Some(&target));
            }
        }
        12..=14 => {
            world.pass(i64::try_from(rng.below(3_000)).unwrap());
            world.turn();
        }
        15 => {
            let _ = world.timers.flush(false);
        }
        16 => {
            let op = (!rng.chance(3)).then_some(Op::Write);
            let errno = if rng.chance(3) { ENOSPC } else { EIO };
            let planned = fault(op, rng.below(14), errno);
            world.disk.set_fault(Some(Fault {
                sticky: !rng.chance(4),
                ..planned
            }));
        }
        _ => {
            let stops =
                rng.chance(2) && world.timers.flush(true).is_ok() && world.store.close().is_ok();
            world.disk.set_fault(None);
            if *changes > 0 && rng.chance(2) {
                *changes -= 1;
                world.config.precision_ms = [100, 200, 500, 1_000, 2_000][index(rng, 5)];
            }
            if stops {
                world.reopen();
            } else if rng.chance(2) {
                world.lose_power(rng);
            } else {
                world.kill();
            }
        }
    }
}

fn index(rng: &mut Rng, of: u64) -> usize {
    usize::try_from(rng.below(of)).unwrap()
}

fn history(seed: u64) -> Result<(), String> {
    let mut rng = Rng(seed);
    let mut world = World::new();
    // As many as are told apart.
    let mut changes = 4;
    for number in 0..rng.below(60) + 5 {
        act(&mut world, &mut rng, number, &mut changes);
    }
    world.disk.set_fault(None);
    world.kill();
    world.pass_in_steps(60 * STEP);
    world.check()
}

#[test]
fn changes_of_the_steps_and_failed_writes_lose_nothing_and_undo_no_cancel() {
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
