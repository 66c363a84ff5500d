//! Errors of a disk that name the file: the system says why a call failed, but not where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the system, and the file or folder that the call was for.
#[derive(Debug)]
struct AtPath {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for AtPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for AtPath {}

/// Does something to a path; its error is of the same kind and names the path.
pub(crate) fn at_path<T>(path: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    work().map_err(|error| {
        let path = path.to_path_buf();
        io::Error::new(error.kind(), AtPath { path, error })
    })
}

/// The error of the system below what [`at_path`] made of it, which has its number.
pub fn bare(error: &io::Error) -> &io::Error {
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<AtPath>());
    inner.map_or(error, |it| bare(&it.error))
}

#[cfg(test)]
mod tests {
    use super::{at_path, bare};
    use std::io;
    use std::path::Path;

    #[test]
    fn error_keeps_kind_and_number_and_names_the_path() {
        let full = || -> io::Result<()> { Err(io::Error::from_raw_os_error(libc::ENOSPC)) };
        let named = at_path(Path::new("/store/x"), full).unwrap_err();
        assert_eq!(named.kind(), io::ErrorKind::StorageFull);
        assert_eq!(
            named.to_string(),
            "/store/x: No space left on device (os error 28)"
        );
        assert_eq!(bare(&named).raw_os_error(), Some(libc::ENOSPC));
    }
}
