//! Light queues (LMQ): one message in several queues (spec: store §5.4, wire §7.4).
//!
//! A message names its light queues in a property. Under the log's lock it gets an offset in each,
//! which a second property says; the dispatcher adds a unit to each queue at the offset noted there.
//! Invariants: the offsets of a record are those that the queues really have, since whatever a sender
//! writes into the second property is dropped; and a queue is named once by a record at most.

use crate::codec::properties;
use crate::codec::record::RecordView;
use crate::consume_queue::check_topic;

/// What the name of a light queue begins with.
pub const LIGHT_PREFIX: &str = "%LMQ%";
/// The only queue id that a light queue has.
pub const QUEUE_ID: i32 = 0;
/// The property that names the light queues of a message, separated by commas.
pub const NAMED_QUEUES: &[u8] = b"INNER_MULTI_DISPATCH";
/// The property that has the offset in each of them, in the same order.
pub const GIVEN_OFFSETS: &[u8] = b"INNER_MULTI_QUEUE_OFFSET";
/// More light queues than this are not given to one message.
pub const NAMED_MAX: usize = 128;
/// Digits of the largest offset, and the comma behind it.
const OFFSET_SIZE_MAX: usize = 20;

/// Whether a name is that of a light queue.
pub fn is_light(name: &str) -> bool {
    name.starts_with(LIGHT_PREFIX)
}

/// Whether messages of a topic may be in light queues, as Java's dispatcher judges what was stored.
///
/// Dead letters keep the properties of the message that they copy, with offsets of long ago.
pub(crate) fn may_be_stored(topic: &str) -> bool {
    !topic.starts_with("%RETRY%")
        && !topic.starts_with("%DLQ%")
        && !topic.starts_with("rmq_sys_")
        && topic != "SCHEDULE_TOPIC_XXXX"
}

/// Whether a message that is stored now gets its light queues: a half message does not, unlike
/// Java's, since nobody may see it before its transaction is committed.
fn may_be_given(topic: &str) -> bool {
    may_be_stored(topic) && !topic.starts_with("RMQ_SYS_")
}

/// Whether a record is the one at an offset of a queue, light or not.
pub(crate) fn is_place(record: &RecordView<'_>, topic: &str, queue_id: i32, at: u64) -> bool {
    if is_light(topic) && queue_id == QUEUE_ID {
        let parent = std::str::from_utf8(record.topic).unwrap_or_default();
        let mut places = places(parent, record.properties).into_iter();
        return places.any(|place| place == (topic, at));
    }
    record.topic == topic.as_bytes()
        && record.queue_id == queue_id
        && record.queue_offset == at.cast_signed()
}

/// The light queues of a stored record and its offset in each; none when the two properties do not
/// fit together.
pub(crate) fn places<'a>(topic: &str, text: &'a [u8]) -> Vec<(&'a str, u64)> {
    if !may_be_stored(topic) {
        return Vec::new();
    }
    let value = |name| properties::find(text, name).and_then(|it| std::str::from_utf8(it).ok());
    let (Some(names), Some(offsets)) = (value(NAMED_QUEUES), value(GIVEN_OFFSETS)) else {
        return Vec::new();
    };
    let (names, offsets) = (split(names), split(offsets));
    if names.len() != offsets.len() {
        return Vec::new();
    }
    let mut places: Vec<(&str, u64)> = Vec::with_capacity(names.len());
    for (name, offset) in names.into_iter().zip(offsets) {
        let known = places.iter().any(|(other, _)| *other == name);
        if known || !is_light(name) || check_topic(name).is_err() {
            continue;
        }
        if let Ok(offset) = offset.parse() {
            places.push((name, offset));
        }
    }
    places
}

/// The parts of a list, without the empty ones at its end, as Java splits it.
fn split(list: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = list.split(',').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

/// What the light queues of a message do to it before it is stored.
pub(crate) enum Wish {
    /// Nothing: its properties are stored as they are.
    None,
    /// It has none, and these properties.
    Without(Vec<u8>),
    /// It wants these queues, and has these properties before the offsets are added.
    In(Vec<Box<str>>, Vec<u8>),
    /// It cannot be stored: what it names is no list of light queues.
    Illegal,
    /// It cannot be stored: the offsets might not fit into its properties.
    TooLong,
}

/// Reads what a message that is stored now wants.
pub(crate) fn wish(topic: &str, text: &[u8], properties_max: usize) -> Wish {
    let Some(names) = properties::find(text, NAMED_QUEUES) else {
        // Offsets without names say nothing.
        return Wish::None;
    };
    if !may_be_given(topic) {
        // A copy for a retry keeps them, as in Java.
        let lies = may_be_stored(topic) && properties::find(text, GIVEN_OFFSETS).is_some();
        return if lies {
            Wish::Without(without(text, &[GIVEN_OFFSETS]))
        } else {
            Wish::None
        };
    }
    let names = std::str::from_utf8(names).unwrap_or_default();
    let mut list: Vec<Box<str>> = Vec::new();
    for name in split(names) {
        if !is_light(name) || name.len() == LIGHT_PREFIX.len() || check_topic(name).is_err() {
            return Wish::Illegal;
        }
        list.push(name.into());
    }
    if list.is_empty() || list.len() > NAMED_MAX {
        return Wish::Illegal;
    }
    let kept = without(text, &[GIVEN_OFFSETS]);
    if kept.len() + GIVEN_OFFSETS.len() + 3 + list.len() * OFFSET_SIZE_MAX > properties_max {
        return Wish::TooLong;
    }
    Wish::In(list, kept)
}

fn without(text: &[u8], dropped: &[&[u8]]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    for (name, value) in properties::entries(text) {
        if !dropped.contains(&name) {
            properties::push(&mut kept, name, value);
        }
    }
    kept
}

/// The pair that says the offsets.
pub(crate) fn offsets_pair(offsets: &[i64]) -> Vec<u8> {
    let text: Vec<String> = offsets.iter().map(i64::to_string).collect();
    let mut pair = Vec::new();
    properties::push(&mut pair, GIVEN_OFFSETS, text.join(",").as_bytes());
    pair
}

/// How many bytes the offsets add to a record at most.
pub(crate) fn growth_max(names: usize) -> usize {
    GIVEN_OFFSETS.len() + 3 + names * OFFSET_SIZE_MAX
}

#[cfg(test)]
mod tests {
    use super::{offsets_pair, places, wish, Wish, NAMED_MAX};

    const MAX: usize = 32_767;

    fn text(names: &str, offsets: &str) -> Vec<u8> {
        format!("A\x01b\x02INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02")
            .into_bytes()
    }

    #[test]
    fn places_are_read_as_java_reads_them() {
        let found = |names: &str, offsets: &str| {
            let text = text(names, offsets);
            let list = places("T", &text);
            list.into_iter()
                .map(|(name, at)| (name.to_owned(), at))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found("%LMQ%a,%LMQ%b", "3,0"),
            [("%LMQ%a".to_owned(), 3), ("%LMQ%b".to_owned(), 0)]
        );
        assert_eq!(found("%LMQ%a,%LMQ%a", "3,3"), [("%LMQ%a".to_owned(), 3)]);
        assert_eq!(found("x,%LMQ%a", ",4"), [("%LMQ%a".to_owned(), 4)]);
        assert_eq!(found("%LMQ%a/b,%LMQ%c", "1,2"), [("%LMQ%c".to_owned(), 2)]);
        for (names, offsets) in [
            ("%LMQ%a", "1,2"),
            ("%LMQ%a", "-1"),
            ("%LMQ%a", "x"),
            ("a", "1"),
        ] {
            assert!(found(names, offsets).is_empty(), "{names} {offsets}");
        }
        for topic in [
            "%RETRY%g",
            "%DLQ%g",
            "rmq_sys_wheel_timer",
            "SCHEDULE_TOPIC_XXXX",
        ] {
            assert!(places(topic, &text("%LMQ%a", "1")).is_empty(), "{topic}");
        }
    }

    #[test]
    fn a_wish_drops_what_the_sender_says_of_offsets() {
        let Wish::In(names, kept) = wish("T", &text("%LMQ%a,%LMQ%b", "77,78"), MAX) else {
            panic!("it is in two queues");
        };
        assert_eq!(names.len(), 2);
        assert_eq!(kept, b"A\x01b\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02");
        let found = wish("RMQ_SYS_TRANS_HALF_TOPIC", &text("%LMQ%a", "5"), MAX);
        assert!(matches!(found, Wish::Without(kept) if !kept.windows(6).any(|it| it == b"OFFSET")));
        for topic in ["%DLQ%g", "%RETRY%g"] {
            assert!(
                matches!(wish(topic, &text("%LMQ%a", "5"), MAX), Wish::None),
                "{topic}"
            );
        }
        for alone in [&b"A\x01b\x02"[..], b"INNER_MULTI_QUEUE_OFFSET\x011\x02"] {
            assert!(matches!(wish("T", alone, MAX), Wish::None));
        }
    }

    #[test]
    fn what_names_no_light_queue_is_illegal() {
        let many = vec!["%LMQ%a"; NAMED_MAX + 1].join(",");
        for names in ["a", "%LMQ%", "%LMQ%a,b", "%LMQ%../x", ",", ",%LMQ%a", &many] {
            let found = wish("T", &text(names, "0"), MAX);
            assert!(matches!(found, Wish::Illegal), "{names}");
        }
        let long = format!(
            "INNER_MULTI_DISPATCH\x01%LMQ%a\x02K\x01{}\x02",
            "x".repeat(32_700)
        );
        assert!(matches!(wish("T", long.as_bytes(), MAX), Wish::TooLong));
    }

    #[test]
    fn offsets_are_written_as_java_joins_them() {
        assert_eq!(
            offsets_pair(&[0, 12]),
            b"INNER_MULTI_QUEUE_OFFSET\x010,12\x02"
        );
    }
}
