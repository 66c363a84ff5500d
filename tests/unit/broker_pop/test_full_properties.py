"""Messages whose properties fill their record: their copies have room, or are dead letters."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, properties
from pop_harness import TOPIC, pop
from roquet.broker.messages import fitting
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command
from transaction_harness import QUICK, TxProducer, of, send_half, until

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.testing.cluster import Cluster

FAST = {"timerPrecisionMs": "100", "reviveInterval": "100", "mappedFileSizeTimerLog": "65536"}
SHORT, LONG = "short", "g" * 110
"""A group whose name fits where spare properties were, and one whose name does not."""
LATE = {"messageDelayLevel": "1s 1s 1s 1s"}


def test_spare_properties_make_room_in_their_order_and_no_further() -> None:
    given = {"K": "x" * (props.SIZE_MAX - 3), "CLUSTER": "c", "WAIT": "false", "TAGS": "t"}
    given["K"] = given["K"][: -len("TAGS.t.")]
    assert fitting.fits(given)
    assert list(given) == ["K", "TAGS"]
    given = {"K": "x" * (props.SIZE_MAX - 3 - len("CLUSTER.c.")), "CLUSTER": "c", "WAIT": "w"}
    assert fitting.fits(given)
    assert list(given) == ["K", "CLUSTER"]
    given["K"] += "x" * len("CLUSTER.c.x")
    assert not fitting.fits(given)
    assert list(given) == ["K"]


def test_properties_that_fit_are_not_touched() -> None:
    given = {"K": "x" * (props.SIZE_MAX - 3 - len("WAIT.w.")), "WAIT": "w"}
    assert props.size(props.write(given)) == props.SIZE_MAX
    assert fitting.fits(given)
    assert list(given) == ["K", "WAIT"]


async def full(it: Cluster, key: str) -> Record:
    """Send a message whose record has no byte of properties left; return it."""
    size, record = 1, None
    for _ in range(2):
        text = f"UNIQ_KEY\x01{key}\x02FILL\x01{'x' * size}\x02"
        answer = await it.call(send_command(TOPIC, b"full", 0, text))
        assert answer.code == 0, answer.remark
        await dispatched(it)
        record = of(it.broker, TOPIC)[-1]
        size = props.SIZE_MAX - len(record.properties) + 1
    assert record is not None
    assert len(record.properties) == props.SIZE_MAX
    return record


def filling(record: Record) -> tuple[bytes, str | None, str | None]:
    """Return what a copy must have of a message."""
    found = properties(record)
    return record.body, found.get("UNIQ_KEY"), found.get("FILL")


async def sent_back(it: Cluster, record: Record, group: str) -> None:
    header = {"offset": str(record.physical_offset), "group": group, "delayLevel": "1"}
    answer = await it.call(Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=header))
    assert answer.code == 0, answer.remark
    await dispatched(it)


def test_full_message_sent_back_comes_again_or_is_a_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: Cluster) -> None:
        record = await full(it, "back")
        for group in (SHORT, LONG):
            it.broker.metadata.groups.put(SubscriptionGroupConfig(name=group))
            await sent_back(it, record, group)
        await until(lambda: bool(of(it.broker, f"%RETRY%{SHORT}")), "another try")
        (again,), (dead,) = of(it.broker, f"%RETRY%{SHORT}"), of(it.broker, f"%DLQ%{LONG}")
        assert filling(again) == filling(dead) == filling(record)
        assert (again.reconsume_times, dead.reconsume_times) == (1, 1)
        found = properties(again)
        assert found["RETRY_TOPIC"] == properties(dead)["RETRY_TOPIC"] == TOPIC
        assert {"CLUSTER", "ORIGIN_MESSAGE_ID"}.isdisjoint(found)
        assert of(it.broker, f"%DLQ%{SHORT}") == of(it.broker, f"%RETRY%{LONG}") == []

    with caplog.at_level(logging.WARNING, logger="roquet.broker.services.send_back"):
        play(tmp_path, tell, **LATE)
    (line,) = [it.getMessage() for it in caplog.records if "dead letters" in it.getMessage()]
    assert TOPIC in line
    assert LONG in line


@pytest.mark.parametrize("fast_path", ["true", "false"])
def test_full_message_popped_in_vain_comes_again_or_is_a_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fast_path: str
) -> None:
    async def tell(it: Cluster) -> None:
        for group in (SHORT, LONG):
            it.broker.metadata.groups.put(SubscriptionGroupConfig(name=group))
        record = await full(it, "popped")
        for group in (SHORT, LONG):
            got = await pop(it, consumerGroup=group, invisibleTime="1000")
            assert got.bodies == [b"full", b"full"]
        retry, dead = f"%RETRY%{SHORT}_{TOPIC}", f"%DLQ%{LONG}"
        await until(lambda: len(of(it.broker, retry)) == 2, "another try")
        await until(lambda: len(of(it.broker, dead)) == 1, "a dead letter")
        assert filling(of(it.broker, retry)[-1]) == filling(record)
        assert filling(of(it.broker, dead)[0]) == filling(record)
        assert of(it.broker, f"%DLQ%{SHORT}") == []
        # The one that had room is no dead letter of either group.
        await until(lambda: len(of(it.broker, f"%RETRY%{LONG}_{TOPIC}")) == 1, "another try")

    with caplog.at_level(logging.WARNING, logger="roquet.broker.pop.revive_copies"):
        play(tmp_path, tell, fastPathEnable=fast_path, **FAST)
    (line,) = [it.getMessage() for it in caplog.records if "dead letters" in it.getMessage()]
    assert f"{TOPIC} queue 0 offset 1" in line


def test_half_message_without_room_is_asked_about_and_counted(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        room, size = 300, 0
        for key in ("probe", "half"):
            await send_half(it, TOPIC, key, f"FILL={'x' * (props.SIZE_MAX - room)}")
            half = of(it.broker, "RMQ_SYS_TRANS_HALF_TOPIC")[-1]
            size = len(half.properties)
            room -= props.SIZE_MAX - size
        assert size > props.SIZE_MAX - 20
        async with TxProducer(it) as producer:
            await until(lambda: len(producer.asked) >= 4, "questions about both, twice")
        asked = {ext_of["msgId"]: record for ext_of, record in producer.asked}
        assert set(asked) == {"probe", "half"}
        assert properties(asked["half"])["TRANSACTION_CHECK_TIMES"] > "0"
        assert "CLUSTER" not in properties(asked["half"])

    play(tmp_path, tell, **QUICK)
