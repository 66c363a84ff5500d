"""How the core may settle popped messages: the rules of POP, asked and handed down as data.

The core takes plain acknowledgements and changes of the invisible time while their records alone
decide about them: nobody counts messages in flight. While checkpoints are in memory it reads
acknowledgements, and they are settled here. Everything else is for the handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.protocol import names
from roquet.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from roquet.base.clock import Clock
    from roquet.broker.pop.buffer.service import PopBuffer
    from roquet.broker.pop.receive.in_flight import PopInFlight
    from roquet.broker.state import BrokerState, Identity
    from roquet.remoting.connections.popped import MergeHere
    from roquet.store.store import Durability
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.topics import TopicTable


SETTLES = (
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)
"""Nothing of its connection overtakes one of these while the core takes some of them."""


class Wheel(Protocol):
    """Knows what the timer wheel takes."""

    def limits(self) -> tuple[int, int] | None:
        """Return its longest time and its step, ms, while these alone decide."""
        ...


class Popping(NamedTuple):
    """What the core has to know."""

    broker_name: str
    revive_topic: str
    revive_queues: int
    """Receipt handles may name queues below this."""
    delay_max_ms: int
    precision_ms: int
    merges: bool
    """Whether checkpoints are in memory, or may enter it."""
    pops: bool
    """Whether plain pops are read there (`core_pops`)."""
    acks_async: bool
    """Whether acknowledgements wait for no flush and no slave, whatever sends do."""
    checkpoints_async: bool
    """The same for checkpoints."""
    deleted_ms: int
    """When a topic or a group was deleted last: what was popped until then is for the handlers
    where it matters whose it was, Unix milliseconds."""


class PopRows:
    """Says whether the core settles popped messages."""

    def __init__(
        self,
        *,
        identity: Identity,
        state: BrokerState,
        topics: TopicTable,
        revive_topic: str,
        wheel: Wheel,
        in_flight: PopInFlight,
        buffer: PopBuffer,
        deletions: Deletions,
        acks_async: Callable[[], bool],
        checkpoints_async: Callable[[], bool],
        durability: Durability,
        clock: Clock,
    ) -> None:
        """`acks_async`: an acknowledgement waits for no flush and no slave; so for checkpoints."""
        self._identity = identity
        self._state = state
        self._topics = topics
        self._revive_topic = revive_topic
        self._wheel = wheel
        self._in_flight = in_flight
        self._buffer = buffer
        self._deletions = deletions
        self._clock = clock
        self._acks_async = acks_async
        self._checkpoints_async = checkpoints_async
        self._durability = durability
        self._written: Popping | None = None

    def follow(self, durability: Durability) -> None:
        """Go by other settings from now on."""
        self._durability = durability

    def depends_on(self, topics: Collection[str]) -> bool:
        """Tell whether a change of these topics is one of the state."""
        return self._revive_topic in topics

    @property
    def is_stale(self) -> bool:
        """Whether the state is another than the one written last."""
        return self._written != self._now()

    def write(self, *, allowed: bool) -> Popping | None:
        """Return the state to write; None leaves everything to the handlers."""
        self._written = self._now()
        return self._written if allowed else None

    def merge(self, acks: MergeHere) -> int:
        """Settle acknowledgements in memory.

        Return how many requests that was, the rest is for the handlers.
        """
        key, now_ms = (*acks.of, self._identity.name), self._clock.now_ms()
        if acks.is_batch:
            return int(self._buffer.merge.ack(key, acks.offsets, now_ms))
        return self._buffer.merge.ack_each(key, acks.offsets, now_ms)

    def _now(self) -> Popping | None:
        state = self._state
        if state.is_slave or not self._in_flight.is_idle:
            return None
        revive = self._topics.get(self._revive_topic)
        limits = self._wheel.limits()
        if revive is None or limits is None or names.check_topic(self._revive_topic) is not None:
            return None
        queues = max(revive.read_queues, revive.write_queues)
        used, checkpoints_async = self._buffer.is_used, self._checkpoints_async()
        waits = self._durability.sync_flush or state.waits_for_slave
        return Popping(
            *(self._identity.name, self._revive_topic, queues, *limits),
            merges=used,
            pops=used or checkpoints_async or not waits,
            acks_async=self._acks_async(),
            checkpoints_async=checkpoints_async,
            deleted_ms=self._deletions.latest_ms(),
        )
