//! The checksum of bodies and records (spec: store, conventions).

/// Returns the zlib CRC-32 of `data` without its top bit, as RocketMQ stores it.
pub fn masked(data: &[u8]) -> u32 {
    crc32fast::hash(data) & 0x7FFF_FFFF
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn known_values() {
        assert_eq!(masked(b"hello"), 907_060_870);
        assert_eq!(masked(b"a"), 1_756_872_259);
    }
}
