"""All queues of a topic, on whichever broker they are, as name servers know them."""

from __future__ import annotations

import asyncio
import collections
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import RoquetError
from roquet.model.queue import MessageQueue
from roquet.model.topic import can_read, can_write
from roquet.protocol.bodies.routes import decode_route
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.namesrv import GetRouteInfoRequest
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.state import Identity
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

ASK_S = 3.0
TOPICS_MAX = 10_000
"""Topics whose queues are remembered."""

Queues = frozenset[MessageQueue]


class Caller(Protocol):
    """What is needed of the remoting client."""

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        """Ask the peer at `host:port`."""
        ...


class TopicQueues:
    """Asks name servers, and remembers for a while what they said."""

    def __init__(
        self,
        caller: Caller,
        name_servers: Sequence[str],
        topics: TopicTable,
        *,
        identity: Identity,
        period_ms: Callable[[], int],
        clock: Clock,
        writable: bool = False,
    ) -> None:
        """`period_ms` is how long an answer counts. Without name servers only `topics` count.

        `writable`: those that take messages, instead of those that give them.
        """
        self._writable = writable
        self._caller = caller
        self._name_servers = tuple(name_servers)
        self._topics = topics
        self._identity = identity
        self._period_ms = period_ms
        self._clock = clock
        self._known: collections.OrderedDict[str, tuple[int, Queues]] = collections.OrderedDict()
        self._asking: dict[str, asyncio.Future[Queues | None]] = {}
        self._log = RateLog(log, clock)

    async def of(self, topic: str) -> Queues | None:
        """Return the queues; None when nobody can say which there are."""
        if not self._name_servers:
            return self._own(topic)
        asked_ms, queues = self._known.get(topic, (None, None))
        now_ms = self._clock.steady_ms()
        if asked_ms is not None and now_ms - asked_ms < self._period_ms():
            return queues
        pending = self._asking.get(topic)
        if pending is not None:
            return await asyncio.shield(pending)
        future = self._asking[topic] = asyncio.get_running_loop().create_future()
        found = queues
        try:
            found = await self._asked(topic, queues)
        finally:
            del self._asking[topic]
            future.set_result(found)
        return found

    async def _asked(self, topic: str, before: Queues | None) -> Queues | None:
        """Ask one name server after the other; without an answer the last one still counts."""
        for address in self._name_servers:
            try:
                queues = await self._ask(address, topic)
            except (RoquetError, OSError, JsonError) as error:
                self._log.warning(address, f"name server {address} gave no route: {error}")
                continue
            if queues is None:
                self._known.pop(topic, None)
                return None
            self._known[topic] = self._clock.steady_ms(), queues
            self._known.move_to_end(topic)
            if len(self._known) > TOPICS_MAX:
                self._known.popitem(last=False)
            return queues
        return before

    async def _ask(self, address: str, topic: str) -> Queues | None:
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=header.encode())
        answer = await self._caller.call(address, command, ASK_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RoquetError(f"code {answer.code}: {(answer.remark or '')[:100]}")
        return frozenset(
            MessageQueue(topic, data.broker_name, number)
            for data in decode_route(answer.body).queues
            for number in range(self._count(data.perm, data.read_queues, data.write_queues))
        )

    def _own(self, topic: str) -> Queues | None:
        config = self._topics.get(topic)
        count = 0
        if config is not None:
            count = self._count(config.perm, config.read_queues, config.write_queues)
        if not count:
            return None
        return frozenset(MessageQueue(topic, self._identity.name, it) for it in range(count))

    def _count(self, perm: int, read_queues: int, write_queues: int) -> int:
        if self._writable:
            return write_queues if can_write(perm) else 0
        return read_queues if can_read(perm) else 0
