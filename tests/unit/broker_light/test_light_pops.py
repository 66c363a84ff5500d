"""Subscriptions to light topics, pops of them, and what settles their messages."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext
from light_harness import (
    CLIENT,
    GROUP,
    PARENT,
    LaterClock,
    LightPop,
    ack,
    ack_command,
    ctl_command,
    light_upkeep,
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
from pop_harness import now_ms
from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.protocol.bodies.light_topics import LightClient
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def told(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    """Tell a story with a parent and a group bound to it."""

    async def begun(it: Cluster) -> None:
        await put_parent(it)
        await put_group(it)
        await tell(it)

    playing(folder, begun, **changes)


@pytest.mark.parametrize("by_events", ["true", "false"])
def test_pop_gives_messages_of_subscribed_light_topics_in_order(
    tmp_path: Path, by_events: str
) -> None:
    async def tell(it: Cluster) -> None:
        await send(it, "a", b"a0", b"a1")
        await send(it, "other", b"x")
        await subscribe(it, "a", "b")
        await send(it, "b", b"b0")
        found = await pop(it)
        assert found.code == 0
        assert sorted(found.bodies) == [b"a0", b"a1", b"b0"]
        assert found.bodies.index(b"a0") < found.bodies.index(b"a1")
        assert found.ext["reviveQid"] == "999"
        assert found.counts == [0, 0, 0]
        # In flight: each light topic is blocked until its batch is settled.
        await send(it, "a", b"a2")
        assert (await pop(it)).code == ResponseCode.POLLING_TIMEOUT
        await ack(it, *found.handles)
        again = await pop(it)
        assert again.bodies == [b"a2"]
        await ack(it, *again.handles)
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) == 3
        assert (await pop(it)).code == ResponseCode.POLLING_TIMEOUT

    told(tmp_path, tell, enableLiteEventMode=by_events)


@pytest.mark.parametrize("by_events", ["true", "false"])
def test_held_pop_is_answered_when_a_message_comes(tmp_path: Path, by_events: str) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        waiting = asyncio.create_task(it.call(pop_command(pollTime="15000")))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        before = now_ms()
        await send(it, "a", b"now")
        found = popped(await waiting)
        assert (found.bodies, now_ms() - before < 10_000) == ([b"now"], True)

    told(tmp_path, tell, enableLiteEventMode=by_events)


def test_message_not_acknowledged_comes_again_and_is_counted(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1")
        first = await pop(it, invisibleTime="300")
        await ack(it, first.handles[0])
        # It wakes whoever waits when its time is over, with no message in between.
        again = popped(await it.call(pop_command(pollTime="15000")))
        assert (again.bodies, again.counts) == ([b"1"], [1])
        # The earlier handle does no harm and settles nothing.
        await ack(it, first.handles[1])
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) == 1
        await ack(it, again.handles[0])
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) == 2

    told(tmp_path, tell)


def test_message_acknowledged_behind_another_does_not_come_again(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1", b"2", b"3")
        first = await pop(it, invisibleTime="300")
        await ack(it, first.handles[0], first.handles[2])
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) == 1
        again = popped(await it.call(pop_command(pollTime="15000", invisibleTime="300")))
        assert (again.bodies, again.counts) == ([b"1", b"3"], [1, 1])
        await ack(it, again.handles[1])
        third = popped(await it.call(pop_command(pollTime="15000")))
        assert (third.bodies, third.counts) == ([b"1"], [2])
        await ack(it, *third.handles)
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) == 4

    told(tmp_path, tell)


def test_message_acknowledged_behind_a_smaller_pop_does_not_come_again(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async def again(count: int) -> LightPop:
            fields = {"pollTime": "15000", "invisibleTime": "300", "maxMsgNum": str(count)}
            return popped(await it.call(pop_command(**fields)))

        def committed() -> int | None:
            return it.broker.metadata.offsets.committed(GROUP, queue("a"), 0)

        await subscribe(it, "a")
        await send(it, "a", *(b"%d" % number for number in range(7)))
        first = await pop(it, invisibleTime="300")
        await ack(it, *(first.handles[at] for at in (1, 2, 4, 5)))
        one = await again(1)
        assert one.bodies == [b"0"]
        # The answer is for the first message alone; what is known of the others stays.
        await ack(it, *one.handles)
        assert committed() == 3
        three = await again(1)
        assert three.bodies == [b"3"]
        assert (await again(1)).bodies == [b"3"]
        last = await again(5)
        assert last.bodies == [b"3", b"6"]
        await ack(it, *last.handles)
        assert committed() == 7
        assert not (await pop(it)).bodies

    told(tmp_path, tell)


def test_search_by_time_is_about_the_light_topic(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async def found(**fields: str) -> tuple[int, str | None]:
            asked = {"topic": PARENT, "queueId": "3", "timestamp": "0", **fields}
            answer = await it.call(Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext=asked))
            return int(answer.code), ext(answer).get("offset") if answer.ext else answer.remark

        await send(it, "b", b"other")
        await send(it, "a", b"0", b"1")
        await asyncio.sleep(0.01)
        middle = str(now_ms())
        await asyncio.sleep(0.01)
        await send(it, "a", b"2")
        assert await found(liteTopic="a") == (0, "0")
        assert await found(liteTopic="a", timestamp=middle) == (0, "2")
        assert await found(liteTopic="b", timestamp=middle, boundaryType="UPPER") == (0, "0")
        # Without a name it is the parent's queue, which the test sends nothing to.
        assert await found(liteTopic=" ", timestamp=middle) == await found(timestamp=middle)
        for name in ("a$b", "a,b", "a/b"):
            assert await found(liteTopic=name) == (29, f"{name!r} is no name of a light topic")

    told(tmp_path, tell)


def test_same_attempt_gets_the_same_messages_again(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1")
        assert (await pop(it, attemptId="one", maxMsgNum="1")).bodies == [b"0"]
        await it.call(Command(RequestCode.TRIGGER_LITE_DISPATCH, ext={"group": GROUP}))
        assert (await pop(it, attemptId="two")).bodies == []
        await it.call(Command(RequestCode.TRIGGER_LITE_DISPATCH, ext={"group": GROUP}))
        again = await pop(it, attemptId="one", maxMsgNum="1")
        assert (again.bodies, again.counts) == ([b"0"], [0])

    told(tmp_path, tell)


@pytest.mark.parametrize(("suspend", "count"), [("false", 1), ("true", 0)])
def test_changed_invisible_time_counts_unless_suspended(
    tmp_path: Path, suspend: str, count: int
) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0")
        first = await pop(it)
        change = ack_command(first.handles[0], invisibleTime="400", suspend=suspend)
        command = dataclasses.replace(change, code=RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        answer = await it.call(command)
        assert answer.code == 0, answer.remark
        assert ext(answer)["reviveQid"] == "999"
        assert ext(answer)["popTime"] == first.ext["popTime"]
        again = popped(await it.call(pop_command(pollTime="15000")))
        assert (again.bodies, again.counts) == ([b"0"], [count])

    told(tmp_path, tell)


def test_message_shown_sooner_comes_then_though_another_is_acknowledged_later(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1")
        first = await pop(it)
        change = ack_command(first.handles[1], invisibleTime="400")
        command = dataclasses.replace(change, code=RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        assert (await it.call(command)).code == 0
        await ack(it, first.handles[0])
        again = popped(await it.call(pop_command(pollTime="5000")))
        assert (again.bodies, again.counts) == ([b"1"], [1])

    told(tmp_path, tell)


def test_many_light_topics_reach_a_client_of_few_events(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(60)]

    async def tell(it: Cluster) -> None:
        await put_group(it, GROUP, **{"lite.sub.client.max.event.cnt": "10"})
        await subscribe(it, *names)
        for name in names:
            await send(it, name, name.encode())
        found: list[bytes] = []
        async with asyncio.timeout(30):
            while len(found) < len(names):
                answer = popped(await it.call(pop_command(pollTime="1000")))
                found += answer.bodies
                await ack(it, *answer.handles)
        assert sorted(found) == sorted(name.encode() for name in names)

    told(tmp_path, tell, liteEventFullDispatchDelayTime="50", liteEventCheckInterval="100")


def test_complete_add_replaces_and_complete_remove_ends_the_subscription(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a", "b")
        assert (await it.call(ctl_command("COMPLETE_ADD", ["b", "c"]))).code == 0
        for name in "abc":
            await send(it, name, name.encode())
        assert sorted((await pop(it)).bodies) == [b"b", b"c"]
        assert (await it.call(ctl_command("PARTIAL_REMOVE", ["c"]))).code == 0
        assert (await shown(it))[0] == 1
        assert (await it.call(ctl_command("COMPLETE_REMOVE"))).code == 0
        assert (await shown(it))[0] == -1
        # What nobody knows can be removed without harm.
        assert (await it.call(ctl_command("COMPLETE_REMOVE"))).code == 0
        assert (await it.call(ctl_command("PARTIAL_REMOVE", ["a"]))).code == 0

    told(tmp_path, tell)


async def shown(it: Cluster, client: str = CLIENT) -> tuple[int, list[str]]:
    """Return how many light topics a client has, and which."""
    asked = {"parentTopic": PARENT, "group": GROUP, "clientId": client, "maxCount": "1000"}
    answer = await it.call(Command(RequestCode.GET_LITE_CLIENT_INFO, ext=asked))
    assert answer.code == 0, answer.remark
    found = LightClient.decode(answer.body)
    return found.count, sorted(found.queues or ())


def test_later_subscriber_of_exclusive_group_takes_the_light_topic(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        exclusive = {"lite.sub.model": "Exclusive", "lite.sub.reset.offset.exclusive": "true"}
        await put_group(it, GROUP, **exclusive)
        heard: list[dict[str, str]] = []

        def hear(request: Request) -> None:
            heard.append(ext(request.command))

        code = RequestCode.NOTIFY_UNSUBSCRIBE_LITE
        first = Client(clock=SystemClock(), handlers=[Route((code,), hear, "notices")])
        await first.start()
        try:
            command = ctl_command("PARTIAL_ADD", ["a", "b"], clientId="first")
            assert (await first.call(it.address, command, 20.0)).code == 0
            await send(it, "a", b"0")
            taken = await pop(it, clientId="first")
            await ack(it, *taken.handles)
            await subscribe(it, "a", clientId="second")
            await until(lambda: bool(heard), 20)
            assert heard == [{"liteTopic": "a", "consumerGroup": GROUP, "clientId": "first"}]
            assert (await shown(it, "first"))[1] == [queue("b")]
            # The new one begins at the first message, as the group's attribute wants.
            assert (await pop(it, clientId="second")).bodies == [b"0"]
            # Saying it again takes nothing from oneself.
            await subscribe(it, "a", clientId="second")
            assert (await shown(it, "second"))[1] == [queue("a")]
        finally:
            await first.stop()

    told(tmp_path, tell)


def test_shared_group_keeps_all_subscribers_and_gives_each_message_once(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for client in ("one", "two"):
            await subscribe(it, "a", clientId=client)
        await send(it, "a", b"0")
        found = [await pop(it, clientId=client) for client in ("one", "two")]
        assert [body for one in found for body in one.bodies] == [b"0"]

    told(tmp_path, tell)


def test_each_group_gets_the_message(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_group(it, "others")
        await subscribe(it, "a")
        await subscribe(it, "a", group="others")
        await send(it, "a", b"0")
        assert (await pop(it)).bodies == [b"0"]
        assert (await pop(it, consumerGroup="others")).bodies == [b"0"]

    told(tmp_path, tell)


def test_wildcard_group_gets_every_light_topic_of_the_parent(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_group(it, GROUP, **{"lite.sub.wildcard": "true"})
        await send(it, "before", b"0")
        assert (await it.call(ctl_command("PARTIAL_ADD", ["a"]))).code == 604
        assert (await it.call(ctl_command("COMPLETE_ADD"))).code == 0
        await send(it, "after", b"1")
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < 2:
                found += popped(await it.call(pop_command(pollTime="1000"))).bodies
        assert sorted(found) == [b"0", b"1"]
        assert await shown(it) == (1, [f"{PARENT}@{GROUP}"])

    told(tmp_path, tell, liteEventCheckInterval="100")


@pytest.mark.parametrize(
    ("option", "bodies"),
    [
        (None, [b"2", b"3"]),
        ({"type": "POLICY", "value": 0}, [b"2", b"3"]),
        ({"type": "POLICY", "value": 1}, [b"0", b"1", b"2", b"3"]),
        ({"type": "POLICY", "value": 2}, []),
        ({"type": "OFFSET", "value": 3}, [b"3"]),
        ({"type": "OFFSET", "value": -7}, [b"0", b"1", b"2", b"3"]),
        ({"type": "TAIL_N", "value": 1}, [b"1", b"2", b"3"]),
        ({"type": "TIMESTAMP", "value": 1}, [b"2", b"3"]),
    ],
)
def test_subscriber_begins_where_its_option_says(
    tmp_path: Path, option: dict[str, object] | None, bodies: list[bytes]
) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a", clientId="earlier")
        await send(it, "a", b"0", b"1")
        taken = await pop(it, clientId="earlier")
        await ack(it, *taken.handles)
        assert (await it.call(ctl_command("COMPLETE_REMOVE", clientId="earlier"))).code == 0
        await send(it, "a", b"2", b"3")
        await subscribe(it, "a", offsetOption=option)
        assert (await pop(it)).bodies == bodies

    told(tmp_path, tell)


def test_unsubscribed_group_begins_anew_where_its_attribute_says_so(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_group(it, GROUP, **{"lite.sub.reset.offset.unsubscribe": "true"})
        await subscribe(it, "a")
        await send(it, "a", b"0")
        await ack(it, *(await pop(it)).handles)
        assert (await it.call(ctl_command("PARTIAL_REMOVE", ["a"]))).code == 0
        await subscribe(it, "a")
        assert (await pop(it)).bodies == [b"0"]

    told(tmp_path, tell)


def test_subscription_that_is_not_renewed_goes_and_others_get_its_events(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a", clientId="silent")
        await send(it, "a", b"0")
        async with asyncio.timeout(20):
            while (await shown(it, "silent"))[0] != -1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await subscribe(it, "a")
        assert (await pop(it)).bodies == [b"0"]

    changes = {"liteSubscriptionCheckInterval": "100", "liteSubscriptionCheckTimeoutMills": "300"}
    told(tmp_path, tell, **changes)


def test_acknowledged_messages_stay_so_after_a_restart(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1", b"2")
        found = await pop(it)
        await ack(it, found.handles[0])

    async def after(it: Cluster) -> None:
        # Subscriptions are in memory: the client says it again.
        assert (await shown(it))[0] == -1
        await subscribe(it, "a")
        assert (await pop(it)).bodies == [b"1", b"2"]

    told(tmp_path, before)
    playing(tmp_path, after)


def test_idle_light_topic_goes_with_its_offsets_and_begins_anew(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it, PARENT, **{"lite.topic.expiration": "1"})
        await put_parent(it, "kept")
        await subscribe(it, "a")
        await send(it, "a", b"0")
        await send(it, "a", b"k", parent="kept")
        await ack(it, *(await pop(it)).handles)
        upkeep = it.broker
        assert upkeep.store.max_offset(queue("a"), 0) == 1
        later = LaterClock(65_000)
        await light_upkeep(it, later).expire()
        assert it.broker.store.max_offset(queue("a"), 0) == 0
        assert it.broker.store.max_offset("%LMQ%$kept$a", 0) == 1
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) is None
        await send(it, "a", b"1", b"2")
        await subscribe(it, "a")
        assert (await pop(it)).bodies == [b"1", b"2"]
        # The messages stay in the parent.
        assert it.broker.store.max_offset(PARENT, 0) == 3

    told(tmp_path, tell)


def test_deleted_parent_takes_its_light_topics_with_it(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0")
        await ack(it, *(await pop(it)).handles)
        delete = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": PARENT})
        assert (await it.call(delete)).code == 0
        assert it.broker.store.max_offset(queue("a"), 0) == 0
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) is None

    told(tmp_path, tell)


def test_deleted_group_of_light_topics_loses_its_offsets(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0")
        await ack(it, *(await pop(it)).handles)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        assert (await it.call(Command(code, ext={"groupName": GROUP}))).code == 0
        assert it.broker.metadata.offsets.committed(GROUP, queue("a"), 0) is None
        await dispatched(it)

    told(tmp_path, tell)


def test_group_made_anew_gets_what_the_one_before_had_acknowledged_in_its_batch(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        await put_group(it)
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1", b"2")
        taken = await pop(it)
        await ack(it, taken.handles[1])
        ext = {"groupName": GROUP, "cleanOffset": "true"}
        answer = await it.call(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext=ext))
        assert answer.code == 0
        await put_group(it)
        await subscribe(it, "a")
        await send(it, "a", b"3")
        assert (await pop(it)).bodies == [b"0", b"1", b"2", b"3"]

    playing(tmp_path, tell)
