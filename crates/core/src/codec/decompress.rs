//! Decompresses message bodies for readers that are not RocketMQ clients (spec: wire §7.3).
//!
//! The output is bounded before it grows: a few kilobytes can claim to be gigabytes.

use std::io::Read;

use crate::codec::error::CodecError;
use crate::codec::record::SYS_COMPRESSED;

const TYPE_MASK: i32 = 0x700;
const LZ4: i32 = 0x100;
const ZSTD: i32 = 0x200;
const ZLIB: i32 = 0x300;

/// Whether a body with this sysFlag is compressed.
pub fn is_compressed(sys_flag: i32) -> bool {
    sys_flag & SYS_COMPRESSED != 0
}

/// Appends the decompressed body to `out`; on failure `out` is what it was.
///
/// Fails for an unknown type, for damaged input, and when more than `limit` bytes would come out.
pub fn decompress(
    sys_flag: i32,
    body: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let start = out.len();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let result = match sys_flag & TYPE_MASK {
        0 | ZLIB => flate2::read::ZlibDecoder::new(body)
            .take(bound)
            .read_to_end(out),
        LZ4 => lz4_flex::frame::FrameDecoder::new(body)
            .take(bound)
            .read_to_end(out),
        ZSTD => zstd(body, bound, out),
        other => {
            return Err(CodecError::Value {
                what: "compression type",
                found: i64::from(other >> 8),
            })
        }
    };
    let size = out.len() - start;
    if result.is_ok() && size <= limit {
        return Ok(());
    }
    out.truncate(start);
    if size > limit {
        return Err(CodecError::Length {
            what: "decompressed body length (at least)",
            found: i64::try_from(size).unwrap_or(i64::MAX),
            limit: limit as u64,
        });
    }
    Err(CodecError::Text {
        what: "the compressed body is damaged",
        at: 0,
    })
}

fn zstd(body: &[u8], bound: u64, out: &mut Vec<u8>) -> std::io::Result<usize> {
    ruzstd::decoding::StreamingDecoder::new(body)
        .map_err(|error| std::io::Error::other(error.to_string()))?
        .take(bound)
        .read_to_end(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{decompress, is_compressed};

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(data: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn every_type_and_the_bound() {
        let data = b"roquet ".repeat(2000);
        let cases = [
            (0x1, zlib(&data)),
            (0x301, zlib(&data)),
            (0x101, lz4(&data)),
            (0x201, zstd(&data)),
        ];
        for (flag, packed) in cases {
            assert!(is_compressed(flag) && packed.len() < data.len());
            let mut out = b"before".to_vec();
            decompress(flag, &packed, data.len(), &mut out).unwrap();
            assert_eq!(&out[6..], data);
            out.truncate(6);
            assert!(
                decompress(flag, &packed, data.len() - 1, &mut out).is_err(),
                "{flag:x}"
            );
            assert!(
                decompress(flag, &packed[..packed.len() / 2], 1 << 20, &mut out).is_err(),
                "{flag:x}"
            );
            assert!(decompress(flag, b"nonsense", 1 << 20, &mut out).is_err());
            assert_eq!(out, b"before");
        }
        assert!(decompress(0x401, b"", 10, &mut Vec::new()).is_err());
        assert!(!is_compressed(0x300));
    }
}
