//! What runs once a message or once a byte: frames, records and the message store, without Python.

pub mod arrow;
pub mod codec;
pub mod commit_log;
pub mod consume_queue;
pub mod disk;
pub mod dispatch;
pub mod filter;
pub mod forwarded;
pub mod grpc;
pub mod ha;
pub mod index;
pub mod ingest;
pub mod java_hash;
mod keyed_hash;
pub mod latency;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod net;
pub mod notifier;
pub mod panics;
pub mod pop;
pub mod rebuild;
pub mod recovery;
pub mod relay;
pub mod sink;
pub mod socket;
pub mod store;
pub mod timer;
pub mod tls;
