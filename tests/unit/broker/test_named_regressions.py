"""Losses and bad inputs that others have had, each under the number of its report or row."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.messages.message_id import offset_id, parse_offset_id

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

TOPIC = {
    "topic": "made",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


def test_b14_topics_without_measure_are_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for field in ("readQueueNums", "writeQueueNums", "perm"):
            for text in ("0", "-1", "2147483647", "2147483648", "255", "1e3"):
                if text == "0" or (field != "perm" and text == "255"):
                    continue
                fields = TOPIC | {field: text}
                answer = await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields))
                assert answer.code == 29, (field, text, answer.remark)
        assert it.broker.metadata.topics.get("made") is None
        before = len(it.broker.metadata.topics.all())
        codes = [(await it.send(f"auto{number}")).code for number in range(40)]
        made = len(it.broker.metadata.topics.all()) - before
        assert codes == [0] * made + [17] * (40 - made)
        assert 0 < made < 40

    play(tmp_path, tell, autoCreateTopicMax="30")


def test_b18_a_message_id_of_elsewhere_finds_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = await it.send("orders", b"here")
        await dispatched(it)
        good = parse_offset_id(ext(sent)["msgId"])[1]
        for offset, code in (
            (str(good), 0),
            (str(good + 1), 1),
            ("-1", 1),
            (str(2**63 - 1), 1),
            (str(2**63), 29),
            ("0x10", 29),
        ):
            answer = await it.call(
                Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": offset, "topic": "orders"})
            )
            assert answer.code == code, (offset, answer.remark)

    play(tmp_path, tell)
    place = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
    assert parse_offset_id(offset_id(place, 7)) == (place, 7)
    assert len(offset_id(place, 7)) == 56
    for odd in (
        "",
        "7F",
        "7F00000100002A9F000000000000000",
        "zz" * 16,
        "0" * 33,
        "0" * 55,
        "0" * 57,
    ):
        with pytest.raises(ValueError):  # noqa: PT011  (any refusal will do)
            parse_offset_id(odd)


def test_8405_topics_come_and_go_under_load(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async def send(number: int) -> None:
            for _ in range(40):
                answer = await it.send("busy", b"x" * 500, queue_id=number)
                # The topic may just be gone: then nothing is stored, and it is made anew.
                assert answer.code in {0, 1, 14, 17}, answer.remark

        async def delete() -> None:
            for _ in range(15):
                command = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": "busy"})
                assert (await it.call(command)).code == 0
                await asyncio.sleep(0)

        await asyncio.gather(*(send(number) for number in range(4)), delete())
        await dispatched(it)
        answer = await it.send("busy", b"last")
        assert answer.code == 0
        await dispatched(it)
        offset = int(ext(answer)["queueOffset"])
        assert records(await it.pull("busy", offset))[-1].body == b"last"
        assert it.broker.store.writable()[0]

    play(tmp_path, tell)


@pytest.mark.parametrize("left", [b"", b"\0" * 300, b'{"offsetTable":{"orders@g":{0:'])
def test_3401_9328_alibaba_269_a_torn_offset_table_is_replaced_by_its_copy(
    tmp_path: Path, left: bytes
) -> None:
    async def commit(it: Cluster, offset: int) -> None:
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}
        command = Command(
            RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields | {"commitOffset": str(offset)}
        )
        assert (await it.call(command)).code == 0
        await it.broker.metadata.persist_offsets()

    async def before(it: Cluster) -> None:
        for _ in range(9):
            await it.send("orders")
        await dispatched(it)
        assert it.broker.metadata.groups.find("g") is not None
        await commit(it, 3)
        await commit(it, 5)

    async def after(it: Cluster) -> None:
        found = it.broker.metadata.offsets.query("g", "orders", 0)
        assert found in {3, 5}
        assert it.broker.metadata.groups.find("g") is not None
        await commit(it, 7)

    play(tmp_path, before)
    table = tmp_path / "broker-a/config/consumerOffset.json"
    table.write_bytes(left)
    play(tmp_path, after)
    assert b"7" in table.read_bytes()


def test_7355_7599_records_with_ipv6_hosts_are_recovered(tmp_path: Path) -> None:
    host = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")

    async def before(it: Cluster) -> None:
        it.broker.metadata.topics.ensure("orders", 1, 6)
        native = it.broker.store.native
        for number in range(30):
            hosts = {"born_host": host, "store_host": host, "sys_flag": 16 | 32}
            status = native.put("orders", 0, b"%d" % number, b"", **hosts)[0]  # type: ignore[arg-type]
            assert status == 0
        await dispatched(it)
        shutil.copytree(tmp_path / "broker-a", tmp_path / "killed" / "broker-a")

    async def after(it: Cluster) -> None:
        # The kill came before the table of topics was saved.
        it.broker.metadata.topics.ensure("orders", 1, 6)
        bodies = [record.body for record in records(await it.pull("orders"))]
        assert bodies == [b"%d" % number for number in range(30)]

    play(tmp_path, before)
    play(tmp_path / "killed", after)


def test_1825_2944_2708_alibaba_210_an_illegal_offset_of_a_pull_moves_no_group(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(5):
            assert (await it.send("orders", b"%d" % number)).code == 0
        await dispatched(it)
        await it.pull("orders")
        group = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
        commit = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=group | {"commitOffset": "3"})
        assert (await it.call(commit)).code == 0
        # Only a pull that says so commits, and -1 is no offset to commit.
        for offset, flags in ((-1, "4"), (6, "4"), (2**63 - 1, "4"), (-(2**63), "4"), (-1, "5")):
            answer = await it.pull("orders", offset, sysFlag=flags, commitOffset=str(offset))
            assert answer.code == 21, offset
            found = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=group))
            assert ext(found)["offset"] == "3", offset

    play(tmp_path, tell)
