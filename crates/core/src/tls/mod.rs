//! TLS of ports: files, and what is between the socket and the frames of one connection.

mod clients;
mod server;
mod session;
mod x509;

pub(crate) use clients::refusal;
pub use server::{ServerTls, TlsFiles};
pub use session::Session;
