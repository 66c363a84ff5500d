"""A client of a proxy before a cluster of one broker, whose calls go over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING, Any

from grpc_calls import TOPICS, Calls, Counting, called, message
from roquet.base.clock import SystemClock
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy import messages as pb
from roquet.proxy.app import build_cluster
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

GROUP = "g"
BORN_S = 1_700_000_000


@dataclasses.dataclass
class World(Calls):
    """A client of a proxy before one broker."""

    behind: Cluster = dataclasses.field(kw_only=True)

    async def over_the_wire(self, method: str, *requests: Any) -> list[Any]:
        """Make calls on one connection, in one write; return the answers by their order."""
        data = [one if isinstance(one, bytes) else one.SerializeToString() for one in requests]
        answered = await asyncio.to_thread(called, self.port.port, method, *data)
        answer_type = pb.methods()[method][1]
        return [answer_type.FromString(part) for (part,) in answered]

    async def connected(self) -> None:
        """Wait until plain sends go past the front."""
        for _ in range(1000):
            counting = Counting(self)
            for made in (message(), message("Fifo", message_group="g")):
                (answer,) = await self.over_the_wire("SendMessage", asked(made))
                assert answer.status.code == Code.OK, answer.status
            if counting.count == 0:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the front is still asked")


def asked(*messages: Any) -> Any:
    return pb.SendMessageRequest(messages=messages)


def born(**more: Any) -> Any:
    """Return a message that says when it was made, so that two of them are stored alike."""
    made = message(**more)
    made.system_properties.born_timestamp.seconds = BORN_S
    return made


@contextlib.asynccontextmanager
async def before_a_broker(
    folder: Path, rules: ProxyLimits, *, is_odd: bool = False
) -> AsyncGenerator[World]:
    async with cluster(folder, "b1") as behind:
        behind.broker.metadata.groups.put(SubscriptionGroupConfig(name=GROUP))
        for name, kind in TOPICS.items() - {("Mixed", "MIXED")}:
            fields = {"topic": name, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
            fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
            fields |= {"attributes": f"+message.type={kind}", "defaultTopic": "TBW102"}
            command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            assert (await behind.call(command, behind.address)).code == 0
        config = ClusterConfig(name_servers=behind.name_servers)
        built = build_cluster(config, "127.0.0.1", rules, SystemClock(), random.Random(7))
        async with built.app:
            world = World(built.front, behind.broker, built.port, behind=behind)
            if not is_odd:
                await world.connected()
            yield world


def run(
    folder: Path, tell: Callable[[World], Awaitable[None]], rules: ProxyLimits | None = None
) -> None:
    async def main() -> None:
        async with before_a_broker(folder, rules or ProxyLimits(port=0)) as world:
            await tell(world)

    asyncio.run(main())
