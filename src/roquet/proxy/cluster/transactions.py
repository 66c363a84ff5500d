"""Producers of transactions, for whom brokers ask this proxy what became of half messages.

Brokers ask whoever has sent a heartbeat for the producer group, which is called like the topic. So
the proxy is in the groups of all topics for transactions that its clients send to.
"""

from __future__ import annotations

import collections
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from roquet.protocol import properties as props
from roquet.service.background import Tasks
from roquet.service.ratelog import RateLog
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from roquet.client.fronts import FrontClient
    from roquet.protocol.headers.client import CheckTransactionStateRequest
    from roquet.proxy.cluster.guard import Gate
    from roquet.remoting.router import Peer
    from roquet.store.records import Record

log = logging.getLogger(__name__)

KINDS = frozenset({"TRANSACTION", "MIXED"})
"""Types of topics that take half messages."""


@runtime_checkable
class Producer(Protocol):
    """A client that can be asked."""

    @property
    def is_open(self) -> bool:
        """Whether a question could arrive."""
        ...

    @property
    def access_key(self) -> str:
        """Its account; empty where nobody needs one."""
        ...

    @property
    def address(self) -> str:
        """`ip:port`."""
        ...

    def ask_about(self, half: Record, properties: dict[str, str], broker: str = "") -> None:
        """Ask what becomes of a half message; `broker` has it."""
        ...


class Producers:
    """Clients by the topics that they send half messages to."""

    def __init__(self) -> None:
        self._of_topic: dict[str, dict[int, Producer]] = {}
        self._topics: dict[int, frozenset[str]] = {}
        """By client."""
        self._guests: collections.Counter[str] = collections.Counter()
        """Ends under way, by topic."""
        self._client: FrontClient | None = None
        self._gate: Gate | None = None
        self._tasks = Tasks()
        self._turn = 0
        self._log: RateLog | None = None

    def use(self, client: FrontClient, gate: Gate) -> None:
        """Join and leave groups by this client from now on.

        `gate` says whose account may be shown a half message.
        """
        self._client = client
        self._gate = gate
        self._log = RateLog(log, client.clock)

    def put(self, peer: Peer, topics: Collection[str]) -> None:
        """Know what a client sends half messages to; topics that it has named before are gone."""
        assert isinstance(peer, Producer), "clients of the front can be asked"
        wanted, before = frozenset(topics), self._topics.get(peer.key, frozenset())
        for topic in before - wanted:
            self._drop(peer.key, topic)
        for topic in wanted:
            self._of_topic.setdefault(topic, {})[peer.key] = peer
            if self._client is not None:
                self._client.join(topic)
        if wanted:
            self._topics[peer.key] = wanted
        else:
            self._topics.pop(peer.key, None)

    def left(self, peer: Peer) -> None:
        """Forget a client."""
        for topic in self._topics.pop(peer.key, frozenset()):
            self._drop(peer.key, topic)

    async def stop(self) -> None:
        """End what is under way."""
        await self._tasks.stop()

    def _drop(self, key: int, topic: str) -> None:
        members = self._of_topic.get(topic, {})
        members.pop(key, None)
        if not members:
            self._of_topic.pop(topic, None)
            self._tasks.spawn(self._leave(topic), "leave a producer group")

    @contextlib.asynccontextmanager
    async def member(self, topic: str, broker: str) -> AsyncGenerator[None]:
        """Be in the producer group of a topic at a broker for a block: others may end nothing.

        Raises Unreachable and OutcomeUnknown when the broker does not hear of it.

        The proxy leaves again where no client of it sends to the topic: nobody could be asked.
        """
        assert self._client is not None, "it is given before the first call"
        self._guests[topic] += 1
        try:
            await self._client.joined(topic, broker)
            yield
        finally:
            self._guests[topic] -= 1
            if not self._guests[topic]:
                del self._guests[topic]
                if topic not in self._of_topic:
                    self._tasks.spawn(self._leave(topic), "leave a producer group")

    async def _leave(self, topic: str) -> None:
        assert self._client is not None, "it is given before the first call"
        if not self._is_needed(topic):
            await self._client.leave(topic)
            if self._is_needed(topic):
                self._client.join(topic)

    def _is_needed(self, topic: str) -> bool:
        return topic in self._of_topic or topic in self._guests

    def asked(self, broker: str, header: CheckTransactionStateRequest, body: bytes) -> None:
        """Put a broker's question to a producer of the topic, each in its turn."""
        try:
            (half,) = read_records(body, check_crc=False)
        except ValueError as error:
            self._warn(broker, f"{broker} asks about a message that cannot be read: {error}")
            return
        found = props.read(half.properties)
        topic = found.get(props.PRODUCER_GROUP, "")
        found.setdefault(props.REAL_TOPIC, half.topic)
        producers = self._of_topic.get(topic, {}).values()
        present = [each for each in producers if self._may_be_asked(each, found[props.REAL_TOPIC])]
        if not present:
            self._warn(topic, f"{broker} asks about a half message of {topic}: nobody sends to it")
            return
        self._turn += 1
        half = half._replace(
            physical_offset=header.commit_log_offset, queue_offset=header.tran_state_table_offset
        )
        present[self._turn % len(present)].ask_about(half, found, broker)

    def _may_be_asked(self, producer: Producer, topic: str) -> bool:
        """Tell whether a producer can be asked, and may see the message, which is in the question.

        The account may have lost its right since the producer came.
        """
        assert self._gate is not None, "it is given before the first call"
        is_allowed = self._gate.may_publish(producer.access_key, producer.address, topic)
        return producer.is_open and is_allowed

    def _warn(self, key: str, text: str) -> None:
        if self._log is not None:
            self._log.warning(key[:255], text[:512])
