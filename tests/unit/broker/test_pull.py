"""Pulls over real sockets: statuses, filters, waiting, and what is refused."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, properties, records
from roquet.base.clock import SystemClock
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.cluster import Cluster, pull_command

if TYPE_CHECKING:
    from pathlib import Path

WAIT = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}


def orders(it: Cluster, **changes: object) -> None:
    config = TopicConfig(name="orders", read_queues=4, write_queues=4, **changes)  # type: ignore[arg-type]
    it.broker.metadata.topics.put(config)


async def filled(it: Cluster, count: int = 5) -> None:
    orders(it)
    for number in range(count):
        tag = "ab"[number % 2]
        await it.send("orders", b"m%d" % number, properties=f"TAGS\x01{tag}\x02")
    await dispatched(it)


@pytest.mark.parametrize(
    ("offset", "queue_id", "code", "remark", "then"),
    [
        (0, 0, 0, "FOUND", 5),
        (3, 0, 0, "FOUND", 5),
        (5, 0, 19, "OFFSET_OVERFLOW_ONE", 5),
        (6, 0, 21, "OFFSET_OVERFLOW_BADLY", 5),
        (2**63 - 1, 0, 21, "OFFSET_OVERFLOW_BADLY", 5),
        (-1, 0, 21, "OFFSET_TOO_SMALL", 0),
        (-(2**63), 0, 21, "OFFSET_TOO_SMALL", 0),
        (0, 1, 19, "NO_MESSAGE_IN_QUEUE", 0),
        (7, 1, 21, "NO_MESSAGE_IN_QUEUE", 0),
        (-1, 1, 21, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
def test_b10_every_offset_has_its_answer(
    *, tmp_path: Path, offset: int, queue_id: int, code: int, remark: str, then: int
) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        answer = await it.pull("orders", offset, queueId=str(queue_id))
        assert (answer.code, answer.remark) == (code, remark)
        last = "0" if queue_id else "5"
        assert ext(answer) == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(then),
            "minOffset": "0",
            "maxOffset": last,
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert len(records(answer)) == (then - offset if code == 0 else 0)

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("fields", "code", "kind"),
    [
        ({"queueId": "4"}, 29, None),
        ({"queueId": "-1"}, 29, None),
        ({"queueId": "2147483647"}, 29, None),
        ({"topic": "unknown"}, 17, None),
        ({"consumerGroup": "not a name"}, 26, None),
        ({"subscription": "x" * 5000}, 23, None),
        ({"subscription": "||".join(str(n) for n in range(600))}, 23, None),
        ({"subscription": "|| ||"}, 23, None),
        ({"subscription": "a||" * 100_000}, 23, None),
        ({"subscription": "x" * (1 << 20)}, 23, None),
        ({"expressionType": "SQL92", "subscription": "(" * 10_000 + "a" + ")" * 10_000}, 23, None),
        ({"expressionType": "SQL92", "subscription": "a > 5"}, 1, None),
        ({"expressionType": "LUA"}, 1, None),
        ({"sysFlag": "0"}, 24, None),
        ({"consumerGroup": "stopped"}, 16, "2"),
        ({"topic": "closed"}, 16, "3"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, fields: dict[str, str], code: int, kind: str | None
) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        it.broker.metadata.topics.put(TopicConfig(name="closed", perm=2))
        it.broker.metadata.groups.put(SubscriptionGroupConfig(name="stopped", consume_enable=False))
        begun = time.perf_counter()
        answer = await it.call(pull_command("orders", 0, **fields))
        assert time.perf_counter() - begun < 1
        assert answer.code == code
        assert ext(answer) == ({"forbiddenType": kind} if kind else {})
        assert answer.remark

    play(tmp_path, tell)


def test_b5_numbers_are_read_strictly(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        for field in ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"):
            for text in ("1_0", " 7 ", "+7", "1e3", "", "\uff11", str(2**63)):
                answer = await it.call(pull_command("orders", 0, **{field: text}))
                assert answer.code == 29, (field, text)

    play(tmp_path, tell)


def test_b10_limits_are_capped(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 40)
        for wanted, got in (("2147483647", 32), ("32", 32), ("3", 3), ("0", 1), ("-5", 1)):
            answer = await it.pull("orders", maxMsgNums=wanted)
            assert len(records(answer)) == got
            assert ext(answer)["nextBeginOffset"] == str(got)
        # A commit beyond the queue's end would show a negative lag for ever.
        await it.pull("orders", sysFlag="5", commitOffset=str(2**63 - 1))
        it.broker.path.settle()
        assert it.broker.metadata.offsets.query("readers", "orders", 0) == 40
        await it.pull("orders", sysFlag="5", commitOffset="-1")
        assert it.broker.metadata.offsets.query("readers", "orders", 0) == 40

    play(tmp_path, tell)


def test_a_tag_expression_filters_and_moves_on(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 6)
        answer = await it.pull("orders", subscription="b || c")
        assert [record.body for record in records(answer)] == [b"m1", b"m3", b"m5"]
        assert ext(answer)["nextBeginOffset"] == "6"
        answer = await it.pull("orders", subscription="c")
        assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
        assert ext(answer)["nextBeginOffset"] == "6"

    play(tmp_path, tell)


def test_a_held_pull_is_answered_when_its_message_comes(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        waiting = asyncio.create_task(it.pull("orders", **WAIT))
        tagged = asyncio.create_task(it.pull("orders", subscription="b", **WAIT))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await it.send("orders", b"first", properties="TAGS\x01a\x02")
        answer = await asyncio.wait_for(waiting, 30)
        assert [record.body for record in records(answer)] == [b"first"]
        await asyncio.sleep(0.1)
        assert not tagged.done()
        await it.send("orders", b"second", properties="TAGS\x01b\x02")
        answer = await asyncio.wait_for(tagged, 30)
        (record,) = records(answer)
        assert (record.body, properties(record)["TAGS"]) == (b"second", "b")

    play(tmp_path, tell)


def test_a_held_pull_ends_with_its_time(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        begun = time.monotonic()
        answer = await it.pull("orders", sysFlag="6", suspendTimeoutMillis="300")
        assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")
        assert 0.2 < time.monotonic() - begun < 5
        negative = await it.pull("orders", sysFlag="6", suspendTimeoutMillis=str(-(2**63)))
        assert negative.code == 19

    play(tmp_path, tell)


def test_short_polling_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        answer = await asyncio.wait_for(it.pull("orders", **WAIT), 30)
        assert answer.code == 19

    play(tmp_path, tell, longPollingEnable="false", shortPollingTimeMills="50")


def test_held_pulls_go_with_their_connection_and_hold_up_no_stop(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        other = Client(clock=SystemClock())
        await other.start()
        calls = [
            asyncio.create_task(other.call(it.address, pull_command("orders", **WAIT), 30))
            for _ in range(10)
        ]
        own = asyncio.create_task(it.pull("orders", **WAIT))
        await asyncio.sleep(0.2)
        await other.stop()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, Exception) for result in results)
        assert not own.done()
        own.cancel()

    begun = time.monotonic()
    play(tmp_path, tell)
    assert time.monotonic() - begun < 10


def test_the_fast_port_serves_no_pulls(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        fast = f"127.0.0.1:{it.broker.listeners.fast_port}"
        answer = await it.call(pull_command("orders"), fast)
        assert (answer.code, answer.remark) == (3, " request type 11 not supported")
        answer = await it.call(
            Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "orders", "queueId": "0"}), fast
        )
        assert (answer.code, ext(answer)) == (0, {"offset": "0"})

    play(tmp_path, tell)


def test_heartbeat_subscriptions_are_used_and_their_version_is_checked(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        beat = (
            b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
            b'"consumeType":"CONSUME_PASSIVELY","groupName":"readers","messageModel":"CLUSTERING",'
            b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[98],'
            b'"expressionType":"TAG","subString":"b","subVersion":100,"tagsSet":["b"],'
            b'"topic":"orders"}],"unitMode":false}],"producerDataSet":[]}'
        )
        assert (await it.call(Command(RequestCode.HEART_BEAT, ext={}, body=beat))).code == 0
        answer = await it.pull("orders", sysFlag="0", subVersion="100")
        assert [record.body for record in records(answer)] == [b"m1", b"m3"]
        assert (await it.pull("orders", sysFlag="0", subVersion="101")).code == 25
        it.broker.metadata.groups.set_forbidden("readers", "orders", 1)
        answer = await it.pull("orders", sysFlag="0", subVersion="100")
        assert (answer.code, ext(answer)) == (16, {"forbiddenType": "5"})

    play(tmp_path, tell)


def test_the_broker_may_serve_no_reads(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        answer = await it.pull("TBW102")
        assert (answer.code, ext(answer)) == (16, {"forbiddenType": "1"})

    play(tmp_path, tell, brokerPermission="2")


def test_a_reset_by_the_broker_is_taken_by_one_pull(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        it.broker.metadata.groups.put(SubscriptionGroupConfig(name="readers"))
        it.broker.metadata.offsets.reset("readers", "orders", 0, 2)
        commit = Command(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            ext={
                "consumerGroup": "readers",
                "topic": "orders",
                "queueId": "0",
                "commitOffset": "5",
            },
        )
        answer = await it.call(commit)
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        answer = await it.pull("orders", 5)
        assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
        assert ext(answer)["nextBeginOffset"] == "2"
        assert len(records(await it.pull("orders", 2))) == 3

    play(tmp_path, tell)
