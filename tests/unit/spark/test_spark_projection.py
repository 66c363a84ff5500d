"""Pulls that ask for some fields only: the same rows, fewer bytes, and what is refused."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from remoting_harness import on_loop
from roquet import _native as native
from roquet.broker.remoting.receive import OBEYED, PROJECTION
from roquet.client import Message, MessageQueue
from roquet.protocol.codes import ResponseCode
from roquet.protocol.headers.message import PullMessageResponse
from roquet.spark.options import SourceOptions
from roquet.spark.reading import projection
from roquet.spark.reading.batch import BatchReader
from roquet.spark.schema import COLUMNS
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

pa: Any = pytest.importorskip("pyarrow")
TOPIC = "Orders"
ROWS = 300
CHOICES = (
    "queueOffset",
    "storeSize,bodyCRC,physicalOffset,msgId,sysFlag,bornTimestamp,storeTimestamp,bornHost,storeHost",
    "keys",
    "uniqKey,tags,reconsumeTimes,topic,brokerName,queueId",
    "properties,keys",
)
PATHS = {"fast": "true", "slow": "false"}


async def fill(it: Cluster) -> None:
    """Put messages of 1 KiB, of few bytes and compressed ones into one queue."""
    async with roquet.connect(it.name_servers) as mq, mq.producer("p") as producer:
        await mq.admin().topics.create(TOPIC, queues=1)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        for number in range(ROWS):
            body = b"z" * 5000 if number % 50 == 0 else random.Random(number).randbytes(1024)
            properties = {"region": f"r{number % 7}", "é": "ü"} if number % 3 else {}
            tag = "ab"[number % 2] if number % 5 else None
            message = Message(TOPIC, body, tag=tag, keys=(f"k{number}",), properties=properties)
            await producer.send(message, queue=queue)
    while (await it.pull(TOPIC, ROWS - 1)).code != 0:  # noqa: ASYNC110  (behind the log)
        await asyncio.sleep(0.02)


def read(names: str, **options: str) -> Any:
    """Return a read as one table."""
    given = {"nameServers": names, "subscribe": TOPIC, **options}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    batches = [it for part in reader.partitions() for it in reader.read(part)]
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.mark.parametrize("path", PATHS)
@on_loop
async def test_columns_without_bodies_are_those_of_whole_messages(
    tmp_path: Path, path: str
) -> None:
    async with cluster(tmp_path, fastPathEnable=PATHS[path]) as it:
        await fill(it)
        whole = await asyncio.to_thread(read, it.name_servers)
        assert whole.num_rows == ROWS
        assert len({it for it in whole.column("sysFlag").to_pylist() if it & 1}) == 1
        for columns in CHOICES:
            found = await asyncio.to_thread(read, it.name_servers, columns=columns)
            assert found.equals(whole.select(found.column_names)), columns
        tagged = await asyncio.to_thread(read, it.name_servers, columns="queueOffset", tags="a")
        is_wanted = pa.array([tag == "a" for tag in whole.column("tags").to_pylist()])
        assert tagged.equals(whole.select(["queueOffset"]).filter(is_wanted))


@pytest.mark.parametrize("path", PATHS)
@on_loop
async def test_an_answer_has_only_what_its_pull_asked_for(tmp_path: Path, path: str) -> None:
    async with cluster(tmp_path, fastPathEnable=PATHS[path]) as it:
        await fill(it)
        plain = await it.pull(TOPIC)
        assert (plain.ext or {}).get(PROJECTION) is None
        records = native.decode_records(plain.body)
        for text in ("headers", "properties", "properties:KEYS", "properties:é,nobody,KEYS"):
            answer = await it.pull(TOPIC, maxMsgNums=str(len(records)), projection=text)
            assert answer.code == ResponseCode.SUCCESS
            assert PullMessageResponse.decode(answer.ext).projection == OBEYED
            assert answer.body == native.project_records(plain.body, text)
            assert 3 * len(answer.body) < len(plain.body)
            # Only who has asked for it reads it: the log's form it is not.
            with pytest.raises(ValueError, match="magic"):
                native.decode_records(answer.body)
        # More messages than a pull of whole ones brings, where the core answers.
        many = await it.pull(TOPIC, maxMsgNums="1000", projection="headers")
        following = PullMessageResponse.decode(many.ext).next_begin_offset
        assert following == (ROWS if path == "fast" else 32)
        empty = await it.pull(TOPIC, ROWS, projection="headers")
        assert empty.code == ResponseCode.PULL_NOT_FOUND
        assert not empty.body


HOSTILE = (
    "",
    "Headers",
    "body",
    "properties:",
    "properties:KEYS,",
    "properties:a\x01b",
    "properties:" + ",".join(f"n{number}" for number in range(17)),
    "properties:" + "n" * 1024,
    "headers\x00",
)


@pytest.mark.parametrize("path", PATHS)
@on_loop
async def test_a_value_that_is_no_projection_is_refused(tmp_path: Path, path: str) -> None:
    async with cluster(tmp_path, fastPathEnable=PATHS[path]) as it:
        await fill(it)
        for text in HOSTILE:
            answer = await it.pull(TOPIC, projection=text)
            assert answer.code == ResponseCode.INVALID_PARAMETER, text
            assert "projection" in (answer.remark or "")
            assert not answer.body
        names = ",".join(f"n{number}" for number in range(16))
        allowed = await it.pull(TOPIC, projection=f"properties:{names}")
        assert allowed.code == ResponseCode.SUCCESS


@on_loop
async def test_a_held_pull_is_answered_with_its_projection(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await fill(it)
        fields = {"sysFlag": "6", "suspendTimeoutMillis": "15000", PROJECTION: "headers"}
        held = asyncio.create_task(it.pull(TOPIC, ROWS, **fields))
        async with roquet.connect(it.name_servers) as mq, mq.producer("p") as producer:
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-a", 0))
        answer = await held
        assert answer.code == ResponseCode.SUCCESS
        plain = await it.pull(TOPIC, ROWS)
        assert answer.body == native.project_records(plain.body, "headers")


@on_loop
async def test_damaged_answers_are_refused_or_read_and_never_more(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await fill(it)
        answer = await it.pull(TOPIC, maxMsgNums="2", projection="properties")
    rng = random.Random(7)
    for _ in range(4000):
        data = bytearray(answer.body)
        if rng.random() < 0.5:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            made = native.records_to_arrow(
                [bytes(data)], "b", columns=["keys", "properties", "topic"], projected=True
            )
        except ValueError:
            continue
        assert made.num_rows <= 2
    with pytest.raises(ValueError, match="no body"):
        native.records_to_arrow([answer.body], "b", projected=True)


@pytest.mark.parametrize(
    ("columns", "by_tags", "wanted"),
    [
        (COLUMNS, False, None),
        (("body",), True, None),
        (("queueId", "bodyCRC"), False, "headers"),
        (("queueId",), True, "properties:TAGS"),
        (("keys", "uniqKey"), False, "properties:KEYS,UNIQ_KEY"),
        (("keys", "properties"), True, "properties"),
    ],
)
def test_columns_decide_what_is_asked_for(
    columns: tuple[str, ...], by_tags: bool, wanted: str | None
) -> None:
    assert projection.of(columns, by_tags=by_tags) == wanted
