"""Rules of sends: what the appender itself refuses, and how sends are counted on both paths."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, properties, records
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.state import BrokerState
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.messages.batch import encode as encode_batch
from roquet.protocol.messages.batch import messages_max
from roquet.store.results import BatchDraft, Draft, PutStatus
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import send_command
from roquet.testing.memory_store import FakeStore

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def draft(topic: str) -> Draft:
    return Draft(
        topic=topic,
        queue_id=0,
        body=b"body",
        properties={},
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


def batch(topic: str) -> BatchDraft:
    return BatchDraft(
        topic=topic,
        queue_id=0,
        elements=[(0, b"body", b"")],
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


@pytest.mark.parametrize(
    ("topic", "status"),
    [
        ("orders", PutStatus.PUT_OK),
        ("%RETRY%g+orders", PutStatus.PUT_OK),
        ("g+orders", PutStatus.MESSAGE_ILLEGAL),
        ("%RETRY%g/orders", PutStatus.MESSAGE_ILLEGAL),
        ("a/b", PutStatus.MESSAGE_ILLEGAL),
        ("", PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_appender_with_a_topic_that_no_record_may_have_stores_nothing(
    topic: str, status: PutStatus
) -> None:
    async def run() -> None:
        store = FakeStore(FakeClock(), DelayLevels())
        appender = Appender(store, put_hooks(BrokerState(), DelayLevels()))
        result = await appender.append(draft(topic))
        assert result.status is status
        assert len(store.log) == (status is PutStatus.PUT_OK)
        if status is not PutStatus.PUT_OK:
            refused = await appender.append_batch(batch(topic))
            assert (refused.status, refused.physical_offsets) == (status, [])
            assert "illegal topic name" in refused.why

    asyncio.run(run())


def test_appender_of_a_slave_stores_nothing() -> None:
    async def run() -> None:
        store = FakeStore(FakeClock(), DelayLevels())
        state = BrokerState()
        state.is_slave = True
        appender = Appender(store, put_hooks(state, DelayLevels()))
        assert (await appender.append(draft("a"))).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (await appender.append_batch(batch("a"))).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.log == []

    asyncio.run(run())


@pytest.mark.parametrize("fast", ["true", "false"])
def test_sends_that_arrive_together_are_counted_one_by_one(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        sends = [
            it.send("orders", b"m", queue_id=number % 2, properties=f"UNIQ_KEY\x01U{number:03}\x02")
            for number in range(40)
        ]
        answers = await asyncio.gather(*sends)
        assert {answer.code for answer in answers} == {0}
        await dispatched(it)
        it.broker.path.settle()
        answer = await it.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO, ext={}))
        info = json.loads(answer.body)["table"]
        assert info["putMessageTimesTotal"] == "40"
        log = it.broker.store.native.max_physical_offset()
        assert int(info["putMessageSizeTotal"]) == log
        assert info["msgPutTotalTodayNow"] == "40"

    play(tmp_path, tell, fastPathEnable=fast)


@pytest.mark.parametrize("fast", ["true", "false"])
def test_batch_whose_answer_no_client_could_read_is_refused_before_it_is_stored(
    tmp_path: Path, fast: str
) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
        await it.broker.metadata.topics.persist()
        most = messages_max(len(it.broker.identity.store_host))

        async def sent(count: int) -> Command:
            body = encode_batch([(0, b"x", b"")] * count)
            command = send_command("orders", body, m="true")
            return await it.call(dataclasses.replace(command, code=RequestCode.SEND_BATCH_MESSAGE))

        refused = await sent(most + 1)
        assert (refused.code, refused.remark) == (
            13,
            f"the batch is illegal: more than {most} messages: no answer has room for their ids",
        )
        assert it.broker.store.max_offset("orders", 0) == 0
        taken = await sent(most)
        assert taken.code == 0, taken.remark
        assert len(set(ext(taken)["msgId"].split(","))) == most
        assert it.broker.path.native.counters()["sends"] == (1 if fast == "true" else 0)

    play(tmp_path, tell, fastPathEnable=fast, mappedFileSizeCommitLog=str(16 << 20))


@pytest.mark.parametrize("fast", ["true", "false"])
def test_properties_that_end_in_0_are_stored_whole_and_read_as_sent(
    tmp_path: Path, fast: str
) -> None:
    texts = ["a\x01b\0", "\0", "", "a\x01\0\0"]

    async def tell(it: Cluster) -> None:
        body = encode_batch([(0, b"inner", text.encode()) for text in texts])
        command = send_command("orders", body, properties="UNIQ_KEY\x01whole\x02")
        command.code = RequestCode.SEND_BATCH_MESSAGE
        assert command.ext is not None
        command.ext["m"] = "true"
        answers = [await it.call(command)]
        answers += [await it.send("orders", b"alone", properties=text) for text in texts]
        assert [answer.code for answer in answers] == [0] * 5
        await dispatched(it)
        found = records(await it.pull("orders"))
        inner = [record.properties for record in found[:4]]
        assert inner == [b"a\x01b\0\x02", b"\0\x02", b"", b"a\x01\0\0\x02"]
        assert [properties(record).get("a") for record in found] == ["b\0", None, None, "\0\0"] * 2
        assert all(not record.properties.endswith(b"\0") for record in found)

    play(tmp_path, tell, fastPathEnable=fast)
