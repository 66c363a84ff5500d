"""What the driver asks a cluster: topics, queues, their bounds, offsets by time."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

from roquet._native import decode_records
from roquet.admin import Admin
from roquet.admin.calls import Unreadable
from roquet.base.errors import Refused, Unreachable, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.topic import can_read
from roquet.protocol import names
from roquet.protocol.codes import ResponseCode
from roquet.spark.cluster.addresses import addresses_of
from roquet.spark.cluster.asking import Questions, first_of, run, run_all
from roquet.spark.cluster.connections import Connections
from roquet.spark.offsets import Bounds, QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.admin import Pulled
    from roquet.model.route import TopicRoute
    from roquet.protocol.bodies.clients import Connection
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import TopicOffset
    from roquet.spark.options import Topics, Wire

SAMPLE = 32
"""Messages whose sizes are looked at."""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The queues of the topics that are read, and where they are."""

    bounds: Mapping[QueueKey, Bounds]
    addresses: Mapping[str, tuple[str, ...]]
    """Broker name -> addresses, the master first."""
    masters: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Broker name -> address of the master, where there is one."""
    stored: Mapping[QueueKey, int] = dataclasses.field(default_factory=dict["QueueKey", int])
    """When the last message of a queue was stored, Unix milliseconds; none of an empty queue."""
    absent: tuple[str, ...] = ()
    """What was named and is nowhere, a sentence each."""
    departed: frozenset[str] | None = frozenset()
    """Brokers that served the topics and left; None when the name server does not keep that."""


class Metadata:
    """Answers about a cluster, asked anew at each call."""

    def __init__(self, wire: Wire, connections: Connections | None = None) -> None:
        """Keep connections until `close`."""
        self._wire = wire
        self._connections = connections or Connections(wire)
        self._admin = _admin(wire.name_servers)

    @property
    def transport(self) -> Connections:
        """What it asks by."""
        return self._connections

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def view(self, topics: Topics, *, missing_ok: bool = False) -> View:
        """Return the readable queues with their bounds.

        A topic without a route is an error unless `missing_ok`. Raises UsageError, Refused,
        Unreachable.
        """
        # A slave has the bounds of some moments ago: a master that is back is better.
        self._connections.forgive()
        bounds: dict[QueueKey, Bounds] = {}
        stored: dict[QueueKey, int] = {}
        addresses: dict[str, tuple[str, ...]] = {}
        masters: dict[str, str] = {}
        absent: list[str] = []
        counts: list[tuple[str, str, int]] = []
        routes, departed = self._routes(topics, absent)
        for topic, route in routes:
            queues = {it.broker_name: it.read_queues for it in route.queues if can_read(it.perm)}
            for broker in sorted(route.brokers, key=lambda it: it.broker_name):
                if broker.addresses:
                    addresses[broker.broker_name] = addresses_of(broker)
                    counts.append((topic, broker.broker_name, queues.get(broker.broker_name, 0)))
                if broker.master is not None:
                    masters[broker.broker_name] = broker.master
        asked = (self._offsets(topic, addresses[broker]) for topic, broker, _ in counts)
        for (topic, broker_name, count), offsets in zip(
            counts, run_all(self._connections, asked), strict=True
        ):
            found = _bounds(offsets)
            stored |= _stored(offsets)
            for number in range(count):
                queue = QueueKey(topic, broker_name, number)
                bounds[queue] = found.get(queue, Bounds(0, 0))
        if topics.queues:
            gone = sorted(topics.queues - bounds.keys())
            absent += [f"assign: there is no queue {queue}" for queue in gone]
            bounds = {queue: it for queue, it in bounds.items() if queue in topics.queues}
        if absent and not missing_ok:
            raise UsageError(absent[0])
        return View(bounds, addresses, masters, stored, tuple(absent), departed)

    def confirmed(self, view: View, queues: Iterable[QueueKey]) -> View:
        """Return a view with what the masters themselves say of some of its queues.

        Raises Unreachable naming a broker whose master is away, Refused.
        """
        bounds, stored = dict(view.bounds), dict(view.stored)
        for topic, broker in sorted({(queue.topic, queue.broker) for queue in queues}):
            master = view.masters.get(broker)
            if master is None:
                raise Unreachable(
                    f"broker {broker} has no master now, and its slave has less than was read"
                )
            offsets = self.offsets(topic, (master,))
            for queue, it in _bounds(offsets).items():
                if queue in bounds:
                    bounds[queue] = it
            stored |= _stored(offsets)
        return dataclasses.replace(view, bounds=bounds, stored=stored)

    def stored_at(
        self, wanted: Mapping[QueueKey, int], view: View, group: str
    ) -> dict[QueueKey, int]:
        """Return when the messages at some offsets were stored, Unix milliseconds.

        Asks all brokers at once; a message that does not come back is left out. Raises Unreachable.
        """
        asked = (
            self._stored_at(queue, offset, view.addresses[queue.broker], group)
            for queue, offset in wanted.items()
        )
        found = zip(wanted, run_all(self._connections, asked), strict=True)
        return {queue: stored_ms for queue, stored_ms in found if stored_ms is not None}

    def offset_at(self, queue: QueueKey, timestamp_ms: int, addresses: tuple[str, ...]) -> int:
        """Return the offset of the first message stored at or after a time."""
        asked = self._at(addresses).topics.offset_at(
            _queue(queue), timestamp_ms, broker=first_of(addresses)
        )
        return run(self._connections, asked)

    def clusters(self) -> ClusterInfo:
        """Return the brokers and clusters that the name servers know."""
        return run(self._connections, self._admin.brokers.cluster())

    def runtime(self, address: str) -> Mapping[str, str]:
        """Return what a broker says of itself. Raises Refused, Unreachable."""
        return run(self._connections, self._admin.brokers.runtime(address))

    def topics(self, topics: Topics, *, system: bool = False) -> list[str]:
        """Return the names that are meant, of system topics only if `system` or by name."""
        if topics.names:
            return list(topics.names)
        if topics.queues:
            return sorted({queue.topic for queue in topics.queues})
        # Those too that only brokers have which are away: their routes say so.
        known = run(self._connections, self._admin.topics.names(left=True))
        if system:
            pattern = re.compile(".*" if topics.pattern is None else topics.pattern)
            return [topic for topic in known if pattern.fullmatch(topic)]
        own = run(self._connections, self._admin.topics.reserved())
        # Those of clusters and brokers have their names.
        named = {*own, *map(names.reply_topic, own)}
        return [topic for topic in known if topic not in named and topics.matches(topic)]

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused, TOPIC_NOT_EXIST when it is nowhere."""
        found = run(self._connections, self._admin.topics.presence(topic))
        if found.route is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, found.remark)
        return found.route

    def offsets(self, topic: str, addresses: tuple[str, ...]) -> Mapping[MessageQueue, TopicOffset]:
        """Return the bounds of a topic's queues on one broker."""
        return run(self._connections, self._offsets(topic, addresses))

    def group_offsets(self, addresses: tuple[str, ...]) -> Mapping[str, Mapping[int, int]]:
        """Return what groups have committed on one broker: `topic@group` -> queue -> offset."""
        asked = self._at(addresses).groups.committed(first_of(addresses))
        return run(self._connections, asked)

    def connections(self, group: str, addresses: tuple[str, ...]) -> tuple[Connection, ...]:
        """Return the members of a consumer group that one broker knows; none when it is not on."""
        try:
            asked = self._at(addresses).groups.members(group, first_of(addresses))
            return run(self._connections, asked)
        except Refused:
            return ()

    def running(
        self, group: str, client_id: str, addresses: tuple[str, ...]
    ) -> Mapping[MessageQueue, Mapping[str, Any]]:
        """Return what a member says of its queues; none when it does not answer."""
        try:
            asked = self._at(addresses).groups.running_info(
                group, client_id, broker=first_of(addresses)
            )
            return run(self._connections, asked).queues
        except (Refused, Unreadable):
            # Brokers pass on unread what a client of any make says.
            return {}

    def mean_size(
        self, queue: QueueKey, offset: int, addresses: tuple[str, ...], group: str
    ) -> float | None:
        """Return the mean stored bytes of some messages from an offset on; None without any."""
        asked = self._pull(queue, offset, SAMPLE, addresses, group)
        try:
            found = run(self._connections, asked)
        except Refused:
            return None
        count = found.next_offset - offset
        return len(found.records) / count if count > 0 else None

    # --- inside ------------------------------------------------------------------------------

    def _routes(
        self, topics: Topics, absent: list[str]
    ) -> tuple[list[tuple[str, TopicRoute]], frozenset[str] | None]:
        """Return topics that are there with their routes, and the brokers that left them.

        Notes other topics in `absent`.
        """
        found: list[tuple[str, TopicRoute]] = []
        left: set[str] = set()
        is_kept = True
        known = self.topics(topics)
        asked = map(self._admin.topics.presence, known)
        for topic, it in zip(known, run_all(self._connections, asked), strict=True):
            is_kept = is_kept and it.departed is not None
            left.update(it.departed or ())
            if it.route is not None:
                found.append((topic, it.route))
            elif topics.pattern is None and not it.departed:
                absent.append(f"topic {topic} does not exist: {it.remark}")
        return found, frozenset(left) if is_kept else None

    def _at(self, addresses: tuple[str, ...]) -> Admin:
        """Return administration in which one broker answers at any of its addresses."""
        return _admin(self._wire.name_servers, addresses)

    async def _offsets(
        self, topic: str, addresses: tuple[str, ...]
    ) -> Mapping[MessageQueue, TopicOffset]:
        return await self._at(addresses).topics.offsets_on(topic, first_of(addresses))

    async def _pull(
        self, queue: QueueKey, offset: int, count: int, addresses: tuple[str, ...], group: str
    ) -> Pulled:
        return await self._at(addresses).messages.pull(
            _queue(queue), offset, count, broker=first_of(addresses), group=group
        )

    async def _stored_at(
        self, queue: QueueKey, offset: int, addresses: tuple[str, ...], group: str
    ) -> int | None:
        """Return when a message was stored; None when it does not come back."""
        try:
            pulled = await self._pull(queue, offset, 1, addresses, group)
        except Refused:
            return None
        return _stored_ms(pulled.records, offset)


@functools.lru_cache(maxsize=1024)
def _admin(name_servers: tuple[str, ...], broker: tuple[str, ...] = ()) -> Admin:
    """Make administration; it keeps nothing, and is made anew for each queue otherwise."""
    return Admin(Questions(name_servers, broker))


def _queue(queue: QueueKey) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker, queue.queue_id)


def _stored_ms(body: bytes, offset: int) -> int | None:
    """Return when the message at an offset was stored; None when it is not the first of `body`."""
    try:
        records = decode_records(body, check_crc=False)
    except ValueError as error:
        raise Unreachable(f"the answer to a pull cannot be read: {error}") from error
    return next((record[9] for record in records if record[4] == offset), None)


def _stored(offsets: Mapping[MessageQueue, TopicOffset]) -> dict[QueueKey, int]:
    return {
        QueueKey(queue.topic, queue.broker_name, queue.queue_id): it.last_update
        for queue, it in offsets.items()
        if it.last_update > 0
    }


def _bounds(offsets: Mapping[MessageQueue, TopicOffset]) -> dict[QueueKey, Bounds]:
    return {
        QueueKey(queue.topic, queue.broker_name, queue.queue_id): Bounds(
            max(0, it.min_offset), max(0, it.min_offset, it.max_offset)
        )
        for queue, it in offsets.items()
    }
