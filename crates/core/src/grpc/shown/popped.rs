//! The answer of another broker to a pop as the whole answer to a receive, without a look of the front.
//!
//! Plain is an answer whose messages all lie in the topic itself and were never delivered before: a
//! message of a retry topic brings its handle with it, and the front counts its deliveries.
//!
//! **Invariant.** Either every message of the answer is shown with its handle, or the front gets all of
//! them: nothing of an answer that is odd in any way is sent from here.

use super::{begun, ended, Named, View};
use crate::codec::properties::find;
use crate::codec::record::records;
use crate::ingest::scan::number;

/// The flag of messages that lie in the topic itself.
const NORMAL: &str = "0";
/// Where a message brings the handle by which it is known.
const OWN_HANDLE: &[u8] = b"POP_CK";
/// Queues that one answer has messages of.
const QUEUES_MAX: usize = 1024;

/// Messages that a pop took from one queue.
struct Taken {
    queue_id: i32,
    start: i64,
    offsets: Vec<i64>,
}

/// Reads the two tables of an answer: where the checkpoint of each queue begins, and which offsets were
/// taken from it.
fn tables(starts: &str, offsets: &str) -> Option<Vec<Taken>> {
    let mut found: Vec<Taken> = Vec::new();
    for entry in starts.split(';') {
        let (queue_id, start) = entry_of(entry)?;
        if found.len() == QUEUES_MAX || found.iter().any(|it| it.queue_id == queue_id) {
            return None;
        }
        found.push(Taken {
            queue_id,
            start: number(start)?,
            offsets: Vec::new(),
        });
    }
    for entry in offsets.split(';') {
        let (queue_id, list) = entry_of(entry)?;
        let taken = found.iter_mut().find(|it| it.queue_id == queue_id)?;
        if !taken.offsets.is_empty() {
            return None;
        }
        taken.offsets = list.split(',').map(number).collect::<Option<_>>()?;
    }
    Some(found)
}

/// The queue of an entry, and what it says of that.
fn entry_of(entry: &str) -> Option<(i32, &str)> {
    let mut parts = entry.split(' ');
    let (flag, queue_id, value) = (parts.next()?, parts.next()?, parts.next()?);
    (flag == NORMAL && parts.next().is_none()).then_some(())?;
    Some((number(queue_id)?, value))
}

impl View<'_> {
    /// The answer to a receive, framed, with what names each of its messages; `None` leaves them to the
    /// front. `starts` and `offsets` are the tables of the broker's answer.
    pub fn popped(
        &self,
        stored: &[u8],
        (starts, offsets): (&str, &str),
        now_ms: i64,
    ) -> Option<(Vec<u8>, Vec<Named>)> {
        let tables = tables(starts, offsets)?;
        let mut out = begun();
        out.reserve(stored.len().saturating_mul(3) / 2);
        let mut named = Vec::new();
        for record in records(stored, false) {
            let record = record.ok()?;
            let taken = tables.iter().find(|it| it.queue_id == record.queue_id)?;
            let is_first = record.reconsume_times == 0;
            let is_named = find(record.properties, OWN_HANDLE).is_some();
            if !is_first || is_named || !taken.offsets.contains(&record.queue_offset) {
                return None;
            }
            self.message(
                (taken.start, record.queue_id),
                &record,
                &mut named,
                &mut out,
            )?;
        }
        out.extend_from_slice(&ended(now_ms));
        (!named.is_empty()).then_some((out, named))
    }
}

#[cfg(test)]
mod tests {
    use super::tables;

    fn read(starts: &str, offsets: &str) -> Option<Vec<(i32, i64, Vec<i64>)>> {
        let found = tables(starts, offsets)?.into_iter();
        Some(
            found
                .map(|it| (it.queue_id, it.start, it.offsets))
                .collect(),
        )
    }

    #[test]
    fn tables_of_an_answer_are_read_by_queue() {
        assert_eq!(
            read("0 1 7;0 3 0", "0 3 0,1;0 1 8"),
            Some(vec![(1, 7, vec![8]), (3, 0, vec![0, 1])])
        );
    }

    #[test]
    fn tables_of_retry_topics_and_odd_ones_are_left_to_the_front() {
        for (starts, offsets) in [
            ("", ""),
            ("0 1 7", ""),
            ("1 1 7", "1 1 8"),
            ("2 1 7", "2 1 8"),
            ("0 1 7;0 1 7", "0 1 8"),
            ("0 1 7", "0 1 8;0 1 9"),
            ("0 1 7", "0 2 8"),
            ("0 1 7", "0 1 8,"),
            ("0 1 x", "0 1 8"),
            ("0 1 7 8", "0 1 8"),
            ("0 2147483648 7", "0 2147483648 8"),
        ] {
            assert_eq!(read(starts, offsets), None, "{starts:?} {offsets:?}");
        }
    }
}
