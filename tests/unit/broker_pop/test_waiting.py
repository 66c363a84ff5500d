"""Pops and notifications that wait (200050, 200054), their count (200055), peeks (200052)."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, ext, play, records
from pop_harness import GROUP, TOPIC, ack_command, now_ms, pop, pop_command, popped
from roquet.base.clock import SystemClock
from roquet.broker.remoting.clients.waiting_pops import waiting_request
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.remoting.connections.reply import Reply
from roquet.remoting.router import Request
from roquet.store.results import Draft, PutResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def info_command(**fields: str) -> Command:
    """Return the question for pops that wait."""
    given = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", **fields}
    return Command(RequestCode.POLLING_INFO, ext=given)


async def held(it: Cluster, queue_id: int = -1) -> int:
    """Return how many pops wait."""
    answer = await it.call(info_command(queueId=str(queue_id)))
    assert (answer.code, answer.remark) == (0, "not set any response code")
    return int(ext(answer)["pollingNum"])


async def until_held(it: Cluster, count: int, queue_id: int = -1) -> None:
    async with asyncio.timeout(30):
        while await held(it, queue_id) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def notification_command(**fields: str) -> Command:
    """Return a notification request for all queues."""
    given = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "-1",
        "pollTime": "0",
        "bornTime": str(now_ms()),
        **fields,
    }
    return Command(RequestCode.NOTIFICATION, ext=given)


async def until_notification_held(it: Cluster) -> None:
    """Wait until the only notification that may wait does so: it has been asked for."""
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        while True:
            answer = await it.call(notification_command(pollTime="100"))
            assert ext(answer)["hasMsg"] == "false"
            if ext(answer)["pollingFull"] == "true":
                return


async def make_topic(it: Cluster) -> None:
    """Have the topic, whose only message another group sees."""
    await it.send(TOPIC, b"old")
    await dispatched(it)
    assert (await pop(it)).bodies == [b"old"]


def test_pop_waits_for_a_message(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(it.call(pop_command(pollTime="20000")))
            of_queue = tasks.create_task(it.call(pop_command(pollTime="20000", queueId="3")))
            await until_held(it, 1)
            await until_held(it, 1, 3)
            await it.send(TOPIC, b"new", queue_id=1)
            assert popped(await waiting).bodies == [b"new"]
            assert await held(it, 3) == 1
            await it.send(TOPIC, b"third", queue_id=3)
            assert popped(await of_queue).bodies == [b"third"]

    play(tmp_path, tell)


def _answered_in_core(it: Cluster) -> int:
    return it.broker.path.native.counters()["pops"]


@pytest.mark.parametrize(("buffer", "threads"), [("false", "0"), ("true", "0"), ("true", "1")])
def test_pop_that_waited_is_answered_by_the_core(tmp_path: Path, buffer: str, threads: str) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        # The first pops of a group are for the service: it has no offsets yet.
        assert not (await pop(it)).bodies
        for exp in ("*", "a || b"):
            before = _answered_in_core(it)
            command = pop_command(pollTime="20000", exp=exp)
            waiting = asyncio.create_task(it.call(command))
            await until_held(it, 1)
            await it.send(TOPIC, b"new", queue_id=1, properties="TAGS\x01a\x02")
            got = popped(await waiting)
            assert got.bodies == [b"new"]
            assert _answered_in_core(it) == before + 1
            assert (await it.call(ack_command(got.handles[0]))).code == 0
            assert not (await pop(it)).bodies

    play(tmp_path, tell, enablePopBufferMerge=buffer, ioThreads=threads)


@pytest.mark.parametrize("threads", ["0", "1"])
def test_pops_by_the_core_obey_changes_of_topic_group_and_broker(
    tmp_path: Path, threads: str
) -> None:
    async def tell(it: Cluster) -> None:
        tables, state = it.broker.metadata, it.broker.state
        await make_topic(it)
        topic, group = tables.topics.get(TOPIC), tables.groups.get(GROUP)
        assert topic is not None
        assert group is not None

        def closed() -> None:
            state.permission = 2

        changes: list[tuple[Callable[[], object], Callable[[], object], int]] = [
            (
                lambda: tables.topics.put(dataclasses.replace(topic, perm=2)),
                lambda: tables.topics.put(topic),
                ResponseCode.NO_PERMISSION,
            ),
            (
                lambda: tables.groups.put(dataclasses.replace(group, consume_enable=False)),
                lambda: tables.groups.put(group),
                ResponseCode.NO_PERMISSION,
            ),
            (closed, lambda: setattr(state, "permission", 6), ResponseCode.NO_PERMISSION),
        ]
        for change, back, code in changes:
            before = _answered_in_core(it)
            for _ in range(2):
                await it.send(TOPIC, b"new")
                await dispatched(it)
                assert (await pop(it)).bodies
            assert _answered_in_core(it) == before + 2
            await it.send(TOPIC, b"new")
            await dispatched(it)
            change()
            assert (await pop(it)).code == code
            back()
            assert (await pop(it)).bodies

    play(tmp_path, tell, ioThreads=threads)


def test_pop_that_waited_is_answered_by_the_service_when_it_is_not_plain(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        for odd in ({"order": "true", "queueId": "1"}, {"exp": "n = 5", "expType": "SQL92"}):
            assert not (await pop(it, **odd)).bodies
            before = _answered_in_core(it)
            waiting = asyncio.create_task(it.call(pop_command(pollTime="20000", **odd)))
            await until_held(it, 1, int(odd.get("queueId", "-1")))
            await it.send(TOPIC, b"new", queue_id=1, properties="n\x015\x02")
            got = popped(await waiting)
            assert got.bodies == [b"new"]
            assert _answered_in_core(it) == before
            await it.call(ack_command(got.handles[0]))

    play(tmp_path, tell, enablePropertyFilter="true")


def test_pops_that_wait_share_what_comes(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        async with asyncio.TaskGroup() as tasks:
            command = pop_command(pollTime="20000", maxMsgNums="1")
            waiting = [tasks.create_task(it.call(command)) for _ in range(8)]
            await until_held(it, 8)
            for number in range(8):
                await it.send(TOPIC, b"%d" % number, queue_id=0)
            bodies = [body for one in waiting for body in popped(await one).bodies]
            assert sorted(bodies) == [b"%d" % number for number in range(8)]

    play(tmp_path, tell)


def test_pop_that_waited_in_vain_is_answered_210(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        begun = now_ms()
        got = await pop(it, pollTime="300")
        assert (got.code, got.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert now_ms() - begun >= 200

    play(tmp_path, tell)


@pytest.mark.parametrize("odd", [{}, {"exp": "n = 5", "expType": "SQL92"}], ids=["core", "service"])
@pytest.mark.parametrize("what", ["topic", "group"])
def test_pops_that_wait_are_refused_when_their_topic_or_group_is_deleted(
    tmp_path: Path, what: str, odd: dict[str, str]
) -> None:
    async def tell(it: Cluster) -> None:
        for name in (GROUP, "others"):
            it.broker.metadata.groups.put(SubscriptionGroupConfig(name=name))
        await make_topic(it)
        await it.send("kept", b"old")
        await dispatched(it)
        assert popped(await it.call(pop_command("kept", consumerGroup="others"))).bodies
        assert not (await pop(it)).bodies
        async with asyncio.TaskGroup() as tasks:
            command = pop_command(pollTime="20000", **odd)
            waiting = [tasks.create_task(it.call(command)) for _ in range(100)]
            command = pop_command("kept", pollTime="20000", consumerGroup="others")
            other = tasks.create_task(it.call(command))
            await until_held(it, 100)
            tables = it.broker.metadata
            if what == "topic":
                tables.topics.remove(TOPIC)
                expected = (ResponseCode.TOPIC_NOT_EXIST, f"topic[{TOPIC}] not exist")
            else:
                tables.groups.remove(GROUP)
                code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
                expected = (code, f"subscription group [{GROUP}] does not exist")
            for one in waiting:
                answer = await one
                said = (answer.remark or "")[: len(expected[1])]
                assert (answer.code, said) == expected
            assert not other.done()
            await it.send("kept", b"new")
            assert popped(await other).bodies

    play(tmp_path, tell, enablePropertyFilter="true", autoCreateSubscriptionGroup="false")


def test_one_pop_more_than_may_wait_is_answered_209(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(it.call(pop_command(pollTime="20000")))
            await until_held(it, 1)
            full = await pop(it, pollTime="20000")
            assert (full.code, full.remark) == (209, "NO_MESSAGE_IN_QUEUE")
            # Notifications have their own room, and say it in another way.
            asked = tasks.create_task(it.call(notification_command(pollTime="20000")))
            await until_notification_held(it)
            await it.send(TOPIC, b"new")
            assert popped(await waiting).bodies == [b"new"]
            # The pop took that one: the notification waits on, 20 s if nothing else came.
            await it.send(TOPIC, b"more")
            await asked

    play(tmp_path, tell, maxPopPollingSize="1")


def test_filtered_pop_waits_on_while_others_messages_come(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        async with asyncio.TaskGroup() as tasks:
            for_tag = tasks.create_task(it.call(pop_command(pollTime="20000", exp="a")))
            await until_held(it, 1)
            for_sql = tasks.create_task(
                it.call(pop_command(pollTime="20000", exp="n = 5", expType="SQL92", queueId="0"))
            )
            await until_held(it, 1, 0)
            await it.send(TOPIC, properties="TAGS\x01b\x02n\x011\x02")
            await dispatched(it)
            assert (await held(it), await held(it, 0)) == (1, 1)
            await it.send(TOPIC, b"a", properties="TAGS\x01a\x02", queue_id=1)
            assert popped(await for_tag).bodies == [b"a"]
            await it.send(TOPIC, b"5", properties="n\x015\x02")
            assert popped(await for_sql).bodies == [b"5"]

    play(tmp_path, tell)


def test_redelivery_wakes_a_pop(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        it.broker.metadata.topics.ensure(retry, 1)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(it.call(pop_command(pollTime="20000")))
            await until_held(it, 1)
            host = it.broker.identity.store_host
            draft = Draft(
                topic=retry,
                queue_id=0,
                body=b"again",
                properties={},
                born_timestamp=1,
                born_host=host,
                store_host=host,
            )
            await it.broker.store.put(draft)
            assert popped(await waiting).bodies == [b"again"]

    play(tmp_path, tell)


def test_pop_of_a_closed_connection_takes_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        other = Client(clock=SystemClock())
        await other.start()
        waiting = asyncio.ensure_future(other.call(it.address, pop_command(pollTime="20000"), 20.0))
        await until_held(it, 1)
        await other.stop()
        await asyncio.gather(waiting, return_exceptions=True)
        await until_held(it, 0)
        await it.send(TOPIC, b"new")
        await dispatched(it)
        assert (await pop(it)).bodies == [b"new"]

    play(tmp_path, tell)


def test_pop_that_found_a_queue_busy_is_tried_again_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        await it.send(TOPIC, b"first")
        await dispatched(it)
        stored, reached = asyncio.Event(), asyncio.Event()
        settled = it.broker.store.settled

        async def late(result: PutResult, wait: bool) -> PutResult:
            reached.set()
            await stored.wait()
            return await settled(result, wait)

        monkeypatch.setattr(it.broker.store, "settled", late)
        waits = [True]

        def is_settled(_: int) -> bool:
            return not (waits and waits.pop())

        monkeypatch.setattr(it.broker.store, "is_settled", is_settled)
        async with asyncio.TaskGroup() as tasks:
            # The checkpoint of the first pop is not durable yet: it has the queue.
            holder = tasks.create_task(it.call(pop_command(queueId="0")))
            await reached.wait()
            await it.send(TOPIC, b"second")
            await dispatched(it)
            begun = now_ms()
            turned_away = tasks.create_task(it.call(pop_command(pollTime="15000")))
            await until_held(it, 1)
            stored.set()
            assert popped(await holder).bodies == [b"first"]
            assert popped(await turned_away).bodies == [b"second"]
            assert now_ms() - begun < 10_000

    # What holds the service up, the core does not meet.
    play(tmp_path, tell, fastPathEnable="false")


def test_notification_tells_that_there_is_something_to_pop(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make_topic(it)
        nothing = {"hasMsg": "false", "pollingFull": "false"}
        answer = await it.call(notification_command())
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert ext(answer) == nothing
        assert ext(await it.call(notification_command(pollTime="100"))) == nothing
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(it.call(notification_command(pollTime="20000")))
            await until_notification_held(it)
            await it.send(TOPIC, b"new", properties="TAGS\x01a\x02", queue_id=2)
            assert ext(await waiting)["hasMsg"] == "true"
        tagged = {"expType": "TAG", "exp": "b"}
        assert ext(await it.call(notification_command(**tagged)))["hasMsg"] == "false"
        tagged["exp"] = "a"
        assert ext(await it.call(notification_command(**tagged)))["hasMsg"] == "true"
        assert ext(await it.call(notification_command(queueId="0"))) == nothing

    play(tmp_path, tell, maxPopPollingSize="1")


@pytest.mark.parametrize(
    ("changes", "few", "many"),
    [
        ({}, "false", "true"),
        ({"useMessageFilterForNotification": "false"}, "true", "true"),
        ({"maxMessageFilterNumForNotification": "100"}, "false", "false"),
    ],
)
def test_notification_looks_at_few_messages_for_its_filter(
    tmp_path: Path, changes: dict[str, str], few: str, many: str
) -> None:
    async def asked(it: Cluster, count: int) -> str:
        for _ in range(count):
            await it.send(TOPIC, properties="TAGS\x01a\x02")
        await dispatched(it)
        answer = await it.call(notification_command(expType="TAG", exp="b"))
        return ext(answer)["hasMsg"]

    async def tell(it: Cluster) -> None:
        assert [await asked(it, 63), await asked(it, 1)] == [few, many]

    play(tmp_path, tell, **changes)


def test_peek_changes_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(3):
            await it.send(TOPIC, b"%d" % number)
        await dispatched(it)
        for _ in range(2):
            command = dataclasses.replace(
                pop_command(maxMsgNums="2"), code=RequestCode.PEEK_MESSAGE
            )
            answer = await it.call(command)
            assert (answer.code, answer.remark) == (0, "FOUND")
            assert ext(answer)["restNum"] == "1"
            assert [record.body for record in records(answer)] == [b"0", b"1"]
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) is None
        assert len((await pop(it)).records) == 3
        empty = await it.call(dataclasses.replace(pop_command(), code=RequestCode.PEEK_MESSAGE))
        assert (empty.code, empty.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"topic": "nowhere"}, 17), ({"queueId": "4"}, 29), ({"consumerGroup": "unknown"}, 26)],
)
def test_bad_questions_are_refused_as_by_java(
    tmp_path: Path, fields: dict[str, str], code: int
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC)
        peek = dataclasses.replace(pop_command(**fields), code=RequestCode.PEEK_MESSAGE)
        for command, shown in (
            (peek, {"restNum": "0"}),
            (notification_command(**fields), {"hasMsg": "false"}),
            (info_command(**fields), {"pollingNum": "0"}),
        ):
            answer = await it.call(command)
            assert answer.code == code
            assert shown.items() <= ext(answer).items()
            it.broker.state.permission = 2
            assert (await it.call(command)).code == 16
            it.broker.state.permission = 6
        rollback = await it.call(Command(RequestCode.POP_ROLLBACK, ext={}))
        assert (rollback.code, rollback.remark) == (0, "not set any response code")

    play(tmp_path, tell, autoCreateSubscriptionGroup="false")


def test_request_that_waits_keeps_no_fields_and_is_answered_once() -> None:
    noted: list[Command] = []
    written: list[Command] = []
    done: list[Request] = []

    def note(command: Command, *_: object) -> None:
        noted.append(command)

    server: Any = SimpleNamespace(before_answer=None, on_answer=note, encoding=0)
    connection: Any = SimpleNamespace(reply=written.append)
    command = Command(RequestCode.POP_MESSAGE, ext={"topic": TOPIC}, body=b"body", opaque=7)
    request = Request(command, connection, 1, Reply(server, connection, command, 1), done.append)
    kept = waiting_request(request)
    for _ in range(2):
        kept.reply(Command(ResponseCode.SUCCESS))
    assert [answer.opaque for answer in written] == [7]
    assert noted == [kept.command]
    assert (noted[0].code, noted[0].opaque) == (RequestCode.POP_MESSAGE, 7)
    assert (noted[0].ext, noted[0].body) == (None, b"")
