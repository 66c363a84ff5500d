//! Frames and records.

mod frame;
mod record;
