"""A stream tells a consumer group how far it is, over a broker that asks for accounts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import roquet
from remoting_harness import on_loop
from roquet.base.errors import Refused, Unreachable, UsageError
from roquet.client import Credentials, Message
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.clients import encode_consumer_ids
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.spark.cluster.metadata import View
from roquet.spark.offsets import Bounds, QueueKey
from roquet.spark.options import SourceOptions
from roquet.spark.reading.stream import StreamReader
from roquet.spark.streaming.reporting import CLIENT, GroupReport
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from roquet.testing.cluster import Cluster

ACCOUNTS = """\
accounts:
- {accessKey: the-admin, secretKey: secret-of-admin, admin: true}
- accessKey: the-stream
  secretKey: secret-of-stream
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=SUB]
  groupPerms: [readers=SUB, lag=SUB]
"""
ADMIN = Credentials("the-admin", "secret-of-admin")


def stream(it: Cluster, **given: str) -> StreamReader:
    base = {"nameServers": it.name_servers, "subscribe": "orders", "startingOffsets": "earliest"}
    mine = {"group": "readers", "reportGroup": "lag", "credentials": "the-one"}
    return StreamReader(SourceOptions.parse({**base, **mine, **given}, streaming=True))


def shut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Write the accounts down and put a stream's keys into the environment, under a name."""
    (folder / "conf").mkdir()
    file = folder / "conf" / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    monkeypatch.setenv("ROQUET_ACCESS_KEY_THE_ONE", "the-stream")
    monkeypatch.setenv("ROQUET_SECRET_KEY_THE_ONE", "secret-of-stream")
    return {"aclEnable": "true", "rocketmqHome": str(folder)}


async def fill(mq: roquet.MQ, count: int) -> None:
    await mq.admin().topics.create("orders", queues=2)
    async with mq.producer("fill") as producer:
        queue = MessageQueue("orders", "broker-a", 0)
        await producer.send_batch("orders", [Message("orders", b"x")] * count, queue=queue)
    # The messages of a batch reach their queue one after the other.
    while (await mq.admin().topics.offsets("orders"))[queue].max_offset < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@on_loop
async def test_group_shows_the_lag_of_a_stream_with_no_more_than_its_own_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cluster(tmp_path, **shut(tmp_path, monkeypatch)) as it,
        roquet.connect(f"rmq://{it.name_servers}", credentials=ADMIN) as mq,
    ):
        await fill(mq, 10)
        groups = mq.admin().groups
        reader = stream(it)
        start = await asyncio.to_thread(reader.initialOffset)
        first = await asyncio.to_thread(reader.latestOffset, start, ReadMaxRows(4))
        assert await groups.lag("lag") == 10
        second = await asyncio.to_thread(reader.latestOffset, first, ReadMaxRows(100))
        offsets = await groups.offsets("lag", "orders")
        assert {queue.queue_id: found.consumer_offset for queue, found in offsets.items()} == {
            0: 4,
            1: 0,
        }
        assert await groups.lag("lag") == 6
        await asyncio.to_thread(reader.latestOffset, second, ReadMaxRows(100))
        assert await groups.lag("lag") == 0
        # RocketMQ's tools find a group by this topic; nobody stays a member.
        assert "%RETRY%lag" in await mq.admin().topics.names()
        assert await groups.connection("lag") is None
        # A stream that begins anew says so at once.
        again = stream(it)
        await asyncio.to_thread(again.latestOffset, start, ReadMaxRows(1))
        assert await groups.lag("lag") == 10
        for each in (reader, again):
            each.stop()


@on_loop
async def test_group_that_has_members_or_is_not_allowed_fails_the_query_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cluster(tmp_path, **shut(tmp_path, monkeypatch)) as it,
        roquet.connect(f"rmq://{it.name_servers}", credentials=ADMIN) as mq,
    ):
        await fill(mq, 3)

        def begin(**given: str) -> Any:
            reader = stream(it, **given)
            try:
                return reader.latestOffset(reader.initialOffset(), ReadMaxRows(9))
            finally:
                reader.stop()

        with pytest.raises(Refused) as refused:
            await asyncio.to_thread(begin, reportGroup="others")
        assert "group:others" in str(refused.value)
        async with mq.consumer("lag", {"orders": "*"}, start="earliest"):
            assert await mq.admin().groups.connection("lag") is not None
            with pytest.raises(UsageError, match="1 consumers are members of it"):
                await asyncio.to_thread(begin)
        assert await asyncio.to_thread(begin)


# --- what fails later, without a broker ----------------------------------------------------------

A, B = QueueKey("t", "b0", 0), QueueKey("t", "b1", 0)
VIEW = View({A: Bounds(0, 9), B: Bounds(0, 9)}, {}, {"b0": "a:1", "b1": "a:2"})


class Scripted:
    """Brokers that take commits, refuse them, or are away."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.committed: list[tuple[str, str]] = []
        self.joined: list[str] = []
        self.away: set[str] = set()

    def call(self, addresses: Iterable[str], command: Command) -> Command:
        (address,) = addresses
        if address in self.away:
            raise Unreachable(f"{address} is away")
        if command.code == RequestCode.HEART_BEAT:
            assert json.loads(command.body)["consumerDataSet"][0]["groupName"] == "lag"
            self.joined.append(address)
        if command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            # Another query that has just begun is no consumer.
            return Command(ResponseCode.SUCCESS, body=encode_consumer_ids([f"{CLIENT}1@2"]))
        return Command(ResponseCode.SUCCESS)

    def call_all(self, wanted: Sequence[tuple[Sequence[str], Command]]) -> list[Command]:
        found: list[Command] = []
        for (address,), command in wanted:
            if address in self.away:
                raise Unreachable(f"{address} is away")
            code = self.codes.get(address, ResponseCode.SUCCESS)
            if code == ResponseCode.SUCCESS:
                self.committed.append((address, (command.ext or {})["commitOffset"]))
            found.append(Command(code, remark="not now"))
        return found


def test_what_could_not_be_committed_is_said_and_made_up_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report, brokers = GroupReport("lag"), Scripted()
    brokers.codes["a:1"] = ResponseCode.SYSTEM_BUSY
    report.done({A: 3, B: 3}, VIEW, brokers)
    assert brokers.committed == [("a:2", "3")]
    assert "1 offsets are not committed to group lag at b0" in caplog.text
    assert "not now" in caplog.text
    brokers.codes.clear()
    report.done({A: 3, B: 3}, VIEW, brokers)
    report.done({A: 3, B: 3}, VIEW, brokers)
    # Nothing is committed twice.
    assert brokers.committed == [("a:2", "3"), ("a:1", "3")]
    assert brokers.joined == ["a:1", "a:2"]


def test_broker_that_is_away_or_has_another_master_is_joined_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report, brokers = GroupReport("lag"), Scripted()
    brokers.away.add("a:2")
    report.done({A: 1, B: 1}, VIEW, brokers)
    assert brokers.committed == [("a:1", "1")]
    assert "broker b1 is told later" in caplog.text
    brokers.away.clear()
    report.done({A: 1, B: 1}, VIEW, brokers)
    assert brokers.committed == [("a:1", "1"), ("a:2", "1")]
    promoted = View(VIEW.bounds, {}, {"b0": "a:3", "b1": "a:2"})
    report.done({A: 1, B: 1}, promoted, brokers)
    # What the old master has not handed on is told to the new one.
    assert brokers.joined == ["a:1", "a:2", "a:3"]
    assert brokers.committed[2:] == [("a:3", "1")]
