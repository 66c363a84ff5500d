//! TLS of ports: files, and what is between the socket and the frames of one connection.

mod clients;
mod hosts;
mod server;
mod session;
mod x509;

pub(crate) use clients::{first_of, refusal};
pub use server::{ServerTls, TlsFiles};
pub use session::Session;
