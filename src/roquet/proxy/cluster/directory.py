"""Topics and groups of a cluster, remembered for a while.

An entry that is too old is asked for again; while nobody can be asked, the old one counts, and the
log says so. Where there is an old one, nobody waits longer than a moment. What is not there is not
remembered: its names are the clients'.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.attributes import MESSAGE_TYPE
from roquet.protocol.bodies.groups import decode_group
from roquet.protocol.bodies.topics import decode_topic
from roquet.protocol.codes import RequestCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.admin import (
    GetSubscriptionGroupConfigRequest,
    GetTopicConfigRequest,
)
from roquet.proxy.brokers.api import Place, Topic
from roquet.proxy.rules.codes import Code, Rejected
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.base.clock import Clock
    from roquet.client.fronts import FrontClient
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.cluster.config import ClusterConfig

log = logging.getLogger(__name__)

NORMAL = "NORMAL"
MOMENT_S = 0.25
NAMES_S = 2.5
"""How long name servers are asked, however many there are."""
_V = TypeVar("_V")


class _Remembered(Generic[_V]):
    """Values by name; each is asked for by one caller at a time."""

    def __init__(
        self, ask: Callable[[str], Awaitable[_V]], keep_s: int, most: int, clock: Clock
    ) -> None:
        self._ask = ask
        self._keep_ms = keep_s * 1000
        self._most = most
        self._clock = clock
        self._found: dict[str, tuple[int, _V]] = {}
        """Name -> until when it counts, and the value; the oldest first."""
        self._asking: dict[str, asyncio.Task[_V]] = {}
        self.listen: Callable[[str, _V | None, int], None] = _nobody
        """Hears of names that are remembered, until which steady time, and of those forgotten."""
        self._log = RateLog(log, clock)

    def known(self, name: str) -> _V | None:
        """Return what is remembered, however old."""
        entry = self._found.get(name)
        return None if entry is None else entry[1]

    async def get(self, name: str) -> _V:
        """Return a value that is not too old, or the best that there is. Raises as `ask`."""
        entry = self._found.get(name)
        if entry is not None and self._clock.steady_ms() < entry[0]:
            return entry[1]
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._fresh(name))
            task.add_done_callback(lambda _: self._asking.pop(name, None))
            task.add_done_callback(_looked_at)
        if entry is not None:
            await asyncio.wait((task,), timeout=MOMENT_S)
            if not task.done():
                return entry[1]
        # Who does not wait any more ends nobody else's wait.
        return await asyncio.shield(task)

    async def _fresh(self, name: str) -> _V:
        try:
            value = await self._ask(name)
        except Rejected as rejected:
            entry = self._found.get(name)
            if entry is None:
                raise
            self._log.warning("old", f"{name} is as it was before: {rejected.text}")
            value = entry[1]
        except Refusal:
            self._found.pop(name, None)
            self.listen(name, None, 0)
            raise
        self._found.pop(name, None)
        while len(self._found) >= self._most:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self.listen(oldest, None, 0)
        until_ms = self._clock.steady_ms() + self._keep_ms
        self._found[name] = until_ms, value
        self.listen(name, value, until_ms)
        return value


class Directory:
    """Knows topics and groups by asking name servers and brokers."""

    def __init__(self, client: FrontClient, calls: Calls, config: ClusterConfig) -> None:
        self._client = client
        self._calls = calls
        clock = client.clock
        self._topics = _Remembered(self._ask_topic, config.topic_s, config.topics_max, clock)
        self._groups = _Remembered(self._ask_group, config.group_s, config.groups_max, clock)

    def listen(self, listener: Callable[[str, Topic | None, int], None]) -> None:
        """Have somebody hear of each topic that is asked for: until when it counts, or None."""
        self._topics.listen = listener

    async def topic(self, name: str) -> Topic:
        """Return a topic. Raises Refusal and Rejected."""
        return await self._topics.get(name)

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """Return a group. Raises Refusal and Rejected."""
        return await self._groups.get(name)

    async def has(self, broker: str, topic: str) -> bool:
        """Tell whether a topic's route names a broker."""
        if not self._client.knows(broker):
            try:
                await self._topics.get(topic)
            except Refusal:
                return False
        return self._client.knows(broker)

    async def _ask_topic(self, name: str) -> Topic:
        try:
            async with asyncio.timeout(NAMES_S):
                route = await self._client.route(name)
        except TimeoutError as error:
            text = "no name server answers in time"
            raise self._calls.away("the name server", OutcomeUnknown(text)) from error
        except Refused as refused:
            self._client.forget_topic(name)
            raise self._calls.refusal("the name server", refused) from refused
        except (OutcomeUnknown, Unreachable) as error:
            raise self._calls.away("the name server", error) from error
        places = tuple(
            Place(data.broker_name, data.read_queues, data.write_queues, data.perm)
            for data in sorted(route.queues, key=lambda data: data.broker_name)
        )
        masters = {data.broker_name for data in route.brokers if data.master is not None}
        return Topic(name, await self._kind(name, places, masters), places)

    async def _kind(self, name: str, places: tuple[Place, ...], masters: set[str]) -> str:
        """Return the type of a topic, as the first broker says that answers."""
        header = GetTopicConfigRequest(topic=name)
        failed: Rejected | None = None
        for place in places:
            if place.broker not in masters:
                continue
            try:
                answer = await self._calls.ask(place.broker, RequestCode.GET_TOPIC_CONFIG, header)
                return decode_topic(answer.body).attributes.get(MESSAGE_TYPE) or NORMAL
            except Refusal as refusal:
                # It is of a version that cannot say it, or the topic is not on it any more.
                if refusal.reason not in {Reason.UNSUPPORTED, Reason.UNKNOWN_TOPIC}:
                    raise
            except JsonError as error:
                failed = _unreadable(place.broker, error)
            except Rejected as rejected:
                failed = rejected
        known = self._topics.known(name)
        if known is not None:
            return known.kind
        if failed is not None:
            raise failed
        return NORMAL

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig:
        header = GetSubscriptionGroupConfigRequest(group=name)
        try:
            masters = sorted(await self._client.masters())
        except Unreachable as error:
            raise self._calls.away("the name server", error) from error
        failed: Rejected | Refusal | None = None
        for broker in masters:
            try:
                answer = await self._calls.ask(
                    broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header
                )
                return decode_group(answer.body)
            except JsonError as error:
                failed = _unreadable(broker, error)
            except (Refusal, Rejected) as error:
                # One that is away may have the group.
                failed = failed if isinstance(failed, Rejected) else error
        raise failed or Rejected(Code.INTERNAL_SERVER_ERROR, "there is no master broker")


def _nobody(name: str, value: object, until_ms: int) -> None:
    """Hear nothing."""
    del name, value, until_ms


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Look at how a task has ended: who began it may be content with what was known."""
    if not task.cancelled():
        task.exception()


def _unreadable(broker: str, error: JsonError) -> Rejected:
    return Rejected(Code.INTERNAL_SERVER_ERROR, f"{broker} answers what cannot be read: {error}")
