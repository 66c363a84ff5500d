"""Members of groups that proxies tell one another of, and what a proxy's ports make of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import random
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import Calls, consumer
from remoting_harness import on_loop
from remoting_proxy_harness import ProxyClient, proxy_client, until_so
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.protocol.bodies.clients import ConsumerConnection, ConsumerData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.tags import subscribe
from roquet.proxy.app import build_cluster
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.groups.app import build_members
from roquet.proxy.groups.members import AGAIN_MS, BYTES_MAX, EXPIRES_MS, OTHERS_MAX, GroupMembers
from roquet.proxy.groups.notices import GRPC, Channel, Notice
from roquet.proxy.groups.waiting import CHARACTERS_MAX, NOTICES_MAX, WaitingNotices
from roquet.proxy.remoting.app import RemotingProxy, build
from roquet.proxy.remoting.limits import RemotingLimits
from roquet.proxy.rules.limits import ProxyLimits
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roquet.testing.cluster import Cluster

GROUP, TOPIC = "readers", "Told"


def notice(client: str = "c@1", proxy: str = "there", port: int = 5, **more: Any) -> Notice:
    """Return a notice of a member."""
    consumer = ConsumerData(group=GROUP, subscriptions=(subscribe(TOPIC, "*"),))
    channel = Channel(
        proxy_host="10.0.0.1", client=f"10.0.0.9:{port}", proxy="10.0.0.1:8081", protocol=GRPC
    )
    given: dict[str, Any] = {
        "is_member": True,
        "client_id": client,
        "language": "JAVA",
        "version": 500,
        "consumer": consumer,
        "proxy_id": proxy,
        "channel": channel,
    }
    return Notice(**{**given, **more})


def ids(members: GroupMembers) -> list[str]:
    return sorted(member.client_id for member in members.of(GROUP))


def of_extra(client: str, characters: int, **more: Any) -> Notice:
    """Return a notice of somebody who has so much to say."""
    given = notice(client)
    channel = dataclasses.replace(given.channel, extra="x" * characters)
    return dataclasses.replace(given, channel=channel, **more)


def test_of_the_notices_of_a_connection_the_last_one_waits() -> None:
    waiting = WaitingNotices()
    for one in (of_extra("a", 5), of_extra("b", 5), of_extra("a", 50, is_member=False)):
        waiting.put(one)
    assert [(it.client_id, it.is_member) for it in waiting.take(1)] == [("a", False)]
    assert [(it.client_id, it.is_member) for it in waiting.take(9)] == [("b", True)]
    assert (len(waiting), waiting.characters) == (0, 0)


def test_notices_that_wait_have_bounds_in_number_and_size() -> None:
    waiting = WaitingNotices()
    for number in range(200):
        waiting.put(of_extra(f"c{number:03}", 1 << 20))
    assert waiting.characters <= CHARACTERS_MAX
    kept = waiting.take(200)
    assert 60 < len(kept) < 64
    assert [it.client_id for it in kept] == [f"c{it:03}" for it in range(200 - len(kept), 200)]
    assert waiting.characters == 0
    for number in range(NOTICES_MAX + 5):
        waiting.put(notice(str(number)))
    assert len(waiting) == NOTICES_MAX
    assert waiting.take(1)[0].client_id == "5"


# --- notices ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("at_brokers", [True, False])
def test_notice_that_is_written_is_read_as_the_same(is_member: bool, at_brokers: bool) -> None:
    given = notice(is_member=is_member, at_brokers=at_brokers)
    assert Notice.decode(given.encode(7)) == given


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"heartbeatType":"OTHER"}',
        notice().encode(1).replace(b'"REGISTER"', b"1"),
        notice().encode(1).replace(b'"{', b'"['),
        b" " * (1 << 20) + notice().encode(1),
    ],
)
def test_notice_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(JsonError):
        Notice.decode(body)


# --- who is where ----------------------------------------------------------------------------


def test_own_member_is_told_of_when_it_comes_changes_stays_and_leaves() -> None:
    told: list[Notice] = []
    members = GroupMembers("here", told.append)
    first = notice(proxy="here")
    members.put(1, first, 0)
    members.put(1, first, AGAIN_MS - 1)
    assert told == [first], "nothing is said twice"
    changed = dataclasses.replace(first, version=501)
    members.put(1, changed, AGAIN_MS - 1)
    members.tell_again(2 * AGAIN_MS - 2)
    assert told == [first, changed]
    members.tell_again(2 * AGAIN_MS - 1)
    assert told == [first, changed, changed]
    assert ids(members) == ["c@1"]
    members.leave(1)
    assert told[3:] == [dataclasses.replace(changed, is_member=False)]
    members.leave(1)
    assert len(told) == 4
    assert len(members) == 0
    assert not list(members.of(GROUP))


def test_member_of_another_proxy_is_here_until_it_leaves_or_is_silent() -> None:
    members = GroupMembers("here", lambda _: None)
    one, two = notice("one", port=1), notice("two", port=2)
    assert members.hear(one, 10, 0)
    assert members.hear(two, 10, 5)
    assert members.hear(notice("mine", "here", 3), 10, 5), "its own notices come back to it"
    assert ids(members) == ["one", "two"]
    members.expire(EXPIRES_MS - 1)
    assert ids(members) == ["one", "two"]
    members.expire(EXPIRES_MS)
    assert ids(members) == ["two"]
    assert members.hear(dataclasses.replace(two, is_member=False), 10, 6)
    assert members.others == 0


def test_members_of_others_have_bounds_of_number_and_bytes() -> None:
    members = GroupMembers("here", lambda _: None)
    assert members.hear(notice("one", port=1), BYTES_MAX - 10, 0)
    assert not members.hear(notice("two", port=2), 11, 0)
    assert members.hear(notice("one", port=1), 1, 0), "its former notice does not count any more"
    assert members.hear(notice("two", port=2), 11, 0)
    many = GroupMembers("here", lambda _: None)
    base = notice()
    for number in range(OTHERS_MAX):
        channel = dataclasses.replace(base.channel, client=str(number))
        assert many.hear(dataclasses.replace(base, channel=channel), 1, 0)
    assert not many.hear(base, 1, 0)


# --- two proxies -----------------------------------------------------------------------------


@dataclasses.dataclass
class Door:
    """One proxy, both ports."""

    calls: Calls
    remoting: RemotingProxy
    members: GroupMembers


@contextlib.asynccontextmanager
async def door(behind: Cluster, seed: int) -> AsyncGenerator[Door]:
    config = ClusterConfig(name_servers=behind.name_servers, serve_host="127.0.0.1")
    rng, clock = random.Random(seed), SystemClock()
    app, own = build_members(config, clock, rng, grpc_port=0, remoting_port=0)
    rules = ProxyLimits(port=0)
    built = build_cluster(config, "127.0.0.1", rules, clock, rng, groups=own)
    limits = load(RemotingLimits, {"remotingListenPort": "0"}, {}, {})[0]
    names = tuple(behind.name_servers.split(";"))
    remoting = build(limits, host="127.0.0.1", name_servers=names, clock=clock, members=own)
    async with app, built.app, remoting.app:
        yield Door(Calls(built.front, behind.broker, built.port), remoting, own.members)


async def connected(client: ProxyClient, group: str = GROUP) -> ConsumerConnection | None:
    """Ask as `mqadmin consumerConnection -b PROXY` does."""
    fields = {"consumerGroup": group}
    answer = await client.call(Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields))
    return ConsumerConnection.decode(answer.body) if answer.code == 0 else None


@on_loop
async def _two_proxies(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        behind = await stack.enter_async_context(cluster(folder))
        assert (await behind.send(TOPIC)).code == 0
        doors = [await stack.enter_async_context(door(behind, seed)) for seed in (1, 2)]
        asked = await stack.enter_async_context(proxy_client(doors[1].remoting))
        # The first proxy makes the topic; each reads from its end on.
        table = behind.name_server.table
        topic = "DefaultHeartBeatSyncerTopic"
        await until_so(lambda: _is(topic in table.topics))
        first = await stack.enter_async_context(proxy_client(doors[0].remoting))

        async def seen() -> bool:
            # Until both read, a notice may be before the end that one begins at.
            doors[0].members.tell_again(1 << 60)
            await asyncio.sleep(0.2)
            return GROUP in _groups(doors[1].members)

        doors[0].calls.client_id = "grpc@1"
        assert await doors[0].calls.show(consumer(GROUP, 3, TOPIC)) is None
        await until_so(seen)
        assert (await first.beat("plain@1", GROUP, TOPIC)).code == 0
        for client in (first, asked):
            await client.route(TOPIC)
            await until_so(functools.partial(_are, client, ["grpc@1", "plain@1"]))
            found = await connected(client)
            assert found is not None
            assert sorted(one.client_id for one in found.connections) == ["grpc@1", "plain@1"]
            assert found.subscriptions[TOPIC].expression == "*"
        async with proxy_client(doors[1].remoting) as tool:
            assert await connected(tool) is not None, "a tool asks for no route before"


async def _is(value: bool) -> bool:
    return value


async def _are(client: ProxyClient, wanted: list[str]) -> bool:
    return await client.members(GROUP) == wanted


def _groups(members: GroupMembers) -> set[str]:
    return {GROUP} if list(members.of(GROUP)) else set()


def test_client_of_one_proxy_is_a_member_at_the_other(tmp_path: Path) -> None:
    _two_proxies(tmp_path)
