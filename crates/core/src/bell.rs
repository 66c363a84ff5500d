//! A descriptor that becomes readable when somebody has news, for whoever waits in poll or epoll.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// One listener's bell; whoever has news rings it, however many they are.
pub struct Bell {
    reader: File,
    writer: File,
    rung: AtomicBool,
    armed: AtomicBool,
}

impl Bell {
    /// Opens the descriptor.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = channel()?;
        Ok(Self {
            reader,
            writer,
            rung: AtomicBool::new(false),
            armed: AtomicBool::new(false),
        })
    }

    /// The descriptor that is readable once the bell was rung.
    pub fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Makes the descriptor readable. Call it after the change that it tells of.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // It cannot be full: it is written once between two reads.
            let _ = (&self.writer).write(&1u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable. Call it before looking at what has changed.
    pub fn answer(&self) {
        let mut bytes = [0; 8];
        // An empty descriptor only means that there was no news.
        let _ = (&self.reader).read(&mut bytes);
        self.rung.store(false, Ordering::SeqCst);
    }

    /// Asks for one ring at the next [`Self::ring_if_armed`]. Look at what is awaited after it.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes that back.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    fn ring_if_armed(&self) {
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }
}

/// The bells of those who follow something that grows; without any, telling them costs nothing.
#[derive(Default)]
pub struct Followers {
    bells: RwLock<Vec<Arc<Bell>>>,
    any: AtomicBool,
}

impl Followers {
    /// Adds one.
    pub fn add(&self, bell: Arc<Bell>) {
        let mut bells = self.bells.write().unwrap_or_else(PoisonError::into_inner);
        bells.push(bell);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Takes one away.
    pub fn remove(&self, bell: &Arc<Bell>) {
        let mut bells = self.bells.write().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|other| !Arc::ptr_eq(other, bell));
        self.any.store(!bells.is_empty(), Ordering::SeqCst);
    }

    /// Rings the armed bells. Call it after the change.
    pub fn tell(&self) {
        // Pairs with the fence in `arm`: either this sees that the bell is armed, or its owner
        // sees the change.
        fence(Ordering::SeqCst);
        if self.any.load(Ordering::Relaxed) {
            let bells = self.bells.read().unwrap_or_else(PoisonError::into_inner);
            bells.iter().for_each(|bell| bell.ring_if_armed());
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn channel() -> io::Result<(File, File)> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    let reader = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let writer = reader.try_clone()?;
    Ok((reader, writer))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn channel() -> io::Result<(File, File)> {
    use std::os::fd::OwnedFd;
    let (reader, writer) = io::pipe()?;
    for end in [reader.as_raw_fd(), writer.as_raw_fd()] {
        // SAFETY: both are open descriptors of this function's own pipe.
        if unsafe { libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((
        File::from(OwnedFd::from(reader)),
        File::from(OwnedFd::from(writer)),
    ))
}

#[cfg(test)]
mod tests {
    use super::{Bell, Followers};
    use std::sync::Arc;

    fn readable(bell: &Bell) -> bool {
        let mut poll = libc::pollfd {
            fd: bell.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn readable_until_answered() {
        let bell = Bell::new().unwrap();
        assert!(!readable(&bell));
        bell.ring();
        bell.ring();
        assert!(readable(&bell));
        bell.answer();
        assert!(!readable(&bell));
        bell.answer();
        bell.ring();
        assert!(readable(&bell));
    }

    #[test]
    fn followers_hear_once_for_each_time_they_ask() {
        let followers = Followers::default();
        let bell = Arc::new(Bell::new().unwrap());
        followers.add(Arc::clone(&bell));
        followers.tell();
        assert!(!readable(&bell), "nobody asked");
        bell.arm();
        followers.tell();
        assert!(readable(&bell));
        bell.answer();
        followers.tell();
        assert!(!readable(&bell));
        bell.arm();
        bell.disarm();
        followers.tell();
        assert!(!readable(&bell));
        bell.arm();
        followers.remove(&bell);
        followers.tell();
        assert!(!readable(&bell));
    }
}
