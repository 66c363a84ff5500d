//! A socket, plain or with TLS, and a notifier that one thread waits for together.

use super::link::End;
use super::session::Session;
use super::tls::PairTls;
use crate::notifier::Notifier;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

/// What a wait has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ready {
    /// Bytes can be read, or the end of the stream.
    pub(super) read: bool,
    /// The notifier is readable.
    pub(super) notified: bool,
}

/// A socket that belongs to the thread, and how it is used.
pub struct Socket {
    /// The connected socket.
    pub fd: OwnedFd,
    /// How it speaks TLS; `None` when it does not.
    pub tls: Option<PairTls>,
    /// Milliseconds that the TLS handshake may take.
    pub handshake: u64,
}

impl Socket {
    /// A socket without TLS.
    pub fn plain(fd: OwnedFd) -> Self {
        Self {
            fd,
            tls: None,
            handshake: 0,
        }
    }
}

/// The thread's end of a connection.
pub(super) struct Wire {
    socket: TcpStream,
    session: Option<Box<Session>>,
    handshake: u64,
    begun: Instant,
}

impl Wire {
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        let session = match &socket.tls {
            None => None,
            Some(tls) => Some(Box::new(Session::new(tls)?)),
        };
        let handshake = socket.handshake;
        let socket = TcpStream::from(socket.fd);
        socket.set_nonblocking(true)?;
        // Only a socket that is no TCP one refuses.
        let _ = socket.set_nodelay(true);
        Ok(Self {
            socket,
            session,
            handshake,
            begun: Instant::now(),
        })
    }

    /// Milliseconds since the thread took the connection.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Fails when the TLS handshake takes too long.
    pub(super) fn check(&self, now: u64) -> Result<(), End> {
        if self.is_shaking_hands() && now > self.handshake {
            return Err(End::Fault(format!(
                "has not ended the TLS handshake within {} ms",
                self.handshake
            )));
        }
        Ok(())
    }

    fn is_shaking_hands(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.is_shaking_hands())
    }

    /// Reads what is there: `None` when nothing is, 0 at the end of the stream.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, End> {
        match &mut self.session {
            None => Ok(later(self.socket.read(buffer))?),
            Some(session) => session.read(&mut self.socket, buffer),
        }
    }

    /// Writes as much as the socket takes; `None` when it takes nothing.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match &mut self.session {
            None => later(self.socket.write_vectored(parts)),
            Some(session) => session.write(&mut self.socket, parts),
        }
    }

    /// Whether the system has all that was written.
    pub(super) fn is_flushed(&self) -> bool {
        self.session
            .as_ref()
            .is_none_or(|session| !session.wants_write() && !session.is_shaking_hands())
    }

    /// Tells the peer of the end, where TLS asks for that.
    pub(super) fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.close(&mut self.socket);
        }
    }

    /// Waits for the peer, for the notifier, or until `patience` milliseconds have passed.
    pub(super) fn wait(
        &mut self,
        notifier: &Notifier,
        read: bool,
        write: bool,
        mut patience: u64,
    ) -> Result<Ready, End> {
        let mut events = 0;
        let mut has_more = false;
        let mut unflushed = false;
        if let Some(session) = &self.session {
            has_more = read && session.has_more();
            unflushed = session.wants_write();
            if session.is_shaking_hands() {
                events |= libc::POLLIN;
                let left = (self.handshake + 1).saturating_sub(self.now());
                patience = patience.min(left);
            }
        }
        if read {
            events |= libc::POLLIN;
        }
        if write || unflushed {
            events |= libc::POLLOUT;
        }
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut polled = [
            // A negative descriptor is passed over: a peer that has gone would wake this for ever.
            entry(
                if events == 0 {
                    -1
                } else {
                    self.socket.as_raw_fd()
                },
                events,
            ),
            entry(notifier.fd(), libc::POLLIN),
        ];
        let timeout = if has_more { 0 } else { patience };
        let timeout = i32::try_from(timeout).unwrap_or(i32::MAX);
        // SAFETY: `polled` is two valid entries.
        let found = unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
        if found < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error.into());
            }
            return Ok(Ready::default());
        }
        let [socket, news] = polled;
        if let Some(session) = self.session.as_mut().filter(|_| unflushed) {
            session.flush(&mut self.socket)?;
        }
        Ok(Ready {
            read: has_more || socket.revents & !libc::POLLOUT != 0,
            notified: news.revents != 0,
        })
    }
}

pub(super) fn later(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{later, PairTls, Ready, Socket, Wire};
    use crate::ha::tls::Pem;
    use crate::notifier::Notifier;
    use std::io::{Error, ErrorKind, IoSlice, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_would_wait_is_nothing_yet_and_the_rest_an_error() {
        assert_eq!(later(Ok(3)).unwrap(), Some(3));
        assert_eq!(later(Ok(0)).unwrap(), Some(0));
        for kind in [ErrorKind::WouldBlock, ErrorKind::Interrupted] {
            assert_eq!(later(Err(Error::from(kind))).unwrap(), None);
        }
        let lost = later(Err(Error::from(ErrorKind::ConnectionReset)));
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_wait_tells_what_it_was_asked_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(Socket::plain(OwnedFd::from(ours))).unwrap();
        let notifier = Notifier::new().unwrap();
        let nothing = Ready::default();
        let mut buffer = [0; 8];
        assert_eq!(wire.read(&mut buffer).unwrap(), None);
        assert_eq!(wire.wait(&notifier, true, false, 0).unwrap(), nothing);
        // A socket that takes bytes ends the wait, and says nothing of reading.
        assert_eq!(wire.wait(&notifier, true, true, 60_000).unwrap(), nothing);
        theirs.write_all(b"abc").unwrap();
        let read = Ready {
            read: true,
            ..nothing
        };
        assert_eq!(wire.wait(&notifier, true, false, 60_000).unwrap(), read);
        assert_eq!(wire.wait(&notifier, true, true, 60_000).unwrap(), read);
        assert_eq!(wire.wait(&notifier, false, false, 0).unwrap(), nothing);
        assert_eq!(wire.wait(&notifier, false, true, 60_000).unwrap(), nothing);
        assert_eq!(wire.read(&mut buffer).unwrap(), Some(3));
        notifier.notify();
        let woken = Ready {
            notified: true,
            ..nothing
        };
        assert_eq!(wire.wait(&notifier, true, false, 60_000).unwrap(), woken);
        notifier.clear();
        assert_eq!(wire.write(&[IoSlice::new(b"d")]).unwrap(), Some(1));
        // A peer that has gone wakes who reads, and nobody else.
        drop(theirs);
        assert_eq!(wire.wait(&notifier, true, false, 60_000).unwrap(), read);
        assert_eq!(wire.wait(&notifier, false, false, 0).unwrap(), nothing);
        assert!(matches!(wire.read(&mut buffer), Ok(Some(0)) | Err(_)));
    }
    /// Both ends of a connection over TLS: the master's and the slave's, past the handshake.
    fn over_tls(name: &str) -> (Wire, Wire) {
        let folder =
            std::env::temp_dir().join(format!("roquet-wire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args([
                "-subj", "/CN=pair", "-keyout", "key.pem", "-out", "cert.pem",
            ])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let [cert, key] = ["cert.pem", "key.pem"].map(|it| std::fs::read(folder.join(it)).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        let pem = Pem {
            cert: Some(&cert),
            key: Some(&key),
            trust: Some(&cert),
        };
        let sides = [PairTls::master(pem).unwrap(), PairTls::slave(pem).unwrap()];
        let (one, other) = UnixStream::pair().unwrap();
        let ends = [OwnedFd::from(one), OwnedFd::from(other)];
        let [mut master, mut slave] = [0, 1].map(|at| {
            let socket = Socket {
                fd: ends[at].try_clone().unwrap(),
                tls: Some(sides[at].clone()),
                handshake: 60_000,
            };
            Wire::new(socket).unwrap()
        });
        let mut none = [0; 8];
        while !(master.is_flushed() && slave.is_flushed()) {
            for wire in [&mut slave, &mut master] {
                wire.write(&[IoSlice::new(b"")]).unwrap();
                assert_eq!(wire.read(&mut none).unwrap(), None);
            }
        }
        (master, slave)
    }

    #[test]
    fn bytes_that_are_decrypted_already_are_read_without_the_socket_and_nothing_else_is() {
        let (mut master, mut slave) = over_tls("more");
        let notifier = Notifier::new().unwrap();
        let nothing = Ready::default();
        let read = Ready {
            read: true,
            ..nothing
        };
        assert_eq!(slave.wait(&notifier, true, false, 0).unwrap(), nothing);
        assert_eq!(master.write(&[IoSlice::new(&[7; 10])]).unwrap(), Some(10));
        assert_eq!(slave.wait(&notifier, true, false, 60_000).unwrap(), read);
        let mut buffer = [0; 4];
        for left in [6, 2] {
            assert_eq!(slave.read(&mut buffer).unwrap(), Some(4), "{left} are left");
            // The socket has nothing any more: without this the rest would lie there.
            assert_eq!(slave.wait(&notifier, true, false, 5_000).unwrap(), read);
            // Who does not read is not woken for it.
            assert_eq!(slave.wait(&notifier, false, false, 0).unwrap(), nothing);
        }
        assert_eq!(slave.read(&mut buffer).unwrap(), Some(2));
        assert_eq!(slave.wait(&notifier, true, false, 0).unwrap(), nothing);
        assert_eq!(slave.read(&mut buffer).unwrap(), None);
        assert_eq!(buffer, [7; 4]);
    }
}
