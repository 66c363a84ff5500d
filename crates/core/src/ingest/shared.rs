//! What the ingests of a process have in common: the admission table, and how much waits in all of
//! them, since bounds hold for all together.
//!
//! The table is read for as long as the frames of one read are judged and their answers made.
//! Whoever changes it therefore knows, once the change is written, that no frame is judged by the
//! old row any more. A reader may take the log's lock while it reads; whoever writes the table
//! holds neither that lock nor an ingest, so that no two of them can wait for one another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::table::Table;

/// How much of an ingest waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Pulls that wait for a message.
    pub(super) held: usize,
    /// Answers that wait for a flush or a copy.
    pub(super) parked: usize,
}

/// What is common.
#[derive(Debug, Default)]
pub struct Shared {
    table: RwLock<Table>,
    held: AtomicUsize,
    parked: AtomicUsize,
    /// Pulls that the processors hold.
    beside: AtomicUsize,
}

impl Shared {
    /// The table, to judge by.
    pub fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, to be changed; waits for those who judge by it.
    pub fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers that wait in all ingests.
    pub fn parked(&self) -> usize {
        self.parked.load(Ordering::SeqCst)
    }

    /// Pulls that wait in all ingests.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) fn changed(&self, before: Sums, now: Sums) {
        moved(&self.held, before.held, now.held);
        moved(&self.parked, before.parked, now.parked);
    }

    pub(super) fn set_beside(&self, count: usize) {
        self.beside.store(count, Ordering::SeqCst);
    }

    /// Whether any pull waits for a message, wherever.
    pub(super) fn is_awaited(&self) -> bool {
        self.held() + self.beside.load(Ordering::SeqCst) > 0
    }

    /// Pulls that wait elsewhere than in the ingest with these sums.
    pub(super) fn held_beside(&self, own: Sums) -> usize {
        self.held().saturating_sub(own.held) + self.beside.load(Ordering::SeqCst)
    }

    /// Answers that wait elsewhere.
    pub(super) fn parked_beside(&self, own: Sums) -> usize {
        self.parked().saturating_sub(own.parked)
    }
}

fn moved(sum: &AtomicUsize, before: usize, now: usize) {
    // Wraps in both steps alike.
    sum.fetch_add(now.wrapping_sub(before), Ordering::SeqCst);
}
