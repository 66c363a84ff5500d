//! One connection's TLS, without its socket: sealed bytes in, plain bytes out, and back.
//!
//! Invariants: plain bytes are all handed over by the call that brought their record; what has to be
//! sent waits inside until it is fetched, and is fetched after every call.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::{Error, ServerConnection};

use super::ServerTls;

/// The server's side of a connection.
pub struct Session {
    connection: ServerConnection,
    is_over: bool,
}

impl Session {
    /// Begins one.
    pub fn new(tls: &ServerTls) -> Result<Self, Error> {
        Ok(Self {
            connection: ServerConnection::new(Arc::clone(&tls.0))?,
            is_over: false,
        })
    }

    /// Takes what the peer sent; what that held is added to `plain`. After an error there is nothing
    /// to be done but to send what [`Self::output`] still has.
    pub fn take(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        while !sealed.is_empty() {
            let read = self.connection.read_tls(&mut sealed);
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(()); // behind its farewell
            }
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| error.to_string())?;
            let at = plain.len();
            plain.resize(at + state.plaintext_bytes_to_read(), 0);
            let place = plain.get_mut(at..).unwrap_or_default();
            let read = self.connection.reader().read_exact(place);
            read.map_err(|error| error.to_string())?;
            self.is_over |= state.peer_has_closed();
        }
        Ok(())
    }

    /// Adds what has to be sent now to `sealed`.
    pub fn output(&mut self, sealed: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // A vector takes everything.
            if !matches!(self.connection.write_tls(sealed), Ok(1..)) {
                return;
            }
        }
    }

    /// Seals what is to be sent; only once the handshake is done.
    pub fn seal(&mut self, mut plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), String> {
        sealed.reserve(plain.len() + plain.len() / 256 + 64);
        while !plain.is_empty() {
            let written = self.connection.writer().write(plain);
            let written = written.map_err(|error| error.to_string())?;
            if written == 0 {
                return Err("the handshake is not done".to_owned());
            }
            self.output(sealed);
            plain = plain.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Says to the peer that nothing follows.
    pub fn farewell(&mut self, sealed: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.output(sealed);
    }

    /// Whether something has to be sent.
    pub fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the handshake is not done.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer has said that nothing follows.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}
