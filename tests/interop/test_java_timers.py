"""Timer messages with the real RocketMQ 5.5.0: its clients, its answers, its files."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import has_route, make_topic, until
from roquet.protocol.bodies.timers import TimerMetricsBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages.recall_handle import RecallHandle
from timer_harness import (
    SLOT,
    TOPIC,
    UNIT,
    TimerBroker,
    TimerWorld,
    Unit,
    assert_once_and_in_time,
    now_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.testing.java import Driver

OTHER = {"java": "ours", "ours": "java"}
STOP_MS = 4000
"""How long a broker may take to stop."""


@pytest.fixture(scope="module")
def twins(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TimerBroker]]:
    """A Java broker and one of ours, with the same settings."""
    with TimerWorld(jars, tmp_path_factory.mktemp("twins")) as world:
        both = {make: world.broker("twin-" + make) for make in OTHER}
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda make: both[make].open(make), both))
        yield both


def answers(broker: TimerBroker, hour_ms: int) -> dict[str, tuple[int, list[str]]]:
    """Return what a broker says to timer sends and recalls: code, and names of fields."""
    sends = {
        "plain": {"TIMER_DELIVER_MS": str(hour_ms)},
        "same step": {"TIMER_DELIVER_MS": str(hour_ms - 1)},
        "next step": {"TIMER_DELIVER_MS": str(hour_ms + 1)},
        "a day": {"TIMER_DELIVER_MS": str(hour_ms + 86_400_000)},
        "rolls": {"TIMER_DELIVER_MS": str(hour_ms + 190_000_000)},
        "two times": {"TIMER_DELAY_SEC": "0", "TIMER_DELIVER_MS": str(hour_ms)},
        "zero": {"TIMER_DELAY_SEC": "0"},
        "negative": {"TIMER_DELAY_SEC": "-5"},
        "text": {"TIMER_DELAY_SEC": "soon"},
        "empty": {"TIMER_DELIVER_MS": ""},
        "huge": {"TIMER_DELIVER_MS": "9223372036854775808"},
        "far": {"TIMER_DELAY_SEC": "259300"},
        "past recall": {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "x"},
        "level": {"TIMER_DELAY_SEC": "3600", "DELAY": "18"},
    }
    asked = {what: broker.send(what.encode(), **given) for what, given in sends.items()}
    name = broker.plan.name
    handles = {
        "known": RecallHandle(TOPIC, name, hour_ms - 999, "plain"),
        "other topic": RecallHandle("Another", name, hour_ms, "x"),
        "other broker": RecallHandle(TOPIC, "elsewhere", hour_ms, "x"),
        "due": RecallHandle(TOPIC, name, hour_ms - 7_200_000, "x"),
        "beyond": RecallHandle(TOPIC, name, hour_ms + 300_000_000, "x"),
    }
    texts = {what: handle.encode() for what, handle in handles.items()}
    texts |= {"torn": "bm8gaGFuZGxl", "none": "", "odd": "%%%"}
    asked |= {f"recall {what}": broker.recall(text) for what, text in texts.items()}
    asked["recall no topic"] = broker.recall(texts["known"], "NoSuchTopic")
    return {what: (int(answer.code), sorted(answer.ext or {})) for what, answer in asked.items()}


def test_timer_answers_and_files_are_those_of_java(twins: dict[str, TimerBroker]) -> None:
    hour_ms = (now_ms() // 1000 + 3600) * 1000
    shown = {make: answers(broker, hour_ms) for make, broker in twins.items()}
    assert shown["ours"] == shown["java"]
    for broker in twins.values():
        until("all are in the wheel", partial(broker.has_entered, 6))
        # Java answers 60 a moment before it writes the wheel.
        until("the wheel is written", partial(has_slots, broker, 4))
    java, ours = twins["java"].log_units(), twins["ours"].log_units()
    # When a message entered the wheel is each broker's own; its slot is not, unless it rolls.
    assert [same(unit, hour_ms) for unit in ours] == [same(unit, hour_ms) for unit in java]
    assert len(java) == 6
    # In the order of positions: what waits in turns is in a slot that depends on its arrival.
    slots = [{slot[8:]: place for place, slot in twins[make].slots().items()} for make in OTHER]
    rolled = {last for last in slots[0] if SLOT.unpack(bytes(8) + last)[2] == 4 * UNIT.size}
    assert len(rolled) == 1
    kept = [{slot: at for slot, at in some.items() if slot not in rolled} for some in slots]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 3
    checks = [twins[make].ask(Command(RequestCode.GET_TIMER_CHECK_POINT)).body for make in OTHER]
    # Between the time of the next slot and the data version: positions and offsets.
    assert checks[0][8:40] == checks[1][8:40]
    assert {len(check) for check in checks} == {56}
    tables = [twins[make].ask(Command(RequestCode.GET_TIMER_METRICS)).body for make in OTHER]
    counts = [
        {row.topic: row.waiting for row in TimerMetricsBody.decode(table).topics}
        for table in tables
    ]
    assert counts[0] == counts[1] == {TOPIC: 4}


def has_slots(broker: TimerBroker, count: int) -> bool:
    """Tell whether the wheel's file has so many slots in use."""
    return len(broker.slots()) == count


def same(unit: Unit, hour_ms: int) -> tuple[int, ...]:
    """Return what a unit must have in common with that of the other make."""
    ends_ms = unit.entered_ms + unit.wait_ms
    # The last record is a recall, which each broker writes with properties of its own.
    size = 0 if unit.magic & 4 else unit.record_size
    due_ms = unit.wait_ms if unit.magic & 2 else ends_ms - hour_ms
    return (
        *(unit.size, unit.previous, unit.magic, due_ms),
        *(unit.physical_offset, size, unit.topic_hash, unit.reserved),
    )


def test_java_clients_with_timers_of_each_kind_get_each_once_in_time(
    twins: dict[str, TimerBroker], driver: Driver
) -> None:
    broker, topic = twins["ours"], "JavaClients"
    namesrv = broker.plan.namesrv
    make_topic(driver, namesrv, broker.plan, topic, 1)
    begun = now_ms()
    even = (begun // 1000 + 3) * 1000
    steps = [
        {"body": b"s", "delay_s": 2},
        {"body": b"ms", "delay_ms": 2500},
        {"body": b"at", "deliver_ms": begun + 3001},
        {"body": b"even", "deliver_ms": even},
        {"body": b"past", "deliver_ms": begun - 10_000},
        {"body": b"gone", "delay_ms": 6000},
        {"body": b"far", "delay_s": 259_300},
    ]
    *sent, far = driver.timers(namesrv, topic, steps)
    assert {one["status"] for one in sent} == {"SEND_OK"}
    assert far["code"] == ResponseCode.MESSAGE_ILLEGAL
    assert [number for number, answer in enumerate(sent) if "handle" not in answer] == [4]
    given = RecallHandle.decode(sent[5]["handle"])
    assert given[:2] == (topic, broker.plan.name)
    assert given.unique_key == sent[5]["msg_id"]
    late = given._replace(due_ms=begun - 1).encode()
    handles = [{"recall": sent[5]["handle"]}, {"recall": sent[5]["handle"]}, {"recall": late}]
    first, again, refused = driver.timers(namesrv, topic, handles)
    assert first == again == {"recalled": sent[5]["msg_id"]}
    assert refused["code"] == ResponseCode.ILLEGAL_OPERATION
    received = driver.consume(namesrv, topic, "timed", 5, linger_s=0.0)
    assert sorted(one["body"] for one in received) == [b"at", b"even", b"ms", b"past", b"s"]
    time.sleep(max(0.0, (begun + 9000 - now_ms()) / 1000))
    due = {b"s": begun + 2000, b"ms": begun + 2500, b"at": begun + 3001, b"even": even, b"past": 0}
    assert_once_and_in_time(broker.delivered(topic), due)


@pytest.mark.parametrize("make", OTHER)
def test_our_client_delays_and_recalls_at_brokers_of_both_makes(
    twins: dict[str, TimerBroker], driver: Driver, make: str
) -> None:
    broker, topic = twins[make], f"OurClient-{make}"
    make_topic(driver, broker.plan.namesrv, broker.plan, topic, 1)

    async def tell() -> dict[bytes, int]:
        async with (
            roquet.connect(f"rmq://{broker.plan.namesrv}") as mq,
            mq.producer("ours") as producer,
        ):
            at = datetime.now(UTC) + timedelta(seconds=2.5)
            begun_ms = now_ms()
            await producer.send(topic, b"at", at=at)
            await producer.send(topic, b"delay", delay=2)
            gone = await producer.send(topic, b"gone", delay=5)
            await producer.recall(gone)
            return {b"at": int(at.timestamp() * 1000), b"delay": begun_ms + 2000}

    due = asyncio.run(tell())
    time.sleep(8)
    assert_once_and_in_time(broker.delivered(topic), due)


def test_mqadmin_shows_timers_and_turns_recall_off(
    twins: dict[str, TimerBroker], driver: Driver
) -> None:
    broker = twins["ours"]
    where = ("-n", broker.plan.namesrv, "-b", broker.plan.address)
    status = driver.mqadmin("brokerStatus", *where)
    for key in ("CongestNum", "DequeueTps", "EnqueueTps", "OffsetBehind", "ReadBehind"):
        assert f"timer{key} " in status
    setting = ("updateBrokerConfig", *where, "-k", "recallMessageEnable", "-v")
    driver.mqadmin(*setting, "false")
    broker.send(b"makes the topic", "Recalled")
    handle = RecallHandle("Recalled", broker.plan.name, now_ms() + 60_000, "x").encode()
    until("the route", lambda: has_route(broker.plan.namesrv, "Recalled", broker.plan.name))
    (refused,) = driver.timers(broker.plan.namesrv, "Recalled", [{"recall": handle}])
    assert refused["code"] == ResponseCode.NO_PERMISSION
    driver.mqadmin(*setting, "true")
    (taken,) = driver.timers(broker.plan.namesrv, "Recalled", [{"recall": handle}])
    assert taken == {"recalled": "x"}


def bodies(broker: TimerBroker) -> set[bytes]:
    """Return what was delivered at least once."""
    return {record.body for record in broker.delivered()}


def hand_over(broker: TimerBroker, writer: str, how: str) -> None:
    """Write timers with one make, end it, and have the other deliver them."""
    broker.open(writer)
    begun = now_ms()
    assert broker.send(b"fired", TIMER_DELAY_MS="1").code == ResponseCode.SUCCESS
    waits = {b"down": 9000, b"one": 15_000, b"two": 15_000, b"gone": 9500, b"three": 17_500}
    due = {b"fired": begun + 1}
    for body, wait_ms in waits.items():
        due[body] = begun + wait_ms
        sent = broker.send(body, TIMER_DELIVER_MS=str(due[body]))
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        if body == b"gone":
            assert broker.recall((sent.ext or {})["recallHandle"]).code == ResponseCode.SUCCESS
            del due[body]
    until("the first is delivered", lambda: len(broker.delivered()) >= 1)
    if broker.plan.extra.get("timerWheelSnapshotFlush") == "true":
        # Java's first snapshots may be of an empty log.
        until("a snapshot", lambda: any(broker.plan.store.glob("timerwheel.[1-9]*")))
    if how == "stop":
        until("the others wait in the wheel", lambda: broker.has_entered(7))
        # A broker of Java that stops while it delivers may do so once more after its start.
        soon = {body for body, due_ms in due.items() if due_ms <= now_ms() + STOP_MS}
        until("what is due soon is delivered", lambda: soon <= bodies(broker))
    broker.close(how)
    broker.open(OTHER[writer])
    until("all are delivered", lambda: due.keys() <= bodies(broker), 60)
    # What was recalled, and what comes twice, would come now.
    time.sleep(max(0.0, (begun + 19_500 - now_ms()) / 1000) + 1.5)
    assert_once_and_in_time(broker.delivered(), due, again=how == "kill")


@pytest.mark.timeout(240)
def test_timers_of_one_make_are_delivered_once_and_in_time_by_the_other(
    jars: Path, tmp_path: Path
) -> None:
    # Messages that are due 10 s ahead or later wait in turns.
    more = {"timerRollWindowSlot": "10"}
    with TimerWorld(jars, tmp_path) as world, ThreadPoolExecutor(4) as pool:
        runs = {
            (writer, how): pool.submit(
                hand_over, world.broker(f"{writer}-{how}", more), writer, how
            )
            for writer in OTHER
            for how in ("stop", "kill")
        }
        failed = {which: run.exception() for which, run in runs.items() if run.exception()}
    assert not failed


@pytest.mark.timeout(240)
def test_snapshots_of_the_wheel_of_one_make_serve_the_other(jars: Path, tmp_path: Path) -> None:
    more = {"timerWheelSnapshotFlush": "true", "timerWheelSnapshotIntervalMs": "1000"}
    with TimerWorld(jars, tmp_path) as world, ThreadPoolExecutor(2) as pool:
        brokers = {writer: world.broker(f"{writer}-snapshots", more) for writer in OTHER}
        runs = {
            writer: pool.submit(hand_over, broker, writer, "kill")
            for writer, broker in brokers.items()
        }
        failed = {which: run.exception() for which, run in runs.items() if run.exception()}
        assert not failed
        # One that is killed may leave an unfinished file, and one that it was about to remove.
        kept = {make: list(it.plan.store.glob("timerwheel.*")) for make, it in brokers.items()}
    for make, files in kept.items():
        whole = [file for file in files if file.suffix != ".tmp"]
        assert 1 <= len(whole) <= 3, make
        assert {file.stat().st_size for file in whole} == {1_209_600 * SLOT.size}
