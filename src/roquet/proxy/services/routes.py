"""QueryRoute and QueryAssignment: which queues there are, and who receives from which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.attributes import LIGHT_BIND_TOPIC
from roquet.model.topic import can_read, can_write
from roquet.protocol.hosts import split_address
from roquet.proxy import messages as pb
from roquet.proxy.rules.checks import check_group, check_topic
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.services.convert import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.model.group import SubscriptionGroupConfig
    from roquet.proxy.brokers.api import Brokers, Place, Topic
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits

NONE, READ, WRITE, READ_WRITE = 1, 2, 3, 4
ALL_QUEUES = -1
_IPV4, _IPV6, _DOMAIN = 1, 2, 3


class Routes:
    """Answers where messages go and come from; every queue is behind this front."""

    def __init__(self, brokers: Brokers, rules: ProxyLimits) -> None:
        self._brokers = brokers
        self._rules = rules
        self.port = rules.port
        """Where clients reach us, as soon as we listen."""

    async def query_route(self, context: Context, request: Any) -> Any:
        """List the queues of a topic."""
        topic = await self.topic(context, request.topic.name)
        answer = pb.QueryRouteResponse()
        types = types_of(topic)
        for place in topic.places:
            broker = self._as_broker(place.broker, context, request.endpoints)
            for number, permission in queues_of(place):
                queue = answer.message_queues.add()
                queue.topic.CopyFrom(request.topic)
                queue.id = number
                queue.permission = permission
                queue.broker.CopyFrom(broker)
                queue.accept_message_types.extend(types)
        return answer

    async def query_assignment(self, context: Context, request: Any) -> Any:
        """List what a consumer receives from: everything, as nobody shares queues out here."""
        name = request.topic.name
        check_topic(name)
        check_group(request.group.name)
        topic = await self.topic(context, name)
        group = await self.group(context, request.group.name)
        answer = pb.QueryAssignmentResponse()
        readable = readable_of(topic)
        is_ordered = group is not None and group.consume_message_orderly
        if group is not None and LIGHT_BIND_TOPIC in group.attributes:
            is_ordered = False
        for place in readable:
            broker = self._as_broker(place.broker, context, request.endpoints)
            for number in range(place.read_queues) if is_ordered else (ALL_QUEUES,):
                queue = answer.assignments.add().message_queue
                queue.topic.CopyFrom(request.topic)
                queue.id = number
                queue.permission = READ_WRITE if can_write(place.perm) else READ
                queue.broker.CopyFrom(broker)
        return answer

    async def topic(self, context: Context, name: str) -> Topic:
        """Return a topic. Raises Rejected and Refusal."""
        check_topic(name)
        return await self._brokers.topic(name, context.caller)

    async def group(self, context: Context, name: str) -> SubscriptionGroupConfig | None:
        """Return a group, None when there is none and none may be made."""
        try:
            return await self._brokers.group(name, context.caller)
        except Refusal as refusal:
            if refusal.reason is not Reason.UNKNOWN_GROUP:
                raise
            return None

    def _as_broker(self, name: str, context: Context, endpoints: Any) -> Any:
        """Return a broker, at the address by which the client has reached us."""
        broker = pb.Broker()
        broker.name = name
        broker.id = 0
        broker.endpoints.scheme = endpoints.scheme
        for address in endpoints.addresses:
            port = address.port if self._rules.use_request_port else self.port
            broker.endpoints.addresses.add(host=address.host, port=port)
        if not broker.endpoints.addresses:
            host = _host(context.authority)
            broker.endpoints.scheme = _scheme(host)
            broker.endpoints.addresses.add(host=host, port=self.port)
        return broker


def readable_of(topic: Topic) -> list[Place]:
    """Return where a topic can be read. Raises Rejected when that is nowhere."""
    found = [place for place in topic.places if can_read(place.perm) and place.read_queues > 0]
    if not found:
        raise Rejected(Code.FORBIDDEN, "no readable queue")
    return found


def writable_of(topic: Topic) -> list[Place]:
    """Return where a topic can be written to. Raises Rejected when that is nowhere."""
    found = [place for place in topic.places if can_write(place.perm) and place.write_queues > 0]
    if not found:
        raise Rejected(Code.FORBIDDEN, "no writable queue")
    return found


def queues_of(place: Place) -> Iterator[tuple[int, int]]:
    """Yield (id, permission) on one broker: those to read first, then to write, then for both."""
    reads = place.read_queues if can_read(place.perm) else 0
    writes = place.write_queues if can_write(place.perm) else 0
    if not can_read(place.perm) and not can_write(place.perm):
        closed = max(1, place.read_queues, place.write_queues)
        yield from ((number, NONE) for number in range(closed))
        return
    both = min(reads, writes)
    number = 0
    for count, permission in ((reads - both, READ), (writes - both, WRITE), (both, READ_WRITE)):
        for _ in range(count):
            yield number, permission
            number += 1


def types_of(topic: Topic) -> list[int]:
    """Return the numbers of the types of messages that a topic takes."""
    if topic.kind == "MIXED":
        return [TYPES[each] for each in ("NORMAL", "FIFO", "DELAY", "TRANSACTION")]
    return [TYPES.get(topic.kind, 0)]


def _host(authority: str) -> str:
    try:
        return split_address(authority)[0]
    except ValueError:
        return "127.0.0.1"


def _scheme(host: str) -> int:
    if ":" in host:
        return _IPV6
    return _IPV4 if host.replace(".", "").isdigit() else _DOMAIN
