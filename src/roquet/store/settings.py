"""Settings of the message store, under the names of Java's MessageStoreConfig."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from roquet.base.config import setting, settings
from roquet.base.hours import hours, hours_fault

GIB = 1 << 30
FILE_MAX = 2**31 - 1
FILES = "default"
"""Java's name of a store that keeps consume queues and tables in files."""
_NO_OTHER_STORE = (
    "must be default; consume queues and tables are kept in files, and a store of RocksDB is"
    " neither read nor written"
)
LIGHT_QUEUES_MAX = 1_000_000
"""No store has more light queues."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """What the store is told. The core checks the same limits once more."""

    root: str = setting("storePathRootDir", "~/store", "Folder of everything a broker keeps.")
    commit_log: str | None = setting(
        "storePathCommitLog", None, "Folder of the commit log, or several, separated by commas."
    )
    commit_log_file_bytes: int = setting(
        "mappedFileSizeCommitLog", GIB, "A commit-log file.", unit="bytes", low=128, high=FILE_MAX
    )
    queue_file_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        "A consume-queue file.",
        unit="bytes",
        low=20,
        high=FILE_MAX,
    )
    store_type: str = setting(
        "storeType",
        FILES,
        "How queues and tables are kept: `default` is files.",
        check=lambda name: None if name == FILES else _NO_OTHER_STORE,
    )
    index: bool = setting("messageIndexEnable", True, "Whether messages can be found by key.")
    index_slots: int = setting(
        "maxHashSlotNum", 5_000_000, "Hash slots of an index file.", low=1, high=100_000_000
    )
    index_entries: int = setting(
        "maxIndexNum", 20_000_000, "Entries of an index file.", low=2, high=100_000_000
    )
    message_bytes_max: int = setting(
        "maxMessageSize",
        4 * 1024 * 1024,
        "Longest body.",
        unit="bytes",
        low=1,
        high=2**31 - 131_073,
        live=True,
    )
    flush: str = setting(
        "flushDiskType",
        "ASYNC_FLUSH",
        "Whether a send is answered before (ASYNC_FLUSH) or after it is durable (SYNC_FLUSH).",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
    )
    flush_interval_ms: int = setting(
        "flushIntervalCommitLog",
        500,
        "Between flushes with ASYNC_FLUSH.",
        unit="ms",
        low=1,
        high=60_000,
        live=True,
    )
    sync_flush_timeout_ms: int = setting(
        "syncFlushTimeout", 5000, "Longest wait with SYNC_FLUSH.", unit="ms", low=1, live=True
    )
    checkpoint_ms: int = setting(
        "flushConsumeQueueThoroughInterval",
        60_000,
        "Between checkpoints.",
        unit="ms",
        low=10,
        high=3_600_000,
        live=True,
    )
    check_crc: bool = setting("checkCRCOnRecover", True, "Whether recovery checks each body.")
    truncate_corrupt: bool = setting(
        "recoveryTruncateCorrupt", False, "Whether damage is cut off with all behind it."
    )
    delay_levels: str = setting(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "What the delay levels stand for.",
    )
    disk_full_percent: int = setting(
        "diskSpaceWarningLevelRatio",
        90,
        "Fill level above which nothing is written (35 to 90 count).",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    disk_clean_percent: int = setting(
        "diskSpaceCleanForciblyRatio",
        85,
        "Fill level above which the oldest files go, whatever their age (30 to 85 count).",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    disk_used_percent: int = setting(
        "diskMaxUsedSpaceRatio",
        75,
        "Fill level above which expired files go at once (10 to 95 count).",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    clean_forcibly: bool = setting(
        "cleanFileForciblyEnable", True, "Whether a full disk costs the oldest files.", live=True
    )
    reserved_hours: int = setting(
        "fileReservedTime", 72, "How long messages are kept.", unit="h", low=0, live=True
    )
    delete_when: str = setting(
        "deleteWhen", "04", "Hours of the day to delete in, by `;`.", check=hours_fault, live=True
    )
    delete_batch: int = setting(
        "deleteFileBatchMax", 10, "Files deleted in one round.", low=1, high=10_000, live=True
    )
    delete_interval_ms: int = setting(
        "deleteCommitLogFilesInterval",
        100,
        "Pause between two files that are deleted.",
        unit="ms",
        low=0,
        high=60_000,
        live=True,
    )
    redelete_interval_ms: int = setting(
        "redeleteHangedFileInterval",
        120_000,
        "Pause after a file that could not be deleted.",
        unit="ms",
        low=1000,
        live=True,
    )
    warm_files: bool = setting(
        "warmMapedFileEnable",
        False,
        "Whether new commit-log files are written full of zeros, so that no flush has to give"
        " blocks to them.",
    )
    clean_interval_ms: int = setting(
        "cleanResourceInterval", 10_000, "Between looks for old files.", unit="ms", low=10
    )
    memory_percent: int | None = setting(
        "accessMessageInMemoryMaxRatio",
        None,
        "Share of memory in which recent messages are thought to be; 40, and 30 on a slave.",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    offsets_interval_ms: int = setting(
        "flushDelayOffsetInterval",
        10_000,
        "Between saves of the delay offsets.",
        unit="ms",
        low=10,
    )

    filter_bytes: int = setting(
        "maxFilterMessageSize",
        16_000,
        "Bytes of queue units (20 each) that one pull looks at, unless it may have more messages.",
        unit="bytes",
        low=1,
        high=FILE_MAX,
        live=True,
    )
    memory_bytes: int = setting(
        "maxTransferBytesOnMessageInMemory",
        262_144,
        "Bytes of one answer to a pull of recent messages, except for a single longer message."
        " Never more than 16,711,680: clients take no longer frame.",
        unit="bytes",
        low=1,
        high=FILE_MAX,
        live=True,
    )
    memory_count: int = setting(
        "maxTransferCountOnMessageInMemory",
        32,
        "Messages of such an answer.",
        low=1,
        high=1_000_000,
        live=True,
    )
    disk_bytes: int = setting(
        "maxTransferBytesOnMessageInDisk",
        65_536,
        "As for recent messages, where the answer begins with older ones.",
        unit="bytes",
        low=1,
        high=FILE_MAX,
        live=True,
    )
    disk_count: int = setting(
        "maxTransferCountOnMessageInDisk",
        8,
        "Messages of such an answer.",
        low=1,
        high=1_000_000,
        live=True,
    )
    light_queues: bool = setting(
        "enableLmq", False, "Whether there are light queues (LMQ); `enableMultiDispatch` as well."
    )
    multi_dispatch: bool = setting(
        "enableMultiDispatch",
        False,
        "Whether messages are put into the light queues that their property INNER_MULTI_DISPATCH"
        " names; only with `enableLmq`.",
    )
    light_quota: bool = setting(
        "enableLmqQuota",
        False,
        "Whether `maxLmqConsumeQueueNum` bounds the light queues; 1,000,000 does in any case.",
        live=True,
    )
    light_queues_max: int = setting(
        "maxLmqConsumeQueueNum",
        20_000,
        "With `enableLmqQuota`, a message that would need one more light queue is refused.",
        low=0,
        high=LIGHT_QUEUES_MAX,
        live=True,
    )

    @property
    def has_light_queues(self) -> bool:
        """Whether messages are put into light queues."""
        return self.light_queues and self.multi_dispatch

    @property
    def folder(self) -> Path:
        """The store's folder, a leading `~` resolved."""
        return Path(self.root).expanduser()

    @property
    def config_folder(self) -> Path:
        """Where the metadata files are."""
        return self.folder / "config"

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of the day in which expired files go."""
        return hours(self.delete_when)

    @property
    def sync_flush(self) -> bool:
        """Whether an append returns only after its bytes are durable."""
        return self.flush == "SYNC_FLUSH"

    def native(self) -> dict[str, str | int | bool]:
        """Return what the core is opened with."""
        values: dict[str, str | int | bool] = {}
        for path, about, _ in settings(type(self)):
            value = getattr(self, path[0])
            if value is not None:
                values[about.java] = value
        values["storePathRootDir"] = str(self.folder)
        return values
