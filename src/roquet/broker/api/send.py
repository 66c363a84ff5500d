"""Requests that bring messages, and what became of them."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages go, and what to do when there is no such topic.

    Structs of `msgspec` here: there is one of each for every message.
    """

    topic: str
    queue_id: int = -1
    """Negative: the broker chooses."""
    template: str = ""
    """The topic after which a missing one is made, where that is allowed."""
    template_queues: int = 0
    """How many queues it is to have; the template has the last word."""
    is_unit: bool = False
    """Whether a topic that is made gets the unit flag."""


class SendRequest(Target, frozen=True, kw_only=True):
    """One message."""

    body: bytes
    properties: dict[str, str]
    """The service may change it: it becomes the message's own."""
    producer_group: str = ""
    born_ms: int
    """When the producer made it, Unix milliseconds by the producer's clock."""
    flag: int = 0
    """The application's own number."""
    sys_flag: int = 0
    """Bits of `roquet.protocol.messages.sys_flag`: compressed, half message ..."""
    attempts: int | None = None
    """Number of failed delivery attempts, for a message in a retry topic; None counts as 0."""
    attempts_max: int | None = None
    """After how many attempts it is a dead letter; None: as the group is set."""


class SendBatchRequest(Target, frozen=True, kw_only=True):
    """Several messages for one queue, all of them stored or none."""

    messages: bytes
    """One behind the other, as `roquet.protocol.messages.batch` encodes them."""
    properties: dict[str, str]
    """Of the batch as a whole: `UNIQ_KEY`, `WAIT`."""
    producer_group: str = ""
    born_ms: int
    sys_flag: int = 0
    attempts: int | None = None


class SendStatus(enum.Enum):
    """How safe a stored message is; what is not stored is refused."""

    STORED = "stored"
    """As safe as the broker promises."""
    FLUSH_TIMEOUT = "flush timeout"
    """Not known to be on the disk within `syncFlushTimeout`."""
    REPLICA_TIMEOUT = "replica timeout"
    """Not known to be on as many slaves as are asked for."""
    NO_REPLICA = "no replica"
    """There is no slave to copy it."""


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are stored."""

    status: SendStatus
    message_ids: Sequence[str]
    """Offset ids: the store's address and the place in the log, one for each message."""
    queue_id: int
    queue_offset: int
    """Of the first message."""
    transaction_id: str | None = None
    recall_handle: str | None = None
    """By which a timer message can be recalled."""


class SequencedRequest(SendBatchRequest, frozen=True, kw_only=True):
    """Messages that follow each other in the numbers of one producer in one queue."""

    producer: str
    epoch: int
    first: int
    """Number of the first message; the first of an epoch is 0."""
    chain: bytes
    """The chain of digests in front of it (`roquet.protocol.messages.sequences`)."""


class SequencedResult(SendResult, frozen=True, kw_only=True):
    """All messages of the request are stored, by it or before."""

    next: int
    """Number that the queue takes next."""
    chain: bytes
    """The chain in front of it.

    Of messages that lie far behind it the broker does not know any more which they were; whoever
    sends them knows the chain that they lead to, and has to compare.
    """
    appended: int
    """Messages that this request has stored."""


class SequenceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks how far a producer has come in a queue."""

    topic: str
    queue_id: int
    producer: str


class SequenceState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a producer has come in a queue."""

    epoch: int
    """-1 when nothing is known of it."""
    next: int
    chain: bytes
    since_ms: int
    """Nothing that was stored from then on is forgotten; Unix milliseconds."""


class RecallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Take back a timer message that is not due yet."""

    topic: str
    handle: str
    """What the send answered as `recall_handle`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendBackRequest:
    """Asks for another delivery of a message, later, or to put it aside."""

    group: str
    physical_offset: int
    """Where the message is in the log."""
    delay_level: int = 0
    """0: by the number of attempts so far; negative: put it among the dead letters at once."""
    attempts_max: int | None = None
    """After how many attempts it is a dead letter; None: as the group is set."""
    is_unit: bool = False
    """Whether a retry topic that is made gets the unit flag."""
