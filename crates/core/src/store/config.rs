//! The settings of a store under Java's names (spec: config_store.json), read strictly.

use crate::store::config_names::NAMES;
use crate::store::error::StoreError;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A setting as it comes from a property file or from Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text; also a number or a truth value written out.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

/// Our own key: cut the log at damage found in recovery, and lose what is behind it.
pub const TRUNCATE_CORRUPT: &str = "recoveryTruncateCorrupt";

/// What recovery and disk checks may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// Whether the CRC of every body is checked.
    pub check_crc: bool,
    /// How many files back the index is rebuilt at most, unless it has to be complete.
    pub files_max: usize,
    /// Whether the index has to be complete, however long its rebuilding takes.
    pub index_safe: bool,
    /// Whether damage is cut off, with all that is behind it, where it would be an error.
    pub truncate_corrupt: bool,
}

/// What a get may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetConfig {
    /// Bytes of queue units that one get looks at, unless more messages are asked for.
    pub filter_bytes: u64,
    /// Most bytes and messages of recent data.
    pub memory: (u64, u64),
    /// Most bytes and messages of data that is probably not in memory.
    pub disk: (u64, u64),
    /// Per cent of the machine's memory that counts as holding recent data.
    pub memory_percent: u64,
}

/// Fill levels of the disk in per cent (spec: store §12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLevels {
    /// Above it nothing is written.
    pub full: u64,
    /// Above it old files go whatever their age.
    pub clean: u64,
    /// Above it expired files go at once.
    pub used: u64,
}

/// The settings that an open store may be given anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The limits of a get.
    pub get: GetConfig,
    /// Fill levels of the disk.
    pub levels: DiskLevels,
    /// Longest body in bytes.
    pub body_max: u64,
    /// Milliseconds between two flushes, unless each put has its own.
    pub flush_interval_ms: u64,
    /// Milliseconds between two checkpoints.
    pub checkpoint_interval_ms: u64,
    /// Light queues that there may be.
    pub lights_max: usize,
}

/// All the settings of one store.
#[allow(clippy::struct_excessive_bools)] // Each is a setting of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Folder that everything else hangs off.
    pub root: PathBuf,
    /// Folders of the commit log; new files take turns.
    pub commit_log: Vec<PathBuf>,
    /// Folders of the commit log that get no new files.
    pub commit_log_read_only: Vec<PathBuf>,
    /// Bytes of a commit-log file.
    pub commit_file_size: u64,
    /// Bytes of a consume-queue file, a multiple of 20.
    pub queue_file_size: u64,
    /// Whether the key index is kept.
    pub index: bool,
    /// Hash slots of an index file.
    pub index_slots: u32,
    /// Entries of an index file, one more than it can hold.
    pub index_entries: u32,
    /// Whether a put counts only when it is durable.
    pub sync_flush: bool,
    /// Whether new commit-log files are written full of zeros.
    pub warm: bool,
    /// Recovery's settings.
    pub recovery: RecoveryConfig,
    /// What may be changed while the store is open.
    pub tuned: Tuned,
    /// Milliseconds of each delay level, level 1 first.
    pub delays: Vec<i64>,
    /// Whether messages are put into the light queues that they name.
    pub light_queues: bool,
}

const DELAYS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

struct Reader<'a>(&'a BTreeMap<String, Value>);

impl Reader<'_> {
    fn int(&self, name: &str, default: u64, range: (u64, u64)) -> Result<u64, StoreError> {
        let found = match self.0.get(name) {
            None => return Ok(default),
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            Some(Value::Text(text)) => Some(text)
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|text| text.parse().ok()),
            Some(Value::Bool(_)) => None,
        };
        found
            .filter(|number| (range.0..=range.1).contains(number))
            .ok_or_else(|| {
                let (low, high) = range;
                self.refuse(name, &format!("a whole number from {low} to {high}"))
            })
    }

    fn bool(&self, name: &str, default: bool) -> Result<bool, StoreError> {
        match self.0.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::Text(text)) if text == "true" => Ok(true),
            Some(Value::Text(text)) if text == "false" => Ok(false),
            Some(_) => Err(self.refuse(name, "true or false")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&str>, StoreError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.refuse(name, "text")),
        }
    }

    fn refuse(&self, name: &str, rule: &str) -> StoreError {
        let found = match self.0.get(name) {
            Some(Value::Text(text)) => format!("{text:?}"),
            Some(Value::Int(number)) => number.to_string(),
            Some(Value::Bool(value)) => value.to_string(),
            None => "absent".to_owned(),
        };
        StoreError::usage(format!("{name} is {found}, must be {rule}"))
    }

    fn paths(&self, name: &str) -> Result<Vec<PathBuf>, StoreError> {
        let mut found: Vec<PathBuf> = self
            .text(name)?
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(PathBuf::from)
            .collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Refuses what would need another form on disk, rather than writing the usual one silently.
    fn known(&self) -> Result<(), StoreError> {
        for name in self.0.keys() {
            if name != TRUNCATE_CORRUPT && NAMES.binary_search(&name.as_str()).is_err() {
                return Err(StoreError::usage(format!("no setting is called {name}")));
            }
        }
        for name in [
            "enableConsumeQueueExt",
            "enabledAppendPropCRC",
            "enableDLegerCommitLog",
        ] {
            if self.bool(name, false)? {
                return Err(self.refuse(name, "false: the store does not have it"));
            }
        }
        match self.text("storeType")? {
            None | Some("default") => Ok(()),
            Some(_) => Err(self.refuse("storeType", "default: the store has no other")),
        }
    }
}

impl StoreConfig {
    /// Reads the settings; names that Java does not know and values out of range are errors.
    pub fn read(given: &BTreeMap<String, Value>) -> Result<Self, StoreError> {
        let from = Reader(given);
        from.known()?;
        let root = match from.text("storePathRootDir")? {
            Some(root) if !root.is_empty() => PathBuf::from(root),
            _ => return Err(from.refuse("storePathRootDir", "the folder of the store")),
        };
        let mut commit_log = from.paths("storePathCommitLog")?;
        if commit_log.is_empty() {
            commit_log.push(root.join("commitlog"));
        }
        let commit_log_read_only = from.paths("readOnlyCommitLogStorePaths")?;
        let queue_file_size = from
            .int("mappedFileSizeConsumeQueue", 6_000_000, (20, FILE_MAX))?
            .next_multiple_of(20);
        Ok(Self {
            root,
            commit_log,
            commit_log_read_only,
            commit_file_size: from.int("mappedFileSizeCommitLog", 1 << 30, (128, FILE_MAX))?,
            queue_file_size,
            index: from.bool("messageIndexEnable", true)?,
            index_slots: count(from.int("maxHashSlotNum", 5_000_000, (1, 100_000_000))?),
            index_entries: count(from.int("maxIndexNum", 20_000_000, (2, 100_000_000))?),
            sync_flush: flush_type(&from)?,
            warm: from.bool("warmMapedFileEnable", false)?,
            recovery: RecoveryConfig::read(&from)?,
            tuned: Tuned::read(&from)?,
            delays: delays(from.text("messageDelayLevel")?.unwrap_or(DELAYS))?,
            // One without the other does nothing; both are read, so that neither is misspelt.
            light_queues: from.bool("enableLmq", false)?
                & from.bool("enableMultiDispatch", false)?,
        })
    }
}

/// Java counts positions inside a file in an int.
const FILE_MAX: u64 = i32::MAX as u64;

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn flush_type(from: &Reader<'_>) -> Result<bool, StoreError> {
    match from.text("flushDiskType")? {
        None | Some("ASYNC_FLUSH") => Ok(false),
        Some("SYNC_FLUSH") => Ok(true),
        Some(_) => Err(from.refuse("flushDiskType", "ASYNC_FLUSH or SYNC_FLUSH")),
    }
}

impl RecoveryConfig {
    fn read(from: &Reader<'_>) -> Result<Self, StoreError> {
        let files = from.int("commitLogRecoverMaxNum", 10, (1, 1 << 30))?;
        Ok(Self {
            check_crc: from.bool("checkCRCOnRecover", true)?,
            files_max: usize::try_from(files).unwrap_or(usize::MAX),
            index_safe: from.bool("messageIndexSafe", false)?,
            truncate_corrupt: from.bool(TRUNCATE_CORRUPT, false)?,
        })
    }
}

/// Stored bytes that one projected get may read in memory: about 0.3 ms for their checksums.
const PROJECTED_BYTES: u64 = 1 << 20;
/// Messages of one projected get.
const PROJECTED_MESSAGES: u64 = 1024;

impl GetConfig {
    /// Most messages of any get.
    pub fn messages_max(&self) -> u64 {
        self.memory.1.max(self.disk.1)
    }

    /// The limits of a get whose answer leaves bodies out: what is read of memory is bounded, not
    /// what is sent, and an answer of few messages would cost more than they do.
    #[must_use]
    pub fn without_bodies(self) -> Self {
        let (bytes, messages) = self.memory;
        let memory = (bytes.max(PROJECTED_BYTES), messages.max(PROJECTED_MESSAGES));
        Self { memory, ..self }
    }
}

/// Light queues that there may be in any case.
const LIGHTS_MAX: u64 = 1_000_000;

impl Tuned {
    fn read(from: &Reader<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            get: GetConfig::read(from)?,
            levels: DiskLevels::read(from)?,
            body_max: from.int("maxMessageSize", 4 << 20, (1, FILE_MAX - 131_072))?,
            flush_interval_ms: from.int("flushIntervalCommitLog", 500, (1, 60_000))?,
            checkpoint_interval_ms: from.int(
                "flushConsumeQueueThoroughInterval",
                60_000,
                (10, 3_600_000),
            )?,
            lights_max: {
                let has_quota = from.bool("enableLmqQuota", false)?;
                let quota = from.int("maxLmqConsumeQueueNum", 20_000, (0, LIGHTS_MAX))?;
                usize::try_from(if has_quota { quota } else { LIGHTS_MAX }).unwrap_or(usize::MAX)
            },
        })
    }
}

impl GetConfig {
    fn read(from: &Reader<'_>) -> Result<Self, StoreError> {
        let size = |name, default| from.int(name, default, (1, FILE_MAX));
        Ok(Self {
            filter_bytes: size("maxFilterMessageSize", 16_000)?,
            memory: (
                size("maxTransferBytesOnMessageInMemory", 262_144)?,
                size("maxTransferCountOnMessageInMemory", 32)?,
            ),
            disk: (
                size("maxTransferBytesOnMessageInDisk", 65_536)?,
                size("maxTransferCountOnMessageInDisk", 8)?,
            ),
            memory_percent: from.int("accessMessageInMemoryMaxRatio", 40, (0, 100))?,
        })
    }
}

impl DiskLevels {
    fn read(from: &Reader<'_>) -> Result<Self, StoreError> {
        let level = |name, default, low, high| {
            from.int(name, default, (0, 1_000))
                .map(|found| found.clamp(low, high))
        };
        Ok(Self {
            full: level("diskSpaceWarningLevelRatio", 90, 35, 90)?,
            clean: level("diskSpaceCleanForciblyRatio", 85, 30, 85)?,
            used: level("diskMaxUsedSpaceRatio", 75, 10, 95)?,
        })
    }
}

fn delays(text: &str) -> Result<Vec<i64>, StoreError> {
    text.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| {
            let unit = match word.chars().last() {
                Some('s') => 1_000,
                Some('m') => 60_000,
                Some('h') => 3_600_000,
                Some('d') => 86_400_000,
                _ => 0,
            };
            word.get(..word.len() - 1)
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse::<i64>().ok())
                .and_then(|number| number.checked_mul(unit))
                .filter(|delay| *delay > 0)
                .ok_or_else(|| {
                    StoreError::usage(format!(
                        "messageDelayLevel has {word:?}, must be a number followed by s, m, h or d"
                    ))
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{StoreConfig, Value};
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn config(more: &[(&str, Value)]) -> Result<StoreConfig, String> {
        let mut map = BTreeMap::from([(
            "storePathRootDir".to_owned(),
            Value::Text("/data/store".to_owned()),
        )]);
        for (name, value) in more {
            map.insert((*name).to_owned(), value.clone());
        }
        StoreConfig::read(&map).map_err(|error| error.text)
    }

    #[test]
    fn java_defaults() {
        let found = config(&[]).unwrap();
        assert_eq!(
            found.commit_log,
            vec![PathBuf::from("/data/store/commitlog")]
        );
        assert_eq!(found.commit_file_size, 1_073_741_824);
        assert_eq!(found.queue_file_size, 6_000_000);
        assert_eq!(found.delays.len(), 18);
        assert_eq!(found.delays[17], 7_200_000);
        assert!(!found.sync_flush);
    }

    #[test]
    fn text_and_numbers_are_read_strictly() {
        let text = |value: &str| Value::Text(value.to_owned());
        let found = config(&[
            ("mappedFileSizeConsumeQueue", text("2001")),
            ("flushDiskType", text("SYNC_FLUSH")),
            ("storePathCommitLog", text("/b, /a")),
            ("messageIndexEnable", text("false")),
            ("haListenPort", Value::Int(10912)),
        ])
        .unwrap();
        assert_eq!(found.queue_file_size, 2020);
        assert!(found.sync_flush && !found.index);
        assert_eq!(found.commit_log, [PathBuf::from("/a"), PathBuf::from("/b")]);
        for (name, value) in [
            ("mappedFileSizeCommitLog", text("1_0")),
            ("mappedFileSizeCommitLog", text("+4096")),
            ("mappedFileSizeCommitLog", Value::Int(-1)),
            ("messageIndexEnable", Value::Int(1)),
            ("flushDiskType", text("LATER")),
            ("messageDelayLevel", text("1s x")),
            ("storeType", text("defaultRocksDB")),
            ("enabledAppendPropCRC", Value::Bool(true)),
            ("storePathRootDir", text("")),
            ("noSuchKey", text("1")),
        ] {
            let refused = config(&[(name, value)]).unwrap_err();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
