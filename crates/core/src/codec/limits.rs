//! What the wire and the disk may ask of us at most; every bound that a reader checks is named here.

/// Longest frame, its four length bytes included (spec: wire §2).
pub const FRAME_SIZE_MAX: usize = 16_777_216;

/// Longest header of a frame in bytes: a field of 1 MiB is still read, and refused by whoever knows its limit.
pub const HEADER_SIZE_MAX: usize = (1 << 20) + (1 << 16);

/// Most extFields of one header.
pub const EXT_COUNT_MAX: usize = 512;

/// Longest name of an extField in bytes.
pub const EXT_NAME_MAX: usize = 1024;

/// Longest properties of a record in bytes: their length is a signed 16-bit number on disk.
pub const PROPERTIES_SIZE_MAX: usize = 32_767;

/// Longest topic in bytes (spec: store §3.5).
pub const TOPIC_SIZE_MAX: usize = 255;

/// Longest topic that the one-byte length of a V1 record can hold.
pub const TOPIC_V1_SIZE_MAX: usize = 127;
