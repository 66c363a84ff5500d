//! Reading and writing a socket without waiting.

use std::io;
use std::os::fd::RawFd;

use crate::ingest::output::Output;

/// Pieces handed to the system at a time.
const PIECES: usize = 64;

/// Writes what the socket takes without waiting; returns how many bytes that was.
///
/// Errors are not told: who writes the rest meets them again.
pub fn write(fd: RawFd, output: &Output) -> usize {
    let mut written = 0;
    while written < output.len() {
        let pieces = output.pieces(written).take(PIECES);
        match send(fd, pieces) {
            Ok((sent, wanted)) => {
                written += sent;
                if sent < wanted {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

/// Writes pieces with one call: (bytes that were taken, bytes that there were).
pub(crate) fn send<'p>(
    fd: RawFd,
    pieces: impl Iterator<Item = &'p [u8]>,
) -> io::Result<(usize, usize)> {
    let mut parts: Vec<libc::iovec> = Vec::with_capacity(2);
    let mut wanted = 0;
    for piece in pieces.take(PIECES) {
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
    // SAFETY: the parts point into the pieces, which outlive this call, and sending only reads them.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | NO_SIGNAL) };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    Ok((sent, wanted))
}

/// Reads what is there, at most as much as there is room; 0 is the end.
pub(crate) fn receive(fd: RawFd, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `room` can be written to for its whole length.
    let got = unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// More milliseconds than that are no age of data that has just been found.
const AGE_MS_MAX: u32 = 3_600_000;

/// How many milliseconds ago the last data of a TCP connection came; 0 where that is not known. What
/// is read now came no later.
#[cfg(target_os = "linux")]
pub(crate) fn last_data_ms(fd: RawFd) -> i64 {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = libc::socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: the pointer is to `size` bytes that can be written to.
    let done = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    let age_ms = info.tcpi_last_data_recv;
    if done == 0 && age_ms <= AGE_MS_MAX {
        i64::from(age_ms)
    } else {
        0
    }
}

#[cfg(target_os = "linux")]
const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
/// Python ignores the signal of a closed pipe in any case.
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: i32 = 0;
