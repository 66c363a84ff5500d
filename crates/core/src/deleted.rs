//! Topics that were deleted, each with the end of the log at that moment.
//!
//! Records stay in the log when their topic goes. Whoever reads the log anew, a recovery or a
//! dispatcher that is behind, asks here whether a record still belongs to anybody. The note lies
//! beside the checkpoint in a file that Java's broker does not look at.

use crate::disk::Disk;
use crate::store_error::StoreError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

const NAME: &str = "deletedTopics";
const MAGIC: u64 = 0x526F_7175_6574_0002;
/// Magic number, how many topics.
const HEAD: usize = 16;

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
        let path = root.join(NAME);
        let found = disk
            .read(&path)
            .map_err(|error| StoreError::io("read", &path, &error))?;
        let decoded = found.as_deref().map(decode);
        let deleted = Self {
            disk,
            root: root.to_path_buf(),
            ends: RwLock::default(),
            furthest: AtomicU64::new(0),
            damaged: matches!(decoded, Some(None)),
        };
        deleted.remember(decoded.flatten().unwrap_or_default());
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
        let mut ends = self.read().clone();
        ends.insert(topic.to_owned(), end);
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
        let disk = self.disk.as_ref();
        let (path, side) = (self.root.join(NAME), self.root.join(format!("{NAME}.tmp")));
        disk.write(&side, &encode(ends))
            .and_then(|()| disk.sync_file(&side))
            .and_then(|()| disk.rename(&side, &path))
            .and_then(|()| disk.sync_dir(&self.root))
            .map_err(|error| StoreError::io("write", &path, &error))
    }
}

fn encode(ends: &Ends) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + ends.len() * 64);
    bytes.extend(MAGIC.to_be_bytes());
    bytes.extend((ends.len() as u64).to_be_bytes());
    for (topic, end) in ends {
        bytes.extend(end.to_be_bytes());
        bytes.extend((topic.len() as u64).to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    let sum = u64::from(crc32fast::hash(&bytes));
    bytes.extend(sum.to_be_bytes());
    bytes
}

/// The note in `bytes`; `None` when it is none.
fn decode(bytes: &[u8]) -> Option<Ends> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if u64::from_be_bytes(*sum) != u64::from(crc32fast::hash(body)) {
        return None;
    }
    let mut rest = body;
    let (magic, count) = (number(&mut rest)?, number(&mut rest)?);
    if magic != MAGIC {
        return None;
    }
    let mut ends = Ends::new();
    for _ in 0..count {
        let end = number(&mut rest)?;
        let size = usize::try_from(number(&mut rest)?).ok()?;
        let (name, behind) = rest.split_at_checked(size)?;
        ends.insert(std::str::from_utf8(name).ok()?.to_owned(), end);
        rest = behind;
    }
    rest.is_empty().then_some(ends)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    Some(u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, Ends};

    #[test]
    fn a_note_is_read_back_whole_or_not_at_all() {
        let ends = Ends::from([("a".to_owned(), 7), ("%RETRY%b c\n".to_owned(), u64::MAX)]);
        let bytes = encode(&ends);
        assert_eq!(decode(&bytes), Some(ends));
        assert_eq!(decode(&encode(&Ends::new())), Some(Ends::new()));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None);
            let mut flipped = bytes.clone();
            flipped[cut] ^= 4;
            assert_eq!(decode(&flipped), None);
        }
    }
}
