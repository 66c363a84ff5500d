"""What the driver asks a cluster: topics, queues, their bounds, offsets by time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from roquet._native import decode_records
from roquet.admin import Admin
from roquet.admin.calls import Unreadable
from roquet.base.clock import SystemClock, pause
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.topic import can_read
from roquet.protocol import names
from roquet.protocol.codes import ResponseCode
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.tls import client_tls, environment_options
from roquet.spark.account import account
from roquet.spark.cluster.asking import Questions, first_of, run, run_all
from roquet.spark.offsets import Bounds, QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from roquet.admin import Pulled
    from roquet.model.route import BrokerData, TopicRoute
    from roquet.protocol.bodies.clients import Connection
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import TopicOffset
    from roquet.protocol.command import Command
    from roquet.spark.options import Topics, Wire

SAMPLE = 32
"""Messages whose sizes are looked at."""
WINDOW = 64
"""Requests to one address that wait for their answers: about 100 KiB with tables of bounds."""

_LATER = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


class Posted(NamedTuple):
    """Requests that were sent over a connection, by the numbers of their answers."""

    connection: BlockingConnection
    numbers: list[int]


class Connections:
    """Blocking connections kept by address; a call that fails is tried again on a new one."""

    def __init__(self, wire: Wire, wait: Callable[[float], None] = pause) -> None:
        """Connect to nothing yet."""
        self._wire = wire
        self._wait = wait
        self._open: dict[str, BlockingConnection] = {}
        self._failed: set[str] = set()
        # From the environment of each process: options are shown in Spark's pages and plans.
        self._tls = client_tls(environment_options(os.environ), SystemClock())
        credentials = account(wire)
        self._sign = None if credentials is None else credentials.sign

    def close(self) -> None:
        """Close all."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def call(self, addresses: Iterable[str], command: Command) -> Command:
        """Ask the addresses in turn until one answers; only for requests that may be repeated.

        A broker that is busy, starting or stopping is asked again. One that has failed is asked
        last from then on, or a dead host would cost each request the time of a vain connection.

        Raises Unreachable when none does in all tries.
        """
        candidates = tuple(addresses)
        errors: dict[str, str] = {}
        busy: Command | None = None
        for attempt in range(1 + self._wire.retries):
            if attempt:
                self._wait(self._wire.retry_pause_s)
            for address in sorted(candidates, key=self._failed.__contains__):
                try:
                    answer = self._connection(address).call(command, self._wire.timeout_s)
                    if answer.code not in _LATER:
                        self._failed.discard(address)
                        return answer
                    busy = answer
                except (Unreachable, OutcomeUnknown) as error:
                    self._note(address)
                    errors[address] = str(error)
        if busy is not None:
            return busy
        raise Unreachable("; ".join(errors.values()) or "there is no address to ask")

    def drop_stale(self) -> None:
        """Close connections that the other side has closed, or that have an answer left over."""
        for address, connection in list(self._open.items()):
            if connection.has_input():
                self._drop(address)

    def forgive(self) -> None:
        """Ask masters first again, also those that have failed."""
        self._failed.clear()

    def post(self, addresses: Iterable[str], commands: Sequence[Command]) -> Posted | None:
        """Send requests to the address that `call` would ask first, and do not wait.

        Their answers have to be taken before others are sent there. None when that failed.
        """
        address = min(addresses, key=self._failed.__contains__)
        try:
            connection = self._connection(address)
            return Posted(connection, connection.post(commands, self._wire.timeout_s))
        except (Unreachable, OutcomeUnknown):
            self._note(address)
            return None

    def take(self, posted: Posted) -> list[Command]:
        """Wait for the answers to what was posted, in that order; none of them when that failed."""
        try:
            return posted.connection.take(posted.numbers, self._wire.timeout_s)
        except OutcomeUnknown:
            self._note(posted.connection.address)
            return []

    def call_all(self, wanted: Sequence[tuple[Sequence[str], Command]]) -> list[Command]:
        """Ask many at once, each at one of its addresses; return the answers in that order.

        All addresses work at the same time, each on up to `WINDOW` requests. What is not answered
        like this is asked once more by itself, with all tries. Raises Unreachable.
        """
        waiting: dict[str, list[int]] = {}
        for at, (addresses, _) in enumerate(wanted):
            for address in sorted(addresses, key=self._failed.__contains__)[:1]:
                waiting.setdefault(address, []).append(at)
        found: dict[int, Command] = {}
        while waiting:
            posted: list[tuple[str, list[int], list[int]]] = []
            for address, places in waiting.items():
                with self._noted(address):
                    part = [wanted[at][1] for at in places[:WINDOW]]
                    numbers = self._connection(address).post(part, self._wire.timeout_s)
                    posted.append((address, places, numbers))
            waiting = {}
            for address, places, numbers in posted:
                with self._noted(address):
                    taken = self._connection(address).take(numbers, self._wire.timeout_s)
                    found.update(zip(places, taken, strict=False))
                    if places[WINDOW:]:
                        waiting[address] = places[WINDOW:]
        return [
            answer
            if (answer := found.get(at)) is not None and answer.code not in _LATER
            else self.call(addresses, command)
            for at, (addresses, command) in enumerate(wanted)
        ]

    @contextlib.contextmanager
    def _noted(self, address: str) -> Generator[None]:
        """Note a failure of an address; whoever has asked goes on with another one."""
        try:
            yield
        except (Unreachable, OutcomeUnknown):
            self._note(address)

    def _note(self, address: str) -> None:
        """Ask others first from now on, and this one on a new connection."""
        self._failed.add(address)
        self._drop(address)

    def _connection(self, address: str) -> BlockingConnection:
        connection = self._open.get(address)
        if connection is None or not connection.is_open:
            within_s = min(3.0, self._wire.timeout_s)
            connection = BlockingConnection(
                address, connect_s=within_s, tls=self._tls, sign=self._sign
            )
            self._open[address] = connection
        return connection

    def _drop(self, address: str) -> None:
        with contextlib.suppress(KeyError):
            self._open.pop(address).close()


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


def addresses_of(broker: BrokerData) -> tuple[str, ...]:
    """Return the addresses of a broker, the master's first."""
    return tuple(broker.addresses[number] for number in sorted(broker.addresses))
