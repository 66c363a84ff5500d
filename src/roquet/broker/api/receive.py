"""Requests that read from a queue, and what they are answered with."""

from __future__ import annotations

import enum

import msgspec

from roquet.broker.api.refusal import Reason, Refusal


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are wanted, as the request itself says it."""

    expression: str | None
    """None and `*` take every message."""
    kind: str | None = None
    """`TAG` or `SQL92`; None means tags."""


class ReceiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for messages of one queue from an offset on.

    A struct of `msgspec`, as there is one for each read.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    messages_max: int
    """The settings of the store bound it further."""
    filter: Filter | None = None
    """None: as the members of the group have subscribed."""
    version: int = 0
    """Of the caller's subscription; an older one of the broker's is refused."""
    commit_offset: int | None = None
    """The group has consumed up to here; noted when the request arrives, if not negative."""
    wait_ms: int | None = None
    """How long to wait for a message when there is none; None: not at all."""
    is_lite: bool = False
    """Whether this is a lite pull, which a setting may turn off."""
    light: str = ""
    """A light topic of `topic`, of which its queue is read, whatever `queue_id` says."""


class SumsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for count and checksum of the messages in a range of a queue's offsets."""

    group: str
    topic: str
    queue_id: int
    begin: int
    end: int
    """The offset behind the last."""
    stored_begin_ms: int | None = None
    """Only what was stored then or later, Unix milliseconds."""
    stored_end_ms: int | None = None
    """Only what was stored before."""


class SumsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Count and checksum of a range, or of its beginning: both may be put together."""

    count: int
    xor: int
    first: int
    """The first offset that has a message; -1: none has."""
    last: int
    next: int
    """The offset to go on at."""


class ReceiveStatus(enum.Enum):
    """What the caller does next."""

    FOUND = "found"
    NOT_FOUND = "not found"
    """There is nothing behind the offset yet."""
    RETRY = "retry"
    """Nothing that is wanted was found so far: go on at the next offset."""
    OFFSET_MOVED = "offset moved"
    """The offset is none of the queue's, or was reset: go on at the next offset."""


class ReceiveResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a read found."""

    status: ReceiveStatus
    detail: str
    """What the store said: RocketMQ's name for it."""
    records: bytes
    """Records as they are stored, one behind the other."""
    next_offset: int
    min_offset: int
    max_offset: int
    next_broker_id: int
    """Which of the brokers of this name to ask next time: 0 is the master."""
    topic_sys_flag: int
    group_sys_flag: int


class Forbids(enum.Enum):
    """Who forbids a read."""

    BROKER = "broker"
    GROUP = "group"
    TOPIC = "topic"
    BROADCAST = "broadcast"
    """The group may not be consumed by broadcast."""
    SUBSCRIPTION = "subscription"
    """The group may not subscribe to the topic."""


class ReceiveForbidden(Refusal):
    """A read that somebody forbids: reason FORBIDDEN."""

    def __init__(self, by: Forbids, text: str) -> None:
        super().__init__(Reason.FORBIDDEN, text)
        self.by = by
