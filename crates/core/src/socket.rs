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

/// Writes pieces with one call: (bytes that were taken, bytes that there were). Nothing takes no call.
pub(crate) fn send<'p>(
    fd: RawFd,
    pieces: impl Iterator<Item = &'p [u8]>,
) -> io::Result<(usize, usize)> {
    let mut pieces = pieces.filter(|piece| !piece.is_empty()).take(PIECES);
    let Some(first) = pieces.next() else {
        return Ok((0, 0));
    };
    if let Some(second) = pieces.next() {
        return send_parts(fd, [first, second].into_iter().chain(pieces));
    }
    let bytes = first.as_ptr().cast();
    // SAFETY: the pointer is to bytes that outlive this call, and sending only reads them.
    let sent = unsafe { libc::send(fd, bytes, first.len(), libc::MSG_DONTWAIT | NO_SIGNAL) };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    Ok((sent, first.len()))
}

fn send_parts<'p>(fd: RawFd, pieces: impl Iterator<Item = &'p [u8]>) -> io::Result<(usize, usize)> {
    let mut parts: Vec<libc::iovec> = Vec::with_capacity(PIECES);
    let mut wanted = 0;
    for piece in pieces {
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

#[cfg(test)]
mod tests {
    use super::send;
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn pieces_are_sent_with_one_call_and_nothing_with_none() {
        // Each call with a datagram socket is a datagram, an empty one as well.
        let (from, to) = UnixDatagram::pair().unwrap();
        to.set_nonblocking(true).unwrap();
        let cases: [&[&[u8]]; 5] = [
            &[],
            &[b""],
            &[b"", b"one"],
            &[b"a", b"", b"bc"],
            &[b"d", b"d", b"d"],
        ];
        for pieces in cases {
            let whole = pieces.concat();
            let done = send(from.as_raw_fd(), pieces.iter().copied()).unwrap();
            assert_eq!(done, (whole.len(), whole.len()));
            let mut room = [0; 16];
            if !whole.is_empty() {
                let got = to.recv(&mut room).unwrap();
                assert_eq!(&room[..got], whole);
            }
            assert_eq!(
                to.recv(&mut room).unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
        }
    }
}
