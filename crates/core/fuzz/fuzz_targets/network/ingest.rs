//! Frames from clients on the fast path, with accounts and without: every answer is whole frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::codec::command::Header;
use roquet_core::codec::frame::{cut, Frame};
use roquet_core::ingest::accounts::{Accounts, Rights, White};
use roquet_core::ingest::pop::{Popping, Unwaited};
use roquet_core::ingest::table::{
    Choice, Delays, Flush, GroupRow, Pulling, Slaves, State, Subscription, Table, TopicRow,
};
use roquet_core::ingest::Ingest;
use roquet_core::store::Store;
use roquet_core_fuzz::common::world::World;
use std::cell::RefCell;
use std::collections::HashMap;

const HOST: [u8; 8] = [127, 0, 0, 1, 0, 0, 42, 159];
const FRAME_MAX: usize = 1 << 16;
/// A store that has got so many bytes is replaced by an empty one.
const LOG_MAX: u64 = 1 << 18;
const TOPIC: &str = "GoldenTopic";

fn table(mode: u8) -> Table {
    let row = TopicRow {
        send_queues: 4,
        read_queues: 4,
        settle_queues: 4,
        ..TopicRow::default()
    };
    let subscription = Subscription {
        version: i64::MAX,
        choice: Choice::EVERY,
    };
    let group = GroupRow {
        sys_flag: 0,
        subscriptions: HashMap::from([(TOPIC.to_owned(), subscription)]),
    };
    let mut accounts = Accounts::new(Vec::new());
    accounts.add(
        "RocketMQ",
        b"12345678",
        White::default(),
        Rights {
            unlimited: true,
            ..Rights::default()
        },
    );
    Table {
        state: State {
            sends: true,
            pulls: true,
            flush: match (mode & 1 != 0, mode & 32 != 0) {
                (false, _) => Flush::NotAwaited,
                (true, false) => Flush::ByThread,
                (true, true) => Flush::Here,
            },
            slaves: if mode & 2 != 0 {
                Slaves::Wait
            } else {
                Slaves::None
            },
            body_max: 4096,
            batch_max: 64,
            store_host: HOST.to_vec(),
            parked_max: 8,
            pulling: Pulling {
                lite: true,
                holds_max: 8,
                hold_ms: None,
                hold_ms_max: 1000,
            },
            delays: Some(Delays {
                topic: "SCHEDULE_TOPIC_XXXX".to_owned(),
                highest: 18,
            }),
            halves: Some("RMQ_SYS_TRANS_HALF_TOPIC".to_owned()),
            pop: (mode & 64 != 0).then(|| Popping {
                broker: "broker-a".to_owned(),
                revive_topic: "rmq_sys_REVIVE_LOG_c".to_owned(),
                revive_queues: 8,
                delay_max_ms: 259_200_000,
                precision_ms: 1000,
                deleted_ms: i64::MIN,
                merges: mode & 128 != 0,
                pops: true,
                unwaited: Unwaited {
                    acks: mode & 16 != 0,
                    checkpoints: mode & 8 != 0,
                },
            }),
            ..State::default()
        },
        topics: HashMap::from([(TOPIC.into(), row), ("SCHEDULE_TOPIC_XXXX".into(), row)]),
        groups: HashMap::from([("golden_consumers".into(), group)]),
        accounts: (mode & 4 != 0).then_some(accounts),
        ..Table::default()
    }
}

fn whole_frames(bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let frame = cut(rest, usize::MAX).expect("a frame").expect("all of it");
        rest = &rest[frame.size..];
    }
}

fn serve(store: &Store, mode: u8, step: usize, data: &[u8]) {
    let mut ingest = Ingest::new(FRAME_MAX, 1);
    *ingest.table() = table(mode);
    ingest.open(1, &HOST, mode & 8 == 0);
    for (now, piece) in (0..).zip(data.chunks(step)) {
        let fed = ingest.feed(store, 1, piece, now, &mut |frame, header| {
            assert!(frame.size <= FRAME_MAX && frame.size > frame.body.len());
            assert!(frame.decode_header().as_ref() == Ok(header));
        });
        let pieces: Vec<u8> = fed.replies.pieces(0).flatten().copied().collect();
        assert_eq!(pieces.len(), fed.replies.len());
        whole_frames(&pieces);
        assert!(fed.held <= data.len());
        if fed.flush {
            let end = store.flush().expect("a disk that works");
            for (key, bytes) in ingest.flushed(end, now) {
                assert_eq!(key, 1);
                whole_frames(&bytes);
            }
            assert_eq!(ingest.parked(), 0);
        }
        let broken = fed.broken.is_some();
        ingest.recycle(fed.replies);
        if broken {
            break;
        }
        if mode & 16 != 0 {
            ingest.idle(1);
        }
    }
    let _ = store.dispatch();
    ingest.arrived(TOPIC, 0, 1);
    let mut left = |_: u64, _: &Frame<'_>, _: &Header<'_>| ();
    let end = store.flush().expect("a disk that works");
    let late = [
        ingest.serve(store, 10, &mut || true, &mut left),
        ingest.flushed(end, 20),
        ingest.replicated(u64::MAX, 30),
        ingest.expire(i64::MAX / 2),
    ];
    for outbound in late.into_iter().flatten() {
        whole_frames(&outbound.1);
    }
    assert_eq!(ingest.parked(), 0);
    ingest.close(1);
    assert_eq!(ingest.held_pulls(), 0);
}

fuzz_target!(|data: &[u8]| {
    thread_local!(static WORLD: RefCell<Option<World>> = const { RefCell::new(None) });
    let Some((&[mode, step], frames)) = data.split_first_chunk::<2>() else {
        return;
    };
    let step = if step == 0 {
        frames.len().max(1)
    } else {
        usize::from(step)
    };
    WORLD.with_borrow_mut(|world| {
        let store = world
            .get_or_insert_with(|| World::new(false))
            .store
            .clone()
            .expect("a store on an empty disk");
        serve(&store, mode, step, frames);
        if store.log().written() > LOG_MAX {
            *world = None;
        }
    });
});
