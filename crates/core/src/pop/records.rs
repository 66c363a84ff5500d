//! Records of the revive topic: bodies and properties as Java writes them, and where they wait.

use crate::codec::header::json::number;
use crate::codec::properties;

/// Property: when the record is due in the revive topic, Unix milliseconds.
const DELIVER_MS: &[u8] = b"TIMER_DELIVER_MS";
/// Property: the step of the timer wheel that it is filed under.
const OUT_MS: &[u8] = b"TIMER_OUT_MS";
/// Properties: the topic and the queue that a timer message is for.
const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
const REAL_QUEUE: &[u8] = b"REAL_QID";
/// Tag of a checkpoint.
const CHECKPOINT_TAG: &[u8] = b"ck";
/// Tag of an acknowledgement.
const ACK_TAG: &[u8] = b"ack";
/// Tag of a batch; its unique key has the other one.
const BATCH_ACK_TAG: &[u8] = b"bAck";
/// A checkpoint reaches the revive topic so much before it is due, in milliseconds.
const ACK_INTERVAL_MS: i64 = 1000;

/// An acknowledged message of one checkpoint. Its names are plain ([`super::is_plain`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The topic that the message lies in.
    pub topic: &'a str,
    /// The group that popped it.
    pub group: &'a str,
    /// Its queue.
    pub queue_id: i32,
    /// Start of the checkpoint.
    pub start_offset: i64,
    /// When it was popped, Unix milliseconds.
    pub pop_time_ms: i64,
    /// The broker that has the checkpoint.
    pub broker: &'a str,
    /// Queue offset of the message; -1 in a batch.
    pub offset: i64,
    /// Queue offsets of a batch.
    pub batch: Option<&'a [i64]>,
}

impl Ack<'_> {
    /// Appends the body.
    pub fn write_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"ao\":");
        number(self.offset, out);
        if let Some(offsets) = self.batch {
            out.extend_from_slice(b",\"aol\":");
            numbers(offsets, out);
        }
        out.extend_from_slice(b",\"bn\":\"");
        out.extend_from_slice(self.broker.as_bytes());
        out.extend_from_slice(b"\",\"c\":\"");
        out.extend_from_slice(self.group.as_bytes());
        out.extend_from_slice(b"\",\"pt\":");
        number(self.pop_time_ms, out);
        out.extend_from_slice(b",\"q\":");
        number(self.queue_id, out);
        out.extend_from_slice(b",\"so\":");
        number(self.start_offset, out);
        out.extend_from_slice(b",\"t\":\"");
        out.extend_from_slice(self.topic.as_bytes());
        out.extend_from_slice(b"\"}");
    }

    /// Appends the properties; `revive_ms` is when the checkpoint would bring the message back.
    pub fn write_properties(&self, revive_ms: i64, out: &mut Vec<u8>) {
        push_number(DELIVER_MS, revive_ms, out);
        let of = (self.topic, self.queue_id, self.offset, self.group);
        push_key(of, (self.pop_time_ms, self.broker), ACK_TAG, out);
        let tag = self.batch.map_or(ACK_TAG, |_| BATCH_ACK_TAG);
        properties::push(out, properties::TAGS, tag);
    }
}

/// Messages that one pop took from one queue. Its names are plain ([`super::is_plain`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint<'a> {
    /// The topic that they lie in.
    pub topic: &'a str,
    /// The group that popped them.
    pub group: &'a str,
    /// Their queue.
    pub queue_id: i32,
    /// Where the pop began to read.
    pub start_offset: i64,
    /// Distances of the messages from there; at least one.
    pub diffs: &'a [i64],
    /// When they were popped, Unix milliseconds.
    pub pop_time_ms: i64,
    /// How long they are invisible.
    pub invisible_ms: i64,
    /// This broker.
    pub broker: &'a str,
}

impl Checkpoint<'_> {
    /// When the messages become visible again, Unix milliseconds.
    pub fn revive_ms(&self) -> i64 {
        self.pop_time_ms.saturating_add(self.invisible_ms)
    }

    /// When the record is due in the revive topic: before its acknowledgements.
    pub fn due_ms(&self) -> i64 {
        self.revive_ms() - ACK_INTERVAL_MS
    }

    /// Appends the body.
    pub fn write_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"bm\":0,\"bn\":\"");
        out.extend_from_slice(self.broker.as_bytes());
        out.extend_from_slice(b"\",\"c\":\"");
        out.extend_from_slice(self.group.as_bytes());
        out.extend_from_slice(b"\",\"d\":");
        numbers(self.diffs, out);
        let count = i64::try_from(self.diffs.len()).unwrap_or(i64::MAX);
        for (name, value) in [
            ("it", self.invisible_ms),
            ("n", count),
            ("pt", self.pop_time_ms),
            ("q", i64::from(self.queue_id)),
            ("reviveTime", self.revive_ms()),
            ("ro", 0),
            ("so", self.start_offset),
        ] {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            number(value, out);
        }
        out.extend_from_slice(b",\"sp\":false,\"t\":\"");
        out.extend_from_slice(self.topic.as_bytes());
        out.extend_from_slice(b"\"}");
    }

    /// Appends the properties.
    pub fn write_properties(&self, out: &mut Vec<u8>) {
        push_number(DELIVER_MS, self.due_ms(), out);
        let of = (self.topic, self.queue_id, self.start_offset, self.group);
        push_key(of, (self.pop_time_ms, self.broker), CHECKPOINT_TAG, out);
        properties::push(out, properties::TAGS, CHECKPOINT_TAG);
    }
}

/// Appends the unique key of a record: topic, queue, offset and group, pop time and broker, tag.
fn push_key(
    (topic, queue_id, offset, group): (&str, i32, i64, &str),
    (pop_time_ms, broker): (i64, &str),
    tag: &[u8],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(properties::UNIQ_KEY);
    out.push(properties::NAME_END);
    out.extend_from_slice(topic.as_bytes());
    for value in [i64::from(queue_id), offset] {
        out.push(b'@');
        number(value, out);
    }
    out.push(b'@');
    out.extend_from_slice(group.as_bytes());
    out.push(b'@');
    number(pop_time_ms, out);
    out.push(b'@');
    out.extend_from_slice(broker.as_bytes());
    out.push(b'@');
    out.extend_from_slice(tag);
    out.push(properties::VALUE_END);
}

/// Appends what a message says that waits in the timer wheel for its place in `topic`.
pub fn push_waiting(out_ms: i64, topic: &str, queue_id: i32, out: &mut Vec<u8>) {
    push_number(OUT_MS, out_ms, out);
    properties::push(out, REAL_TOPIC, topic.as_bytes());
    push_number(REAL_QUEUE, i64::from(queue_id), out);
}

/// The step of the wheel for a time: it fires one step later, so never before `due_ms`.
pub fn out_ms(due_ms: i64, precision_ms: i64) -> i64 {
    match due_ms % precision_ms {
        0 => due_ms - precision_ms,
        more => due_ms - more,
    }
}

/// Appends a list of numbers.
fn numbers(all: &[i64], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, one) in all.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        number(*one, out);
    }
    out.push(b']');
}

fn push_number(name: &[u8], value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.push(properties::NAME_END);
    number(value, out);
    out.push(properties::VALUE_END);
}

#[cfg(test)]
mod tests {
    use super::{out_ms, push_waiting, Ack, Checkpoint};

    const ACK: Ack<'_> = Ack {
        topic: "T",
        group: "g",
        queue_id: 1,
        start_offset: 3,
        pop_time_ms: 5,
        broker: "b",
        offset: 4,
        batch: None,
    };

    #[test]
    fn a_batch_lists_its_offsets_and_has_a_tag_of_its_own() {
        let batch = Ack {
            offset: -1,
            batch: Some(&[4, 6]),
            ..ACK
        };
        let (mut body, mut properties) = (Vec::new(), Vec::new());
        batch.write_body(&mut body);
        batch.write_properties(60_005, &mut properties);
        let text = r#"{"ao":-1,"aol":[4,6],"bn":"b","c":"g","pt":5,"q":1,"so":3,"t":"T"}"#;
        assert_eq!(String::from_utf8(body).unwrap(), text);
        let text =
            "TIMER_DELIVER_MS\u{1}60005\u{2}UNIQ_KEY\u{1}T@1@-1@g@5@b@ack\u{2}TAGS\u{1}bAck\u{2}";
        assert_eq!(String::from_utf8(properties).unwrap(), text);
    }

    #[test]
    fn the_body_has_its_keys_in_alphabetical_order() {
        let mut out = Vec::new();
        ACK.write_body(&mut out);
        let text = r#"{"ao":4,"bn":"b","c":"g","pt":5,"q":1,"so":3,"t":"T"}"#;
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn the_properties_name_the_message_and_where_it_waits() {
        let mut out = Vec::new();
        ACK.write_properties(60_005, &mut out);
        push_waiting(60_000, "rmq_sys_REVIVE_LOG_c", 2, &mut out);
        let text = "TIMER_DELIVER_MS\u{1}60005\u{2}UNIQ_KEY\u{1}T@1@4@g@5@b@ack\u{2}\
                    TAGS\u{1}ack\u{2}TIMER_OUT_MS\u{1}60000\u{2}\
                    REAL_TOPIC\u{1}rmq_sys_REVIVE_LOG_c\u{2}REAL_QID\u{1}2\u{2}";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn a_checkpoint_is_written_as_java_does_and_due_a_second_before_its_acknowledgements() {
        let checkpoint = Checkpoint {
            topic: "T",
            group: "g",
            queue_id: 1,
            start_offset: 3,
            diffs: &[0, 2, 3],
            pop_time_ms: 5,
            invisible_ms: 60_000,
            broker: "b",
        };
        let (mut body, mut properties) = (Vec::new(), Vec::new());
        checkpoint.write_body(&mut body);
        checkpoint.write_properties(&mut properties);
        let text = r#"{"bm":0,"bn":"b","c":"g","d":[0,2,3],"it":60000,"n":3,"pt":5,"q":1,"reviveTime":60005,"ro":0,"so":3,"sp":false,"t":"T"}"#;
        assert_eq!(String::from_utf8(body).unwrap(), text);
        let text =
            "TIMER_DELIVER_MS\u{1}59005\u{2}UNIQ_KEY\u{1}T@1@3@g@5@b@ck\u{2}TAGS\u{1}ck\u{2}";
        assert_eq!(String::from_utf8(properties).unwrap(), text);
    }

    #[test]
    fn a_step_is_never_reached_too_early() {
        assert_eq!(out_ms(5_000, 1_000), 4_000);
        assert_eq!(out_ms(5_001, 1_000), 5_000);
        assert_eq!(out_ms(5_999, 1_000), 5_000);
    }
}
