//! The file after the last one, made before it is needed.

use super::CommitLog;
use crate::segment::Segment;
use crate::store_error::{ErrorKind, StoreError};
use crate::store_health::hold;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long an append waits for a file that is being made (spec: store §2).
const WAIT: Duration = Duration::from_secs(5);

#[derive(Default)]
enum State {
    #[default]
    Absent,
    Making,
    Ready(Arc<Segment>),
}

#[derive(Default)]
pub(super) struct NextFile {
    state: Mutex<State>,
    changed: Condvar,
}

impl CommitLog {
    /// Whether the next file should be made now: there is none, and half of the last is used.
    pub fn wants_file(&self) -> bool {
        if !matches!(*hold(&self.next.state), State::Absent) || !self.health.takes_writes() {
            return false;
        }
        let written = self.written();
        self.segments()
            .last()
            .is_none_or(|last| written.saturating_sub(last.base()) >= self.settings.file_size / 2)
    }

    /// Makes the next file if it is due; what fails here is tried again by the append.
    pub fn make_next(&self) -> Result<(), StoreError> {
        if !self.wants_file() {
            return Ok(());
        }
        // The end of the last file cannot move meanwhile: whoever adds one has to take it here.
        let base = {
            let mut state = hold(&self.next.state);
            if !matches!(*state, State::Absent) {
                return Ok(());
            }
            *state = State::Making;
            self.segments()
                .last()
                .map_or(self.written(), |last| last.end())
        };
        let made = self.make(base);
        let mut state = hold(&self.next.state);
        let (now, result) = match made {
            Ok(segment) => (State::Ready(segment), Ok(())),
            Err(error) => (State::Absent, Err(error)),
        };
        *state = now;
        drop(state);
        self.next.changed.notify_all();
        result
    }

    fn make(&self, base: u64) -> Result<Arc<Segment>, StoreError> {
        let folder = self.folder_for(base)?;
        Segment::create(self.disk.as_ref(), &folder, base, self.settings.file_size).map(Arc::new)
    }

    /// Folders take turns (spec: store §1).
    fn folder_for(&self, base: u64) -> Result<PathBuf, StoreError> {
        let read_only = &self.settings.read_only;
        let open: Vec<&PathBuf> = self
            .settings
            .folders
            .iter()
            .filter(|folder| !read_only.contains(folder))
            .collect();
        let turn = usize::try_from(base / self.settings.file_size).unwrap_or(0);
        open.get(turn % open.len().max(1))
            .map(|folder| (*folder).clone())
            .ok_or_else(|| StoreError::usage("every commit-log folder is read-only"))
    }

    /// Takes the file that begins at `base`, waiting for it or making it here.
    pub(super) fn take_next(&self, base: u64) -> Result<Arc<Segment>, StoreError> {
        let state = hold(&self.next.state);
        let (mut state, _) = self
            .next
            .changed
            .wait_timeout_while(state, WAIT, |state| matches!(state, State::Making))
            .unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *state) {
            State::Ready(segment) if segment.base() == base => Ok(segment),
            State::Ready(_) | State::Absent => {
                drop(state);
                self.make(base)
            }
            State::Making => {
                *state = State::Making;
                Err(StoreError::new(ErrorKind::Io, "the next file is late"))
            }
        }
    }

    /// Keeps a file for the next try.
    pub(super) fn put_back(&self, segment: Arc<Segment>) {
        *hold(&self.next.state) = State::Ready(segment);
    }

    /// Removes the next file that was never used, as an orderly stop does.
    pub(crate) fn drop_unused(&self) -> Result<(), StoreError> {
        let taken = std::mem::take(&mut *hold(&self.next.state));
        if let State::Ready(segment) = taken {
            self.remove(&segment)?;
        }
        Ok(())
    }
}
