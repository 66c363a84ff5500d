//! Writing answers straight to a socket that nobody else has anything to write to.

use std::os::fd::RawFd;

use roquet_core::ingest::output::Output;

/// Pieces handed to the system at a time.
const PIECES: usize = 64;

/// Writes what the socket takes without waiting; returns how many bytes that was.
///
/// Errors are not told: who writes the rest meets them again.
pub(crate) fn write(fd: RawFd, output: &Output) -> usize {
    let mut written = 0;
    while written < output.len() {
        let mut parts: Vec<libc::iovec> = Vec::with_capacity(2);
        let mut wanted = 0;
        for piece in output.pieces(written).take(PIECES) {
            wanted += piece.len();
            parts.push(libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            });
        }
        // SAFETY: all zeros is an empty message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the parts point into `output`, which lives until the end of this function, and
        // sending only reads them.
        let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | NO_SIGNAL) };
        let Ok(sent) = usize::try_from(sent) else {
            if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
                continue;
            }
            break;
        };
        written += sent;
        if sent < wanted {
            break;
        }
    }
    written
}

#[cfg(target_os = "linux")]
const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
/// Python ignores the signal of a closed pipe in any case.
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: i32 = 0;
