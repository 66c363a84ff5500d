//! The header of a frame in its two encodings.
//!
//! [`json`] says what a JSON header means; the scanner in front of it reads the plain form that
//! clients send and leaves every other to it, so that both give the same result.

pub mod binary;
pub mod json;
mod scan;
