//! Power loss at every operation of the disk: what was acknowledged is there, nothing else is, and
//! queues and index say what the log says.
//!
//! `POWERLOSS_STATES=20000` draws more states than the gate does; `POWERLOSS_SEED` repeats a run.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use std::collections::BTreeSet;

use super::common::sim_disk::{Lies, SimDisk};
use super::common::verdict;
use super::common::world::{random_step, Promise, Step, World, BATCH, LARGE, SMALL};
use super::common::{setting, Rng};

const ALPHABET: [Step; 9] = [
    SMALL,
    LARGE,
    BATCH,
    Step::Flush,
    Step::Dispatch,
    Step::Checkpoint,
    Step::Delete(0),
    Step::Kill,
    Step::Restart,
];

/// States seen, and what was wrong with some.
#[derive(Default)]
struct Tally {
    states: u64,
    images: BTreeSet<u64>,
    failures: Vec<String>,
}

/// How the world is broken on purpose.
#[derive(Clone, Copy, Default)]
struct Planted {
    lies: Lies,
    ack_before_flush: bool,
    /// Not a fault: contents of an attacker's choice.
    hostile: bool,
}

/// Runs a workload until the power goes at the `cut`th operation; false when it ended before.
fn run(steps: &[Step], sync_flush: bool, cut: u64, planted: Planted) -> (World, bool) {
    let disk = SimDisk::new();
    disk.set_lies(planted.lies);
    disk.power_off_at(cut);
    let mut world = World::on(disk, sync_flush);
    world.ack_before_flush = planted.ack_before_flush;
    world.hostile = planted.hostile;
    for step in steps {
        if !world.step(*step) {
            break;
        }
    }
    world.store = None;
    let off = world.disk.is_off();
    (world, off)
}

impl Tally {
    /// Loses the power in `world` and judges what is left; goes on a little and loses it again.
    fn judge(&mut self, world: &World, rng: &mut Rng, deep: bool, what: &dyn Fn() -> String) {
        self.states += 1;
        let image = world.disk.after_power_loss(rng);
        if deep && rng.chance(2) {
            // The power goes once more while the store recovers.
            image.power_off_at(rng.below(12));
            let mut second = World::resume(image.clone(), world.sync_flush, Promise::default(), 2);
            second.store = None;
            let image = image.after_power_loss(rng);
            self.verdict(verdict_of(&image, world, 3), what);
            return;
        }
        match verdict_of(&image, world, 2) {
            Ok((hash, promise)) if deep => {
                self.images.insert(hash);
                let again = second_life(&image, world.sync_flush, promise, rng);
                self.verdict(again, what);
            }
            result => self.verdict(result.map(|(hash, _)| (hash, Promise::default())), what),
        }
    }

    fn verdict(&mut self, result: Result<(u64, Promise), String>, what: &dyn Fn() -> String) {
        match result {
            Ok((hash, _)) => {
                self.images.insert(hash);
            }
            Err(why) => self.failures.push(format!("{why}: {}", what())),
        }
    }

    fn expect_good(&self) {
        assert!(
            self.failures.is_empty(),
            "{} of {} states, first: {:#?}",
            self.failures.len(),
            self.states,
            &self.failures[..self.failures.len().min(5)]
        );
    }
}

/// Recovers; the promise that holds from now on is that nothing recovered is lost.
fn verdict_of(image: &SimDisk, world: &World, boot: u64) -> Result<(u64, Promise), String> {
    let recovered = verdict::recover(image, world.sync_flush, &world.promise, boot)?;
    let durable = recovered.log.len();
    let promise = Promise {
        log: recovered.log,
        durable,
        maybe: Vec::new(),
        deletions: recovered.deletions,
    };
    drop(recovered.store);
    image.release_locks();
    Ok((recovered.hash, promise))
}

/// What was cut must not come back, and new messages must not meet old ones.
fn second_life(
    image: &SimDisk,
    sync_flush: bool,
    promise: Promise,
    rng: &mut Rng,
) -> Result<(u64, Promise), String> {
    let mut world = World::resume(image.clone(), sync_flush, promise, 3);
    world.hostile = rng.chance(2);
    if world.store.is_none() {
        return Err("the store opened once and not again".to_owned());
    }
    for _ in 0..rng.below(4) {
        world.step(random_step(rng));
    }
    world.store = None;
    let image = world.disk.after_power_loss(rng);
    verdict_of(&image, &world, 4)
}

/// Every workload of up to `length` steps, power lost at every operation.
fn exhaustive(length: usize, draws: u64, planted: Planted) -> Tally {
    let mut tally = Tally::default();
    let mut workloads: Vec<Vec<Step>> = vec![vec![]];
    let mut from = 0;
    for _ in 0..length {
        let to = workloads.len();
        for index in from..to {
            for step in ALPHABET {
                let mut longer = workloads[index].clone();
                longer.push(step);
                workloads.push(longer);
            }
        }
        from = to;
    }
    for (index, steps) in workloads.iter().enumerate().skip(from) {
        let sync_flush = index % 2 == 0;
        let mut rng = Rng(index as u64);
        for cut in 0.. {
            let (world, off) = run(steps, sync_flush, cut, planted);
            for draw in 0..draws {
                let what = || format!("{steps:?} sync {sync_flush} cut {cut} draw {draw}");
                tally.judge(&world, &mut rng, false, &what);
            }
            if !off {
                break;
            }
        }
    }
    tally
}

/// Drawn workloads, power lost at a drawn operation.
fn sampled(states: u64, seed: u64, planted: Planted) -> Tally {
    let mut tally = Tally::default();
    for index in 0..states {
        let mut rng = Rng(seed.wrapping_add(index).wrapping_mul(0x9E37_79B9));
        let length = 3 + rng.below(60);
        let steps: Vec<Step> = (0..length).map(|_| random_step(&mut rng)).collect();
        let sync_flush = rng.chance(2);
        let cut = rng.below(20 + 5 * length);
        let (world, _) = run(&steps, sync_flush, cut, planted);
        let what = || format!("seed {seed} index {index} cut {cut} sync {sync_flush} {steps:?}");
        tally.judge(&world, &mut rng, planted_nothing(planted), &what);
    }
    tally
}

fn planted_nothing(planted: Planted) -> bool {
    !planted.ack_before_flush
        && !planted.lies.sync_does_nothing
        && !planted.lies.sync_dir_does_nothing
}

#[test]
fn short_workloads_lose_nothing_wherever_the_power_goes() {
    let tally = exhaustive(2, 3, Planted::default());
    println!(
        "{} states, {} distinct images",
        tally.states,
        tally.images.len()
    );
    tally.expect_good();
    assert!(tally.states > 1000, "only {} states", tally.states);
}

#[test]
fn long_workloads_lose_nothing_wherever_the_power_goes() {
    // Without optimization each state takes several times as long.
    let gate = if cfg!(debug_assertions) { 500 } else { 4000 };
    let states = setting("POWERLOSS_STATES", gate);
    let tally = sampled(states, setting("POWERLOSS_SEED", 1), Planted::default());
    println!(
        "{} states, {} distinct images",
        tally.states,
        tally.images.len()
    );
    tally.expect_good();
    let distinct = tally.images.len() as u64;
    assert!(
        distinct >= states / 2,
        "only {distinct} distinct images of {states}"
    );
}

#[test]
fn hostile_contents_lose_nothing_wherever_the_power_goes() {
    let hostile = Planted {
        hostile: true,
        ..Planted::default()
    };
    exhaustive(1, 6, hostile).expect_good();
    let gate = if cfg!(debug_assertions) { 500 } else { 4000 };
    let states = setting("POWERLOSS_STATES", gate);
    let tally = sampled(states, setting("POWERLOSS_SEED", 1), hostile);
    println!(
        "{} states with hostile contents, {} distinct images",
        tally.states,
        tally.images.len()
    );
    tally.expect_good();
}

#[test]
fn planted_a_sync_that_does_nothing_is_caught() {
    let mut planted = Planted::default();
    planted.lies.sync_does_nothing = true;
    assert_caught(planted, "acknowledged messages are lost");
}

#[test]
fn planted_an_acknowledgement_before_the_flush_is_caught() {
    let planted = Planted {
        ack_before_flush: true,
        ..Planted::default()
    };
    assert_caught(planted, "acknowledged messages are lost");
}

#[test]
fn planted_names_that_are_never_synced_are_caught() {
    let mut planted = Planted::default();
    planted.lies.sync_dir_does_nothing = true;
    assert_caught(planted, "acknowledged messages are lost");
}

/// The bug shows both in short and in drawn workloads.
fn assert_caught(planted: Planted, how: &str) {
    let hostile = Planted {
        hostile: true,
        ..planted
    };
    for tally in [
        exhaustive(2, 1, planted),
        sampled(100, 1, planted),
        sampled(100, 2, hostile),
    ] {
        let caught = tally
            .failures
            .iter()
            .filter(|text| text.contains(how))
            .count();
        assert!(
            caught > 5,
            "{caught} of {} states: {:?}",
            tally.states,
            tally.failures.first()
        );
    }
}
