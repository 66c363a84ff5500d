//! What the peers say to each other before the log is copied: the thread carries it between socket
//! and owner, who knows the secret, compares the logs and decides.

use super::link::{Begin, End, Shared};
use super::wire::Wire;
use std::io::IoSlice;

/// Bytes handed to the owner at a time; more are read when it has taken them.
const HEARD: usize = 4096;
/// Milliseconds that a peer has to read the last words of its owner.
const FAREWELL: u64 = 1_000;
/// Milliseconds between two looks at the clock.
const LOOK: u64 = 10_000;

/// Carries words until the owner starts the copying; returns that with what is still to be written.
pub(super) fn greet(wire: &mut Wire, shared: &Shared) -> Result<(Begin, Vec<u8>), End> {
    let mut out = Vec::new();
    let mut ends_at = None;
    loop {
        shared.go_on()?;
        let now = wire.now();
        wire.check(now)?;
        let wanted = shared.wanted();
        out.extend_from_slice(&wanted.say);
        if let Some(begin) = wanted.begin {
            return Ok((begin, out));
        }
        while !out.is_empty() {
            match wire.write(&[IoSlice::new(&out)])? {
                None => break,
                Some(0) => return Err(End::Lost(String::new())),
                Some(count) => {
                    out.drain(..count);
                    shared.tell(false, |view| view.last_write = std::time::Instant::now());
                }
            }
        }
        if wanted.finish {
            ends_at = Some(now + FAREWELL);
        }
        let mut patience = LOOK;
        if let Some(ends_at) = ends_at {
            if now >= ends_at || (out.is_empty() && wire.is_flushed()) {
                return Err(End::Stopped);
            }
            patience = ends_at - now;
        }
        let listens = ends_at.is_none() && shared.has_room();
        let ready = wire.wait(&shared.wake, listens, !out.is_empty(), patience)?;
        if ready.notified {
            shared.wake.clear();
        }
        if ready.read {
            hear(wire, shared, listens)?;
        }
    }
}

fn hear(wire: &mut Wire, shared: &Shared, listens: bool) -> Result<(), End> {
    let mut buffer = [0; HEARD];
    match wire.read(&mut buffer)? {
        None => Ok(()),
        Some(0) => Err(End::Lost(String::new())),
        // Who is not listened to any more is being sent away.
        Some(_) if !listens => Ok(()),
        Some(count) => {
            shared.hear(buffer.get(..count).unwrap_or_default());
            Ok(())
        }
    }
}
