//! The broker's message id: store host and commit-log offset in upper-case hex (spec: store §3.9).

use crate::codec::error::CodecError;
use crate::codec::host;

/// Appends the id of the record at `physical_offset` to `out`.
pub fn write(store_host: &[u8], physical_offset: i64, out: &mut Vec<u8>) {
    write_hex(store_host, out);
    let mut text = [0; 16];
    for (pair, byte) in text.chunks_exact_mut(2).zip(physical_offset.to_be_bytes()) {
        pair.copy_from_slice(&hex(byte));
    }
    out.extend_from_slice(&text);
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(&hex(*byte));
    }
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| digit + if digit < 10 { b'0' } else { b'A' - 10 })
}

/// Returns the id of the record at `physical_offset`: 32 characters for IPv4, 56 for IPv6.
pub fn encode(store_host: &[u8], physical_offset: i64) -> String {
    let mut out = Vec::with_capacity(2 * (store_host.len() + 8));
    write(store_host, physical_offset, &mut out);
    out.into_iter().map(char::from).collect()
}

/// Reads an id back into (store host, physical offset); lower-case digits are fine.
pub fn decode(id: &str) -> Result<(Vec<u8>, i64), CodecError> {
    let wrong = |at| CodecError::Text {
        what: "message id is not hexadecimal",
        at,
    };
    if id.len() != 2 * (host::V4_SIZE + 8) && id.len() != 2 * (host::V6_SIZE + 8) {
        return Err(CodecError::Value {
            what: "length of a message id",
            found: i64::try_from(id.len()).unwrap_or(i64::MAX),
        });
    }
    let mut bytes = Vec::with_capacity(id.len() / 2);
    for (at, pair) in id.as_bytes().chunks(2).enumerate() {
        let mut value = 0;
        for digit in pair {
            let digit = char::from(*digit)
                .to_digit(16)
                .ok_or_else(|| wrong(2 * at))?;
            value = value * 16 + digit;
        }
        bytes.push(u8::try_from(value).map_err(|_| wrong(2 * at))?);
    }
    let (host, offset) = bytes.split_last_chunk::<8>().ok_or_else(|| wrong(0))?;
    Ok((host.to_vec(), i64::from_be_bytes(*offset)))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use crate::codec::host;

    #[test]
    fn vector_of_the_spec() {
        let host = host::encode("127.0.0.1:10911".parse().unwrap());
        let id = encode(&host, 1000);
        assert_eq!(id, "7F00000100002A9F00000000000003E8");
        assert_eq!(decode(&id).unwrap(), (host, 1000));
        assert_eq!(decode(&id.to_lowercase()).unwrap().1, 1000);
    }

    #[test]
    fn six_and_nonsense() {
        let host = host::encode("[::1]:10911".parse().unwrap());
        let id = encode(&host, i64::MAX);
        assert_eq!(id.len(), 56);
        assert_eq!(decode(&id).unwrap(), (host, i64::MAX));
        for bad in ["", "7F", &"G".repeat(32), &"é".repeat(16), &"7".repeat(34)] {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }
}
