//! Timers at the edges of their rules: what is counted, told, copied once and met once more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::timer_help::{open_ticking, World, START, STEP};
use roquet_core::codec::properties::entries;
use roquet_core::codec::record;
use roquet_core::disk::Disk;
use roquet_core::store::get::Wanted;
use roquet_core::timer::{TimerThread, TIMER_TOPIC};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Properties of the first message that was delivered, in order.
fn delivered_properties(world: &World) -> Vec<(String, String)> {
    let wanted = Wanted {
        topic: "T",
        queue_id: 3,
        offset: 0,
        messages: 1,
        bytes: 1 << 20,
        tag_codes: None,
        filter: None,
    };
    let got = world.store.get(wanted).unwrap();
    let view = record::records(&got.parts[0], true)
        .next()
        .unwrap()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    entries(view.properties)
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

#[test]
fn distribution_counts_what_has_not_fired_by_how_far_off_it_is() {
    let mut world = World::new();
    // Their slots are 0, 1, 4, 4, 9 and 15 s off.
    let delays = [500, 2_000, 5_000, 5_000, 10_000, 16_000];
    for (number, delay) in delays.into_iter().enumerate() {
        world.send(&format!("k{number}"), START + delay, None);
    }
    world.turn();
    let bounds = [1_000, 4_000, 5_000, 9_001];
    assert_eq!(world.timers.distribution(&bounds), [1, 1, 2, 1]);
    assert_eq!(world.timers.waiting(), 6, "one is beyond the last bound");
    assert_eq!(world.timers.distribution(&[]), Vec::<i64>::new());
    world.pass_in_steps(3_000);
    assert_eq!(world.delivered().len(), 2);
    assert_eq!(world.timers.distribution(&bounds), [0, 2, 0, 1]);
}

#[test]
fn messages_that_have_not_entered_the_wheel_are_counted_as_behind() {
    let mut world = World::new();
    world.timers.set_enqueues(false);
    for number in 0..3 {
        world.send(&format!("k{number}"), START + 5_000, None);
    }
    world.turn();
    assert_eq!((world.timers.behind(), world.timers.waiting()), (3, 0));
    world.timers.set_enqueues(true);
    world.turn();
    assert_eq!((world.timers.behind(), world.timers.waiting()), (0, 3));
}

#[test]
fn message_of_many_turns_says_how_many_there_were_and_nothing_twice() {
    let mut world = World::new();
    world.send("far", START + 95_500, None);
    world.pass_in_steps(98_000);
    let found = delivered_properties(&world);
    let mut names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), found.len(), "{found:?}");
    let rolled = world.timers.counters.rolled.load(Ordering::Relaxed);
    assert!(rolled >= 4);
    let wanted = ("TIMER_ROLL_TIMES".to_owned(), rolled.to_string());
    assert!(found.contains(&wanted), "{found:?}");
}

/// A timer message that takes `size` bytes of the log.
fn send_sized(world: &World, size: usize, due_ms: i64) {
    let fixed = format!(
        "TIMER_DELIVER_MS\u{1}{due_ms}\u{2}TIMER_OUT_MS\u{1}{}\u{2}UNIQ_KEY\u{1}k\u{2}\
         REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}3\u{2}p\u{1}\u{2}",
        due_ms - STEP
    );
    let rest = size - 91 - 1 - TIMER_TOPIC.len() - fixed.len();
    let padded = fixed.replace("p\u{1}", &format!("p\u{1}{}", "x".repeat(rest)));
    assert!(world.put(TIMER_TOPIC, b"k", padded.as_bytes()));
}

#[test]
fn messages_that_fire_together_are_appended_in_batches_of_bounded_count_and_bytes() {
    // 128 messages, and 256 KiB of them as they stand in the timer topic: the one that reaches the
    // bound is the last of its batch.
    for (size, count, wanted) in [(400, 300, &[128, 128, 44][..]), (8192, 70, &[32, 32, 6])] {
        // With a clock that moves at each look, what has one store time was appended together.
        let mut world = World::new();
        world.stop();
        world.disk.release_locks();
        let opened = open_ticking(&world.disk, (&world.now, &world.lead), &world.config, 1, 1);
        (world.store, world.timers) = opened.unwrap();
        for _ in 0..count {
            send_sized(&world, size, START + 15 * STEP);
            world.store.flush().unwrap();
        }
        while matches!(world.store.dispatch(), Ok(true)) {}
        let units = world.store.units(TIMER_TOPIC, 0, 0, 1000).unwrap();
        assert!(units.iter().all(|(_, it, _)| *it as usize == size));
        world.turn();
        assert_eq!(world.timers.waiting(), count);
        world.pass(17 * STEP);
        world.turn();
        let mut batches: Vec<(i64, usize)> = Vec::new();
        for (_, stored_ms) in world.delivered() {
            match batches.last_mut() {
                Some((last, counted)) if *last == stored_ms => *counted += 1,
                _ => batches.push((stored_ms, 1)),
            }
        }
        let counts: Vec<usize> = batches.iter().map(|(_, counted)| *counted).collect();
        assert_eq!(counts, wanted, "messages of {size} bytes");
    }
}

#[test]
fn message_that_rolled_an_hour_ago_is_not_taken_again_from_the_topic() {
    const HOUR: i64 = 3_600_000;
    // One that rolled just now may have been late: it comes again, beside its younger copy.
    for (passed_ms, waiting) in [(HOUR / 2, 2), (2 * HOUR, 1)] {
        let mut world = World::new();
        world.send("far", START + 3 * HOUR, None);
        world.turn();
        world.pass(passed_ms);
        world.turn();
        assert_eq!(world.timers.counters.rolled.load(Ordering::Relaxed), 1);
        world.stop();
        let files = ["/s/store/timerwheel", "/s/store/timerlog"];
        for (path, _) in world.disk.files() {
            if files.iter().any(|it| path.starts_with(it)) {
                world.disk.remove(&path).unwrap();
            }
        }
        world.reopen();
        world.turn();
        assert_eq!(world.timers.waiting(), waiting, "{passed_ms}");
    }
}

#[test]
fn thread_says_why_it_cannot_go_on_until_it_can() {
    let mut world = World::new();
    world.send("k", START + 3 * STEP, None);
    while matches!(world.store.dispatch(), Ok(true)) {}
    assert_eq!(world.store.queues().max(TIMER_TOPIC, 0), 1);
    world.disk.set_capacity(Some(0));
    let thread = TimerThread::start(Arc::clone(&world.timers)).unwrap();
    let until = |wanted: bool| {
        let end = Instant::now() + Duration::from_secs(30);
        while world.timers.trouble().is_some() != wanted {
            assert!(Instant::now() < end, "{:?}", world.timers.trouble());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(true);
    assert_eq!(world.timers.waiting(), 0);
    world.disk.set_capacity(None);
    until(false);
    thread.stop();
    assert_eq!(world.timers.waiting(), 1);
}
