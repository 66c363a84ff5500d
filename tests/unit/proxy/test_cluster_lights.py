"""Light topics before a cluster of two brokers: each light topic lies on one of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest

from auth_harness import ANN, CLERK, acl_command, entry
from cluster_users import guarded_cluster
from grpc_calls import Calls, consumer, message
from grpc_lights import (
    ADD,
    END,
    GROUP,
    LITE_PUSH,
    PARENT,
    REMOVE,
    REPLACE,
    joined,
    settling,
    shown,
    synced,
)
from light_harness import ON
from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.light import PopLightResponse
from roquet.protocol.light import light_topics
from roquet.proxy.app import build_cluster
from roquet.proxy.brokers.api import Subscriber
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.cluster.lights import ClusterLights, Members
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from cluster_users import Guarded
    from roquet.broker.app import Broker
    from roquet.testing.cluster import Cluster

NAMES = ("b1", "b2")
OF_BOTH = [f"n{number}" for number in range(8)]
"""Names of light topics, some of which belong to each broker."""
RULES = ProxyLimits(port=0, polling_min_ms=0)


@dataclasses.dataclass
class World:
    """Two brokers, and a proxy before them."""

    behind: Cluster
    calls: Calls

    def client(self, name: str) -> Calls:
        """Return another client of the same proxy."""
        return dataclasses.replace(self.calls, client_id=name, told=type(self.calls.told)())

    def held(self, broker: Broker, client: str = "client-1") -> set[str]:
        """Return the light topics that a broker has a client down for."""
        held = _subscriptions(broker).get((client, GROUP))
        queues: set[str] = set() if held is None else held.queues
        return {found[1] for found in map(light_topics.split, queues) if found is not None}


def _subscriptions(broker: Broker) -> Any:
    light = broker.local.light
    assert light is not None
    return light.close.__self__._subscriptions  # type: ignore[attr-defined]


def owner(name: str) -> str:
    """Return the broker that a light topic belongs to: each has one queue of the parent."""
    return NAMES[light_topics.bucket(name, len(NAMES))]


def run(
    folder: Path,
    tell: Callable[[World], Awaitable[None]],
    attributes: dict[str, str] | None = None,
    rules: ProxyLimits = RULES,
) -> None:
    async def main() -> None:
        async with cluster(folder, *NAMES, **ON) as behind:
            for broker in behind.brokers:
                fields = {"topic": PARENT, "readQueueNums": "1", "writeQueueNums": "1"}
                fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
                fields |= {"order": "false", "attributes": "+message.type=LITE"}
                fields |= {"defaultTopic": "TBW102"}
                command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
                answer = await behind.call(command, broker.identity.address)
                assert answer.code == 0, answer.remark
                bound = {"lite.bind.topic": PARENT, **(attributes or {})}
                tables = broker.metadata
                tables.groups.put(SubscriptionGroupConfig(name=GROUP, attributes=bound))
                tables.groups.put(SubscriptionGroupConfig(name="unbound"))
            config = ClusterConfig(name_servers=behind.name_servers)
            built = build_cluster(config, "127.0.0.1", rules, SystemClock(), random.Random(7))
            async with built.app:
                await tell(World(behind, Calls(built.front, behind.broker, built.port)))

    asyncio.run(main())


async def sent(calls: Calls, light: str, *bodies: bytes) -> None:
    for number, body in enumerate(bodies):
        made = message(PARENT, body, lite_topic=light, message_id=f"{light}-{number}")
        answer = await calls.send(made)
        assert answer.status.code == Code.OK, answer.status


async def got(calls: Calls, count: int) -> list[Any]:
    """Receive, from one broker after the other, until there is so much."""
    found: list[Any] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            parts = await calls.receive(PARENT, GROUP, wait_ms=200)
            if parts[0].status.code == Code.OK:
                found += [part.message for part in parts[1:-1]]
            else:
                assert parts[0].status.code == Code.MESSAGE_NOT_FOUND, parts[0].status
    return found


def test_names_of_the_tests_belong_to_both_brokers() -> None:
    assert {owner(name) for name in OF_BOTH} == set(NAMES)


def test_each_light_topic_is_kept_and_stored_by_its_own_broker(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await joined(world.calls, *OF_BOTH)
        for broker in world.behind.brokers:
            wanted = {name for name in OF_BOTH if owner(name) == broker.identity.name}
            assert world.held(broker) == wanted
        for name in OF_BOTH:
            await sent(world.calls, name, name.encode())
        found = await got(world.calls, len(OF_BOTH))
        assert sorted(shown(found)) == [(name, name.encode(), 1) for name in OF_BOTH]
        for each in found:
            handle = each.system_properties.receipt_handle.split(" ")
            assert handle[5] == owner(each.system_properties.lite_topic)
            answer = await world.calls.call("AckMessage", settling("AckMessage", each))
            assert answer.status.code == Code.OK, answer.status
        for broker in world.behind.brokers:
            for name in world.held(broker):
                queue = light_topics.queue_of(PARENT, name)
                assert broker.metadata.offsets.query(GROUP, queue, 0) == 1

    run(tmp_path, tell)


def test_message_that_waits_for_a_held_receive_wakes_it(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await joined(world.calls, "n0")
        request = world.calls.receive(PARENT, GROUP, wait_ms=20_000)
        both = [asyncio.ensure_future(request)]
        both.append(asyncio.ensure_future(world.calls.receive(PARENT, GROUP, wait_ms=20_000)))

        def are_held() -> bool:
            lights = [broker.local.light for broker in world.behind.brokers]
            return all(it is not None and len(it.waits._polls) for it in lights)

        await until(are_held)
        await sent(world.calls, "n0", b"x")
        done, waiting = await asyncio.wait(both, timeout=20, return_when="FIRST_COMPLETED")
        (parts,) = [task.result() for task in done]
        assert shown([part.message for part in parts[1:-1]]) == [("n0", b"x", 1)]
        for task in waiting:
            task.cancel()

    run(tmp_path, tell)


def test_changed_time_and_dead_letters_are_those_of_the_broker_that_has_it(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await joined(world.calls, *OF_BOTH[:4])
        for name in OF_BOTH[:4]:
            await sent(world.calls, name, b"x")
        for each in await got(world.calls, 4):
            request = settling("ChangeInvisibleDuration", each)
            request.invisible_duration.FromMilliseconds(100)
            answer = await world.calls.call("ChangeInvisibleDuration", request)
            assert answer.status.code == Code.OK, answer.status
            assert answer.receipt_handle != each.system_properties.receipt_handle
        again = await got(world.calls, 4)
        assert sorted(shown(again)) == [(name, b"x", 2) for name in OF_BOTH[:4]]
        for each in again:
            request = settling("ForwardMessageToDeadLetterQueue", each)
            answer = await world.calls.call("ForwardMessageToDeadLetterQueue", request)
            assert answer.status.code == Code.OK, answer.status
        dead = f"%DLQ%{GROUP}"
        await until(lambda: sum(it.store.max_offset(dead, 0) for it in world.behind.brokers) == 4)

    run(tmp_path, tell)


def test_removed_replaced_and_ended_subscriptions_are_so_at_both_brokers(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        def held() -> set[str]:
            return {name for broker in world.behind.brokers for name in world.held(broker)}

        await joined(world.calls, *OF_BOTH)
        assert held() == set(OF_BOTH)
        assert await synced(world.calls, REMOVE, *OF_BOTH[:3]) == Code.OK
        assert held() == set(OF_BOTH[3:])
        assert await synced(world.calls, REPLACE, *OF_BOTH[:4]) == Code.OK
        assert held() == set(OF_BOTH[:4])
        assert await synced(world.calls, END) == Code.OK
        assert held() == set()

    run(tmp_path, tell)


def test_client_whose_stream_has_ended_is_forgotten_by_both_and_may_come_again(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        calls = world.calls
        await joined(calls, *OF_BOTH)
        for _ in range(3):
            context = calls.front.context(calls.head("Telemetry"))
            calls.front.sessions.left(context, calls.told)
            # It comes again at once: what is told of its end may not come behind that.
            await joined(calls, "n0")
            held = [world.held(broker) for broker in world.behind.brokers]
            assert sorted(held, key=len) == [set(), {"n0"}]
        context = calls.front.context(calls.head("Telemetry"))
        calls.front.sessions.left(context, calls.told)
        await until(
            lambda: (
                not any(
                    _subscriptions(broker).get(("client-1", GROUP))
                    for broker in world.behind.brokers
                )
            )
        )
        parts = await calls.receive(PARENT, GROUP)
        assert parts[0].status.code == Code.BAD_REQUEST
        assert parts[0].status.message == "The client [client-1] is disconnected."

    run(tmp_path, tell)


def test_later_consumer_of_an_exclusive_group_takes_over_and_the_first_is_told(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        later = world.client("client-2")
        await joined(world.calls, *OF_BOTH)
        await joined(later, *OF_BOTH)
        told = world.calls.told.commands

        def lost() -> list[str]:
            found = [it for it in told if it.HasField("notify_unsubscribe_lite_command")]
            return sorted(it.notify_unsubscribe_lite_command.lite_topic for it in found)

        await until(lambda: lost() == OF_BOTH)
        assert not any(world.held(broker) for broker in world.behind.brokers)

    run(tmp_path, tell, {"lite.sub.model": "Exclusive"})


def test_quotas_and_names_and_bindings_are_judged_as_in_local_mode(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        calls = world.calls
        await joined(calls)
        settings = calls.told.commands[-1].settings
        assert settings.subscription.lite_subscription_quota == 1
        names = [f"n{number}" for number in range(302)]
        assert await synced(calls, REPLACE, *names) == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert await synced(calls, REPLACE, *names[:301]) == Code.OK
        assert await synced(calls, ADD, "a.b") == Code.ILLEGAL_LITE_TOPIC
        assert await synced(calls, ADD, "a", group="unbound") == Code.ILLEGAL_TOPIC
        assert await synced(calls, ADD, "a", topic="nowhere") == Code.ILLEGAL_TOPIC
        assert await synced(calls, ADD, "a", group="nobody") == Code.ILLEGAL_TOPIC
        ended = await calls.show(consumer(GROUP, LITE_PUSH, "Other"))
        assert ended is not None
        # The brokers' own bound on what one client has comes with its own code.
        assert await synced(calls, ADD, *names[:100]) == Code.OK
        added = [f"m{number}" for number in range(301)]
        assert await synced(calls, ADD, *added) == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED

    run(tmp_path, tell, {"lite.sub.client.quota": "1"})


def test_change_that_one_broker_does_not_take_is_refused_and_the_others_keep_it(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        await joined(world.calls, "n0")
        first, second = world.behind.brokers
        group = second.metadata.groups.get(GROUP)
        assert group is not None
        second.metadata.groups.put(dataclasses.replace(group, consume_enable=False))
        answer = await synced(world.calls, ADD, *OF_BOTH)
        assert answer == Code.INTERNAL_SERVER_ERROR
        wanted = {name for name in OF_BOTH if owner(name) == first.identity.name}
        assert world.held(first) == wanted

    run(tmp_path, tell)


# --- users ---------------------------------------------------------------------------------------

OWN = entry(f"Topic:{PARENT}", "Pub", "Sub"), entry(f"Group:{GROUP}", "Sub")


@contextlib.asynccontextmanager
async def guarded(folder: Path) -> AsyncGenerator[tuple[Guarded, Calls]]:
    async with guarded_cluster(folder, NAMES, rules=RULES, changes=ON) as it:
        fields = {"topic": PARENT, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        fields |= {"attributes": "+message.type=LITE", "defaultTopic": "TBW102"}
        await it.tell(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
        for broker in it.behind.brokers:
            bound = {"lite.bind.topic": PARENT}
            group = SubscriptionGroupConfig(name=GROUP, attributes=bound)
            broker.metadata.groups.put(group)
        for who in (ANN, CLERK):
            await it.make(who)
        await it.allow(ANN, *OWN)
        ann = it.client(ANN)

        async def is_let_in() -> bool:
            return bool(await synced(ann, END) == Code.OK)

        async with asyncio.timeout(20):
            while not await is_let_in():  # noqa: ASYNC110  (brokers are asked each half second)
                await asyncio.sleep(0.05)
        yield it, ann


def test_user_needs_the_parent_and_the_group_for_each_step(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (it, ann):
            clerk = it.client(CLERK, "client-2")
            await joined(ann, *OF_BOTH)
            assert await clerk.show(consumer(GROUP, LITE_PUSH, PARENT)) is not None
            for action in (ADD, REMOVE, REPLACE, END):
                assert await synced(clerk, action, "n0") == Code.UNAUTHORIZED
            await sent(ann, "n0", b"x")
            (found,) = await got(ann, 1)
            for method in ("AckMessage", "ChangeInvisibleDuration"):
                request = settling(method, found)
                if method != "AckMessage":
                    request.invisible_duration.FromMilliseconds(20_000)
                assert (await clerk.call(method, request)).status.code == Code.UNAUTHORIZED
                assert (await ann.call(method, request)).status.code == Code.OK

    asyncio.run(main())


def test_refused_settings_end_no_subscription_of_the_client_whose_id_they_have(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (it, ann):
            await joined(ann, *OF_BOTH)
            clerk = it.client(CLERK, ann.client_id)
            assert await clerk.show(consumer(GROUP, LITE_PUSH, PARENT)) is not None
            light = it.built.front._brokers.light
            assert isinstance(light, ClusterLights)
            assert not light._leaving
            known = (ann.client_id, GROUP)
            assert all(_subscriptions(one).get(known) for one in it.behind.brokers)
            await sent(ann, "n0", b"x")
            assert shown(await got(ann, 1)) == [("n0", b"x", 1)]

    asyncio.run(main())


def test_right_that_was_taken_away_counts_for_a_receive_that_is_held(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (it, ann):
            await joined(ann, "n0")
            both = [
                asyncio.ensure_future(ann.receive(PARENT, GROUP, wait_ms=20_000)) for _ in NAMES
            ]

            def are_held() -> bool:
                lights = [broker.local.light for broker in it.behind.brokers]
                return all(light is not None and len(light.waits._polls) for light in lights)

            await until(are_held)
            await it.allow(CLERK, *OWN)
            await it.tell(
                acl_command(3007, "ann", [entry(f"Topic:{PARENT}", "Sub", decision="Deny")])
            )
            clerk = it.client(CLERK, "client-2")

            async def is_refused() -> bool:
                return await synced(ann, ADD, "n0") == Code.UNAUTHORIZED

            async with asyncio.timeout(20):
                while not await is_refused():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await sent(clerk, "n0", b"x")
            done, waiting = await asyncio.wait(both, timeout=20, return_when="FIRST_COMPLETED")
            (parts,) = [task.result() for task in done]
            assert [part.WhichOneof("content") for part in parts] == ["status"]
            assert parts[0].status.code == Code.UNAUTHORIZED
            for task in waiting:
                task.cancel()
            # It comes to one who may have it, and its time was not spent. While the other one
            # subscribes, a broker may choose it, and waits 10 s for it to ask.
            context = ann.front.context(ann.head("Telemetry"))
            ann.front.sessions.left(context, ann.told)

            def is_forgotten() -> bool:
                known = ("client-1", GROUP)
                return not any(_subscriptions(one).get(known) for one in it.behind.brokers)

            await until(is_forgotten)
            await joined(clerk, "n0")
            assert shown(await got(clerk, 1)) == [("n0", b"x", 1)]

    asyncio.run(main())


# --- answers of RocketMQ's brokers ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("0;3", [0, 3]),
        ("0 qo0%1 2;1", [2, 1]),
        ("", [0, 0]),
        (None, [0, 0]),
        ("1", [0, 0]),
        ("1;2;3", [0, 0]),
        ("x;-1", [0, 0]),
        (f"{'9' * 10};7", [0, 7]),
    ],
)
def test_counts_that_cannot_be_read_are_0(text: str | None, counts: list[int]) -> None:
    assert PopLightResponse(order_count_info=text).counts(2) == counts


# --- who is told ---------------------------------------------------------------------------------


def test_members_stand_for_one_client_each_and_leave_nothing_behind() -> None:
    members, told = Members(), list[tuple[int, str]]()

    def member(who: int) -> Subscriber:
        def lost(name: str) -> None:
            told.append((who, name))

        return Subscriber(who, lost, is_member=True)

    first, second = ("c", "g"), ("c", "h")
    members.put(first, member(1))
    members.put(second, member(1))
    members.lost(first, "a")
    members.lost(second, "b")
    assert told == [(1, "b")]
    members.put(second, member(2))
    members.lost(second, "c")
    assert told[1:] == [(2, "c")]
    assert len(members) == 1
    members.drop(first)
    members.drop(second)
    members.put(first, member(1))
    assert len(members) == 1
    members.drop(first)
    assert not len(members)
    assert not members._clients
