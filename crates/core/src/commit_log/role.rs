//! Whose log this is: this broker's own, which it appends to, or a copy of another broker's.
//!
//! Invariant: **messages and copied bytes never mix.** While the log is a copy, appends are refused;
//! while it is this broker's, copies are. Both are judged under the writer's lock, so that whatever
//! still runs when a broker changes its role (a connection, the timer wheel, a late request) cannot
//! append behind the change. A store that nobody has given a role takes both.

use super::append::Writer;
use super::{CommitLog, NextOffsets};
use crate::store::error::StoreError;
use crate::store::health::hold;

/// Who may append to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// Whoever wants to: no role was given.
    #[default]
    Anyone,
    /// This broker.
    Own,
    /// The broker that it copies from.
    Other,
    /// Nobody: the role changes.
    Nobody,
}

impl Writer {
    /// Whether messages may be appended.
    pub(super) fn takes_messages(&self) -> bool {
        matches!(self.owner, Owner::Anyone | Owner::Own)
    }

    /// Whether bytes of another log may be appended.
    pub(super) fn takes_copies(&self) -> bool {
        matches!(self.owner, Owner::Anyone | Owner::Other)
    }
}

impl CommitLog {
    /// Takes copies only from now on; returns where the log ends: no message is behind that.
    pub fn follow(&self) -> u64 {
        let mut writer = hold(&self.writer);
        writer.owner = Owner::Other;
        writer.position
    }

    /// Takes neither copies nor messages from now on, and takes back what was copied of a record
    /// that is not whole. Returns whether anything was copied since the log was this broker's.
    pub(crate) fn end_copies(&self) -> Result<bool, StoreError> {
        let mut writer = hold(&self.writer);
        writer.owner = Owner::Nobody;
        self.forget_half(&mut writer)?;
        Ok(writer.is_copy)
    }

    /// Takes messages only from now on. `places` are the offsets at which queues go on and the
    /// store time of the last record, when both may have changed by copies.
    pub(crate) fn lead(&self, places: Option<(NextOffsets, i64)>) {
        let mut writer = hold(&self.writer);
        debug_assert_eq!(writer.owner, Owner::Nobody, "copies have not ended");
        if let Some((offsets, last_time)) = places {
            writer.go_on(offsets, last_time);
            writer.is_copy = false;
            self.count_lights(&writer);
        }
        writer.owner = Owner::Own;
    }
}
