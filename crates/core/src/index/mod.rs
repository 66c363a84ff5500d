//! The index from keys to messages: hash files beside the log (spec: store §6).
//!
//! An index file is a header, a table of slots and a list of entries; entries of one slot are
//! chained from the newest back. Entries are collected in memory and written in blocks; the slot
//! pages that changed are written when the file is full or at [`Index::sync`], and the header there
//! only: entries and slots are durable before the header names them. So what a header counts is
//! whole after any crash, and the slot table can be rebuilt from the entries, which is what opening
//! after a crash does.

mod build;
mod entry;
mod file;
mod header;
mod rebuild;
mod set;

pub use build::{write_file, Key};
pub(crate) use entry::key_hash;
pub use set::Index;
