"""The methods of the service: what serves each, and with which others it shares a limit."""

from __future__ import annotations

import enum

SERVICE = "apache.rocketmq.v2.MessagingService"
TELEMETRY = f"/{SERVICE}/Telemetry"


class Status(enum.IntEnum):
    """Statuses of gRPC itself."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Family(enum.Enum):
    """Calls that share a limit, as they share a pool of threads in Java."""

    ROUTE = "route"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    CLIENT = "client"
    TRANSACTION = "transaction"


FAMILIES = {
    "QueryRoute": Family.ROUTE,
    "QueryAssignment": Family.ROUTE,
    "SendMessage": Family.PRODUCER,
    "RecallMessage": Family.PRODUCER,
    "AckMessage": Family.CONSUMER,
    "ChangeInvisibleDuration": Family.CONSUMER,
    "ForwardMessageToDeadLetterQueue": Family.CONSUMER,
    "Heartbeat": Family.CLIENT,
    "NotifyClientTermination": Family.CLIENT,
    "SyncLiteSubscription": Family.CLIENT,
    "EndTransaction": Family.TRANSACTION,
}
"""Methods with one answer that are served."""
OFFSETS = {
    "UpdateOffset": Family.CONSUMER,
    "GetOffset": Family.CONSUMER,
    "QueryOffset": Family.CONSUMER,
}
"""Methods with one answer that are served where `enableGrpcPull` says so."""
RECEIVE = "ReceiveMessage"
PULL = "PullMessage"
WAITING = frozenset({RECEIVE, PULL})
"""Their answers are streams. Those that wait are limited where those of all fronts wait."""


def method_of(path: str) -> str | None:
    """Return the method of the service that a path names."""
    service, slash, method = path.removeprefix("/").rpartition("/")
    return method if slash and service == SERVICE else None


def unimplemented(path: str) -> str:
    """Return the text for a method that nobody serves."""
    return f"Method {path.removeprefix('/')[:255]} is unimplemented"


def telemetry_status(code: int) -> Status:
    """Return the status by which a telemetry stream ends that cannot go on."""
    return Status.INVALID_ARGUMENT if 40000 <= code < 50000 else Status.INTERNAL
