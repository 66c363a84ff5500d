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
            let pair = match self.rest.iter().position(|byte| *byte == VALUE_END) {
                Some(end) => {
                    let (pair, rest) = self.rest.split_at(end);
                    self.rest = rest.get(1..).unwrap_or_default();
                    pair
                }
                None => std::mem::take(&mut self.rest),
            };
            let Some(middle) = pair.iter().position(|byte| *byte == NAME_END) else {
                continue;
            };
            let (name, value) = pair.split_at(middle);
            let value = value.get(1..).unwrap_or_default();
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

/// Returns the value of a property, or `None` when there is none.
pub fn find<'a>(properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entries(properties)
        .filter(|(found, _)| *found == name)
        .last()
        .map(|(_, value)| value)
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
    fn push_closes_an_open_pair() {
        let mut text = b"a\x01b".to_vec();
        push(&mut text, b"c", b"d");
        assert_eq!(text, b"a\x01b\x02c\x01d\x02");
    }
}
