//! An epoll set: which descriptors can be read or written, each under a number of its owner.
//!
//! Level-triggered: a connection that is read only in part is reported again, so that one read a
//! turn is enough and no connection can keep the others out.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Events taken at a time.
const EVENTS: usize = 256;

/// What a descriptor is watched for, and what has happened to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) read: bool,
    pub(super) write: bool,
    /// An error, or closed on both sides; always watched for.
    pub(super) gone: bool,
}

impl Ready {
    fn bits(self) -> u32 {
        let read = if self.read { libc::EPOLLIN } else { 0 };
        let write = if self.write { libc::EPOLLOUT } else { 0 };
        (read | write).cast_unsigned()
    }

    fn of(bits: u32) -> Self {
        let has = |flag: i32| bits & flag.cast_unsigned() != 0;
        Self {
            read: has(libc::EPOLLIN),
            write: has(libc::EPOLLOUT),
            gone: has(libc::EPOLLERR) || has(libc::EPOLLHUP),
        }
    }
}

/// The set.
pub(super) struct Poll {
    set: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            // SAFETY: the descriptor is new and owned by nobody else.
            set: unsafe { OwnedFd::from_raw_fd(fd) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
        })
    }

    /// Watches a descriptor; closing it ends that.
    pub(super) fn add(&self, fd: RawFd, key: u64, wanted: Ready) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, wanted)
    }

    /// Watches it for something else.
    pub(super) fn change(&self, fd: RawFd, key: u64, wanted: Ready) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, key, wanted)
    }

    /// Watches it no more.
    pub(super) fn remove(&self, fd: RawFd, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, key, Ready::default())
    }

    fn control(&self, what: i32, fd: RawFd, key: u64, wanted: Ready) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: wanted.bits(),
            u64: key,
        };
        // SAFETY: `event` is one valid entry, which the call only reads.
        let done = unsafe { libc::epoll_ctl(self.set.as_raw_fd(), what, fd, &raw mut event) };
        checked(done).map(drop)
    }

    /// Waits for at most `timeout_ms` (-1: for ever); appends what happened to `found`.
    pub(super) fn wait(
        &mut self,
        timeout_ms: i32,
        found: &mut Vec<(u64, Ready)>,
    ) -> io::Result<()> {
        let most = i32::try_from(self.events.len()).unwrap_or(i32::MAX);
        // SAFETY: there is room for `most` entries.
        let count = unsafe {
            libc::epoll_wait(
                self.set.as_raw_fd(),
                self.events.as_mut_ptr(),
                most,
                timeout_ms,
            )
        };
        let count = match checked(count) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let happened = self.events.get(..count).unwrap_or_default();
        found.extend(
            happened
                .iter()
                .map(|event| (event.u64, Ready::of(event.events))),
        );
        Ok(())
    }
}

fn checked(done: i32) -> io::Result<i32> {
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(done)
}
