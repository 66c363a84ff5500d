//! What runs once a message or once a byte: frames, records and the message store, without Python.

pub mod crc;
pub mod disk;
