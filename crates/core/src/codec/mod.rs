//! Frames, headers, records and batches: bytes on the wire and on disk to values, and back.
//!
//! Everything here works on slices that the caller holds: no file, no socket, no clock. Input is
//! not trusted: each length and count is checked against [`limits`] before anything is reserved
//! for it, and what does not fit is an [`error::CodecError`], never a panic.

pub mod batch;
pub mod command;
pub mod crc;
pub mod cursor;
pub mod decompress;
pub mod error;
pub mod frame;
pub mod header;
pub mod host;
pub mod limits;
pub mod message_id;
pub mod projection;
pub mod properties;
pub mod record;
