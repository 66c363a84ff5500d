//! TLS of ports: files, and what is between the socket and the frames of one connection.

mod server;
mod session;

pub use server::{ServerTls, TlsFiles};
pub use session::Session;
