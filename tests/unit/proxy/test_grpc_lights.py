"""Lite topics over gRPC: subscriptions, receives, and what a consumer may not do."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import Calls, consumer, fronted, message
from grpc_lights import (
    ADD,
    END,
    GROUP,
    LITE_PUSH,
    PARENT,
    REMOVE,
    REPLACE,
    got,
    joined,
    settling,
    shown,
    synced,
)
from light_harness import ON
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

RULES = ProxyLimits(port=0, polling_min_ms=0)
ACCOUNTS = """\
accounts:
- accessKey: the-chatter
  secretKey: secret-of-chatter
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Chats=PUB|SUB]
  groupPerms: [chatters=SUB]
- accessKey: the-stranger
  secretKey: secret-of-stranger
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""


def run(
    folder: Path,
    tell: Callable[[Calls], Awaitable[None]],
    rules: ProxyLimits = RULES,
    attributes: dict[str, str] | None = None,
    **more: str,
) -> None:
    async def main() -> None:
        async with fronted(folder / "broker", rules, None, **ON, **more) as calls:
            tables = calls.broker.metadata
            for name in (PARENT, "Other"):
                config = TopicConfig(
                    name=name, read_queues=1, write_queues=1, attributes={"message.type": "LITE"}
                )
                tables.topics.put(config)
            bound = {"lite.bind.topic": PARENT, **(attributes or {})}
            tables.groups.put(SubscriptionGroupConfig(name=GROUP, attributes=bound))
            tables.groups.put(SubscriptionGroupConfig(name="unbound"))
            await tell(calls)

    asyncio.run(main())


async def sent(calls: Calls, light: str, *bodies: bytes) -> None:
    for number, body in enumerate(bodies):
        made = message(PARENT, body, lite_topic=light, message_id=f"{light}-{number}")
        assert (await calls.send(made)).status.code == Code.OK
    while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def test_consumer_gets_its_lite_topics_in_order_until_they_are_settled(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a")
        await sent(calls, "a", b"a0", b"a1")
        await sent(calls, "b", b"b0")
        found = await got(calls)
        assert shown(found) == [("a", b"a0", 1), ("a", b"a1", 1)]
        assert found[0].system_properties.message_type == 5
        # One batch of a lite topic is in flight at a time.
        assert await got(calls, wait_ms=300) == []
        for each in found:
            answer = await calls.call("AckMessage", settling("AckMessage", each))
            assert answer.status.code == Code.OK
        await sent(calls, "a", b"a2")
        assert shown(await got(calls)) == [("a", b"a2", 1)]

    run(tmp_path, tell)


def test_receive_that_waits_is_woken_by_a_message(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a")
        waiting = asyncio.ensure_future(got(calls, wait_ms=20_000))
        light = calls.broker.local.light
        assert light is not None
        while not len(light.waits._polls):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await sent(calls, "a", b"a0")
        assert shown(await waiting) == [("a", b"a0", 1)]

    run(tmp_path, tell)


def test_message_whose_time_was_changed_comes_again_and_counts(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a")
        await sent(calls, "a", b"a0")
        (found,) = await got(calls)
        request = settling("ChangeInvisibleDuration", found)
        request.invisible_duration.FromMilliseconds(100)
        answer = await calls.call("ChangeInvisibleDuration", request)
        assert answer.status.code == Code.OK
        assert answer.receipt_handle != found.system_properties.receipt_handle
        assert shown(await got(calls, wait_ms=20_000)) == [("a", b"a0", 2)]

    run(tmp_path, tell)


def test_message_that_failed_too_often_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        tables = calls.broker.metadata
        group = tables.groups.get(GROUP)
        assert group is not None
        tables.groups.put(dataclasses.replace(group, retry_max_times=0))
        await joined(calls, "a")
        await sent(calls, "a", b"a0")
        (found,) = await got(calls)
        request = settling("ChangeInvisibleDuration", found)
        request.invisible_duration.FromMilliseconds(100)
        await calls.call("ChangeInvisibleDuration", request)
        assert await got(calls, wait_ms=2_000) == []
        dead = f"%DLQ%{GROUP}"
        while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert calls.broker.store.max_offset(dead, 0) == 1

    run(tmp_path, tell)


def test_unsettled_messages_of_a_push_consumer_are_limited(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a", "b")
        await sent(calls, "a", b"a0", b"a1")
        await sent(calls, "b", b"b0")
        found: list[Any] = []
        while len(found) < 3:
            found += await got(calls, auto_renew=True)
        parts = await calls.receive(PARENT, GROUP, wait_ms=100)
        assert parts[0].status.code == Code.FORBIDDEN
        assert parts[0].status.message.endswith("Unacked count: 3")
        await calls.call("AckMessage", settling("AckMessage", found[0]))
        parts = await calls.receive(PARENT, GROUP, wait_ms=100)
        assert parts[0].status.code == Code.MESSAGE_NOT_FOUND

    run(tmp_path, tell, dataclasses.replace(RULES, light_renewed_max=2))


def test_settings_have_quota_and_length_of_names(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls)
        settings = calls.told.commands[-1].settings
        assert settings.subscription.lite_subscription_quota == 7
        assert settings.subscription.max_lite_topic_size == 64

    run(tmp_path, tell, attributes={"lite.sub.client.quota": "7"})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("n" * 64, Code.OK),
        ("n" * 65, Code.ILLEGAL_LITE_TOPIC),
        (" ", Code.ILLEGAL_LITE_TOPIC),
        ("a.b", Code.ILLEGAL_LITE_TOPIC),
        ("a$b", Code.ILLEGAL_LITE_TOPIC),
    ],
)
def test_name_of_a_lite_topic_is_checked(tmp_path: Path, name: str, code: Code) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls)
        assert await synced(calls, ADD, name) == code
        answer = await calls.send(message(PARENT, lite_topic=name))
        assert answer.status.code == code

    run(tmp_path, tell)


def test_group_is_bound_to_its_parent_alone(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        assert await synced(calls, ADD, "a", topic="Other") == Code.ILLEGAL_TOPIC
        assert await synced(calls, ADD, "a", group="unbound") == Code.ILLEGAL_TOPIC
        ended = await calls.show(consumer(GROUP, LITE_PUSH, "Other"))
        assert ended is not None
        assert ended[0] == 3

    run(tmp_path, tell)


def test_quota_and_rate_of_subscriptions_are_kept(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls)
        names = [f"n{number}" for number in range(302)]
        assert await synced(calls, REPLACE, *names) == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert await synced(calls, REPLACE, *names[:301]) == Code.OK
        codes = {await synced(calls, ADD, "n0") for _ in range(100)}
        assert Code.TOO_MANY_REQUESTS in codes

    limits = dataclasses.replace(RULES, light_sync_rate=1)
    run(tmp_path, tell, limits, {"lite.sub.client.quota": "1"})


def test_later_consumer_of_an_exclusive_group_takes_over(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a")
        later = dataclasses.replace(calls, client_id="client-2", told=type(calls.told)())
        await joined(later, "a")
        lost = calls.told.commands[-1]
        assert lost.notify_unsubscribe_lite_command.lite_topic == "a"
        await sent(calls, "a", b"a0")
        assert await got(calls, wait_ms=200) == []
        assert shown(await got(later)) == [("a", b"a0", 1)]

    run(tmp_path, tell, attributes={"lite.sub.model": "Exclusive"})


def test_client_whose_stream_has_ended_gets_nothing_and_holds_nothing(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a")
        light = calls.broker.local.light
        assert light is not None
        stayed = dataclasses.replace(calls, client_id="client-2")
        await joined(stayed, "a")
        calls.front.sessions.left(calls.front.context(calls.head("Telemetry")), calls.told)
        parts = await calls.receive(PARENT, GROUP)
        assert parts[0].status.code == Code.BAD_REQUEST
        assert parts[0].status.message == "The client [client-1] is disconnected."
        await sent(calls, "a", b"a0")
        assert shown(await got(stayed)) == [("a", b"a0", 1)]

    run(tmp_path, tell)


def test_client_without_settings_gets_no_messages_of_the_parent(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await sent(calls, "a", b"a0")
        parts = await calls.receive(PARENT, GROUP)
        assert [part.WhichOneof("content") for part in parts] == ["status"]
        assert parts[0].status.code == Code.BAD_REQUEST

    run(tmp_path, tell)


def test_unsubscribed_lite_topic_gives_nothing(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await joined(calls, "a", "b")
        assert await synced(calls, REMOVE, "a") == Code.OK
        await sent(calls, "a", b"a0")
        await sent(calls, "b", b"b0")
        assert shown(await got(calls)) == [("b", b"b0", 1)]
        assert await synced(calls, END) == Code.OK
        await sent(calls, "b", b"b1")
        assert await got(calls, wait_ms=200) == []

    run(tmp_path, tell)


def test_account_needs_the_parent_and_the_group_alone(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(ACCOUNTS)

    async def tell(calls: Calls) -> None:
        chatter, stranger = (
            dataclasses.replace(calls, access_key=f"the-{who}", secret=f"secret-of-{who}")
            for who in ("chatter", "stranger")
        )
        await joined(chatter, "a")
        await sent(chatter, "a", b"a0", b"a1")
        found = await got(chatter)
        assert shown(found) == [("a", b"a0", 1), ("a", b"a1", 1)]
        assert await synced(stranger, ADD, "a") == Code.UNAUTHORIZED
        for method in ("AckMessage", "ChangeInvisibleDuration"):
            request = settling(method, found[0])
            if method != "AckMessage":
                request.invisible_duration.FromMilliseconds(20_000)
            assert (await stranger.call(method, request)).status.code == Code.UNAUTHORIZED
            assert (await chatter.call(method, request)).status.code == Code.OK
        assert await stranger.show(consumer(GROUP, LITE_PUSH, PARENT)) is not None
        refused = await stranger.receive(PARENT, GROUP)
        assert [part.WhichOneof("content") for part in refused] == ["status"]

    run(tmp_path, tell, aclEnable="true", rocketmqHome=str(tmp_path))
