//! What runs once a message or once a byte: frames, records and the message store, without Python.

pub mod arrow;
pub mod arrow_ffi;
pub mod batch;
pub mod codec_error;
pub mod command;
pub mod consume_queue;
pub mod crc;
pub mod cursor;
pub mod decompress;
pub mod disk;
pub mod file_cache;
pub mod file_disk;
pub mod frame;
pub mod header_binary;
pub mod header_json;
pub mod host;
pub mod index;
pub mod java_hash;
pub mod limits;
pub mod message_id;
pub mod properties;
pub mod record;
pub mod store_error;
