//! The file after the last one, made before it is needed.

use super::CommitLog;
use crate::disk::segment::Segment;
use crate::store::error::{ErrorKind, StoreError};
use crate::store::health::hold;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long an append waits for a file that is being made (spec: store §2).
const WAIT: Duration = Duration::from_secs(5);

#[derive(Default)]
enum File {
    #[default]
    Absent,
    Making,
    Ready(Arc<Segment>),
}

#[derive(Default)]
struct State {
    /// Where the next file begins: the end of the last one handed out.
    base: u64,
    file: File,
}

/// The one place where files are made, whoever wants one.
#[derive(Default)]
pub(super) struct NextFile {
    state: Mutex<State>,
    changed: Condvar,
}

impl CommitLog {
    /// Sets where the next file begins.
    pub(super) fn next_begins(&self, base: u64) {
        hold(&self.next.state).base = base;
    }

    /// Whether the next file should be made now: there is none, and half of the last is used.
    pub fn wants_file(&self) -> bool {
        self.is_due(&hold(&self.next.state))
    }

    fn is_due(&self, state: &State) -> bool {
        matches!(state.file, File::Absent)
            && self.health.takes_writes()
            && self.written() + self.settings.file_size / 2 >= state.base
    }

    /// Whether the next file is being made right now.
    pub(super) fn is_making(&self) -> bool {
        matches!(hold(&self.next.state).file, File::Making)
    }

    /// Makes the next file if it is due; what fails here is tried again by the append.
    pub fn make_next(&self) -> Result<(), StoreError> {
        let mut state = hold(&self.next.state);
        if !self.is_due(&state) {
            return Ok(());
        }
        state.file = File::Making;
        let base = state.base;
        drop(state);
        let (file, result) = match self.make(base) {
            Ok(segment) => (File::Ready(segment), Ok(())),
            Err(error) => (File::Absent, Err(error)),
        };
        hold(&self.next.state).file = file;
        self.next.changed.notify_all();
        result
    }

    fn make(&self, base: u64) -> Result<Arc<Segment>, StoreError> {
        let folder = self.folder_for(base)?;
        let settings = &self.settings;
        Segment::create(
            self.disk.as_ref(),
            &folder,
            base,
            settings.file_size,
            settings.warm,
        )
        .map(Arc::new)
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

    /// Takes the next file, waiting for it or making it here.
    pub(super) fn take_next(&self) -> Result<Arc<Segment>, StoreError> {
        let state = hold(&self.next.state);
        let (mut state, _) = self
            .next
            .changed
            .wait_timeout_while(state, WAIT, |state| matches!(state.file, File::Making))
            .unwrap_or_else(PoisonError::into_inner);
        let base = state.base;
        let taken = match std::mem::replace(&mut state.file, File::Making) {
            File::Ready(segment) => Ok(segment),
            File::Absent => {
                drop(state);
                let made = self.make(base);
                state = hold(&self.next.state);
                made
            }
            File::Making => {
                return Err(StoreError::new(ErrorKind::Io, "the next file is late"));
            }
        };
        state.file = File::Absent;
        if taken.is_ok() {
            state.base = base + self.settings.file_size;
        }
        drop(state);
        self.next.changed.notify_all();
        taken
    }

    /// Lets the first file begin at `base`: one that was made for the start of the log goes.
    pub(super) fn restart_files(&self, base: u64) -> Result<(), StoreError> {
        let state = hold(&self.next.state);
        let (mut state, _) = self
            .next
            .changed
            .wait_timeout_while(state, WAIT, |state| matches!(state.file, File::Making))
            .unwrap_or_else(PoisonError::into_inner);
        state.base = base;
        let made = std::mem::take(&mut state.file);
        drop(state);
        match made {
            File::Ready(segment) if segment.base() == base => {
                self.put_back(segment);
                Ok(())
            }
            File::Ready(segment) => self.remove(&segment),
            File::Absent => Ok(()),
            File::Making => Err(StoreError::new(ErrorKind::Io, "the first file is late")),
        }
    }

    /// Keeps a file for the next try.
    pub(super) fn put_back(&self, segment: Arc<Segment>) {
        let mut state = hold(&self.next.state);
        state.base = segment.base();
        state.file = File::Ready(segment);
    }

    /// Removes the next file that was never used, as an orderly stop does.
    pub(crate) fn drop_unused(&self) -> Result<(), StoreError> {
        let taken = std::mem::take(&mut hold(&self.next.state).file);
        if let File::Ready(segment) = taken {
            self.remove(&segment)?;
        }
        Ok(())
    }
}
