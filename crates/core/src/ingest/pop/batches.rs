//! The body of a batch of acknowledgements: checkpoints, and which of their messages are meant.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde_json::{Map, Value};

use crate::pop::handle::Handle;

/// Longest body that is read here, in bytes.
const SIZE_MAX: usize = 1 << 16;
/// Most checkpoints of a plain batch.
const CHECKPOINTS_MAX: usize = 256;
/// Bytes of the set of acknowledged messages of one checkpoint.
const SET_SIZE_MAX: usize = 128;

/// Acknowledged messages of one checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::ingest) struct Batch {
    pub(in crate::ingest) topic: String,
    pub(in crate::ingest) group: String,
    pub(super) queue_id: i32,
    pub(super) start_offset: i64,
    pub(super) pop_time_ms: i64,
    pub(super) invisible_ms: i64,
    pub(super) revive_queue: i32,
    /// Queue offsets, ascending; at least one.
    pub(super) offsets: Vec<i64>,
}

impl Batch {
    /// The handle of its messages.
    pub(super) fn handle<'a>(&self, broker: &'a str) -> Handle<'a> {
        Handle {
            start_offset: self.start_offset,
            pop_time_ms: self.pop_time_ms,
            invisible_ms: self.invisible_ms,
            revive_queue: self.revive_queue,
            broker,
        }
    }
}

/// Reads a body: the broker that it is for, and its batches, of which there is one at least; `None`
/// when anything about it is odd.
pub(in crate::ingest) fn read(body: &[u8]) -> Option<(String, Vec<Batch>)> {
    if body.len() > SIZE_MAX {
        return None;
    }
    let Value::Object(whole) = serde_json::from_slice(body).ok()? else {
        return None;
    };
    let rows = whole.get("acks")?.as_array()?;
    let is_plain = (1..=CHECKPOINTS_MAX).contains(&rows.len());
    let batches = is_plain.then(|| rows.iter().map(batch).collect::<Option<Vec<_>>>())?;
    Some((text(&whole, "brokerName")?.to_owned(), batches?))
}

fn batch(row: &Value) -> Option<Batch> {
    let row = row.as_object()?;
    // Messages of a retry topic are of another topic than the one named here.
    (text(row, "r")? == "0").then_some(())?;
    let start_offset = number(row, "so")?;
    Some(Batch {
        topic: text(row, "t")?.to_owned(),
        group: text(row, "c")?.to_owned(),
        queue_id: i32::try_from(number(row, "q")?).ok()?,
        start_offset,
        pop_time_ms: number(row, "pt")?,
        invisible_ms: number(row, "it")?,
        revive_queue: i32::try_from(number(row, "rq")?).ok()?,
        offsets: offsets(start_offset, text(row, "b")?)?,
    })
}

/// The members of a set as Java writes it: number `n` is bit `n % 8` of byte `n / 8`.
fn offsets(start: i64, text: &str) -> Option<Vec<i64>> {
    let bytes = STANDARD.decode(text).ok()?;
    if bytes.len() > SET_SIZE_MAX {
        return None;
    }
    let mut found = Vec::new();
    for (at, byte) in (0_i64..).zip(bytes) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            found.push(start.checked_add(8 * at + bit)?);
        }
    }
    (!found.is_empty()).then_some(found)
}

fn text<'a>(row: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    row.get(name)?.as_str()
}

fn number(row: &Map<String, Value>, name: &str) -> Option<i64> {
    row.get(name)?.as_i64()
}

#[cfg(test)]
mod tests {
    use super::{read, Batch};

    const PLAIN: &str = r#"{"acks":[{"b":"BQE=","c":"g","it":60000,"pt":5,"q":1,"r":"0","rq":3,"so":7,"t":"T"}],"brokerName":"b"}"#;

    #[test]
    fn a_plain_body_is_read() {
        let batch = Batch {
            topic: "T".into(),
            group: "g".into(),
            queue_id: 1,
            start_offset: 7,
            pop_time_ms: 5,
            invisible_ms: 60_000,
            revive_queue: 3,
            offsets: vec![7, 9, 15],
        };
        assert_eq!(read(PLAIN.as_bytes()), Some(("b".into(), vec![batch])));
    }

    #[test]
    fn odd_bodies_are_left_alone() {
        for (what, by) in [
            (r#""r":"0""#, r#""r":"1""#),
            (r#""r":"0","#, ""),
            (r#""t":"T""#, r#""topic":"T""#),
            (r#""t":"T""#, r#""t":7"#),
            (r#""so":7"#, r#""so":"7""#),
            (r#""so":7"#, r#""so":7.0"#),
            (r#""so":7"#, r#""so":9223372036854775807"#),
            (r#""q":1"#, r#""q":2147483648"#),
            (r#""rq":3,"#, ""),
            ("BQE=", "BQE"),
            ("BQE=", "*"),
            ("BQE=", "AA=="),
            ("BQE=", ""),
            (r#""brokerName":"b""#, r#""brokerName":null"#),
            ("}]", "}"),
        ] {
            let body = PLAIN.replace(what, by);
            assert_ne!(body, PLAIN);
            assert_eq!(read(body.as_bytes()), None, "{body}");
        }
        for body in ["", "[]", "{}", r#"{"acks":[],"brokerName":"b"}"#] {
            assert_eq!(read(body.as_bytes()), None, "{body}");
        }
        let long = PLAIN.replace("BQE=", &"AQEB".repeat(43));
        assert_eq!(read(long.as_bytes()), None);
        let row = &PLAIN[9..PLAIN.find(']').unwrap_or_default()];
        for (rows, is_read) in [(256, true), (257, false)] {
            let all = vec![row; rows].join(",");
            let body = format!(r#"{{"acks":[{all}],"brokerName":"b"}}"#);
            assert_eq!(read(body.as_bytes()).is_some(), is_read, "{rows}");
        }
    }
}
