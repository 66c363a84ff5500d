//! One TLS session over a socket that never waits.
//!
//! What is written is encrypted at once and kept up to [`KEPT`] bytes until the socket takes it; a
//! peer that reads nothing therefore holds back the writer, as on a plain socket.

use super::link::End;
use super::tls::PairTls;
use super::wire::later;
use rustls::{Connection, Error};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

/// Bytes that may be encrypted and not yet taken by the socket.
const KEPT: usize = 256 * 1024;
/// Bytes taken from the socket with one call.
const CHUNK: usize = 64 * 1024;

pub(super) struct Session {
    tls: Connection,
    /// What came from the socket; `raw[from..to]` is not decrypted yet.
    raw: Vec<u8>,
    from: usize,
    to: usize,
    /// Whether a read would find bytes, or the end, without the socket.
    more: bool,
}

impl Session {
    pub(super) fn new(tls: &PairTls) -> io::Result<Self> {
        let mut tls = tls.open().map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(KEPT));
        Ok(Self {
            tls,
            raw: vec![0; CHUNK],
            from: 0,
            to: 0,
            more: false,
        })
    }

    /// Whether the peer has not shown yet who it is.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether bytes wait for the socket.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether bytes, or the end, can be read without the socket.
    pub(super) fn has_more(&self) -> bool {
        self.more
    }

    /// Reads what is there: `None` when nothing is, 0 once the peer has closed in order.
    pub(super) fn read(
        &mut self,
        socket: &mut TcpStream,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, End> {
        let mut filled = 0;
        let mut drained = false;
        self.more = false;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match later(self.tls.reader().read(rest)) {
                Ok(Some(0)) => {
                    self.more = filled > 0;
                    return Ok(Some(filled));
                }
                Ok(Some(count)) => {
                    filled += count;
                    continue;
                }
                Ok(None) => {}
                Err(_) if filled > 0 => {
                    self.more = true;
                    return Ok(Some(filled));
                }
                Err(error) => return Err(cut(&error)),
            }
            if self.from == self.to {
                if drained {
                    break;
                }
                let Some(count) = later(socket.read(&mut self.raw))? else {
                    break;
                };
                drained = count < self.raw.len();
                (self.from, self.to) = (0, count);
            }
            self.decrypt(socket)?;
        }
        self.more = filled == buffer.len();
        Ok((filled > 0).then_some(filled))
    }

    fn decrypt(&mut self, socket: &mut TcpStream) -> Result<(), End> {
        let mut rest = self.raw.get(self.from..self.to).unwrap_or_default();
        // Without bytes this tells it of the end of the stream.
        self.tls.read_tls(&mut rest)?;
        self.from = self.to - rest.len();
        if let Err(error) = self.tls.process_new_packets() {
            // The peer is told why, if it listens.
            let _ = self.flush(socket);
            return Err(fault(&error));
        }
        Ok(self.flush(socket)?)
    }

    /// Takes as much as it may keep; `None` when that is nothing.
    pub(super) fn write(
        &mut self,
        socket: &mut TcpStream,
        parts: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        self.flush(socket)?;
        let count = self.tls.writer().write_vectored(parts)?;
        self.flush(socket)?;
        Ok((count > 0).then_some(count))
    }

    /// Gives the socket what it takes.
    pub(super) fn flush(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            match later(self.tls.write_tls(socket))? {
                None => break,
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Tells the peer that nothing more comes, if the socket takes it.
    pub(super) fn close(&mut self, socket: &mut TcpStream) {
        self.tls.send_close_notify();
        let _ = self.flush(socket);
    }
}

fn fault(error: &Error) -> End {
    End::Fault(format!("does not get through TLS: {error}"))
}

fn cut(error: &io::Error) -> End {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return End::Lost("it closed without the notice that TLS asks for".to_owned());
    }
    End::Lost(error.to_string())
}
