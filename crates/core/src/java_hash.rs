//! Java's `String.hashCode`: tag codes, index keys and lock stripes are made of it (spec: wire §17.1).

/// Returns the hash of UTF-8 text, computed over its UTF-16 units; broken UTF-8 counts as U+FFFD.
pub fn hash(text: &[u8]) -> i32 {
    if text.is_ascii() {
        return text
            .iter()
            .fold(0, |hash, byte| step(hash, u16::from(*byte)));
    }
    String::from_utf8_lossy(text).encode_utf16().fold(0, step)
}

/// Returns the code that a consume queue stores for a message's tags; 0 when there are none.
pub fn tags_code(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(hash(tags)))
}

fn step(hash: i32, unit: u16) -> i32 {
    hash.wrapping_mul(31).wrapping_add(i32::from(unit))
}

#[cfg(test)]
mod tests {
    use super::{hash, tags_code};

    #[test]
    fn vectors_of_the_spec() {
        assert_eq!(hash(b"TagA"), 2_598_919);
        assert_eq!(hash(b"TagB"), 2_598_920);
        assert_eq!(hash(b"*"), 42);
        assert_eq!(hash("中文".as_bytes()), 646_394);
        assert_eq!(hash(b""), 0);
    }

    #[test]
    fn wraps_and_counts_surrogates_apart() {
        // "polygenelubricants" is the well-known text whose hash is the smallest number.
        assert_eq!(hash(b"polygenelubricants"), i32::MIN);
        assert_eq!(hash("\u{1F600}".as_bytes()), 0xD83D * 31 + 0xDE00);
        assert_eq!(tags_code(None), 0);
        assert_eq!(tags_code(Some(b"polygenelubricants")), i64::from(i32::MIN));
    }
}
