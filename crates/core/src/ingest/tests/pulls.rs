//! What a held pull looks for, over a real store.

use super::{pull, seek, Store, Wanted};
use crate::codec::record::NewRecord;
use crate::commit_log::{Prepared, PutStatus};
use crate::filter::{Filter, Literal, Program, Relation, Step};
use crate::store::config::{StoreConfig, Value};
use crate::store::env::Env;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

struct Made {
    store: Arc<Store>,
    folder: PathBuf,
}

impl Made {
    /// A store whose gets look at ten units each.
    fn new(name: &str) -> Self {
        let name = format!("roquet-seek-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let text = folder.to_str().unwrap().to_owned();
        let settings = BTreeMap::from([
            ("storePathRootDir".to_owned(), Value::Text(text)),
            ("mappedFileSizeCommitLog".to_owned(), Value::Int(131_072)),
            ("maxFilterMessageSize".to_owned(), Value::Int(200)),
        ]);
        let store = Store::open(StoreConfig::read(&settings).unwrap(), Env::system()).unwrap();
        store.start().unwrap();
        Self { store, folder }
    }

    /// Sends one message to each queue of topic T that is named.
    fn send(&self, queue_id: i32, properties: &[u8]) {
        let record = NewRecord {
            topic: b"T",
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: &[127, 0, 0, 1, 0, 0, 0, 1],
            store_host: &[127, 0, 0, 1, 0, 0, 0, 1],
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"body",
            properties,
        };
        let mut prepared = Prepared::default();
        prepared.push("T", &record, 4096, false).unwrap();
        assert_eq!(self.store.put(&mut prepared).status, PutStatus::Ok);
        while self.store.dispatched() < self.store.log().written() {
            std::thread::yield_now();
        }
    }

    fn seek(&self, from: i64, codes: Option<&[i64]>, filter: Option<&Filter>) -> Option<i64> {
        let wanted = Wanted {
            topic: "T",
            queue_id: 0,
            offset: from,
            messages: 1,
            bytes: pull::BYTES_MAX,
            tag_codes: codes,
            filter,
        };
        seek(&self.store, wanted)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = self.store.close();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// `a = 'yes'`.
fn filter() -> Filter {
    let steps = vec![
        Step::Property(b"a".as_slice().into()),
        Step::Literal(Literal::Text(b"yes".as_slice().into())),
        Step::Compare(Relation::Equal, 0, 1),
    ];
    Filter::All(Program::new(steps).unwrap())
}

#[test]
fn who_wants_everything_is_answered_whatever_is_there() {
    let made = Made::new("all");
    assert_eq!(made.seek(0, None, None), None);
    made.send(0, b"");
    assert_eq!([0, 1, 2].map(|at| made.seek(at, None, None)), [None; 3]);
}

#[test]
fn what_is_not_wanted_is_passed_over_to_the_end_of_the_queue() {
    let made = Made::new("unwanted");
    let (codes, filter) = ([7], filter());
    let kinds = [
        (Some(&codes[..]), None),
        (None, Some(&filter)),
        (Some(&codes[..]), Some(&filter)),
    ];
    // A queue that has never had a message.
    assert_eq!(kinds.map(|it| made.seek(0, it.0, it.1)), [Some(0); 3]);
    // One get looks at ten of them.
    for count in 1..=31 {
        made.send(0, b"a\x01no\x02");
        if [1, 9, 10, 11, 20, 21, 30, 31].contains(&count) {
            let ends = kinds.map(|it| made.seek(0, it.0, it.1));
            assert_eq!(ends, [Some(count); 3], "{count}");
            let ends = kinds.map(|it| made.seek(count, it.0, it.1));
            assert_eq!(ends, [Some(count); 3], "{count}");
        }
    }
    // An offset behind the end is to be told.
    assert_eq!(kinds.map(|it| made.seek(32, it.0, it.1)), [None; 3]);
    // The code of tags is said to match; the filter is asked then, and says yes.
    made.send(0, b"a\x01yes\x02");
    let found = kinds.map(|it| made.seek(0, it.0, it.1));
    assert_eq!(found, [Some(32), None, Some(32)]);
    assert_eq!(made.seek(0, Some(&[0]), Some(&filter)), None);
}
