//! The master's thread for one slave: pieces of the log go from the file's map to the socket, and
//! the slave's reports come back.

use super::feed::{Feed, FeedConfig};
use super::greeting::greet;
use super::link::{Begin, End, Link, Shared};
use super::wire::{Socket, Wire};
use super::{Fault, FULL};
use crate::disk::segment::Lease;
use crate::store::Store;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

/// Frames that one system call may write.
const FRAMES: usize = 16;
/// Reports read at a time.
const READ: usize = 4096;

/// Starts to feed the slave at the other end of `socket`.
///
/// What it says is told to the owner, and nothing of the log is sent before [`Link::begin`]. The owner
/// looks for acknowledgements when it likes, until [`Link::hear`] says otherwise.
pub fn start(store: Arc<Store>, socket: Socket, rules: FeedConfig) -> io::Result<Link> {
    let mut wire = Wire::new(socket)?;
    Link::spawn("ha-feed", move |shared| {
        let (begin, said) = match greet(&mut wire, &shared) {
            Ok(begun) => begun,
            Err(end) => {
                wire.close();
                return end;
            }
        };
        let mut out = Outgoing::default();
        out.push(said, None);
        let feeder = Feeder {
            feed: Feed::new(rules),
            store,
            wire,
            out,
            shared,
            moved: 0,
        };
        feeder.run(&begin)
    })
}

struct Feeder {
    store: Arc<Store>,
    wire: Wire,
    feed: Feed,
    out: Outgoing,
    shared: Arc<Shared>,
    moved: u64,
}

impl Feeder {
    fn run(mut self, begin: &Begin) -> End {
        self.store
            .log()
            .followers
            .add(Arc::clone(&self.shared.wake));
        let end = match self.serve(begin) {
            Ok(never) => match never {},
            Err(end) => end,
        };
        self.store.log().followers.remove(&self.shared.wake);
        self.wire.close();
        end
    }

    fn serve(&mut self, begin: &Begin) -> Result<Infallible, End> {
        self.hear(&begin.heard)?;
        self.feed.begin(begin.position)?;
        self.publish(true);
        loop {
            self.shared.go_on()?;
            let now = self.wire.now();
            if let Some(rules) = self.shared.tuned() {
                self.feed.follow(rules);
            }
            self.feed.check(now)?;
            let patience = self.send(now)?;
            let is_full = !self.out.is_empty();
            let ready =
                self.wire
                    .wait(&self.shared.wake, self.feed.listens(), is_full, patience)?;
            self.shared.wake.disarm();
            if ready.notified {
                self.shared.wake.clear();
            }
            if ready.read {
                self.read()?;
            }
        }
    }

    fn read(&mut self) -> Result<(), End> {
        let mut buffer = [0; READ];
        match self.wire.read(&mut buffer)? {
            None => Ok(()),
            Some(0) => Err(End::Lost(String::new())),
            Some(count) => self.hear(buffer.get(..count).unwrap_or_default()),
        }
    }

    fn hear(&mut self, data: &[u8]) -> Result<(), End> {
        let before = self.feed.acked();
        self.feed.receive(data, self.wire.now())?;
        let acked = self.feed.acked();
        self.shared.tell(false, |view| {
            view.last_read = Instant::now();
            view.acked = acked;
        });
        if acked > before {
            // First those who wait in the core: the owner is behind them.
            if self.shared.counts() {
                self.store.tell_copied(acked);
            }
            if self.shared.is_loud() {
                self.shared.notify();
            }
        }
        Ok(())
    }

    fn publish(&self, loudly: bool) {
        let (acked, position) = (self.feed.acked(), self.feed.position());
        self.shared.tell(loudly, |view| {
            view.last_write = Instant::now();
            view.acked = acked;
            view.position = position;
            view.moved = self.moved;
        });
    }

    /// Writes what may be written now; returns how many milliseconds nothing more can be.
    fn send(&mut self, now: u64) -> Result<u64, End> {
        if self.out.is_empty() {
            self.fill(now)?;
        }
        if !self.out.is_empty() {
            self.write()?;
        }
        let mut end = self.store.copy_limit();
        if !self.out.is_empty() {
            return Ok(FULL);
        }
        if !self.feed.listens() {
            return Ok(self.feed.patience(end, now));
        }
        if !self.feed.lingers(end, now) {
            self.shared.wake.arm();
            end = self.store.copy_limit();
            if self.feed.due(end, now).is_some() && !self.feed.lingers(end, now) {
                return Ok(0);
            }
        }
        Ok(self.feed.patience(end, now))
    }

    fn fill(&mut self, now: u64) -> Result<(), Fault> {
        let end = self.store.copy_limit();
        if !self.feed.lingers(end, now) {
            while self.out.frames() < FRAMES {
                let Some((from, size)) = self.feed.due(end, now) else {
                    break;
                };
                let Some(lease) = self.store.copyable(from, size)? else {
                    break;
                };
                let size = lease.len() as u64;
                let header = self.feed.header(size, now);
                self.out.push(header.to_vec(), Some(lease));
                self.moved += size;
            }
        }
        if self.out.is_empty() && self.feed.wants_heartbeat(now) {
            let header = self.feed.header(0, now);
            self.out.push(header.to_vec(), None);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), End> {
        // Before the bytes leave: their acknowledgement may be quick.
        self.publish(false);
        while !self.out.is_empty() {
            match self.wire.write(&self.out.parts())? {
                None => break,
                Some(0) => return Err(End::Lost(String::new())),
                Some(count) => self.out.written(count),
            }
        }
        Ok(())
    }
}

/// Frames on their way to the socket, and how much of them it has taken.
#[derive(Default)]
struct Outgoing {
    frames: VecDeque<(Vec<u8>, Option<Lease>)>,
    taken: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    fn frames(&self) -> usize {
        self.frames.len()
    }

    fn push(&mut self, head: Vec<u8>, body: Option<Lease>) {
        if !head.is_empty() {
            self.frames.push_back((head, body));
        }
    }

    /// What is left to write, as the system call takes it.
    fn parts(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.taken;
        let mut parts = Vec::with_capacity(2 * FRAMES);
        for (head, body) in &self.frames {
            for bytes in [&head[..], body.as_deref().unwrap_or_default()] {
                let left = bytes.get(skip.min(bytes.len())..).unwrap_or_default();
                skip -= skip.min(bytes.len());
                if !left.is_empty() {
                    parts.push(IoSlice::new(left));
                }
            }
        }
        parts
    }

    fn written(&mut self, count: usize) {
        self.taken += count;
        while let Some((head, body)) = self.frames.front() {
            let size = head.len() + body.as_deref().map_or(0, <[u8]>::len);
            if self.taken < size {
                break;
            }
            self.taken -= size;
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outgoing;

    fn left(out: &Outgoing) -> Vec<u8> {
        out.parts().iter().flat_map(|part| part.to_vec()).collect()
    }

    #[test]
    fn what_the_socket_has_taken_is_not_written_again() {
        let all = b"abcdefghij";
        for first in 0..=all.len() {
            for second in 0..=all.len() - first {
                let mut out = Outgoing::default();
                for piece in [&all[..3], &[], &all[3..4], &all[4..]] {
                    out.push(piece.to_vec(), None);
                }
                assert_eq!(out.frames(), 3, "an empty frame is none");
                out.written(first);
                assert_eq!(left(&out), all[first..]);
                out.written(second);
                let taken = first + second;
                assert_eq!(left(&out), all[taken..]);
                let whole = [3, 4, 10].iter().filter(|end| **end <= taken).count();
                assert_eq!(out.frames(), 3 - whole, "{first} {second}");
                assert_eq!(out.is_empty(), taken == all.len());
            }
        }
    }

    #[test]
    fn a_frame_behind_one_that_was_written_in_part_follows_it() {
        let mut out = Outgoing::default();
        out.push(b"ab".to_vec(), None);
        out.written(1);
        out.push(b"cd".to_vec(), None);
        assert_eq!(left(&out), b"bcd");
        out.written(2);
        assert_eq!(left(&out), b"d");
        out.written(1);
        out.push(b"ef".to_vec(), None);
        assert_eq!(left(&out), b"ef");
    }
}
