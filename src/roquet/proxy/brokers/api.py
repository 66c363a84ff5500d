"""What the front asks of brokers. Its rules are the same wherever these are.

Every call may raise Refusal, StoreFault and Rejected; a broker is named by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.broker.api.refusal import Reason, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from roquet.acl.rights import RequestGuard
    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.offsets import (
        CommitRequest,
        CommitResult,
        CommittedRequest,
        OffsetByTimeRequest,
        QueueRequest,
    )
    from roquet.broker.api.pop import (
        ChangeInvisibleRequest,
        LightAckRequest,
        LightInvisible,
        LightInvisibleRequest,
        LightPopRequest,
        LightSubscribe,
        PopAckRequest,
        PopRequest,
    )
    from roquet.broker.api.receive import ReceiveRequest, ReceiveStatus
    from roquet.broker.api.send import (
        RecallRequest,
        SendBackRequest,
        SendBatchRequest,
        SendRequest,
        SendResult,
    )
    from roquet.broker.api.transactions import EndTransactionRequest
    from roquet.broker.clients.registry import Client
    from roquet.broker.pop.receive.polls import Waiting
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.bodies.clients import HeartbeatData
    from roquet.protocol.pop.handle import ReceiptHandle
    from roquet.remoting.router import Peer
    from roquet.service.metrics import Metrics
    from roquet.store.records import Record


class Place(NamedTuple):
    """The queues that a topic has on one broker."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int


class Topic(NamedTuple):
    """A topic."""

    name: str
    kind: str
    """The type of messages that it is for."""
    places: tuple[Place, ...]
    """In order of the brokers' names."""


class Found(NamedTuple):
    """A message that was taken."""

    record: Record
    handle: str
    """The receipt handle, with the place in the log behind it."""
    light: str = ""
    """The lite topic that it is of, if any."""


class Packed(NamedTuple):
    """What a receive is answered with, made without a look at each message."""

    parts: bytes
    """All parts of the answer, framed."""
    messages: list[tuple[str, str]]
    """(id, receipt handle) of each message; none was delivered before."""


class Source(Protocol):
    """Gives messages to one receive."""

    @property
    def wanted(self) -> PopRequest | LightPopRequest:
        """What the receive asks for."""
        ...

    def pack(self, takes: SubscriptionData, attempts_max: int) -> Packed | None:
        """Return a whole answer; None when `take` has to look, and nothing has changed then."""
        ...

    async def take(self, caller: Caller, now_ms: int) -> list[Found] | Packed:
        """Return what is there, perhaps packed as `pack` has it. Raises Refusal and Rejected."""
        ...

    async def wait(self, peer: Peer) -> Waiting:
        """Return HELD when it is time to look again."""
        ...


class Subscriber(NamedTuple):
    """A client of light topics."""

    who: int | str
    """For whose share of a broker its light topics count where there are no accounts."""
    lost: Callable[[str], None]
    """Tells it that another client of its group took a light topic from it."""
    is_member: bool
    """Whether it has shown the settings of a consumer of the group; others are told nothing."""


HALF_INDEXED_S = (0.0, 0.2)
"""Before each look for a half message in the index of a broker, which follows its log."""


class HalfPlace(NamedTuple):
    """Where a half message is."""

    physical_offset: int
    half_offset: int
    broker: str
    """Empty in an id of an earlier release: that broker was alone."""


class Pulled(NamedTuple):
    """What a read of one queue found."""

    status: ReceiveStatus
    records: Sequence[Record]
    next_offset: int
    """Where to read on."""
    min_offset: int
    max_offset: int


class QueueBrokers(Protocol):
    """Single queues on one broker or many. Every call may raise Refusal and Rejected."""

    async def pull(self, broker: str, request: ReceiveRequest, caller: Caller) -> Pulled:
        """Read from a queue, waiting as long as the request says; a cancelled read waits no more.

        Whether the caller may still read after a wait is for the front to ask.
        """
        ...

    async def commit(self, broker: str, request: CommitRequest, caller: Caller) -> CommitResult:
        """Note how far a group has consumed a queue."""
        ...

    async def committed(self, broker: str, request: CommittedRequest, caller: Caller) -> int | None:
        """Return where a group continues in a queue; None: it has never been there."""
        ...

    async def min_offset(self, broker: str, request: QueueRequest, caller: Caller) -> int:
        """Return the first offset of a queue."""
        ...

    async def max_offset(self, broker: str, request: QueueRequest, caller: Caller) -> int:
        """Return the offset that the next message of a queue will have."""
        ...

    async def by_time(self, broker: str, request: OffsetByTimeRequest, caller: Caller) -> int:
        """Return the offset for a store time."""
        ...


class Brokers(Protocol):
    """One broker or many, as the front sees them."""

    @property
    def name(self) -> str:
        """The name of the broker where there is one alone; empty in a cluster."""
        ...

    @property
    def clock(self) -> Clock:
        """What the time is."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Where figures are counted."""
        ...

    @property
    def guard(self) -> RequestGuard | None:
        """Knows whose signature is good; None where nobody needs an account."""
        ...

    @property
    def light(self) -> LightBrokers | None:
        """Who serves light topics; None where nobody does."""
        ...

    @property
    def queues(self) -> QueueBrokers:
        """Who serves single queues."""
        ...

    async def topic(self, name: str, caller: Caller) -> Topic:
        """Return a topic."""
        ...

    async def group(self, name: str, caller: Caller) -> SubscriptionGroupConfig:
        """Return a group, which may be made by that."""
        ...

    async def has(self, broker: str, topic: str) -> bool:
        """Tell whether messages of a topic may lie on a broker."""
        ...

    async def send(self, broker: str, request: SendRequest, caller: Caller) -> SendResult:
        """Store one message."""
        ...

    async def send_batch(
        self, broker: str, request: SendBatchRequest, caller: Caller
    ) -> SendResult:
        """Store several messages for one queue."""
        ...

    async def recall(self, request: RecallRequest, caller: Caller) -> str:
        """Take a message back that is not due yet; return its id."""
        ...

    async def end_transaction(
        self, broker: str, request: EndTransactionRequest, caller: Caller
    ) -> None:
        """Commit a half message or roll it back; `broker` is empty where an id names none."""
        ...

    async def find_half(self, topic: str, transaction: str, caller: Caller) -> HalfPlace | None:
        """Return where the half message of a transaction is that another proxy has begun."""
        ...

    def source(self, broker: str, wanted: PopRequest) -> Source:
        """Return what gives messages of a topic."""
        ...

    async def ack(self, broker: str, request: PopAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        ...

    async def change_invisible(
        self, broker: str, request: ChangeInvisibleRequest, caller: Caller
    ) -> ReceiptHandle:
        """Have a message come back at another time; return its handle from now on."""
        ...

    async def send_back(
        self, broker: str, topic: str, request: SendBackRequest, caller: Caller
    ) -> None:
        """Have a message of a topic delivered again later, or put among the dead letters."""
        ...

    async def register(self, data: HeartbeatData, client: Client, caller: Caller) -> None:
        """Put a client into its groups, or keep it there."""
        ...

    def left(self, peer: Peer) -> None:
        """Take a client out of its groups."""
        ...


class LightBrokers(Protocol):
    """Light topics on one broker or many."""

    async def subscribe(
        self, wanted: LightSubscribe, caller: Caller, subscriber: Subscriber
    ) -> None:
        """Change what a client subscribes to, wherever the parent has queues."""
        ...

    def source(self, broker: str, wanted: LightPopRequest) -> Source:
        """Return what gives messages of the light topics of a client."""
        ...

    async def ack(self, broker: str, request: LightAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        ...

    async def change_invisible(
        self, broker: str, request: LightInvisibleRequest, caller: Caller
    ) -> LightInvisible | None:
        """Have a message come back at another time; None when it was settled meanwhile."""
        ...

    def close(self, client: tuple[str, str], topics: Collection[str]) -> None:
        """Forget a client (id, group) that has gone, and what it had of these parents."""
        ...


def light_of(brokers: Brokers) -> LightBrokers:
    """Return who serves light topics. Raises Refusal where nobody does."""
    if brokers.light is None:
        raise Refusal(Reason.UNSUPPORTED, "light topics are not served here")
    return brokers.light
