//! Reading the fields of a request: only what is plain is read, everything else is left alone.

use crate::codec::properties;

/// A decimal number of the kind that the handlers accept: up to 19 digits, perhaps a minus.
pub fn number<T: TryFrom<i128>>(text: &str) -> Option<T> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut value: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    let value = i128::from(value);
    T::try_from(if digits.len() < text.len() {
        -value
    } else {
        value
    })
    .ok()
}

/// The property of a delayed message.
const DELAY: &str = "DELAY";
/// The property of a half message, and the one that names its transaction.
const HALF: &str = "TRAN_MSG";
const TRANSACTION_ID: &str = "__transactionId__";
/// Names that no producer may set on a half message.
const SPECIAL_IN_A_HALF: [&str; 2] = ["TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"];
/// Where a delayed message or a half message is for, and in which queue, while it waits.
const REAL: [&str; 2] = ["REAL_TOPIC", "REAL_QID"];

/// Names that give a message a meaning of its own: its send is not plain.
const SPECIAL: [&str; 12] = [
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_DELAY_LEVEL",
    "TIMER_DEL_UNIQKEY",
    "_SYS_MSG_PRIORITY_",
    "POP_CK",
    "INNER_NUM",
    "INNER_MULTI_DISPATCH",
    "__LITE_TOPIC",
    "__CRC32#",
    "ROQUET_SEQUENCE",
];

/// Names that no message of a batch may have unless they say nothing: the handlers look closer.
const SPECIAL_IN_A_BATCH: [&[u8]; 9] = [
    b"DELAY",
    b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS",
    b"TIMER_DELIVER_MS",
    b"TRAN_MSG",
    b"INNER_NUM",
    b"INNER_MULTI_DISPATCH",
    b"__LITE_TOPIC",
    b"ROQUET_SEQUENCE",
];

/// Whether a message of a batch may be stored with these properties.
pub fn plain_in_a_batch(properties: &[u8]) -> bool {
    properties::entries(properties).all(|(name, _)| !SPECIAL_IN_A_BATCH.contains(&name))
}

/// More properties than this are left to the handlers.
const PAIRS_MAX: usize = 32;

/// What a send's properties say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned<'a> {
    /// The message's unique key.
    pub unique_key: Option<&'a str>,
    /// Whether the sender waits for durability.
    pub wait: bool,
    /// Whether the text can be stored as it is: every pair counts and is closed.
    pub clean: bool,
    /// Its delay level, from 1 on, written without anything odd.
    pub delay: Option<i32>,
    /// Whether it is a half message, and then whether it names its transaction.
    pub half: Option<Half>,
}

/// What a half message's properties say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// Whether the transaction's id is among them; it is the unique key otherwise.
    pub has_id: bool,
}

/// Looks through the properties of a send; `None` when it is not plain.
///
/// Plain means: no name twice, none that is special, by the protocol or by what was handed down, and
/// none of the broker's own stamps.
pub fn plain_properties<'a>(
    text: &'a str,
    stamps: &[(String, String)],
    special: &[String],
) -> Option<Scanned<'a>> {
    let mut names: [&str; PAIRS_MAX] = [""; PAIRS_MAX];
    let mut bytes = 0;
    let mut unique_key = None;
    let mut wait = true;
    let mut delay = None;
    let mut real = false;
    let (mut half, mut has_id, mut group, mut odd_half) = (false, false, false, false);
    for (count, (name, value)) in properties::pairs(text).enumerate() {
        if names.iter().take(count).any(|known| *known == name) || SPECIAL.contains(&name) {
            return None;
        }
        if stamps.iter().any(|(stamp, _)| stamp == name) || special.iter().any(|it| it == name) {
            return None;
        }
        *names.get_mut(count)? = name;
        bytes += name.len() + value.len() + 2;
        match name {
            "UNIQ_KEY" => unique_key = Some(value),
            "WAIT" => wait = !is_false(value)?,
            DELAY => delay = Some(level(value)?),
            HALF if value == "true" => half = true,
            HALF => return None,
            TRANSACTION_ID => has_id = true,
            "PGROUP" => group = true,
            _ if SPECIAL_IN_A_HALF.contains(&name) => odd_half = true,
            _ => real |= REAL.contains(&name),
        }
    }
    if (delay.is_some() || half) && real {
        return None;
    }
    // Whoever cannot be asked, or has a say in more than that, is looked at more closely.
    let plain_half = group && !odd_half && delay.is_none() && unique_key != Some("");
    if half && !plain_half {
        return None;
    }
    Some(Scanned {
        unique_key,
        wait,
        clean: bytes == text.len(),
        delay,
        half: half.then_some(Half { has_id }),
    })
}

/// Appends the name of a half message's transaction where that is its unique key.
pub fn push_transaction_id(scanned: &Scanned<'_>, half: Half, out: &mut Vec<u8>) {
    if let Some(key) = scanned.unique_key.filter(|_| !half.has_id) {
        properties::push(out, TRANSACTION_ID.as_bytes(), key.as_bytes());
    }
}

/// A delay level as the broker itself writes it.
fn level(text: &str) -> Option<i32> {
    let found = number::<i32>(text).filter(|level| *level > 0)?;
    (!text.starts_with('0')).then_some(found)
}

/// Appends where a delayed message or a half message is for.
pub fn push_real(topic: &str, queue_id: i32, out: &mut Vec<u8>) {
    for (name, value) in REAL.into_iter().zip([topic, &queue_id.to_string()]) {
        properties::push(out, name.as_bytes(), value.as_bytes());
    }
}

/// Whether a text is "false" in any case; `None` for texts whose lower case is not simple.
fn is_false(text: &str) -> Option<bool> {
    text.is_ascii().then(|| text.eq_ignore_ascii_case("false"))
}

/// Appends what is stored as the properties of a plain send.
pub fn stored_properties(
    text: &str,
    scanned: &Scanned<'_>,
    stamps: &[(String, String)],
    out: &mut Vec<u8>,
) {
    if scanned.clean {
        out.extend_from_slice(text.as_bytes());
    } else {
        for (name, value) in properties::pairs(text) {
            properties::push(out, name.as_bytes(), value.as_bytes());
        }
    }
    for (name, value) in stamps {
        properties::push(out, name.as_bytes(), value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{level, number, plain_properties, stored_properties, PAIRS_MAX};

    #[test]
    fn numbers_are_strict() {
        assert_eq!(number::<i32>("-2147483648"), Some(i32::MIN));
        assert_eq!(number::<i64>("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(number::<i32>("007"), Some(7));
        for bad in [
            "",
            "-",
            "+1",
            "1 ",
            "1.0",
            "2147483648",
            "99999999999999999999",
            "١",
        ] {
            assert_eq!(number::<i32>(bad), None, "{bad}");
        }
        assert_eq!(number::<i64>("9999999999999999999"), None);
    }

    #[test]
    fn only_levels_as_the_broker_writes_them_are_taken() {
        assert_eq!([level("1"), level("18")], [Some(1), Some(18)]);
        for odd in ["0", "-0", "-1", "01", "00", "", "x"] {
            assert_eq!(level(odd), None, "{odd}");
        }
    }

    fn stamps() -> Vec<(String, String)> {
        vec![("MSG_REGION".to_owned(), "R".to_owned())]
    }

    fn stored(text: &str) -> Option<(String, bool)> {
        let scanned = plain_properties(text, &stamps(), &["hooked".to_owned()])?;
        scanned.unique_key?;
        let mut out = Vec::new();
        stored_properties(text, &scanned, &stamps(), &mut out);
        Some((String::from_utf8(out).unwrap(), scanned.wait))
    }

    #[test]
    fn plain_ones_are_stored_with_the_stamps_behind() {
        let closed = "UNIQ_KEY\u{1}u\u{2}a\u{1}b\u{2}";
        let expected = format!("{closed}MSG_REGION\u{1}R\u{2}");
        assert_eq!(stored(closed), Some((expected.clone(), true)));
        assert_eq!(
            stored(&closed[..closed.len() - 1]),
            Some((expected.clone(), true))
        );
        assert_eq!(
            stored(&format!("x\u{1}\u{2}\u{2}{closed}")),
            Some((expected, true))
        );
        assert!(!stored("UNIQ_KEY\u{1}u\u{2}WAIT\u{1}False\u{2}").unwrap().1);
    }

    #[test]
    fn what_is_not_plain_is_left_alone() {
        let key = "UNIQ_KEY\u{1}u\u{2}";
        for text in [
            "",
            "a\u{1}b\u{2}",
            "UNIQ_KEY\u{1}u\u{2}UNIQ_KEY\u{1}v\u{2}",
            &format!("{key}DELAY\u{1}0\u{2}"),
            &format!("{key}DELAY\u{1}-1\u{2}"),
            &format!("{key}DELAY\u{1}03\u{2}"),
            &format!("{key}DELAY\u{1}soon\u{2}"),
            &format!("{key}DELAY\u{1}3\u{2}REAL_QID\u{1}1\u{2}"),
            &format!("REAL_TOPIC\u{1}T\u{2}{key}DELAY\u{1}3\u{2}"),
            &format!("{key}DELAY\u{1}3\u{2}TIMER_DELAY_MS\u{1}1\u{2}"),
            &format!("{key}TRAN_MSG\u{1}true\u{2}"),
            &format!("{key}TRAN_MSG\u{1}false\u{2}PGROUP\u{1}p\u{2}"),
            &format!("{key}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}p\u{2}REAL_TOPIC\u{1}T\u{2}"),
            &format!("{key}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}p\u{2}DELAY\u{1}1\u{2}"),
            &format!(
                "{key}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}p\u{2}TRANSACTION_CHECK_TIMES\u{1}1\u{2}"
            ),
            "UNIQ_KEY\u{1}\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}p\u{2}",
            &format!("{key}MSG_REGION\u{1}mine\u{2}"),
            &format!("{key}hooked\u{1}\u{2}hooked\u{1}x\u{2}"),
            &format!("{key}WAIT\u{1}ﬀ\u{2}"),
        ] {
            assert_eq!(stored(text), None, "{text}");
        }
        let mut many = key.to_owned();
        for number in 1..PAIRS_MAX {
            many.extend([&format!("k{number}"), "\u{1}v\u{2}"]);
        }
        assert!(stored(&many).is_some());
        many.push_str("last\u{1}v\u{2}");
        assert_eq!(stored(&many), None);
    }
}
