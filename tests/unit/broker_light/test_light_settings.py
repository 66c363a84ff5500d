"""Settings of light topics, each with what it changes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched
from light_harness import (
    GROUP,
    PARENT,
    ack,
    ctl_command,
    light_properties,
    playing,
    pop,
    pop_command,
    popped,
    put_group,
    put_parent,
    queue,
    send,
    subscribe,
)
from roquet.base.clock import SystemClock
from roquet.base.overriding import override
from roquet.broker import app
from roquet.broker.light.facts import LightFacts
from roquet.broker.light.rules import LightTopicConfig
from roquet.broker.light.subscriptions import LightSubscriptions
from roquet.broker.light.upkeep import LightUpkeep
from roquet.broker.pop.receive.orders import PopOrders
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.light_queues import LightQueueStore
from roquet.store.tables.deletions import Deletions
from roquet.testing.cluster import broker_config
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

PAUSES = {
    "liteEventCheckInterval": "look for light events",
    "liteSubscriptionCheckInterval": "expire light subscriptions",
    "liteTtlCheckInterval": "remove idle light topics",
}
NEVER = "3600000"


@pytest.mark.parametrize("key", PAUSES)
def test_pause_of_light_topics_is_the_one_of_the_settings(tmp_path: Path, key: str) -> None:
    shown = app.explain(broker_config(tmp_path, **{key: "12000"}), "parts")
    assert f"{PAUSES[key]} every 12s" in shown


def told(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    async def begun(it: Cluster) -> None:
        await put_parent(it)
        await put_group(it)
        await tell(it)

    playing(folder, begun, **changes)


async def change(it: Cluster, **settings: str) -> None:
    body = "\n".join(f"{key}={value}" for key, value in settings.items()).encode()
    answer = await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, ext={}, body=body))
    assert answer.code == 0, answer.remark


def test_mode_of_events_changes_while_the_broker_runs(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a", "b", "c")
        await change(it, enableLiteEventMode="false")
        for name in ("a", "b", "c"):
            await send(it, name, name.encode())
        found = await pop(it)
        # Without events their bound does not hold.
        assert sorted(found.bodies) == [b"a", b"b", b"c"]
        await ack(it, *found.handles)
        await send(it, "a", b"1")
        # What came before is noted as soon as events are.
        await change(it, enableLiteEventMode="true")
        found = popped(await it.call(pop_command(pollTime="15000")))
        assert found.bodies == [b"1"]

    bound = {"maxClientEventCount": "2", "liteEventFullDispatchDelayTime": NEVER}
    told(tmp_path, tell, liteEventCheckInterval="100", **bound)


def test_events_of_a_client_are_as_many_as_the_settings_allow(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(5)]

    async def tell(it: Cluster) -> None:
        await subscribe(it, *names)
        for name in names:
            await send(it, name, name.encode())
        assert sorted((await pop(it)).bodies) == [b"t0", b"t1"]
        assert (await pop(it)).bodies == []
        # The others are not lost: they are found when all are looked at.
        trigger = Command(RequestCode.TRIGGER_LITE_DISPATCH, ext={"group": GROUP})
        assert (await it.call(trigger)).code == 0
        assert len((await pop(it)).bodies) <= 2

    told(tmp_path, tell, maxClientEventCount="2", liteEventFullDispatchDelayTime=NEVER)


@pytest.mark.parametrize(("delay", "count"), [("50", 3), (NEVER, 1)])
def test_wildcard_group_gets_the_rest_after_the_time_of_the_settings(
    tmp_path: Path, delay: str, count: int
) -> None:
    async def tell(it: Cluster) -> None:
        await put_group(it, GROUP, **{"lite.sub.wildcard": "true"})
        assert (await it.call(ctl_command("COMPLETE_ADD"))).code == 0
        # The look at all of them that a new subscriber brings.
        await asyncio.sleep(1.5)
        for name in ("a", "b", "c"):
            assert (await it.send(PARENT, b"m", properties=light_properties(name))).code == 0
        await dispatched(it)
        found = 0
        for _ in range(6):
            found += len(popped(await it.call(pop_command(pollTime="300"))).bodies)
        assert found == count

    more = {"liteEventFullDispatchDelayTimeForWildcardGroup": delay}
    told(tmp_path, tell, maxClientEventCount="1", liteEventCheckInterval="100", **more)


class LaterClock(SystemClock):
    """A clock that can be put forward."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    @override
    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    @override
    def steady_ms(self) -> int:
        return super().steady_ms() + self.ahead_ms


def test_light_topic_stays_for_the_least_time_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it, PARENT, **{"lite.topic.expiration": "1"})
        await send(it, "a", b"0")
        tables, clock = it.broker.metadata, LaterClock()
        upkeep = LightUpkeep(
            LightFacts(tables.topics, tables.groups),
            LightSubscriptions(),
            store=LightQueueStore(it.broker.store),
            offsets=tables.offsets,
            orders=PopOrders(None, clock, Deletions(None, clock)),
            deletions=Deletions(None, clock),
            leaving=set(),
            rules=LightTopicConfig(idle_min_ms=120_000),
            clock=clock,
        )
        # Its own time is over after a minute, the least time is two.
        for ahead_ms, ends in ((0, 1), (90_000, 1), (125_000, 0)):
            clock.ahead_ms = ahead_ms
            await upkeep.expire()
            assert it.broker.store.max_offset(queue("a"), 0) == ends, ahead_ms

    told(tmp_path, tell, minLiteTTl="120000")


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("times", [False, True])
def test_lag_of_light_topics_is_shown_by_parent_as_far_as_settings_say(
    tmp_path: Path, *, counts: bool, times: bool
) -> None:
    port = free_port(random.Random())

    async def tell(it: Cluster) -> None:
        await send(it, "a", b"0", b"1", b"2")
        await send(it, "b", b"3")
        await subscribe(it, "a", "b")
        taken = await pop(it)
        await ack(it, *(one for one in taken.handles if one[0] == "a" and one[1].queue_offset == 0))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        shown = (await reader.read()).decode()
        writer.close()
        rows = {
            line.partition("{")[0].removeprefix("rocketmq_consumer_"): line
            for line in shown.splitlines()
            if f'consumer_group="{GROUP}"' in line and line.startswith("rocketmq_consumer_")
        }
        counted = {"lag_messages", "ready_messages"} if counts else set[str]()
        timed = {"lag_latency_milliseconds"} if times else set[str]()
        assert rows.keys() == counted | timed
        for name, line in rows.items():
            assert 'is_retry="false",is_system="false"' in line
            assert f'topic="{PARENT}"' in line
            value = float(line.rpartition(" ")[2])
            assert value == 3 if name in counted else 0 < value < 600_000

    told(
        tmp_path,
        tell,
        metricsExporterType="PROM",
        metricsPromExporterPort=str(port),
        liteLagCountMetricsEnable=str(counts).lower(),
        liteLagLatencyMetricsEnable=str(times).lower(),
    )
