"""QueryRoute and QueryAssignment: which queues there are, and who receives from which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.attributes import LIGHT_BIND_TOPIC, MESSAGE_TYPE
from roquet.model.topic import can_read, can_write
from roquet.protocol.hosts import split_address
from roquet.proxy import messages as pb
from roquet.proxy.rules.checks import check_group, check_topic
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.services.convert import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.broker.operations.local import LocalBroker
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.topic import TopicConfig
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits

NONE, READ, WRITE, READ_WRITE = 1, 2, 3, 4
ALL_QUEUES = -1
_IPV4, _IPV6, _DOMAIN = 1, 2, 3


class Routes:
    """Answers where messages go and come from; every queue is behind this front."""

    def __init__(self, broker: LocalBroker, rules: ProxyLimits) -> None:
        self._broker = broker
        self._rules = rules
        self.port = rules.port
        """Where clients reach us, as soon as we listen."""

    async def query_route(self, context: Context, request: Any) -> Any:
        """List the queues of a topic."""
        topic = self.topic(context, request.topic.name)
        answer = pb.QueryRouteResponse()
        types = types_of(topic)
        broker = self._as_broker(context, request.endpoints)
        for number, permission in queues_of(topic):
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
        topic = self.topic(context, name)
        group = await self.group(context, request.group.name)
        answer = pb.QueryAssignmentResponse()
        if not can_read(topic.perm) or topic.read_queues <= 0:
            raise Rejected(Code.FORBIDDEN, "no readable queue")
        is_ordered = group is not None and group.consume_message_orderly
        if group is not None and LIGHT_BIND_TOPIC in group.attributes:
            is_ordered = False
        broker = self._as_broker(context, request.endpoints)
        for number in range(topic.read_queues) if is_ordered else (ALL_QUEUES,):
            queue = answer.assignments.add().message_queue
            queue.topic.CopyFrom(request.topic)
            queue.id = number
            queue.permission = READ_WRITE if can_write(topic.perm) else READ
            queue.broker.CopyFrom(broker)
        return answer

    def topic(self, context: Context, name: str) -> TopicConfig:
        """Return a topic. Raises Rejected and Refusal."""
        check_topic(name)
        return self._broker.operations.topic(name, context.caller)

    async def group(self, context: Context, name: str) -> SubscriptionGroupConfig | None:
        """Return a group, None when there is none and none may be made."""
        try:
            return await self._broker.operations.group(name, context.caller)
        except Refusal as refusal:
            if refusal.reason is not Reason.UNKNOWN_GROUP:
                raise
            return None

    def _as_broker(self, context: Context, endpoints: Any) -> Any:
        """Return the broker, at the address by which the client has reached us."""
        broker = pb.Broker()
        broker.name = self._broker.identity.name
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


def queues_of(topic: TopicConfig) -> Iterator[tuple[int, int]]:
    """Yield (id, permission): those to read first, then to write, then for both."""
    reads = topic.read_queues if can_read(topic.perm) else 0
    writes = topic.write_queues if can_write(topic.perm) else 0
    if not can_read(topic.perm) and not can_write(topic.perm):
        closed = max(1, topic.read_queues, topic.write_queues)
        yield from ((number, NONE) for number in range(closed))
        return
    both = min(reads, writes)
    number = 0
    for count, permission in ((reads - both, READ), (writes - both, WRITE), (both, READ_WRITE)):
        for _ in range(count):
            yield number, permission
            number += 1


def type_of(topic: TopicConfig) -> str:
    """Return the type of messages that a topic is for."""
    return topic.attributes.get(MESSAGE_TYPE) or "NORMAL"


def types_of(topic: TopicConfig) -> list[int]:
    """Return the numbers of the types of messages that a topic takes."""
    name = type_of(topic)
    if name == "MIXED":
        return [TYPES[each] for each in ("NORMAL", "FIFO", "DELAY", "TRANSACTION")]
    return [TYPES.get(name, 0)]


def _host(authority: str) -> str:
    try:
        return split_address(authority)[0]
    except ValueError:
        return "127.0.0.1"


def _scheme(host: str) -> int:
    if ":" in host:
        return _IPV6
    return _IPV4 if host.replace(".", "").isdigit() else _DOMAIN
