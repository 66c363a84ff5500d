//! POP consumption as it lies on disk and on the wire: receipt handles and the records of the revive
//! topic (spec: store §17, wire §11.3).
//!
//! Only what is plain is read and written here, byte for byte as `protocol/pop` has it: names that
//! JSON need not escape, times that are not negative. Everything else is for the handlers.

pub mod copies;
pub mod handle;
pub mod records;

/// Whether a name stands in JSON and in properties as it is.
pub fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    !name.is_empty() && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_that_need_an_escape_or_are_not_ascii_are_not_plain() {
        for name in ["T", "%RETRY%g+T", "a b", "~"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "a\"", "a\\b", "a\u{1}", "a\u{2}", "ä", "\u{7f}"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
