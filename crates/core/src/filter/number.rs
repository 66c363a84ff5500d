//! Texts as numbers, by the rules of Java's `Integer`, `Long` and `Double`.

use super::value::Fault;
use std::str::FromStr;

/// Reads a whole number: a sign, then ASCII digits only.
pub(super) fn whole<T: FromStr>(text: &[u8]) -> Result<T, Fault> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let digits = digits.strip_prefix(b"-").unwrap_or(digits);
    if !text.starts_with(b"+-") && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        if let Some(number) = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
        {
            return Ok(number);
        }
    }
    Err(Fault::NoNumber)
}

/// Reads a number with point or exponent, with blanks around it and a type letter behind it.
pub(super) fn double(text: &[u8]) -> Result<f64, Fault> {
    let text = trimmed(text);
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let value = match rest {
        b"NaN" => f64::NAN,
        b"Infinity" => f64::INFINITY,
        _ => {
            let digits = match rest {
                [digits @ .., b'f' | b'F' | b'd' | b'D'] => digits,
                _ => rest,
            };
            // What Rust takes beyond Java begins with a letter or a second sign.
            let begins = digits
                .first()
                .is_some_and(|first| first.is_ascii_digit() || *first == b'.');
            std::str::from_utf8(digits)
                .ok()
                .filter(|_| begins)
                .and_then(|digits| digits.parse().ok())
                .ok_or(Fault::NoNumber)?
        }
    };
    Ok(if negative { -value } else { value })
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [0..=b' ', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., 0..=b' '] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{double, whole};

    #[test]
    fn whole_numbers_are_strict() {
        assert_eq!(whole::<i32>(b"+7"), Ok(7));
        assert_eq!(whole::<i32>(b"-0012"), Ok(-12));
        assert_eq!(whole::<i64>(b"9223372036854775807"), Ok(i64::MAX));
        for odd in [
            &b""[..],
            b"+",
            b"+-1",
            b"1_0",
            b" 1",
            b"2147483648",
            b"1.0",
            b"\xff",
        ] {
            assert!(whole::<i32>(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn doubles_are_as_in_java() {
        for (text, value) in [
            (&b" 1.5e3 "[..], 1500.0),
            (b".5", 0.5),
            (b"5.", 5.0),
            (b"-2d", -2.0),
            (b"3F", 3.0),
            (b"-Infinity", f64::NEG_INFINITY),
            (b"1e999", f64::INFINITY),
        ] {
            assert_eq!(double(text), Ok(value), "{text:?}");
        }
        assert!(double(b"NaN").is_ok_and(f64::is_nan));
        for odd in [
            &b""[..],
            b"inf",
            b"nan",
            b"infinity",
            b"--1",
            b"1 2",
            b"f",
            b".",
            b"e5",
        ] {
            assert!(double(odd).is_err(), "{odd:?}");
        }
    }
}
