"""Clients of the proxy's remoting port, as brokers see them: groups, locks, checks, held pulls."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING

from broker_harness import ext
from remoting_harness import on_loop, until
from remoting_proxy_harness import ProxyClient, proxy, proxy_client, proxy_clients, until_so
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.clients import CheckClient, HeartbeatData
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command, bytes_of, reply_to
from roquet.protocol.tags import subscribe
from roquet.proxy.remoting.limits import HEARTBEATS_BYTES_MAX
from roquet.testing.cluster import cluster, running_broker, running_name_server
from roquet.testing.java import free_port
from transaction_harness import COMMIT, QUICK, end_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.proxy.remoting.app import RemotingProxy
    from roquet.remoting.router import Request

TOPIC = "Through"
GROUP = "readers"
HOLD = {"sysFlag": "6", "suspendTimeoutMillis": "30000"}


def commit(offset: int) -> Command:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "commitOffset": str(offset),
        "bname": "broker-a",
    }
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def committed(client: ProxyClient) -> int:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "bname": "broker-a"}
    answer = await client.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, fields))
    return int(ext(answer)["offset"]) if answer.code == 0 else -1


@on_loop
async def _members(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        assert (await it.send(TOPIC)).code == 0
        doors = [await stack.enter_async_context(proxy(it.name_servers)) for _ in range(2)]
        first = await stack.enter_async_context(proxy_client(doors[0]))
        direct = await stack.enter_async_context(proxy_client(it.address))
        assert (await first.beat("one@1", GROUP, TOPIC)).code == 0
        assert (await direct.beat("direct@1", GROUP, TOPIC)).code == 0
        async with proxy_client(doors[1]) as second:
            assert (await second.beat("two@2", GROUP, TOPIC)).code == 0
            everybody = ["direct@1", "one@1", "two@2"]
            for client in (first, second, direct):
                assert await client.members(GROUP) == everybody
            # The broker says so to those that were there, whichever way they came.
            changed = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            await until(lambda: changed in first.codes() and changed in direct.codes())
            shown = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
            answer = await second.call(shown)
            assert all(name.encode() in answer.body for name in everybody)
        # The second left without a word.
        await until(lambda: doors[1].sessions.connections == 0)
        assert len(doors[1].sessions) == 0

        async def left() -> bool:
            return await first.members(GROUP) == ["direct@1", "one@1"]

        await until_so(left)
        leaving = {"clientID": "one@1", "consumerGroup": GROUP}
        assert (await first.call(Command(RequestCode.UNREGISTER_CLIENT, leaving))).code == 0
        assert await direct.members(GROUP) == ["direct@1"]


def test_groups_have_members_of_both_proxies_and_of_none(tmp_path: Path) -> None:
    _members(tmp_path)


@on_loop
async def _commits(folder: Path) -> None:
    async with cluster(folder) as it, proxy(it.name_servers) as door, proxy_client(door) as client:
        assert (await client.send(TOPIC)).code == 0
        assert (await client.beat("one@1", GROUP, TOPIC)).code == 0
        assert (await client.call(commit(1))).code == 0
        assert await committed(client) == 1
        assert (await client.send(TOPIC)).code == 0
        told = commit(2)
        told.flag = FLAG_ONE_WAY
        await client.tell(told)

        async def there() -> bool:
            return await committed(client) == 2

        await until_so(there)


def test_commits_are_forwarded_with_and_without_an_answer(tmp_path: Path) -> None:
    _commits(tmp_path)


@on_loop
async def _locks(folder: Path) -> None:
    async with cluster(folder) as it, proxy(it.name_servers) as door, proxy_client(door) as client:
        assert (await client.send(TOPIC)).code == 0

        def asked(*brokers: str) -> Command:
            queues = frozenset(MessageQueue(TOPIC, name, 0) for name in brokers)
            body = LockRequest(client_id="one@1", group=GROUP, queues=queues).encode()
            return Command(RequestCode.LOCK_BATCH_MQ, {}, body)

        locked = await client.call(asked("broker-a"))
        assert decode_locked(locked.body) == {MessageQueue(TOPIC, "broker-a", 0)}
        mixed = await client.call(asked("broker-a", "broker-b"))
        assert (mixed.code, "2 brokers" in (mixed.remark or "")) == (29, True)
        assert (await client.call(asked())).remark == "MessageQueue set is empty"
        assert (await client.call(asked("nobody"))).code == 17
        assert (await client.call(Command(RequestCode.LOCK_BATCH_MQ, {}, b"{"))).code == 1


def test_locks_go_to_the_broker_of_their_queues(tmp_path: Path) -> None:
    _locks(tmp_path)


@on_loop
async def _asked_back(folder: Path) -> None:
    def answer(request: Request) -> Command | None:
        if request.command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return reply_to(request.command, body=b'{"properties":{"asked":"1"}}')
        return None

    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder, **QUICK))
        door = await stack.enter_async_context(proxy(it.name_servers))
        client = await stack.enter_async_context(proxy_client(door, answer))
        assert (await it.send(TOPIC)).code == 0
        assert (await client.beat("one@1", GROUP, TOPIC, producer="tx_producers")).code == 0
        fields = {"consumerGroup": GROUP, "clientId": "one@1", "jstackEnable": "false"}
        shown = await it.call(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        assert (shown.code, b'"asked"' in shown.body) == (0, True)
        half = "UNIQ_KEY\x01k1\x02TRAN_MSG\x01true\x02PGROUP\x01tx_producers\x02"
        made = {"topic": "Halves", "defaultTopic": "TBW102", "readQueueNums": "1"}
        made |= {"writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        made |= {"topicSysFlag": "0", "order": "false"}
        made |= {"attributes": "+message.type=TRANSACTION"}
        assert (await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, made))).code == 0
        sent = await client.send("Halves", properties=half, f="4", a="tx_producers")
        assert sent.code == 0, sent.remark
        check = RequestCode.CHECK_TRANSACTION_STATE
        await until(lambda: check in client.codes())
        question = next(one for one in client.asked if one.code == check)
        said = ext(question)
        assert said["bname"] == "broker-a"
        end = end_command(
            COMMIT,
            int(said["commitLogOffset"]),
            int(said["tranStateTableOffset"]),
            fromTransactionCheck="true",
            bname=said["bname"],
        )
        end.flag = FLAG_ONE_WAY
        await client.tell(end)
        await until(lambda: it.broker.store.max_offset("Halves", 0) == 1)
        # Nobody answers: the asker hears so and does not wait for ever.
        silent = await stack.enter_async_context(proxy_client(door, lambda _: None))
        assert (await silent.beat("mute@1", "mutes", TOPIC)).code == 0
        fields = {"consumerGroup": "mutes", "clientId": "mute@1", "jstackEnable": "false"}
        unanswered = await it.call(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        assert unanswered.code != 0
        assert unanswered.remark


def test_requests_of_brokers_reach_the_client_and_answers_come_back(tmp_path: Path) -> None:
    _asked_back(tmp_path)


async def _dispatched(client: ProxyClient, offset: int) -> None:
    """Wait for a message: a pull beyond the end of its queue is answered at once."""

    async def there() -> bool:
        return b"hello" in (await client.pull(TOPIC, offset)).body

    await until_so(there)


async def _held(door: RemotingProxy, client: ProxyClient, offset: int) -> asyncio.Task[Command]:
    """Have a pull held at the broker, behind its last message."""
    await _dispatched(client, offset - 1)
    pull = asyncio.get_running_loop().create_task(client.pull(TOPIC, offset, **HOLD))
    await until(lambda: door.forwarded.held == 1)
    return pull


@on_loop
async def _woken(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        assert (await it.send(TOPIC)).code == 0
        door = await stack.enter_async_context(proxy(it.name_servers))
        client = await stack.enter_async_context(proxy_client(door))
        assert (await client.beat("one@1", GROUP, TOPIC)).code == 0
        pull = await _held(door, client, 1)
        assert (await client.send(TOPIC)).code == 0
        found = await pull
        assert (found.code, b"hello" in found.body) == (0, True)
        # A stop of the proxy sends those who wait elsewhere; older clients hear code 14.
        pull = await _held(door, client, 2)
        await door.forwarded.stop()
        assert (await pull).code == 1500


def test_held_pulls_end_by_a_message_or_by_the_proxys_stop(tmp_path: Path) -> None:
    _woken(tmp_path)


@on_loop
async def _restarted(folder: Path) -> None:
    # The kernel gives the port above one of its choice to connections, so slaves could not have it.
    changes = {"listenPort": str(free_port(random.Random()))}
    async with running_name_server(folder / "n") as names:
        address = f"127.0.0.1:{names.server.port}"
        async with proxy(address) as door, proxy_client(door) as client:
            async with running_broker(folder / "b", address, changes=changes):
                await until(lambda: "broker-a" in names.table.topics)
                assert (await client.send(TOPIC)).code == 0
                assert (await client.beat("one@1", GROUP, TOPIC)).code == 0
                await _dispatched(client, 0)
                pulls = [
                    asyncio.get_running_loop().create_task(client.pull(TOPIC, 1, **HOLD))
                    for _ in range(20)
                ]
                await until(lambda: door.forwarded.held == 20)
            for answer in await asyncio.gather(*pulls):
                assert answer.code in (0, 1, 19, 20), answer
            # Away: said at once, with the broker's name, to sends and pulls alike.
            for answer in (await client.send(TOPIC), await client.pull(TOPIC)):
                assert answer.code in (1, 17), answer
                assert "broker-a" in (answer.remark or "")
            async with running_broker(folder / "b", address, changes=changes):
                await until(lambda: "broker-a" in names.table.topics)

                async def back() -> bool:
                    return (await client.send(TOPIC)).code == 0

                await until_so(back)
                # The group is known there again, before the first request of its client.
                assert await client.members(GROUP) == ["one@1"]

                async def received() -> bool:
                    return b"hello" in (await client.pull(TOPIC, 1)).body

                await until_so(received)


def test_clients_return_to_a_broker_that_restarts_under_held_pulls(tmp_path: Path) -> None:
    _restarted(tmp_path)


@on_loop
async def _many(folder: Path) -> None:
    count = 300
    async with cluster(folder) as it, proxy(it.name_servers) as door:
        assert (await it.send(TOPIC)).code == 0
        async with proxy_clients(door, count) as clients:
            answers = await asyncio.gather(
                *(client.beat(f"c@{i}", f"g{i % 60}", TOPIC) for i, client in enumerate(clients))
            )
            assert {answer.code for answer in answers} == {0}
            assert len(await clients[0].members("g0")) == count // 60
            assert (len(door.sessions), door.sessions.connections) == (count, count)
        await until(lambda: (len(door.sessions), door.sessions.connections) == (0, 0))
        async with proxy_client(it.address) as direct:
            for number in range(60):
                fields = {"consumerGroup": f"g{number}"}
                asked = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)

                async def empty(asked: Command = asked) -> bool:
                    return (await direct.call(asked)).code != 0

                await until_so(empty)


def test_hundreds_of_clients_come_and_leave_nothing_behind(tmp_path: Path) -> None:
    _many(tmp_path)


@on_loop
async def _checks(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        assert (await it.send(TOPIC)).code == 0
        door = await stack.enter_async_context(proxy(it.name_servers))
        behind = await stack.enter_async_context(proxy_client(door))
        direct = await stack.enter_async_context(proxy_client(it.address))
        named = subscribe(TOPIC, "*")
        nowhere = dataclasses.replace(named, topic="Nowhere")
        sql = dataclasses.replace(named, expression_type="SQL92", expression="a > 1")
        for subscription, told, code in (
            (None, "", 0),
            (nowhere, "", 0),
            (named, None, 0),
            (sql, "The broker does not support consumer to filter message by SQL92", 1),
        ):
            asked = CheckClient(client_id="one@1", group=GROUP, subscription=subscription)
            body = asked.encode()
            answer = await behind.call(Command(RequestCode.CHECK_CLIENT_CONFIG, {}, body))
            assert (answer.code, answer.remark) == (code, told)
            answer = await direct.call(Command(RequestCode.CHECK_CLIENT_CONFIG, {}, body))
            assert (answer.code, answer.remark or "") == (code, told or "")
        empty = Command(RequestCode.CHECK_CLIENT_CONFIG, {}, b"{}")
        assert (await behind.call(empty)).code == (await direct.call(empty)).code == 0


def test_check_that_names_no_subscription_or_no_topic_succeeds(tmp_path: Path) -> None:
    _checks(tmp_path)


@on_loop
async def _limits(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        assert (await it.send(TOPIC)).code == 0
        limited = proxy(it.name_servers, remotingBrokerConnectionsMax="1")
        door = await stack.enter_async_context(limited)
        async with proxy_client(door) as first:
            assert (await first.send(TOPIC)).code == 0
            async with proxy_client(door) as second:
                full = await second.send(TOPIC)
                assert (full.code, "1 connections" in (full.remark or "")) == (2, True)
                assert (await first.send(TOPIC)).code == 0
        await until(lambda: door.sessions.connections == 0)
        async with proxy_client(door) as third:
            assert (await third.send(TOPIC)).code == 0
            long = Command(RequestCode.HEART_BEAT, {}, b" " * (1 << 20) + b"{}")
            assert (await third.call(long)).code == 29
            assert (await third.call(Command(RequestCode.HEART_BEAT, {}, b"{"))).code == 1


def test_connections_and_heartbeats_have_limits(tmp_path: Path) -> None:
    _limits(tmp_path)


@on_loop
async def _kept(folder: Path) -> None:
    body = HeartbeatData(client_id="kept").encode()
    async with cluster(folder) as it, proxy(it.name_servers) as door:
        half = HEARTBEATS_BYTES_MAX // 2
        beat = Command(RequestCode.HEART_BEAT, {"padding": "x" * 1_000_000}, body)
        # Clients of one address leave a fifth to others.
        count = half * 4 // 5 // bytes_of(beat)
        async with proxy_clients(door, count) as clients, proxy_client(door) as last:
            for client in clients:
                assert (await client.call(beat)).code == 0
            refused = await last.call(beat)
            assert (refused.code, "no room for one of" in (refused.remark or "")) == (2, True)
            # Those who need much do not stand in the way of those who need little.
            assert (await last.call(Command(RequestCode.HEART_BEAT, {}, body))).code == 0
        await until(lambda: not door.sessions.heartbeat_bytes)


def test_all_that_is_kept_of_heartbeats_counts_and_large_ones_leave_room(tmp_path: Path) -> None:
    _kept(tmp_path)
