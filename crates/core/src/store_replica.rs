//! The store as one of a pair: what a master's slaves copy, and what a slave copies.

use crate::segment::Lease;
use crate::store::Store;
use crate::store_error::{ErrorKind, StoreError};

impl Store {
    /// Up to where slaves may copy now: whole records, durable ones where each append is flushed,
    /// lest a slave has what its master loses with a power cut.
    pub fn copy_limit(&self) -> u64 {
        self.dispatcher.limit()
    }

    /// Leases bytes of the log for a slave, of one file; empty when there are none yet.
    pub fn copyable(&self, from: u64, most: u64) -> Result<Option<Lease>, StoreError> {
        self.usable()?;
        let limit = self.copy_limit();
        if from >= limit {
            return Ok(None);
        }
        let lease = self.log.copyable(from, most, limit);
        lease.map(Some).ok_or_else(|| {
            StoreError::usage(format!(
                "offset {from} is not kept any more, the log begins at {}",
                self.log.min()
            ))
        })
    }

    /// Appends bytes of a master's log; returns where the log ends now.
    pub fn replicate(&self, from: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        self.replicable()?;
        self.log.replicate(from, bytes)
    }

    /// As [`Self::replicate`] unless that means waiting: `None` then.
    pub fn try_replicate(&self, from: u64, bytes: &[u8]) -> Option<Result<u64, StoreError>> {
        if let Err(error) = self.replicable() {
            return Some(Err(error));
        }
        self.log.try_replicate(from, bytes)
    }

    /// Makes what each append has to make durable so; returns up to where a slave may say that it
    /// has the log.
    pub fn vouched(&self) -> Result<u64, StoreError> {
        let written = self.log.written();
        if !self.config.sync_flush {
            return Ok(written);
        }
        if self.log.flushed() < written {
            self.usable()?;
            return self.flush().map(|flushed| flushed.min(written));
        }
        Ok(written)
    }

    fn replicable(&self) -> Result<(), StoreError> {
        self.usable()?;
        if self.is_started() {
            return Ok(());
        }
        Err(StoreError::new(
            ErrorKind::Closed,
            "the store is not started",
        ))
    }
}
