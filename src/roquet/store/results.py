"""What the store answers: statuses with Java's numbers, and the message about to be stored."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, NamedTuple, Self

from roquet._native import StoreError
from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from roquet.store.records import Record


class StoreFault(RoquetError):  # noqa: N818  (it names a state)
    """The store cannot do it; `kind` is one of `corrupt disk_full io locked closed usage`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class PutStatus(enum.IntEnum):
    """Outcome of an append; numbers and names of Java's PutMessageStatus (spec: store §11.2)."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log, however durable."""
        return self <= PutStatus.SLAVE_NOT_AVAILABLE


class GetStatus(enum.IntEnum):
    """Outcome of a read by queue; numbers and names of Java's GetMessageStatus."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


@dataclasses.dataclass(slots=True, kw_only=True)
class Draft:
    """A message about to be stored. Hosts are 4 or 16 address bytes and the port as i32."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    accepted: bool = True
    """Whether it is the broker's own, or goes elsewhere now: it gets its light queues, however many
    there are. Who takes a message from a client says that it is not."""

    @classmethod
    def again(cls, record: Record, topic: str, queue_id: int, properties: dict[str, str]) -> Self:
        """Return a stored message to be stored once more, elsewhere and with these properties.

        All else is as it was: hosts, flags and the number of tries as well.
        """
        return cls(
            topic=topic,
            queue_id=queue_id,
            body=record.body,
            properties=properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
        )


NewMessage = tuple[str, int, bytes, bytes, int, int, int, bytes, bytes, int, int, bool]
"""A message as the core takes it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class BatchDraft:
    """Messages of one batch about to be stored: (flag, body, properties as stored) each."""

    topic: str
    queue_id: int
    elements: list[tuple[int, bytes, bytes]]
    sys_flag: int = 0
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    wait: bool = True


class PutResult(NamedTuple):
    """Where a message went, when `status.is_stored`; `why` tells a person about a failure."""

    status: PutStatus
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_time: int = 0
    why: str = ""


class BatchResult(NamedTuple):
    """Where the messages of a batch went: a physical offset each, queue offsets from the first."""

    status: PutStatus
    physical_offsets: list[int]
    size: int = 0
    """Bytes of all records together."""
    queue_offset: int = -1
    store_time: int = 0
    why: str = ""


class GetResult(NamedTuple):
    """Records read from a queue; offsets are queue offsets (spec: store §13)."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: int = 0
    records: bytes = b""
    suggest_slave: bool = False


class Found(NamedTuple):
    """Records found by key, and the time and physical offset up to which the index is."""

    records: list[bytes]
    index_time: int
    index_offset: int


class DiskUse(NamedTuple):
    """How full the disk of the commit log is, and the levels that count: all in per cent.

    The levels are those of the settings within Java's bounds.
    """

    percent: int
    full: int
    """Above it nothing is written."""
    clean: int
    """Above it old files go whatever their age."""
    expire: int
    """Above it expired files go at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """What a store had to pass over since its start, and the last case of each, for people."""

    reads: int
    """Messages that could not be read; one that is met twice counts twice."""
    conflicts: int
    """Records that their queue did not take."""
    last_read: str
    last_conflict: str


def fault(error: StoreError) -> StoreFault:
    """Return the core's error in our tree of errors."""
    kind, text = (*error.args, "", "")[:2]
    return StoreFault(str(kind), str(text or kind))


def failed_put(error: Exception) -> PutResult:
    """Return the outcome of an append that raised an error."""
    status, why = failed(error)
    return PutResult(status, why=why)


def failed(error: Exception) -> tuple[PutStatus, str]:
    """Return the status of an append that raised an error, and why."""
    if isinstance(error, StoreError):
        error = fault(error)
    if isinstance(error, StoreFault):
        if error.kind in {"disk_full", "closed", "io"}:
            return PutStatus.SERVICE_NOT_AVAILABLE, str(error)
        return PutStatus.UNKNOWN_ERROR, str(error)
    return PutStatus.MESSAGE_ILLEGAL, str(error)
