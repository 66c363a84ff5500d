"""POP consumption: what clients ask for, and what they get, light topics included.

Times are milliseconds; points in time are Unix milliseconds of the broker's clock.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    check_waiting: Callable[[], None] | None = None
    """Raises Refusal once the caller may no longer have an answer that it waited for."""


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
    check_waiting: Callable[[], None] | None = None
    """Raises Refusal once the caller may no longer have an answer that it waited for."""


# --- light topics --------------------------------------------------------------------------------


class Action(enum.Enum):
    """How a subscription changes."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    """The subscription is these light topics and no others; it is renewed by that."""
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class StartKind(enum.Enum):
    """What the number of a start means."""

    POLICY = "POLICY"
    """0 where the group is, 1 the first message, 2 behind the last."""
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    """So many before where the group is."""
    TIMESTAMP = "TIMESTAMP"
    """Has no effect, as with RocketMQ 5.5.0."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group begins in the light topics that a client adds."""

    kind: StartKind
    value: int


class LightSubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one client's subscription."""

    action: Action
    client_id: str
    group: str
    topic: str
    """The parent."""
    names: Sequence[str]
    start: Start | None = None


class LightPopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Take messages of the light topics that a client subscribes to."""

    client_id: str
    group: str
    topic: str
    max_messages: int
    invisible_ms: int
    poll_ms: int
    born_ms: int
    attempt_id: str | None = None
    may_read: Callable[[str], bool] | None = None
    """As for a pop of a topic."""
    check_waiting: Callable[[], None] | None = None
    """Raises Refusal once the caller may no longer have an answer that it waited for."""


class LightPopResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in flight, of several light topics."""

    pop_time_ms: int
    records: bytes
    messages: int
    counts: Sequence[int]
    """How often each was delivered before."""


class LightAckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """End the flight of a message of a light topic."""

    topic: str
    name: str
    group: str
    queue_id: int
    offset: int
    handle: str


class LightInvisibleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Have a message of a light topic come back at another time."""

    topic: str
    name: str
    group: str
    queue_id: int
    offset: int
    handle: str
    invisible_ms: int
    is_suspended: bool
    """The whole light topic waits, and the delivery does not count as a failed attempt."""


class LightInvisible(msgspec.Struct, frozen=True, kw_only=True):
    """What the new receipt handle is made of."""

    pop_time_ms: int
    invisible_ms: int
    revive_queue: int


class BrokerLightInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a broker."""

    queues_max: int
    queues: int
    subscriptions: int
    orders: int
    queue_tables: int
    offsets: int
    clients: int
    parents: Mapping[str, int]
    """Parent topic -> minutes that an idle light topic stays."""
    groups: Mapping[str, Sequence[str]]


class ParentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A parent topic."""

    topic: str
    minutes: int
    groups: Sequence[str] | None
    queues: int
    """Light queues of the broker."""
    light_topics: int


class LightTopicInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A light topic."""

    subscribers: Sequence[tuple[str, str]]
    """(client id, group); a group that has all light topics is there once, with `*`."""
    min_offset: int
    max_offset: int
    newest_ms: int
    is_here: bool
    """Whether this broker is the one that it belongs to."""


class LightClientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A client's subscription."""

    asked_ms: int
    count: int
    """-1 when it has none."""
    queues: Sequence[str] | None


class LightLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in a light topic."""

    name: str
    lag: int
    oldest_ms: int
    """When the first message that is not consumed was stored."""


class LightGroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind."""

    topic: str
    total: int
    oldest_ms: int
    by_lag: Sequence[LightLag] = ()
    by_age: Sequence[LightLag] = ()
    offsets: tuple[int, int, int] | None = None
    """Of one light topic: the broker's end, the group's offset, when the message before it was
    stored."""
