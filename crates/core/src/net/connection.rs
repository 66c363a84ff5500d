//! One connection: what its thread knows of it.
//!
//! A peer that has gone does not end its connection before the loop has begun with everything that it
//! wrote: as on the loop, what was written before a close is executed.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::handle::Handle;
use super::limits::Charge;
use super::poll::Ready;
use crate::ingest::output::Output;
use crate::ingest::Standing;
use crate::socket;
use crate::tls::Session;

/// What came of sealed bytes.
#[derive(Default)]
pub(super) struct Opened {
    /// The handshake is done now.
    pub(super) has_agreed: bool,
    /// The peer says that nothing follows.
    pub(super) is_over: bool,
    pub(super) broken: Option<String>,
}

/// A connection as its thread knows it.
#[allow(clippy::struct_excessive_bools)] // Reasons that do not depend on one another.
pub(super) struct Connection {
    socket: TcpStream,
    pub(super) handle: Arc<Handle>,
    tls: Option<Box<Session>>,
    /// Whether frames may come: there is no TLS, or its handshake is done.
    is_open: bool,
    said_farewell: bool,
    /// Whole buffers to write, and how much of the first is written.
    output: VecDeque<Vec<u8>>,
    written: usize,
    output_size: usize,
    /// The start of a frame, where there is no ingest to keep it.
    pub(super) kept: Vec<u8>,
    /// Bytes of a frame's start, wherever they are kept.
    pub(super) held: usize,
    /// What is known of whoever sent them.
    pub(super) standing: Standing,
    charged: Charge,
    /// Frames given to the handlers.
    pub(super) given: u64,
    pub(super) busy: bool,
    /// Why it is not read: the loop says so, the outbox is full, it is being closed.
    pub(super) paused: bool,
    pub(super) crowds: bool,
    pub(super) closing: bool,
    pub(super) behind: bool,
    /// The peer has left: until when its requests are waited for.
    pub(super) left: Option<Instant>,
    /// Nothing can be read behind what is there already.
    pub(super) hung: bool,
    /// What is written is dropped.
    muted: bool,
    /// It was not read since it was read last, so that something may have waited.
    pub(super) waited: bool,
    /// `None`: not in the set.
    pub(super) watched: Option<Ready>,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, handle: Arc<Handle>, tls: Option<Session>) -> Self {
        Self {
            socket,
            is_open: tls.is_none(),
            tls: tls.map(Box::new),
            said_farewell: false,
            handle,
            output: VecDeque::new(),
            written: 0,
            output_size: 0,
            kept: Vec::new(),
            held: 0,
            standing: Standing::Proven,
            charged: (Standing::Proven, 0),
            given: 0,
            busy: false,
            paused: false,
            crowds: false,
            closing: false,
            behind: false,
            left: None,
            hung: false,
            muted: false,
            waited: false,
            watched: None,
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What is to be watched for. A socket that has hung up is always reported: one that is not to be
    /// read yet is not watched at all.
    pub(super) fn wanted(&self) -> Option<Ready> {
        let stops = self.paused || self.crowds || self.closing || self.behind;
        let read = !stops && self.output_size <= self.handle.limits.high_water;
        (read || !self.hung).then_some(Ready {
            read,
            write: !self.output.is_empty(),
            gone: false,
        })
    }

    /// Whether the peer has left requests that are to be begun with, or that are still worked on and
    /// may be waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.left.is_some_and(|until| {
            self.handle.backlog.load(Ordering::SeqCst) > 0
                || (!self.is_finished() && Instant::now() < until)
        })
    }

    /// Drops what the peer will not read any more; true when the loop has to hear of it.
    pub(super) fn mute(&mut self) -> bool {
        self.muted = true;
        // So that its input ends as well, behind what is there; a socket with an error has no more.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.output.clear();
        self.written = 0;
        let size = std::mem::take(&mut self.output_size);
        self.handle.unsent.fetch_sub(size, Ordering::SeqCst);
        self.handle.unstick()
    }

    /// For how many milliseconds what is read now has waited in the kernel, where it had to.
    pub(super) fn waited_ms(&mut self) -> i64 {
        if std::mem::take(&mut self.waited) {
            socket::last_data_ms(self.fd())
        } else {
            0
        }
    }

    /// The socket for the loop; `None` while something is left to do here, or at its end.
    pub(super) fn to_give_back(&self) -> Option<TcpStream> {
        let ends = self.closing || self.left.is_some() || self.muted || self.hung;
        let stays = ends || !self.is_open || self.has_output();
        (!stays).then(|| self.socket.try_clone().ok())?
    }

    /// The socket for what it does behind its end; `None` when nothing more comes of its peer.
    pub(super) fn to_linger(&self) -> Option<TcpStream> {
        let has_gone = self.left.is_some() || self.muted || self.hung;
        (!has_gone).then(|| self.socket.try_clone().ok())?
    }

    /// The TLS for the loop, which opens and seals from now on.
    pub(super) fn take_session(&mut self) -> Option<Box<Session>> {
        self.tls.take()
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Reads what is there; 0 is the end.
    pub(super) fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        let got = socket::receive(self.fd(), room)?;
        self.handle.heard();
        Ok(got)
    }

    /// Whether the handlers have finished all frames that they got.
    pub(super) fn is_finished(&self) -> bool {
        self.handle.finished.load(Ordering::SeqCst) == self.given
    }

    /// Writes an answer of the ingest, or queues what the socket does not take.
    pub(super) fn answer(&mut self, output: &Output) {
        if self.muted {
            return;
        }
        if self.tls.is_some() {
            return self.seal_all(output.pieces(0));
        }
        let mut sent = 0;
        if self.output.is_empty() {
            sent = socket::write(self.fd(), output);
        }
        if sent == output.len() {
            return;
        }
        let mut rest = Vec::with_capacity(output.len() - sent);
        output
            .pieces(sent)
            .for_each(|piece| rest.extend_from_slice(piece));
        self.handle.unsent.fetch_add(rest.len(), Ordering::SeqCst);
        self.queue(rest);
    }

    /// Writes answers of the ingest that are in one place, or queues what the socket does not take.
    pub(super) fn answer_with(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        if self.output.is_empty() && !self.muted && self.tls.is_none() {
            // An error is met again by who writes the rest.
            sent = socket::send(self.fd(), std::iter::once(bytes)).map_or(0, |(sent, _)| sent);
        }
        if let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            self.queue_own(rest.to_vec());
        }
    }

    /// Whether what is read of it may be looked at together with that of others.
    pub(super) fn may_share(&self) -> bool {
        let read = self.watched.is_some_and(|watched| watched.read);
        read && self.tls.is_none() && self.held == 0
    }

    /// Queues frames that `unsent` counts already.
    pub(super) fn queue(&mut self, bytes: Vec<u8>) {
        if self.muted || self.tls.is_some() {
            self.handle.unsent.fetch_sub(bytes.len(), Ordering::SeqCst);
            self.queue_own(bytes);
        } else {
            self.push(bytes);
        }
    }

    /// Queues frames of its own thread.
    pub(super) fn queue_own(&mut self, bytes: Vec<u8>) {
        if self.muted {
            return;
        }
        if self.tls.is_some() {
            return self.seal_all(std::iter::once(bytes.as_slice()));
        }
        self.handle.unsent.fetch_add(bytes.len(), Ordering::SeqCst);
        self.push(bytes);
    }

    /// Queues bytes as they go to the socket.
    fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.output_size += bytes.len();
            self.output.push_back(bytes);
        }
    }

    fn push_sealed(&mut self, sealed: Vec<u8>) {
        self.handle.unsent.fetch_add(sealed.len(), Ordering::SeqCst);
        self.push(sealed);
    }

    /// Seals frames, and writes at once what the socket takes.
    fn seal_all<'p>(&mut self, pieces: impl Iterator<Item = &'p [u8]>) {
        let Some(tls) = &mut self.tls else { return };
        let mut sealed = Vec::new();
        for piece in pieces {
            // Nobody answers before the handshake is done.
            if tls.seal(piece, &mut sealed).is_err() {
                return;
            }
        }
        self.push_sealed(sealed);
        // Who waits for room to write meets an error again.
        let _ = self.write();
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Opens what was read, and queues what TLS itself has to say.
    pub(super) fn open(&mut self, sealed: &[u8], plain: &mut Vec<u8>) -> Opened {
        let Some(tls) = &mut self.tls else {
            return Opened::default();
        };
        let taken = tls.take(sealed, plain);
        let agrees = !self.is_open && taken.is_ok() && !tls.is_handshaking();
        let is_over = tls.is_over();
        let mut own = Vec::new();
        tls.output(&mut own);
        if !self.muted {
            self.push_sealed(own);
        }
        let was_open = self.is_open;
        self.is_open |= agrees;
        Opened {
            has_agreed: agrees,
            is_over,
            broken: taken.err().map(|why| {
                if was_open {
                    format!("broken TLS: {why}")
                } else {
                    why
                }
            }),
        }
    }

    /// Queues that nothing follows, once; true when that has just been done.
    pub(super) fn queue_farewell(&mut self) -> bool {
        let Some(tls) = self.tls.as_mut().filter(|_| self.is_open && !self.muted) else {
            return false;
        };
        if std::mem::replace(&mut self.said_farewell, true) {
            return false;
        }
        let mut last = Vec::new();
        tls.farewell(&mut last);
        self.push_sealed(last);
        true
    }

    /// Writes what the socket takes; true when the loop has to hear that it takes more again.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.write()?;
        Ok(self.handle.unstick())
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let first = self.written;
            let pieces = self.output.iter().enumerate().map(|(index, bytes)| {
                let from = if index == 0 { first } else { 0 };
                bytes.get(from..).unwrap_or_default()
            });
            // Before it, as what the peer has seen must have been counted: who then lets time pass
            // would otherwise have it count as news of a later moment.
            self.handle.heard();
            let (sent, wanted) = match socket::send(self.fd(), pieces) {
                Ok(done) => done,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            self.sent(sent);
            if sent < wanted {
                break;
            }
        }
        Ok(())
    }

    fn sent(&mut self, count: usize) {
        let mut left = self.written + count;
        while let Some(first) = self.output.front().filter(|first| first.len() <= left) {
            left -= first.len();
            self.output.pop_front();
        }
        self.written = left;
        self.output_size -= count;
        self.handle.unsent.fetch_sub(count, Ordering::SeqCst);
    }

    /// Enters what is kept for the peer; says so when that is too much.
    pub(super) fn account(&mut self) -> Option<String> {
        let now = self.held + self.handle.unsent();
        let charge = (self.standing, now);
        let fits = self.handle.limits.charge(self.charged, charge);
        self.charged = charge;
        (!fits).then(|| format!("{now} bytes wait for or from this peer: too many"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let nothing = (Standing::Proven, 0);
        self.handle.limits.charge(self.charged, nothing);
        let backlog = self.handle.backlog.swap(0, Ordering::SeqCst);
        self.handle.limits.drop_backlog(backlog);
        self.handle.lane.counted(-1);
    }
}
