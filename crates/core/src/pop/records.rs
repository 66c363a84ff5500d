//! Records of the revive topic: bodies and properties as Java writes them, and where they wait.

use crate::header_json::number;
use crate::properties;

/// Property: when the record is due in the revive topic, Unix milliseconds.
const DELIVER_MS: &[u8] = b"TIMER_DELIVER_MS";
/// Property: the step of the timer wheel that it is filed under.
const OUT_MS: &[u8] = b"TIMER_OUT_MS";
/// Properties: the topic and the queue that a timer message is for.
const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
const REAL_QUEUE: &[u8] = b"REAL_QID";
/// Tag of an acknowledgement.
const ACK_TAG: &[u8] = b"ack";

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
    /// Queue offset of the message.
    pub offset: i64,
}

impl Ack<'_> {
    /// Appends the body.
    pub fn write_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"ao\":");
        number(self.offset, out);
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
        out.extend_from_slice(properties::UNIQ_KEY);
        out.push(properties::NAME_END);
        out.extend_from_slice(self.topic.as_bytes());
        for number_of in [i64::from(self.queue_id), self.offset] {
            out.push(b'@');
            number(number_of, out);
        }
        out.push(b'@');
        out.extend_from_slice(self.group.as_bytes());
        out.push(b'@');
        number(self.pop_time_ms, out);
        out.push(b'@');
        out.extend_from_slice(self.broker.as_bytes());
        out.push(b'@');
        out.extend_from_slice(ACK_TAG);
        out.push(properties::VALUE_END);
        properties::push(out, properties::TAGS, ACK_TAG);
    }
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

fn push_number(name: &[u8], value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.push(properties::NAME_END);
    number(value, out);
    out.push(properties::VALUE_END);
}

#[cfg(test)]
mod tests {
    use super::{out_ms, push_waiting, Ack};

    const ACK: Ack<'_> = Ack {
        topic: "T",
        group: "g",
        queue_id: 1,
        start_offset: 3,
        pop_time_ms: 5,
        broker: "b",
        offset: 4,
    };

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
    fn a_step_is_never_reached_too_early() {
        assert_eq!(out_ms(5_000, 1_000), 4_000);
        assert_eq!(out_ms(5_001, 1_000), 5_000);
        assert_eq!(out_ms(5_999, 1_000), 5_000);
    }
}
