//! A disk that answers with errors or is full: nothing is acknowledged falsely, what is there stays
//! readable, and writing goes on when there is space again.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use super::common::sim_disk::{Fault, Op, SimDisk};
use super::common::verdict;
use super::common::world::{random_step, Promise, Step, World};
use super::common::{setting, Rng};
use roquet_core::commit_log::PutStatus;
use roquet_core::store::error::ErrorKind;

const SMALL: Step = Step::Put {
    place: 0,
    len: 40,
    count: 1,
};
const LARGE: Step = Step::Put {
    place: 1,
    len: 2500,
    count: 1,
};
const BATCH: Step = Step::Put {
    place: 2,
    len: 300,
    count: 3,
};

/// Workloads that use every part of the store; the last one rolls files and restarts.
fn workloads() -> [Vec<Step>; 3] {
    use Step::{Checkpoint, Delete, Dispatch, Flush, Kill, MakeNext, Restart, Tend};
    [
        vec![
            SMALL,
            Flush,
            Dispatch,
            SMALL,
            Checkpoint,
            SMALL,
            Flush,
            Dispatch,
            Delete(0),
            SMALL,
            Flush,
            Dispatch,
        ],
        vec![
            BATCH, LARGE, Flush, Dispatch, LARGE, LARGE, MakeNext, LARGE, Flush, Tend, Checkpoint,
            BATCH, Flush,
        ],
        vec![
            BATCH, Flush, Dispatch, BATCH, BATCH, BATCH, BATCH, BATCH, BATCH, Checkpoint, Kill,
            LARGE, SMALL, Flush, Dispatch, LARGE, LARGE, MakeNext, Tend, Flush, Restart, SMALL,
            LARGE, Flush, Dispatch, Checkpoint,
        ],
    ]
}

/// After a kill, and after power losses, what was acknowledged is there.
fn judge(world: &mut World, what: &str) {
    world.store = None;
    world.disk.set_fault(None);
    world.disk.set_capacity(None);
    world.disk.release_locks();
    for seed in 0..4 {
        let image = world.disk.after_power_loss(&mut Rng(seed));
        if let Err(why) = verdict::recover(&image, world.sync_flush, &world.promise, 2) {
            panic!("{why}, after a power loss; {what}");
        }
    }
    // The process is killed, the machine goes on: the files are as they were written.
    if let Err(why) = verdict::recover(&world.disk, world.sync_flush, &world.promise, 1) {
        panic!("{why}, after a kill; {what}");
    }
}

fn run_with_fault(steps: &[Step], sync_flush: bool, fault: Fault) -> (World, u64) {
    let disk = SimDisk::new();
    disk.set_fault(Some(fault));
    let mut world = World::on(disk, sync_flush);
    let mut failed_flush = false;
    for step in steps {
        let before = world.promise.durable;
        world.step(*step);
        let Some(store) = &world.store else {
            break;
        };
        if matches!(step, Step::Kill | Step::Restart) {
            failed_flush = false;
        }
        if failed_flush {
            assert_eq!(
                world.promise.durable, before,
                "acknowledged after a failed sync"
            );
            assert!(!store.writable().0, "writable after a failed sync");
        }
        failed_flush |= *step == Step::Flush && store.flush().is_err();
    }
    let hit = world.disk.faults_hit();
    (world, hit)
}

#[test]
fn the_nth_call_fails_and_nothing_is_acknowledged_falsely() {
    let mut runs = 0;
    // Without optimization the longest one takes too long for each change.
    let skipped = usize::from(cfg!(debug_assertions));
    for (number, steps) in workloads().iter().rev().skip(skipped).enumerate() {
        for op in [
            None,
            Some(Op::Write),
            Some(Op::Sync),
            Some(Op::Create),
            Some(Op::SyncDir),
            Some(Op::Names),
        ] {
            for (sticky, sync_flush) in [(false, true), (true, true), (false, false)] {
                for nth in 0.. {
                    let errno = libc::EIO;
                    let fault = Fault {
                        op,
                        nth,
                        sticky,
                        errno,
                    };
                    let (mut world, hit) = run_with_fault(steps, sync_flush, fault);
                    let what = format!("workload {number} sync {sync_flush} {fault:?}");
                    judge(&mut world, &what);
                    runs += 1;
                    if hit == 0 {
                        break;
                    }
                }
            }
        }
    }
    assert!(runs > 300, "only {runs} runs");
}

#[test]
fn what_is_acknowledged_after_a_run_whose_calls_failed_survives_a_power_loss() {
    let errno = libc::EIO;
    for (number, sync_flush) in [(0, true), (1, true), (1, false)] {
        let steps = &workloads()[number];
        for nth in 0.. {
            // Nothing can be taken back: files stay whose names are not durable.
            let fault = Fault {
                op: None,
                nth,
                sticky: true,
                errno,
            };
            let (mut world, hit) = run_with_fault(steps, sync_flush, fault);
            let what = format!("workload {number} sync {sync_flush} {fault:?}");
            world.store = None;
            world.disk.set_fault(None);
            world.disk.release_locks();
            let found = verdict::recover(&world.disk, sync_flush, &world.promise, 1);
            let found = found.unwrap_or_else(|why| panic!("{why}, after a kill; {what}"));
            drop(found.store);
            world.disk.release_locks();
            let promise = Promise {
                durable: found.log.len(),
                log: found.log,
                maybe: Vec::new(),
                deletions: found.deletions,
            };
            let mut next = World::resume(world.disk.clone(), sync_flush, promise, 1);
            for step in [SMALL, LARGE, Step::Flush, Step::Dispatch, Step::Checkpoint] {
                assert!(next.step(step), "{step:?}: {:?}, {what}", next.trouble);
            }
            assert_eq!(next.promise.durable, next.promise.log.len(), "{what}");
            judge(&mut next, &what);
            if hit == 0 {
                break;
            }
        }
    }
}

#[test]
fn drawn_workloads_survive_every_call_that_fails() {
    let seed = setting("IOFAULTS_SEED", 1);
    let workloads = setting(
        "IOFAULTS_WORKLOADS",
        if cfg!(debug_assertions) { 1 } else { 3 },
    );
    let mut points = 0;
    for index in 0..workloads {
        let mut rng = Rng(seed.wrapping_add(index).wrapping_mul(0x9E37_79B9));
        let length = 6 + rng.below(14);
        let steps: Vec<Step> = (0..length).map(|_| random_step(&mut rng)).collect();
        let sync_flush = rng.chance(2);
        for (sticky, errno) in [(false, libc::EIO), (true, libc::EIO), (false, libc::ENOSPC)] {
            for nth in 0.. {
                let op = None;
                let fault = Fault {
                    op,
                    nth,
                    sticky,
                    errno,
                };
                let (mut world, hit) = run_with_fault(&steps, sync_flush, fault);
                judge(&mut world, &format!("index {index} {steps:?} {fault:?}"));
                points += 1;
                if hit == 0 {
                    break;
                }
            }
        }
    }
    println!("seed {seed}: {workloads} workloads, {points} calls failed");
    assert!(points > 20 * workloads, "only {points}");
}

#[test]
fn start_after_a_failed_sync_writes_again_what_the_kernel_dropped() {
    use Step::{Checkpoint, Dispatch, Flush, Kill};
    // The kernel calls pages clean after a sync that failed. What is vouched for after the next
    // start has to be written again: a sync alone writes nothing of it.
    let mut steps = vec![SMALL, Flush, Dispatch, Checkpoint];
    // More than a file of a queue holds: its first units may be lost where later ones are not.
    steps.extend([super::common::world::BATCH, Flush, Dispatch].repeat(8));
    steps.extend([Checkpoint, Kill, Flush, Dispatch, Checkpoint]);
    for sync_flush in [true, false] {
        for nth in 0.. {
            let fault = Fault {
                op: Some(Op::Sync),
                nth,
                sticky: false,
                errno: libc::EIO,
            };
            let (mut world, hit) = run_with_fault(&steps, sync_flush, fault);
            let what = format!("sync {sync_flush} {fault:?}");
            if world.store.is_some() {
                world.step(Checkpoint);
            }
            judge(&mut world, &what);
            if hit == 0 {
                assert!(nth > 5, "only {nth} syncs");
                assert_eq!(world.promise.durable, world.promise.log.len());
                break;
            }
        }
    }
}

#[test]
fn a_full_disk_is_a_clear_error_and_writing_resumes() {
    let mut refused = 0;
    let mut resumed = 0;
    for (number, steps) in workloads().iter().enumerate() {
        for pages in 0..80 {
            let disk = SimDisk::new();
            disk.set_capacity(Some(pages * 4096));
            let mut world = World::on(disk, number % 2 == 0);
            for step in steps {
                world.step(*step);
                if world.store.is_none() {
                    break;
                }
            }
            let what = format!("workload {number}, {pages} pages");
            if let Some(trouble) = &world.trouble {
                assert_eq!(trouble.kind, ErrorKind::DiskFull, "{trouble}: {what}");
            }
            if let Some(store) = world.store.clone() {
                let status = world.put(&store, 0, 2500, 3);
                assert!(
                    matches!(
                        status,
                        PutStatus::Ok
                            | PutStatus::ServiceNotAvailable
                            | PutStatus::CreateFileFailed
                    ),
                    "{status:?}: {what}"
                );
                refused += u64::from(status != PutStatus::Ok);
            }
            resume(&mut world, &what);
            resumed += 1;
            judge(&mut world, &what);
        }
    }
    assert!(
        refused > 10 && resumed > 200,
        "{refused} refused, {resumed} resumed"
    );
}

/// There is space again: the same store takes messages, shows them, and keeps them.
fn resume(world: &mut World, what: &str) {
    world.disk.set_capacity(None);
    if world.store.is_none() {
        world.disk.release_locks();
        assert!(world.open(), "{:?}: {what}", world.trouble);
    }
    let store = world.store.clone().expect("opened");
    world.step(Step::Tend);
    let status = world.put(&store, 0, 2500, 1);
    assert_eq!(status, PutStatus::Ok, "{:?}: {what}", store.writable());
    for step in [Step::Flush, Step::Dispatch, Step::Checkpoint] {
        world.step(step);
    }
    assert_eq!(world.promise.durable, world.promise.log.len(), "{what}");
    if let Err(why) = verdict::check(&store, &world.promise) {
        panic!("{why}, on the disk that was full; {what}");
    }
}
