//! The slave's thread: what comes from the socket is appended to the log as it is, made durable
//! together where each append has to be, and reported.

use super::copier::{Copier, CopierConfig};
use super::greeting::greet;
use super::link::{End, Link, Shared};
use super::wire::{Socket, Wire};
use super::{Fault, FULL};
use crate::store::Store;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

/// Bytes read, appended, flushed and reported together.
const READ: usize = 1 << 20;

/// Starts to copy the log of the master at the other end of `socket`.
///
/// What the master says is told to the owner, until [`Link::begin`]. Then a report goes out at once.
pub fn start(store: Arc<Store>, socket: Socket, rules: CopierConfig) -> io::Result<Link> {
    let mut wire = Wire::new(socket)?;
    Link::spawn("ha-follow", move |shared| {
        let (begin, said) = match greet(&mut wire, &shared) {
            Ok(begun) => begun,
            Err(end) => {
                wire.close();
                return end;
            }
        };
        let follower = Follower {
            copier: Copier::new(rules, store.log().written()),
            store,
            wire,
            out: said,
            shared,
            moved: 0,
        };
        follower.run(&begin.heard)
    })
}

struct Follower {
    store: Arc<Store>,
    wire: Wire,
    copier: Copier,
    /// Bytes that the socket has not taken yet.
    out: Vec<u8>,
    shared: Arc<Shared>,
    moved: u64,
}

impl Follower {
    fn run(mut self, heard: &[u8]) -> End {
        let end = match self.serve(heard) {
            Ok(never) => match never {},
            Err(end) => end,
        };
        self.wire.close();
        end
    }

    fn serve(&mut self, heard: &[u8]) -> Result<Infallible, End> {
        let mut buffer = vec![0; READ];
        self.hear(heard)?;
        loop {
            self.shared.go_on()?;
            let now = self.wire.now();
            if let Some(rules) = self.shared.tuned() {
                self.copier.follow(CopierConfig {
                    heartbeat: rules.heartbeat,
                    housekeeping: rules.housekeeping,
                });
            }
            self.copier.check(now)?;
            self.report(now)?;
            let is_full = !self.out.is_empty();
            let patience = if is_full {
                FULL
            } else {
                self.copier.patience(now)
            };
            let ready = self.wire.wait(&self.shared.wake, true, is_full, patience)?;
            if ready.notified {
                self.shared.wake.clear();
            }
            if ready.read {
                match self.wire.read(&mut buffer)? {
                    None => {}
                    Some(0) => return Err(End::Lost(String::new())),
                    Some(count) => self.hear(buffer.get(..count).unwrap_or_default())?,
                }
            }
        }
    }

    fn hear(&mut self, data: &[u8]) -> Result<(), End> {
        let (store, moved) = (&self.store, &mut self.moved);
        let mut failed = None;
        let heard = self.copier.receive(data, self.wire.now(), |offset, piece| {
            *moved += piece.len() as u64;
            store.replicate(offset, piece).map(drop).map_err(|error| {
                failed = Some(End::Store(error.to_string()));
                Fault(String::new())
            })
        });
        if let Some(end) = failed {
            return Err(end);
        }
        self.shared
            .tell(false, |view| view.last_read = Instant::now());
        Ok(heard?)
    }

    /// Says how far the log is, if it has grown or the last report is old.
    fn report(&mut self, now: u64) -> Result<(), End> {
        if self.out.is_empty() {
            let end = self
                .store
                .vouched()
                .map_err(|error| End::Store(error.to_string()))?;
            if let Some(report) = self.copier.report(end, now) {
                self.out.extend_from_slice(&report);
                self.publish(end);
            }
        }
        while !self.out.is_empty() {
            match self.wire.write(&[IoSlice::new(&self.out)])? {
                None => break,
                Some(0) => return Err(End::Lost(String::new())),
                Some(count) => drop(self.out.drain(..count)),
            }
        }
        Ok(())
    }

    fn publish(&self, end: u64) {
        self.shared.tell(false, |view| {
            view.acked = end;
            view.position = self.store.log().written();
            view.moved = self.moved;
            view.last_write = Instant::now();
        });
    }
}
