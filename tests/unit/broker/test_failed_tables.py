"""A table that cannot be written: what depends on it is not acknowledged, also not the next time.

The fault is a folder in the place of the side file, which stops root as well as anybody else.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from pop_harness import GROUP, TOPIC, ack_command, pop
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def side_file(folder: Path, name: str = "topics.json") -> Path:
    return folder / "config" / f"{name}.tmp"


def test_topic_whose_table_write_failed_acknowledges_no_send_until_it_is_durable(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path, autoCreateTopicEnable="true")
    acknowledged: list[tuple[str, bytes]] = []

    async def before() -> None:
        async with broker.client() as it:
            assert (await it.send("orders")).code == 0
            side = side_file(broker.store)
            side.mkdir()
            for number in range(3):
                answer = await it.send("lost", b"%d" % number)
                assert answer.code == ResponseCode.SYSTEM_ERROR, "no acknowledgement"
            answers = await asyncio.gather(*(it.send("many", b"%d" % n) for n in range(20)))
            assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
            assert (await it.send("orders")).code == 0, "known topics go on"
            side.rmdir()
            for topic in ("lost", "healed"):
                for number in range(3):
                    body = b"%s %d" % (topic.encode(), number)
                    assert (await it.send(topic, body)).code == 0
                    acknowledged.append((topic, body))

    async def after() -> None:
        async with broker.client() as it:
            for topic in ("lost", "healed"):
                found = records(await it.pull(topic))
                assert [(topic, record.body) for record in found] == [
                    pair for pair in acknowledged if pair[0] == topic
                ]
            # Neither was this topic ever acknowledged nor does it have messages.
            assert (await it.pull("many")).code != 0

    try:
        asyncio.run(before())
        broker.kill()
        asyncio.run(after())
    finally:
        broker.kill()


def test_topic_created_by_admin_without_its_table_takes_no_sends(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        side = side_file(tmp_path / "broker-a")
        assert (await it.send("orders")).code == 0
        side.mkdir()
        for _ in range(2):
            answer = await it.call(
                Command(
                    RequestCode.UPDATE_AND_CREATE_TOPIC,
                    ext={
                        "topic": "made",
                        "defaultTopic": "TBW102",
                        "readQueueNums": "2",
                        "writeQueueNums": "2",
                        "perm": "6",
                        "topicFilterType": "SINGLE_TAG",
                        "topicSysFlag": "0",
                        "order": "false",
                    },
                )
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (await it.send("made")).code == ResponseCode.SYSTEM_ERROR
        side.rmdir()
        assert (await it.send("made")).code == 0
        await dispatched(it)
        assert len(records(await it.pull("made"))) == 1

    play(tmp_path, tell)


def test_queues_added_without_their_table_take_no_sends(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        topics = it.broker.metadata.topics
        assert (await it.send("orders", d="1")).code == 0
        side = side_file(tmp_path / "broker-a")
        side.mkdir()
        grown = topics.get("orders")
        assert grown is not None
        ext = {
            "topic": "orders",
            "defaultTopic": "TBW102",
            "readQueueNums": "8",
            "writeQueueNums": "8",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        answer = await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await it.send("orders", queue_id=7)).code == ResponseCode.SYSTEM_ERROR
        side.rmdir()
        for _ in range(3):
            assert (await it.send("orders", queue_id=7)).code == 0

    play(tmp_path, tell)


def test_failed_topic_table_shared_by_waiting_sends_is_tried_once_for_all(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        side_file(tmp_path / "broker-a").mkdir(parents=True)
        table = it.broker.metadata.topics
        table.create_by_send("orders", "TBW102", 1)
        outcomes = await asyncio.gather(
            *(table.persist() for _ in range(500)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {IsADirectoryError}
        assert not table.is_durable("orders")
        side_file(tmp_path / "broker-a").rmdir()
        await table.persist()
        assert table.is_durable("orders")

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            b'{"groupName":"made","retryQueueNums":1,"retryMaxTimes":16}',
        ),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "known"}, b""),
        (
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            {"group": "known", "topic": "orders", "readable": "false"},
            b"",
        ),
    ],
)
def test_group_change_whose_table_write_failed_is_refused_every_time(
    tmp_path: Path, code: RequestCode, ext: dict[str, str], body: bytes
) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.groups.find("known")
        await it.broker.metadata.groups.persist()
        side = side_file(tmp_path / "broker-a", "subscriptionGroup.json")
        side.mkdir()
        for _ in range(3):
            answer = await it.call(Command(code, ext=dict(ext), body=body))
            assert answer.code == ResponseCode.SYSTEM_ERROR
        side.rmdir()
        assert (await it.call(Command(code, ext=dict(ext), body=body))).code == 0
        table = (tmp_path / "broker-a/config/subscriptionGroup.json").read_bytes()
        assert (b'"made"' in table) is (code is RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert (b'"known"' in table) is (code is not RequestCode.DELETE_SUBSCRIPTIONGROUP)

    play(tmp_path, tell)


@pytest.mark.parametrize("table", ["consumerOffset.json", "subscriptionGroup.json"])
def test_group_whose_deletion_cannot_be_saved_stays_as_it_was(tmp_path: Path, table: str) -> None:
    """An ordered pop does not give again what it gave, and nothing is read from its beginning."""

    async def tell(it: Cluster) -> None:
        for number in range(4):
            assert (await it.send(TOPIC, b"%d" % number)).code == 0
        await dispatched(it)
        order = {"order": "true", "queueId": "0", "maxMsgNums": "2"}
        first = await pop(it, **order)
        assert first.bodies == [b"0", b"1"]
        assert (await it.call(ack_command(first.handles[0]))).code == 0
        metadata = it.broker.metadata
        metadata.groups.set_forbidden(GROUP, "other", 2)
        metadata.offsets.commit(GROUP, "other", 3, 7)
        before = metadata.groups.get(GROUP)
        offsets, times = metadata.offsets.export().offsets, metadata.deletions.export()
        side = side_file(tmp_path / "broker-a", table)
        side.mkdir()
        fields = {"groupName": GROUP, "cleanOffset": "true"}
        delete = Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext=fields)
        for _ in range(2):
            assert (await it.call(delete)).code == ResponseCode.SYSTEM_ERROR
            assert metadata.groups.get(GROUP) == before
            assert metadata.groups.forbidden(GROUP, "other") == 2
            assert metadata.offsets.export().offsets == offsets
            assert metadata.deletions.export() == times
            assert not (await pop(it, **order)).bodies
        side.rmdir()
        assert (await it.call(delete)).code == 0
        assert (await pop(it, **order)).bodies == [b"0", b"1"]

    play(tmp_path, tell)


def test_stop_and_start_on_a_full_disk_say_in_a_line_which_file_found_no_room(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path, autoCreateTopicEnable="true")

    async def before() -> None:
        async with broker.client() as it:
            assert (await it.send("orders")).code == 0

    asyncio.run(before())
    # Whatever is written there finds the disk full.
    (broker.store / "queueEnds.tmp").symlink_to("/dev/full")
    (broker.store / "config" / "brokerStats.json.tmp").mkdir()
    why = f"cannot write {broker.store}/queueEnds: No space left on device (os error 28)"
    broker.kill(signal.SIGTERM)
    assert f"store did not stop cleanly: {why}\n" in broker.output
    assert "totals did not stop cleanly: [Errno 21] Is a directory" in broker.output
    assert "Traceback" not in broker.output
    broker.start()
    assert broker.process is not None
    assert broker.process.wait(60) == 253
    assert f"the broker cannot start: {why}\n" in broker.output
    assert "Traceback" not in broker.output
