"""What the driver asks a cluster: topics, queues, their bounds, offsets by time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from roquet._native import decode_records
from roquet.acl.credentials import from_environment
from roquet.base.clock import SystemClock, pause
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.model.topic import can_read
from roquet.protocol import departed, names, sys_flag
from roquet.protocol.bodies.clients import ConsumerConnection
from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.protocol.bodies.routes import ClusterInfo, decode_route
from roquet.protocol.bodies.stats import RunningInfo, TopicStats
from roquet.protocol.bodies.topics import decode_topic_list
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.admin import (
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetTopicStatsInfoRequest,
)
from roquet.protocol.headers.message import PullMessageRequest, PullMessageResponse
from roquet.protocol.headers.namesrv import GetRouteInfoRequest
from roquet.protocol.headers.offset import SearchOffsetRequest, SearchOffsetResponse
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.tls import client_tls, environment_options
from roquet.spark.offsets import Bounds, QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from roquet.model.queue import MessageQueue
    from roquet.model.route import BrokerData, TopicRoute
    from roquet.protocol.bodies.clients import Connection
    from roquet.spark.options import Topics, Wire

T = TypeVar("T")

_WITH_DEPARTED = {departed.ASK: "true"}
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
        credentials = from_environment(os.environ)
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

    def ask(self, addresses: Iterable[str], command: Command) -> Command:
        """Call, and raise Refused unless the answer is a success."""
        return _succeeded(self.call(addresses, command))

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
        asked = [(addresses[broker], _stats_request(topic)) for topic, broker, _ in counts]
        for (topic, broker_name, count), answer in zip(
            counts, self._connections.call_all(asked), strict=True
        ):
            stats = _read(TopicStats.decode, _succeeded(answer))
            found = _bounds(stats)
            stored |= _stored(stats)
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
            stats = self.stats(topic, (master,))
            for queue, it in _bounds(stats).items():
                if queue in bounds:
                    bounds[queue] = it
            stored |= _stored(stats)
        return dataclasses.replace(view, bounds=bounds, stored=stored)

    def stored_at(
        self, wanted: Mapping[QueueKey, int], view: View, group: str
    ) -> dict[QueueKey, int]:
        """Return when the messages at some offsets were stored, Unix milliseconds.

        Asks all brokers at once; a message that does not come back is left out. Raises Unreachable.
        """
        asked = [
            (view.addresses[queue.broker], _pull_request(queue, offset, 1, group))
            for queue, offset in wanted.items()
        ]
        found: dict[QueueKey, int] = {}
        answers = self._connections.call_all(asked)
        for (queue, offset), answer in zip(wanted.items(), answers, strict=True):
            if answer.code == ResponseCode.SUCCESS and answer.body:
                stored_ms = _stored_ms(answer.body, offset)
                if stored_ms is not None:
                    found[queue] = stored_ms
        return found

    def offset_at(self, queue: QueueKey, timestamp_ms: int, addresses: tuple[str, ...]) -> int:
        """Return the offset of the first message stored at or after a time."""
        header = SearchOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        command = Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext=header.encode())
        answer = self._connections.ask(addresses, command)
        return SearchOffsetResponse.decode(answer.ext).offset

    def clusters(self) -> ClusterInfo:
        """Return the brokers and clusters that the name servers know."""
        command = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
        return _read(ClusterInfo.decode, self._connections.ask(self._wire.name_servers, command))

    def topics(self, topics: Topics, *, system: bool = False) -> list[str]:
        """Return the names that are meant, of system topics only if `system` or by name."""
        if topics.names:
            return list(topics.names)
        if topics.queues:
            return sorted({queue.topic for queue in topics.queues})
        # Those too that only brokers have which are away: their routes say so.
        command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ext=_WITH_DEPARTED)
        answer = self._connections.ask(self._wire.name_servers, command)
        known, _ = _read(decode_topic_list, answer)
        if system:
            pattern = re.compile(".*" if topics.pattern is None else topics.pattern)
            return sorted(topic for topic in known if pattern.fullmatch(topic))
        answer = self._connections.ask(
            self._wire.name_servers, Command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        )
        own, _ = _read(decode_topic_list, answer)
        # Those of clusters and brokers have their names.
        named = {*own, *map(names.reply_topic, own)}
        return sorted(topic for topic in known if topic not in named and topics.matches(topic))

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused, TOPIC_NOT_EXIST when it is nowhere."""
        command = _route_request(topic)
        return _read(decode_route, self._connections.ask(self._wire.name_servers, command))

    def stats(self, topic: str, addresses: tuple[str, ...]) -> TopicStats:
        """Return the bounds of a topic's queues on one broker."""
        answer = self._connections.ask(addresses, _stats_request(topic))
        return _read(TopicStats.decode, answer)

    def group_offsets(self, addresses: tuple[str, ...]) -> Mapping[str, Mapping[int, int]]:
        """Return what groups have committed on one broker: `topic@group` -> queue -> offset."""
        command = Command(RequestCode.GET_ALL_CONSUMER_OFFSET)
        answer = self._connections.ask(addresses, command)
        return _read(ConsumerOffsetBody.decode, answer).offsets

    def connections(self, group: str, addresses: tuple[str, ...]) -> tuple[Connection, ...]:
        """Return the members of a consumer group that one broker knows; none when it is not on."""
        header = GetConsumerConnectionListRequest(consumer_group=group)
        command = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, ext=header.encode())
        answer = self._connections.call(addresses, command)
        if answer.code != ResponseCode.SUCCESS:
            return ()
        return _read(ConsumerConnection.decode, answer).connections

    def running(
        self, group: str, client_id: str, addresses: tuple[str, ...]
    ) -> Mapping[MessageQueue, Mapping[str, Any]]:
        """Return what a member says of its queues; none when it does not answer."""
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        command = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext=header.encode())
        answer = self._connections.call(addresses, command)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        try:
            return RunningInfo.decode(answer.body).queues
        except JsonError:
            # Brokers pass on unread what a client of any make says.
            return {}

    def mean_size(
        self, queue: QueueKey, offset: int, addresses: tuple[str, ...], group: str
    ) -> float | None:
        """Return the mean stored bytes of some messages from an offset on; None without any."""
        answer = self._connections.call(addresses, _pull_request(queue, offset, SAMPLE, group))
        if answer.code != ResponseCode.SUCCESS:
            return None
        following = PullMessageResponse.decode(answer.ext).next_begin_offset
        return len(answer.body) / (following - offset) if following > offset else None

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
        asked = [(self._wire.name_servers, _route_request(topic)) for topic in known]
        for topic, answer in zip(known, self._connections.call_all(asked), strict=True):
            names = departed.read(answer.ext)
            is_kept = is_kept and names is not None
            left.update(names or ())
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                if topics.pattern is None and not names:
                    absent.append(f"topic {topic} does not exist: {answer.remark or ''}")
                continue
            found.append((topic, _read(decode_route, _succeeded(answer))))
        return found, frozenset(left) if is_kept else None


def _route_request(topic: str) -> Command:
    header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
    ext = {**header.encode(), **_WITH_DEPARTED}
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext)


def _stats_request(topic: str) -> Command:
    header = GetTopicStatsInfoRequest(topic=topic)
    return Command(RequestCode.GET_TOPIC_STATS_INFO, ext=header.encode())


def _pull_request(queue: QueueKey, offset: int, count: int, group: str) -> Command:
    header = PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=sys_flag.PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return Command(RequestCode.PULL_MESSAGE, ext=header.encode())


def _stored_ms(body: bytes, offset: int) -> int | None:
    """Return when the message at an offset was stored; None when it is not the first of `body`."""
    try:
        records = decode_records(body, check_crc=False)
    except ValueError as error:
        raise Unreachable(f"the answer to a pull cannot be read: {error}") from error
    return next((record[9] for record in records if record[4] == offset), None)


def _stored(stats: TopicStats) -> dict[QueueKey, int]:
    return {
        QueueKey(queue.topic, queue.broker_name, queue.queue_id): it.last_update
        for queue, it in stats.offsets.items()
        if it.last_update > 0
    }


def _succeeded(answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(answer.code, answer.remark or "")
    return answer


def _bounds(stats: TopicStats) -> dict[QueueKey, Bounds]:
    return {
        QueueKey(queue.topic, queue.broker_name, queue.queue_id): Bounds(
            max(0, it.min_offset), max(0, it.min_offset, it.max_offset)
        )
        for queue, it in stats.offsets.items()
    }


def addresses_of(broker: BrokerData) -> tuple[str, ...]:
    """Return the addresses of a broker, the master's first."""
    return tuple(broker.addresses[number] for number in sorted(broker.addresses))


def _read(decode: Callable[[bytes], T], answer: Command) -> T:
    try:
        return decode(answer.body)
    except JsonError as error:
        raise Unreachable(f"the answer to request {answer.code} cannot be read: {error}") from error
