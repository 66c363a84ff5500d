"""POP consumption: what clients ask for, and what they get.

Times are milliseconds; points in time are Unix milliseconds of the broker's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.protocol.pop.handle import ReceiptHandle, Taken

MESSAGES_MAX = 32
"""Messages of one pop."""


class PopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Take messages and make them invisible to the rest of the group for a while."""

    topic: str
    group: str
    queue_id: int
    """Below 0: all queues."""
    max_messages: int
    invisible_ms: int
    poll_ms: int
    """How long the request may wait for a message."""
    born_ms: int
    """When the client sent it."""
    from_first: bool = True
    """A group without an offset begins with the first message, else with the last."""
    expression_type: str | None = None
    expression: str | None = None
    is_ordered: bool = False
    attempt_id: str | None = None
    """A client that asks again after a lost answer names the same attempt."""
    may_read: Callable[[str], bool] | None = None
    """Tells which topics the caller may read, for messages that lie in light queues and retry
    topics; None: all."""


class PopResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in flight."""

    pop_time_ms: int
    revive_queue: int
    rest: int
    """Messages that are left in the queues that were looked at."""
    taken: list[Taken]
    records: bytes
    """The messages as clients read them, one behind the other."""
    messages: int
    order_counts: Mapping[tuple[str, int, int | None], int] | None = None
    """Earlier deliveries of ordered messages: (retry flag, queue, offset or None) -> count."""
    advanced: bool = False
    """Whether messages that the filter does not take were left behind."""


class PopAckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """End the flight of one message."""

    topic: str
    """The topic that the message lies in, which may be a pop retry topic."""
    group: str
    queue_id: int
    offset: int
    handle: str


class PopBatchAck(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one checkpoint that are acknowledged together."""

    topic: str
    """The topic that the messages lie in."""
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    offsets: tuple[int, ...]


class ChangeInvisibleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Have one message come back at another time."""

    topic: str
    group: str
    queue_id: int
    offset: int
    handle: str
    invisible_ms: int
    """From now on."""
    is_suspended: bool = False
    """The redelivery does not count as a failed attempt."""
    may_read: Callable[[str], bool] | None = None
    """As for a pop."""


class ChangedInvisible(msgspec.Struct, frozen=True, kw_only=True):
    """What the new receipt handle of the message is made of."""

    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    handle: ReceiptHandle
    """The handle itself; the one before it is spent."""


class PeekRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Read what the group would get next, and change nothing."""

    topic: str
    group: str
    queue_id: int
    max_messages: int
    may_read: Callable[[str], bool] | None = None
    """As for a pop."""


class PeekResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that stay where they are."""

    rest: int
    records: bytes
    messages: int


class NotificationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Tell when there is something to pop."""

    topic: str
    group: str
    queue_id: int
    poll_ms: int
    born_ms: int
    is_ordered: bool = False
    attempt_id: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    may_read: Callable[[str], bool] | None = None
    """As for a pop."""
