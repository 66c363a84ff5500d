//! Queues and index out of nothing but the log, in pieces that many tasks make.
//!
//! A task reads one part of the log and leaves a *piece*: the queue units of its records, queue by
//! queue, and the keys of the index, both in the order of the log. Other tasks make one queue file
//! or index file each of the pieces that touch it. The rules of what a unit or a key is are those
//! of [`crate::dispatch`].

mod collect;
mod queue_file;

pub use collect::{Collected, Collector, QueueRun};
pub use queue_file::{queue_file, span, Floor, Run, Span};

use std::io;

/// Bytes of a unit in a piece: queue offset, physical offset, size, tags code.
pub const UNIT_BYTES: usize = 28;
/// Bytes of a key in a piece: hash, physical offset, store time.
pub const KEY_BYTES: usize = 20;

/// The first `N` bytes, taken off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> io::Result<[u8; N]> {
    let (front, rest) = bytes
        .split_first_chunk::<N>()
        .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    *bytes = rest;
    Ok(*front)
}

/// Reads a key of a piece.
pub fn key(mut bytes: &[u8]) -> io::Result<crate::index::Key> {
    Ok(crate::index::Key {
        hash: i32::from_be_bytes(take(&mut bytes)?),
        physical_offset: i64::from_be_bytes(take(&mut bytes)?),
        time: i64::from_be_bytes(take(&mut bytes)?),
    })
}
