//! Losses that other brokers of this kind have had, each under the number of its report.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use super::common::sim_disk::SimDisk;
use super::common::verdict;
use super::common::world::{Step, World};
use super::common::Rng;
use roquet_core::disk::Disk;

const SMALL: Step = Step::Put {
    place: 0,
    len: 40,
    count: 1,
};
const LARGE: Step = Step::Put {
    place: 0,
    len: 2500,
    count: 1,
};

fn world(sync_flush: bool, steps: &[Step]) -> World {
    let mut world = World::new(sync_flush);
    for step in steps {
        assert!(world.step(*step), "{step:?}: {:?}", world.trouble);
    }
    world
}

/// Recovers `disk` and compares it with what `world` promised; returns how many messages are left.
fn recovered(disk: &SimDisk, world: &World, boot: u64) -> usize {
    match verdict::recover(disk, world.sync_flush, &world.promise, boot) {
        Ok(found) => found.log.len(),
        Err(why) => panic!("{why}"),
    }
}

/// Kills the process and starts again.
fn killed(world: &mut World) -> usize {
    world.store = None;
    world.disk.release_locks();
    recovered(&world.disk, world, world.boot)
}

fn files_in(disk: &SimDisk, folder: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with(folder)).collect()
}

#[test]
fn rocketmq_467_and_405_what_was_not_dispatched_is_dispatched_after_a_kill() {
    for sync_flush in [false, true] {
        let mut world = world(
            sync_flush,
            &[SMALL, Step::Flush, Step::Dispatch, Step::Checkpoint],
        );
        for _ in 0..5 {
            world.step(SMALL);
        }
        assert_eq!(killed(&mut world), 6);
    }
}

#[test]
fn rocketmq_1434_records_around_a_file_roll_are_dispatched() {
    for before in 0..10 {
        let mut world = world(false, &[SMALL, Step::Dispatch, Step::Checkpoint]);
        // Three large messages fill a file of 8 KiB; the kill comes before or behind the roll.
        for number in 0..12 {
            world.step(if number % 4 == 3 { SMALL } else { LARGE });
            if number == before {
                world.step(Step::Dispatch);
            }
        }
        let files = files_in(&world.disk, "/s/store/commitlog").len();
        assert!(files >= 3, "{files} files");
        assert_eq!(killed(&mut world), 13);
    }
}

#[test]
fn rocketmq_678_an_index_that_is_durable_says_nothing_of_the_queues() {
    // The index is synced, the queues are not, and the checkpoint still is the old one.
    let mut world = world(false, &[SMALL, Step::Dispatch, Step::Checkpoint]);
    for _ in 0..8 {
        world.step(SMALL);
    }
    world.step(Step::Flush);
    world.step(Step::Dispatch);
    for path in files_in(&world.disk, "/s/store/index") {
        world.disk.sync_file(&path).unwrap();
    }
    world.store = None;
    for seed in 0..20 {
        let image = world.disk.after_power_loss(&mut Rng(seed));
        assert_eq!(recovered(&image, &world, 2), 9, "seed {seed}");
    }
}

#[test]
fn queue_units_that_no_checkpoint_covers_are_made_again_after_a_power_loss() {
    let mut world = world(
        false,
        &[SMALL, Step::Flush, Step::Dispatch, Step::Checkpoint],
    );
    let notes = ["/s/store/checkpoint", "/s/store/queueEnds"].map(Path::new);
    let contents = notes.map(|path| world.disk.read(path).unwrap().unwrap());
    for _ in 0..60 {
        world.step(SMALL);
    }
    for step in [Step::Flush, Step::Dispatch, Step::Checkpoint] {
        world.step(step);
    }
    world.store = None;
    // The power went before the last checkpoint was written: any page of the queue may be missing,
    // also one in the middle of a file that a start looks at only at its ends.
    for (path, data) in notes.into_iter().zip(contents) {
        world.disk.plant(path, &data);
    }
    let files = files_in(&world.disk, "/s/store/consumequeue/T/0");
    assert!(files.len() > 5, "{files:?}");
    world.disk.damage(&files[0], 4 * 20, &[0; 40]);
    let image = world.disk.after_power_loss(&mut Rng(1));
    assert_eq!(recovered(&image, &world, 2), 61);
}

#[test]
fn rocketmq_8007_a_kill_does_not_cost_the_newest_index_file() {
    let mut world = world(
        false,
        &[
            SMALL,
            SMALL,
            Step::Dispatch,
            Step::Checkpoint,
            SMALL,
            Step::Dispatch,
        ],
    );
    let before = files_in(&world.disk, "/s/store/index");
    assert_eq!(before.len(), 1);
    // `recovered` looks every key up.
    assert_eq!(killed(&mut world), 3);
    assert_eq!(files_in(&world.disk, "/s/store/index"), before);
}

#[test]
fn rocketmq_9728_an_empty_queue_file_beside_a_lost_log_is_no_reason_to_stay_away() {
    let mut world = world(
        true,
        &[SMALL, Step::Flush, Step::Dispatch, Step::Checkpoint],
    );
    world.store = None;
    for (name, len) in [("00000000000000000200", 200), ("00000000000000000200", 0)] {
        let image = world.disk.after_power_loss(&mut Rng(1));
        let path = Path::new("/s/store/consumequeue/T/0").join(name);
        image.plant(&path, &vec![0; len]);
        assert_eq!(recovered(&image, &world, 2), 1);
    }
}

#[test]
fn rocketmq_10017_a_record_of_another_place_is_no_record() {
    // A whole, valid record lies behind the end, but it says that it belongs elsewhere.
    let mut world = world(true, &[SMALL, LARGE, Step::Flush, Step::Dispatch]);
    let first = usize::try_from(world.promise.log[0].end).unwrap();
    let end = usize::try_from(world.promise.log[1].end).unwrap();
    world.store = None;
    let log = files_in(&world.disk, "/s/store/commitlog")[0].clone();
    let bytes = world.disk.read(&log).unwrap().unwrap();
    world.disk.damage(&log, end, &bytes[..first]);
    world.disk.release_locks();
    assert_eq!(recovered(&world.disk, &world, 1), 2);
}

#[test]
fn rocketmq_10666_what_recovery_cut_does_not_come_back() {
    let mut cut = 0;
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let mut first = world(
            false,
            &[SMALL, Step::Flush, Step::Dispatch, LARGE, SMALL, SMALL],
        );
        first.store = None;
        let image = first.disk.after_power_loss(&mut rng);
        let left = recovered(&image, &first, 2);
        cut += usize::from(left < 4);
        // The power goes again at once: the cut was durable before anything was served.
        let again = image.after_power_loss(&mut rng);
        assert_eq!(recovered(&again, &first, 3), left, "seed {seed}");
    }
    assert!(cut > 10, "only {cut} of 60 images lacked a message");
}
