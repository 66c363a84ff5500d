"""A message that was sent back is acknowledged once its group and its topic are on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play
from roquet.model.message import ATTEMPTS_MAX
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


async def send_back(it: Cluster, group: str, tries: int = 0) -> Command:
    sent = await it.send("orders", b"again", j=str(tries))
    await dispatched(it)
    fields = {
        "offset": str(int(ext(sent)["msgId"][16:], 16)),
        "group": group,
        "delayLevel": "1",
        "originMsgId": ext(sent)["msgId"],
        "originTopic": "orders",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    return await it.call(Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=fields))


def test_send_back_of_a_new_group_is_answered_after_group_and_topic_are_saved(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        answer = await send_back(it, "fresh")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        config = tmp_path / "broker-a" / "config"
        groups = json.loads((config / "subscriptionGroup.json").read_text())
        assert "fresh" in groups["subscriptionGroupTable"]
        topics = json.loads((config / "topics.json").read_text())
        assert "%RETRY%fresh" in topics["topicConfigTable"]

    play(tmp_path, tell)


def test_message_that_failed_as_often_as_can_be_counted_is_sent_back(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        answer = await send_back(it, "g", ATTEMPTS_MAX)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await dispatched(it)
        (dead,) = read_records(it.broker.store.get("%DLQ%g", 0, 0, 1).records)
        assert (dead.body, dead.reconsume_times) == (b"again", ATTEMPTS_MAX)

    play(tmp_path, tell)


@pytest.mark.parametrize("table", ["groups", "topics"])
def test_send_back_is_refused_when_a_table_cannot_be_saved(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders", b"makes the topic")
        tables = {"groups": it.broker.metadata.groups, "topics": it.broker.metadata.topics}
        stored = it.broker.store.native.max_physical_offset()

        async def fail() -> None:
            raise OSError(5, "a test says so")

        monkeypatch.setattr(tables[table], "persist", fail)
        answer = await send_back(it, "fresh")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        monkeypatch.undo()
        # Only the message itself was stored.
        assert len(it.broker.store.units("%RETRY%fresh", 0, 0, 10)) == 0
        assert it.broker.store.native.max_physical_offset() > stored

    play(tmp_path, tell)
