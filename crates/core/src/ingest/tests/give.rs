//! What a decided pop gets, over a real store.

use super::{give, Given, Place, Wish};
use crate::codec::frame;
use crate::codec::record::NewRecord;
use crate::commit_log::{Prepared, PutStatus};
use crate::ingest::books::Ledger;
use crate::ingest::pop::{Popping, Unwaited};
use crate::ingest::table::State;
use crate::store::config::{StoreConfig, Value};
use crate::store::env::Env;
use crate::store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const HOST: [u8; 8] = [127, 0, 0, 1, 0, 0, 0, 1];
const NOW_MS: i64 = 1_700_000_000_000;

struct Made {
    store: Arc<Store>,
    folder: PathBuf,
    state: State,
    ledger: Ledger,
}

impl Made {
    fn new(name: &str) -> Self {
        let made = Self::stepped(name);
        made.store.start().unwrap();
        made
    }

    /// One whose store has no threads: nobody dispatches.
    fn stepped(name: &str) -> Self {
        let name = format!("roquet-give-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let text = folder.to_str().unwrap().to_owned();
        let settings = BTreeMap::from([
            ("storePathRootDir".to_owned(), Value::Text(text)),
            ("mappedFileSizeCommitLog".to_owned(), Value::Int(131_072)),
        ]);
        let store = Store::open(StoreConfig::read(&settings).unwrap(), Env::system()).unwrap();
        let state = State {
            body_max: 4096,
            store_host: HOST.to_vec(),
            pop: Some(Popping {
                broker: "b".into(),
                revive_topic: "R".into(),
                revive_queues: 8,
                delay_max_ms: 1_000_000,
                precision_ms: 1000,
                deleted_ms: i64::MIN,
                merges: false,
                pops: true,
                unwaited: Unwaited::default(),
            }),
            ..State::default()
        };
        Self {
            store,
            folder,
            state,
            ledger: Ledger::default(),
        }
    }

    fn send(&self, topic: &str, queue_id: i32, count: usize) {
        self.send_undispatched(topic, queue_id, count);
        self.dispatched();
    }

    fn send_undispatched(&self, topic: &str, queue_id: i32, count: usize) {
        let record = NewRecord {
            topic: topic.as_bytes(),
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: &HOST,
            store_host: &HOST,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"body",
            properties: b"",
        };
        for _ in 0..count {
            let mut prepared = Prepared::default();
            prepared.push(topic, &record, 4096, false).unwrap();
            assert_eq!(self.store.put(&mut prepared).status, PutStatus::Ok);
        }
    }

    fn dispatched(&self) {
        while self.store.dispatched() < self.store.log().written() {
            std::thread::yield_now();
        }
    }

    fn give(&mut self, wish: &Wish<'_>) -> Option<Given> {
        let given = self.give_now(wish);
        self.dispatched();
        given
    }

    fn give_now(&mut self, wish: &Wish<'_>) -> Option<Given> {
        give(&self.state, &self.store, wish, &mut self.ledger, None)
    }

    /// Records that wait for their time.
    fn waiting(&self) -> u64 {
        self.store.queues().max("rmq_sys_wheel_timer", 0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.store.close().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn place(queue_id: i32, offset: i64) -> Place {
    Place {
        of_retry: false,
        queue_id,
        offset,
    }
}

fn again(queue_id: i32, offset: i64) -> Place {
    Place {
        of_retry: true,
        ..place(queue_id, offset)
    }
}

fn wish(places: &[Place]) -> Wish<'_> {
    Wish {
        opaque: 7,
        group: "g",
        topic: "T",
        retry_topic: "%RETRY%g_T",
        retry_first: false,
        places,
        messages: 4,
        codes: None,
        invisible_ms: 60_000,
        now_ms: NOW_MS,
        since_ms: NOW_MS,
        revive_queue: 3,
        merges: false,
        waits: false,
    }
}

/// The value of a field of an answer.
fn field(given: &Given, name: &str) -> String {
    let frame = frame::cut(&given.reply, 1 << 20).unwrap().unwrap();
    let header = frame.decode_header().unwrap();
    header.get(name).unwrap_or_default().to_owned()
}

#[test]
fn a_message_that_is_in_no_queue_yet_is_given() {
    let mut made = Made::stepped("undispatched");
    assert!(made.store.start_stepped().unwrap());
    assert!(made.give_now(&wish(&[place(0, 0)])).is_none());
    made.send_undispatched("T", 0, 2);
    let given = made.give_now(&wish(&[place(0, 0)])).unwrap();
    let [batch] = &given.batches[..] else {
        panic!("one queue has messages: {given:?}");
    };
    assert_eq!((batch.start, batch.next, given.rest), (0, 2, 0));
}

#[test]
fn messages_of_several_queues_are_given_and_their_checkpoints_wait() {
    let mut made = Made::new("several");
    made.send("T", 0, 3);
    made.send("T", 1, 3);
    made.send("T", 2, 5);
    let places = [place(1, 0), place(0, 2), place(3, 0), place(2, 1)];
    let given = made.give(&wish(&places)).unwrap();
    let batches: Vec<_> = given
        .batches
        .iter()
        .map(|it| (it.queue_id, it.start, it.diffs.clone(), it.next))
        .collect();
    assert_eq!(
        batches,
        [(1, 0, vec![0, 1, 2], 3), (0, 2, vec![0], 3)],
        "the room ends there"
    );
    assert_eq!(given.rest, 4, "of the queue that is only counted");
    assert_eq!(made.waiting(), 2);
    assert_eq!(field(&given, "startOffsetInfo"), "0 1 0;0 0 2");
    assert_eq!(field(&given, "msgOffsetInfo"), "0 1 0,1,2;0 0 2");
    assert_eq!(field(&given, "restNum"), "4");
    assert_eq!(field(&given, "reviveQid"), "3");
    assert_eq!(made.ledger.counters.pops, 1);
}

#[test]
fn checkpoints_that_the_caller_keeps_are_not_stored() {
    let mut made = Made::new("merges");
    made.send("T", 0, 2);
    let places = [place(0, 0)];
    let merges = Wish {
        merges: true,
        ..wish(&places)
    };
    let written = made.store.log().written();
    let given = made.give(&merges).unwrap();
    assert_eq!((given.batches.len(), given.rest), (1, 0));
    assert_eq!(made.store.log().written(), written);
}

#[test]
fn a_record_that_is_due_already_goes_to_the_revive_topic() {
    let mut made = Made::new("due");
    made.send("T", 0, 1);
    let places = [place(0, 0)];
    let short = Wish {
        invisible_ms: 1000,
        ..wish(&places)
    };
    assert!(made.give(&short).is_some());
    assert_eq!((made.waiting(), made.store.queues().max("R", 3)), (0, 1));
}

#[test]
fn what_the_filter_takes_no_part_of_is_passed() {
    let mut made = Made::new("tags");
    made.send("T", 0, 2);
    made.send("T", 1, 1);
    let places = [place(0, 0), place(1, 0)];
    // Nothing is wanted at all: whether somebody waits then is for the handlers.
    let none = Wish {
        codes: Some(&[5]),
        ..wish(&places)
    };
    let written = made.store.log().written();
    assert!(made.give(&none).is_none());
    assert_eq!(made.store.log().written(), written);
}

#[test]
fn the_processors_look_where_a_position_or_a_message_is_not_common() {
    let mut made = Made::new("odd");
    made.send("T", 0, 4);
    made.send("%RETRY%g_T", 1, 1);
    let written = made.store.log().written();
    for places in [
        // Not known, behind the end, in a queue that was made anew, nowhere.
        vec![place(0, 0), place(1, -1)],
        vec![place(0, 5)],
        vec![place(0, 3), place(1, 2)],
        vec![place(0, 4)],
        vec![],
        // A message to redeliver, with room for it.
        vec![place(0, 1), again(1, 0)],
        vec![place(0, 1), again(0, -1)],
    ] {
        assert!(made.give(&wish(&places)).is_none(), "{places:?}");
    }
    let places = [again(1, 0), place(0, 0)];
    let first = Wish {
        retry_first: true,
        ..wish(&places)
    };
    assert!(made.give(&first).is_none());
    assert_eq!(made.store.log().written(), written);
    made.state.pop = None;
    assert!(made.give(&wish(&[place(0, 0)])).is_none());
}

#[test]
fn a_pop_that_waits_is_told_that_nothing_is_there_and_what_is_odd_is_left() {
    let mut made = Made::new("waits");
    made.send("T", 0, 2);
    made.send("%RETRY%g_T", 1, 1);
    let written = made.store.log().written();
    let waits = |places: &[Place], made: &mut Made| {
        let wish = Wish {
            waits: true,
            ..wish(places)
        };
        made.give(&wish)
    };
    let nothing = waits(&[place(0, 2), place(1, 0), again(1, 1)], &mut made).unwrap();
    assert!(nothing.reply.is_empty() && nothing.batches.is_empty());
    let lines = made.ledger.books.take();
    let misses: Vec<_> = lines.iter().map(|line| line.3.misses).collect();
    assert_eq!(misses, [3], "each queue is a read that found nothing");
    for places in [
        [place(0, 2), place(1, -1)],
        [place(0, 3), place(1, 0)],
        [place(0, 2), again(1, 0)],
        [place(0, 2), again(1, -1)],
    ] {
        assert!(waits(&places, &mut made).is_none(), "{places:?}");
    }
    assert!(made.ledger.books.take().is_empty());
    assert_eq!(made.store.log().written(), written);
    assert_eq!(made.ledger.counters.pops, 0);
    // With a message it does not wait.
    assert!(!waits(&[place(0, 1)], &mut made).unwrap().reply.is_empty());
}

#[test]
fn messages_to_redeliver_are_left_when_there_is_no_room_for_them() {
    let mut made = Made::new("full");
    made.send("T", 0, 4);
    made.send("%RETRY%g_T", 1, 1);
    let places = [place(0, 0), again(1, 0), again(2, -1)];
    let given = made.give(&wish(&places)).unwrap();
    assert_eq!((given.batches.len(), given.rest), (1, 0));
    // Behind its end there is none.
    let places = [place(0, 1), again(1, 1), again(2, 0)];
    assert!(made.give(&wish(&places)).is_some());
}

#[test]
fn nothing_is_given_that_the_log_does_not_take() {
    let mut made = Made::new("refused");
    made.send("T", 0, 1);
    // Longer than the wheel takes.
    let places = [place(0, 0)];
    let long = Wish {
        invisible_ms: 2_000_000,
        ..wish(&places)
    };
    assert!(made.give(&long).is_none());
    made.state.body_max = 10;
    assert!(made.give(&wish(&places)).is_none());
    assert_eq!(made.ledger.counters.pops, 0);
}
