//! Timers whose steps change, with requests to cancel, through failed writes, kills and power cuts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::common::sim_disk::{Fault, Op};
use super::common::Rng;
use super::timer_help::{World, START};

const EIO: i32 = 5;

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
