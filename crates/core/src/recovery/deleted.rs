//! Topics that were deleted, each with the end of the log at that moment.
//!
//! Records stay in the log when their topic goes. Whoever reads the log anew, a recovery or a
//! dispatcher that is behind, asks here whether a record still belongs to anybody. The note lies
//! beside the checkpoint in a file that Java's broker does not look at.

use crate::disk::note_file::{self, Found};
use crate::disk::Disk;
use crate::store::error::StoreError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

const NAME: &str = "deletedTopics";
const MAGIC: u64 = 0x526F_7175_6574_0002;

type Ends = BTreeMap<String, u64>;

/// The note of one store.
pub struct Deleted {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    ends: RwLock<Ends>,
    /// The furthest of the ends: records behind it need no look.
    furthest: AtomicU64,
    damaged: bool,
}

impl Deleted {
    /// Reads the note in `root`. A damaged one counts as none: topics may come back by that, but
    /// no message is hidden.
    pub fn open(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, StoreError> {
        let found = note_file::read::<1>(disk.as_ref(), &root.join(NAME), MAGIC)?;
        let deleted = Self {
            disk,
            root: root.to_path_buf(),
            ends: RwLock::default(),
            furthest: AtomicU64::new(0),
            damaged: found == Found::Damaged,
        };
        if let Found::Rows(rows) = found {
            deleted.remember(
                rows.into_iter()
                    .map(|(topic, [end])| (topic, end))
                    .collect(),
            );
        }
        Ok(deleted)
    }

    /// Whether the topic of the record at `at` was deleted after the record was written.
    pub fn covers(&self, topic: &str, at: u64) -> bool {
        at < self.furthest.load(Ordering::Acquire)
            && self.read().get(topic).is_some_and(|end| at < *end)
    }

    /// The topics and their ends.
    pub fn list(&self) -> Vec<(String, u64)> {
        let ends = self.read();
        ends.iter()
            .map(|(topic, end)| (topic.clone(), *end))
            .collect()
    }

    /// Whether there was a note that could not be read.
    pub fn was_damaged(&self) -> bool {
        self.damaged
    }

    /// Notes that what lies before `end` is not the topic's any more; durable when this returns.
    /// On an error nothing has changed here.
    pub fn add(&self, topic: &str, end: u64) -> Result<(), StoreError> {
        self.add_all(vec![(topic.to_owned(), end)])
    }

    /// As [`Self::add`], for many topics with one write.
    pub fn add_all(&self, rows: Vec<(String, u64)>) -> Result<(), StoreError> {
        let mut ends = self.read().clone();
        ends.extend(rows);
        self.save(&ends)?;
        self.remember(ends);
        Ok(())
    }

    /// Forgets what the log has no record of any more (`min`), and lowers ends behind the log's
    /// `end`: whatever is written there from now on is new.
    pub fn settle(&self, min: u64, end: u64) -> Result<(), StoreError> {
        let before = self.read().clone();
        let after: Ends = before
            .iter()
            .map(|(topic, known)| (topic.clone(), (*known).min(end)))
            .filter(|(_, known)| *known > min)
            .collect();
        if after == before {
            return Ok(());
        }
        self.save(&after)?;
        self.remember(after);
        Ok(())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Ends> {
        self.ends.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, ends: Ends) {
        let furthest = ends.values().copied().max().unwrap_or(0);
        *self.ends.write().unwrap_or_else(PoisonError::into_inner) = ends;
        self.furthest.store(furthest, Ordering::Release);
    }

    fn save(&self, ends: &Ends) -> Result<(), StoreError> {
        let rows = ends.iter().map(|(topic, end)| (topic.clone(), [*end]));
        let path = self.root.join(NAME);
        note_file::write(self.disk.as_ref(), &path, MAGIC, &rows.collect())
    }
}
