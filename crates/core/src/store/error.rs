//! What a store says when it cannot do something.

use crate::disk::at_path::bare;
use std::fmt;
use std::io;
use std::path::Path;

/// Which kind of trouble it is; Python gets the name of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes on disk are not what the store wrote.
    Corrupt,
    /// There is no space left.
    DiskFull,
    /// The operating system refused a read or a write.
    Io,
    /// The process, or the machine, has no file descriptor left.
    NoDescriptor,
    /// Another process uses the store.
    Locked,
    /// The store was closed.
    Closed,
    /// The caller asked for something that does not exist or is out of range.
    Usage,
}

impl ErrorKind {
    /// The name that Python sees.
    pub fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::DiskFull => "disk_full",
            // Those who ask can do no more about it than about any other refusal of the system.
            Self::Io | Self::NoDescriptor => "io",
            Self::Locked => "locked",
            Self::Closed => "closed",
            Self::Usage => "usage",
        }
    }
}

/// Why the store could not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// Which kind of trouble.
    pub kind: ErrorKind,
    /// What was tried, on which file, and what went wrong.
    pub text: String,
}

impl StoreError {
    /// Whether nothing was lost, so that the same call may be made again: a file that could not be
    /// written for lack of space or be opened for lack of descriptors is what it was before.
    pub fn passes(&self) -> bool {
        matches!(self.kind, ErrorKind::DiskFull | ErrorKind::NoDescriptor)
    }

    /// Makes an error of a kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    /// Damage on disk.
    pub fn corrupt(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, text)
    }

    /// A mistake of the caller.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, text)
    }

    /// A refusal of the operating system while `doing` something to `path`.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(
            kind_of(error),
            format!("cannot {doing} {}: {}", path.display(), bare(error)),
        )
    }
}

/// The kind of an operating-system error.
pub fn kind_of(error: &io::Error) -> ErrorKind {
    if matches!(
        bare(error).raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE)
    ) {
        return ErrorKind::NoDescriptor;
    }
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::DiskFull,
        io::ErrorKind::WouldBlock => ErrorKind::Locked,
        io::ErrorKind::InvalidData => ErrorKind::Corrupt,
        io::ErrorKind::InvalidInput => ErrorKind::Usage,
        _ => ErrorKind::Io,
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

impl std::error::Error for StoreError {}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::new(kind_of(&error), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, StoreError};
    use std::io;
    use std::path::Path;

    #[test]
    fn the_kind_follows_the_system_error() {
        let full = StoreError::io(
            "write",
            Path::new("/x"),
            &io::Error::from_raw_os_error(libc::ENOSPC),
        );
        assert_eq!(full.kind, ErrorKind::DiskFull);
        assert!(full.to_string().starts_with("disk_full: cannot write /x: "));
        let other = StoreError::from(io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(other.kind.name(), "io");
    }
}
