//! A descriptor that becomes readable when somebody has news, for whoever waits in poll or epoll.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A descriptor that one listener waits for; whoever has news makes it readable.
pub struct Notifier {
    reader: File,
    writer: File,
    notified: AtomicBool,
    armed: AtomicBool,
}

impl Notifier {
    /// Opens the descriptor.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = channel()?;
        Ok(Self {
            reader,
            writer,
            notified: AtomicBool::new(false),
            armed: AtomicBool::new(false),
        })
    }

    /// The descriptor that is readable from [`Self::notify`] to [`Self::clear`].
    pub fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Makes the descriptor readable. Call it after the change that it tells of.
    pub fn notify(&self) {
        if !self.notified.swap(true, Ordering::SeqCst) {
            // It cannot be full: it is written once between two reads.
            let _ = (&self.writer).write(&1u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable. Call it before looking at what has changed.
    pub fn clear(&self) {
        let mut bytes = [0; 8];
        // An empty descriptor only means that there was no news.
        let _ = (&self.reader).read(&mut bytes);
        self.notified.store(false, Ordering::SeqCst);
    }

    /// Asks to be notified at the next [`Followers::tell`], once. Look at what is awaited after it.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes that back.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    fn notify_if_armed(&self) {
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            self.notify();
        }
    }
}

/// The notifiers of those who follow something that grows; without any, telling them costs nothing.
#[derive(Default)]
pub struct Followers {
    notifiers: RwLock<Vec<Arc<Notifier>>>,
    any: AtomicBool,
}

impl Followers {
    /// Adds one.
    pub fn add(&self, notifier: Arc<Notifier>) {
        let mut notifiers = self
            .notifiers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        notifiers.push(notifier);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Takes one away.
    pub fn remove(&self, notifier: &Arc<Notifier>) {
        let mut notifiers = self
            .notifiers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        notifiers.retain(|other| !Arc::ptr_eq(other, notifier));
        self.any.store(!notifiers.is_empty(), Ordering::SeqCst);
    }

    /// Notifies those that are armed. Call it after the change.
    pub fn tell(&self) {
        // Pairs with the fence in `arm`: either this sees that the notifier is armed, or its owner
        // sees the change.
        fence(Ordering::SeqCst);
        if self.any.load(Ordering::Relaxed) {
            let notifiers = self
                .notifiers
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            notifiers
                .iter()
                .for_each(|notifier| notifier.notify_if_armed());
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
    use super::{Followers, Notifier};
    use std::sync::Arc;

    fn readable(notifier: &Notifier) -> bool {
        let mut poll = libc::pollfd {
            fd: notifier.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn readable_until_answered() {
        let notifier = Notifier::new().unwrap();
        assert!(!readable(&notifier));
        notifier.notify();
        notifier.notify();
        assert!(readable(&notifier));
        notifier.clear();
        assert!(!readable(&notifier));
        notifier.clear();
        notifier.notify();
        assert!(readable(&notifier));
    }

    #[test]
    fn followers_hear_once_for_each_time_they_ask() {
        let followers = Followers::default();
        let notifier = Arc::new(Notifier::new().unwrap());
        followers.add(Arc::clone(&notifier));
        followers.tell();
        assert!(!readable(&notifier), "nobody asked");
        notifier.arm();
        followers.tell();
        assert!(readable(&notifier));
        notifier.clear();
        followers.tell();
        assert!(!readable(&notifier));
        notifier.arm();
        notifier.disarm();
        followers.tell();
        assert!(!readable(&notifier));
        notifier.arm();
        followers.remove(&notifier);
        followers.tell();
        assert!(!readable(&notifier));
    }
}
