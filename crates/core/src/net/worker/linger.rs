//! A close that does not reset its peer.
//!
//! A socket that is closed while something in it was not read resets its connection, and the peer may
//! lose our last answers. So the thread only says that it writes nothing more, and drops what still comes
//! until the peer has closed as well.
//!
//! **Bounds.** That takes at most [`LINGER`], and is done for at most [`LINGERS_MAX`] peers at a time.
//! The loop was told of the end by then: a descriptor is all that is kept.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::Worker;
use crate::net::poll::Ready;
use crate::socket;

/// How long what still comes is dropped.
const LINGER: Duration = Duration::from_secs(1);
/// Sockets of a thread that are closed so at a time; any other is closed at once.
const LINGERS_MAX: usize = 64;

/// What is left of a connection that has ended.
pub(super) struct Linger {
    socket: TcpStream,
    until: Instant,
}

impl Worker {
    /// Ends a connection so that its peer gets what was written.
    pub(super) fn end_softly(&mut self, key: u64, why: String) {
        let socket = self.connections.get(&key).and_then(|one| {
            let socket = one.to_linger()?;
            // A copy of its descriptor stays open: it would be watched for ever.
            let watched = one.watched.is_some() && self.poll.remove(one.fd(), key).is_err();
            (!watched && self.lingers.len() < LINGERS_MAX).then_some(socket)
        });
        self.end(key, why);
        let Some(socket) = socket else { return };
        let input = Ready {
            read: true,
            ..Ready::default()
        };
        let _ = socket.shutdown(Shutdown::Write);
        if self.poll.add(socket.as_raw_fd(), key, input).is_ok() {
            let until = Instant::now() + LINGER;
            self.lingers.insert(key, Linger { socket, until });
        }
    }

    /// Drops what came for a connection that has ended; false when there is none of this key.
    pub(super) fn drop_input(&mut self, key: u64) -> bool {
        let Some(one) = self.lingers.get(&key) else {
            return false;
        };
        let goes_on = match socket::receive(one.socket.as_raw_fd(), &mut self.buffer) {
            Ok(got) => got > 0,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        };
        if !goes_on {
            self.lingers.remove(&key);
        }
        true
    }

    /// Closes what has waited long enough for its peer.
    pub(super) fn end_lingers(&mut self) {
        let now = Instant::now();
        self.lingers.retain(|_, one| one.until > now);
    }
}
