//! The properties of a message: `name 0x01 value 0x02` over and over (spec: wire §7.4, store §3.4).
//!
//! Nothing here allocates. A pair without a name or without a value does not count, of two pairs
//! with one name the later wins, and the 0x02 behind the last pair may be missing.

/// Between a name and its value.
pub const NAME_END: u8 = 0x01;
/// Behind a value.
pub const VALUE_END: u8 = 0x02;

/// Keys for the index, separated by spaces.
pub const KEYS: &[u8] = b"KEYS";
/// The tag that consumers filter by.
pub const TAGS: &[u8] = b"TAGS";
/// The client's own id of the message.
pub const UNIQ_KEY: &[u8] = b"UNIQ_KEY";
/// The delay level, 1 to 18.
pub const DELAY: &[u8] = b"DELAY";
/// Whether the sender waits until the message is safe.
pub const WAIT: &[u8] = b"WAIT";
/// The topic that a message of a retry topic came from.
pub const RETRY_TOPIC: &[u8] = b"RETRY_TOPIC";
/// How many messages an inner batch holds.
pub const INNER_NUM: &[u8] = b"INNER_NUM";

/// The pairs of a property text, in order, repeats included.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

/// Iterates over the pairs of `properties`.
pub fn entries(properties: &[u8]) -> Entries<'_> {
    Entries { rest: properties }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (name, end) = match self
                .rest
                .iter()
                .position(|byte| *byte <= VALUE_END && *byte > 0)
            {
                Some(at) => {
                    let (name, rest) = self.rest.split_at(at);
                    self.rest = rest.get(1..).unwrap_or_default();
                    (name, rest.first().copied())
                }
                None => (std::mem::take(&mut self.rest), None),
            };
            if end != Some(NAME_END) {
                continue;
            }
            let value = match position(self.rest, VALUE_END) {
                Some(at) => {
                    let (value, rest) = self.rest.split_at(at);
                    self.rest = rest.get(1..).unwrap_or_default();
                    value
                }
                None => std::mem::take(&mut self.rest),
            };
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

/// Finds a byte, eight at a time: values are long and most bytes are not it.
fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let pattern = LOW * u64::from(wanted);
    let mut at = 0;
    let mut rest = bytes;
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let difference = u64::from_le_bytes(*chunk) ^ pattern;
        // The lowest set bit marks the first byte that is zero in `difference`.
        let zeros = difference.wrapping_sub(LOW) & !difference & HIGH;
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
        rest = tail;
    }
    rest.iter()
        .position(|byte| *byte == wanted)
        .map(|more| at + more)
}

/// Iterates over the pairs of a property text that is known to be UTF-8.
pub fn pairs(properties: &str) -> impl Iterator<Item = (&str, &str)> {
    // Both separators are ASCII, so what lies between them is UTF-8 again.
    entries(properties.as_bytes()).filter_map(|(name, value)| {
        Some((
            std::str::from_utf8(name).ok()?,
            std::str::from_utf8(value).ok()?,
        ))
    })
}

/// Returns the value of a property, or `None` when there is none.
pub fn find<'a>(properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() || memchr::memchr2(NAME_END, VALUE_END, name).is_some() {
        return None;
    }
    // From the end, since the last one counts. Every VALUE_END ends a pair, so that what stands
    // behind one, or at the start, is where a name begins.
    memchr::memrchr_iter(NAME_END, properties).find_map(|at| {
        let start = at.checked_sub(name.len())?;
        // Most names have another length, which a look at one byte shows.
        let begins = start == 0 || properties.get(start - 1) == Some(&VALUE_END);
        if !begins || properties.get(start..at)? != name {
            return None;
        }
        let rest = properties.get(at + 1..)?;
        let value = match position(rest, VALUE_END) {
            Some(end) => rest.get(..end)?,
            None => rest,
        };
        (!value.is_empty()).then_some(value)
    })
}

/// Returns the delay level: `None` when absent or no number, negative ones as they are.
pub fn delay_level(properties: &[u8]) -> Option<i32> {
    std::str::from_utf8(find(properties, DELAY)?)
        .ok()?
        .parse()
        .ok()
}

/// Appends a pair to a property text, closing an open last pair first.
pub fn push(properties: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if properties.last().is_some_and(|last| *last != VALUE_END) {
        properties.push(VALUE_END);
    }
    properties.extend_from_slice(name);
    properties.push(NAME_END);
    properties.extend_from_slice(value);
    properties.push(VALUE_END);
}

#[cfg(test)]
mod tests {
    use super::{delay_level, entries, find, push, KEYS, TAGS};

    const TEXT: &[u8] = b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02DELAY\x013\x02";

    #[test]
    fn finding_is_the_same_as_looking_at_all_pairs() {
        let alphabet = [b'a', b'b', 0x01, 0x02];
        for length in 0..=8_u32 {
            for number in 0..4_usize.pow(length) {
                let text: Vec<u8> = (0..length)
                    .map(|place| alphabet[(number >> (2 * place)) & 3])
                    .collect();
                for name in [&b"a"[..], b"b", b"ab", b"", b"a\x02b", b"a\x01b"] {
                    let last = entries(&text).filter(|(found, _)| *found == name).last();
                    assert_eq!(find(&text, name), last.map(|(_, value)| value), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn finds_by_name() {
        assert_eq!(find(TEXT, KEYS), Some(&b"k1 k2"[..]));
        assert_eq!(find(TEXT, TAGS), Some(&b"TagA"[..]));
        assert_eq!(find(TEXT, b"TAG"), None);
        assert_eq!(delay_level(TEXT), Some(3));
        assert_eq!(find(b"", KEYS), None);
    }

    #[test]
    fn forgives_what_java_forgives() {
        let odd = b"\x02a\x01\x02\x01b\x02c\x01d\x01e\x02no\x02c\x01last";
        let pairs: Vec<_> = entries(odd).collect();
        assert_eq!(
            pairs,
            vec![(&b"c"[..], &b"d\x01e"[..]), (&b"c"[..], &b"last"[..])]
        );
        assert_eq!(find(odd, b"c"), Some(&b"last"[..]));
        assert_eq!(delay_level(b"DELAY\x01x\x02"), None);
    }

    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for length in 0..40 {
            for at in 0..length {
                let mut bytes = vec![3u8; length];
                bytes[at] = 2;
                bytes[length - 1] |= 2;
                assert_eq!(super::position(&bytes, 2), Some(at), "{length}");
            }
            assert_eq!(super::position(&vec![0x82; length], 2), None);
        }
    }

    #[test]
    fn push_closes_an_open_pair() {
        let mut text = b"a\x01b".to_vec();
        push(&mut text, b"c", b"d");
        assert_eq!(text, b"a\x01b\x02c\x01d\x02");
    }
}
