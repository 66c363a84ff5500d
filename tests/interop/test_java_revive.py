"""What pops leave in the log, and what redelivery makes of it, beside RocketMQ 5.5.0."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from interop_world import make_topic, until
from pop_harness import GROUP, ack_command, invisible_command, pop_command, popped
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.batch_ack import BatchAck, BatchAckBody
from timer_harness import TimerBroker, TimerWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.testing.java import Driver

MAKES = ("java", "ours")
TOPIC = "ReviveTopic"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"


@pytest.fixture(scope="module")
def twins(
    jars: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TimerBroker]]:
    """A Java broker and one of ours with the same settings, a topic and a group."""
    with TimerWorld(jars, tmp_path_factory.mktemp("revive-twins")) as world:
        both = {make: world.broker("revive-" + make) for make in MAKES}
        with ThreadPoolExecutor(2) as pool:
            for opened in [pool.submit(it.open, make) for make, it in both.items()]:
                opened.result()
        for broker in both.values():
            namesrv = broker.plan.namesrv
            make_topic(driver, namesrv, broker.plan, TOPIC, 1)
            driver.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.plan.address, "-g", GROUP)
        yield both


def pop_and_settle(broker: TimerBroker) -> None:
    """Pop four messages; acknowledge one, then two together; change the time of the last."""
    for number in range(4):
        tags = {"TAGS": "t", "KEYS": f"k{number}", "DELAY": "0"}
        assert broker.send(b"%d" % number, topic=TOPIC, **tags).code == 0
    until("messages can be read", lambda: len(broker.delivered(TOPIC)) == 4)
    got = popped(broker.ask(pop_command(TOPIC, invisibleTime="8000")), broker.plan.name)
    assert got.bodies == [b"0", b"1", b"2", b"3"]
    first = got.handles[0]
    assert broker.ask(ack_command(first, TOPIC)).code == 0
    batch = BatchAck(
        group=GROUP,
        topic=TOPIC,
        retry_flag="0",
        start_offset=first.start_offset,
        queue_id=0,
        revive_queue=first.revive_queue,
        pop_time_ms=first.pop_time_ms,
        invisible_ms=first.invisible_ms,
        offsets=(1, 2),
    )
    body = BatchAckBody(broker_name=broker.plan.name, acks=(batch,)).encode()
    assert broker.ask(Command(RequestCode.BATCH_ACK_MESSAGE, ext={}, body=body)).code == 0
    changed = invisible_command(got.handles[3], TOPIC, invisibleTime="2000")
    assert broker.ask(changed).code == 0


def shown(broker: TimerBroker, record: Record) -> dict[str, object]:
    """Return a record of the revive log without what is a broker's own: name, times, queue."""
    fields = json.loads(record.body)
    pop_ms = fields["pt"]
    text = record.properties.decode()
    text = text.replace(str(pop_ms), "PT")
    pairs = [entry.split("\x01") for entry in text.split("\x02") if entry]
    # Times of their own: when the record is due, and the slot that this makes.
    later = {
        name: int(value) - pop_ms
        for name, value in pairs
        if name == props.TIMER_DELIVER_MS and value.isdigit()
    }
    own = {props.TIMER_DELIVER_MS, props.TIMER_OUT_MS, props.REAL_QUEUE_ID}
    kept = [(name, "" if name in own else value) for name, value in pairs]
    body = record.body.decode().replace(str(pop_ms), "PT")
    body = body.replace(str(fields.get("reviveTime", "none")), "DUE")
    plain = body.replace(broker.plan.name, "NAME")
    return {
        "body": plain,
        # The order of a hash map of Java's, which no reader goes by.
        "properties": sorted((name, it.replace(broker.plan.name, "NAME")) for name, it in kept),
        "later": later,
        "same host": record.born_host == record.store_host,
        "flags": (record.flag, record.sys_flag, record.reconsume_times),
    }


@pytest.fixture(params=["false", "true"])
def merging(
    jars: Path, driver: Driver, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[dict[str, TimerBroker]]:
    """Like `twins`, with the merge buffer: acknowledgements one by one, or as batches."""
    more = {
        "enablePopBufferMerge": "true",
        "popCkStayBufferTime": "6000",
        "enablePopBatchAck": request.param,
    }
    with TimerWorld(jars, tmp_path) as world:
        both = {make: world.broker("merge-" + make, more) for make in MAKES}
        with ThreadPoolExecutor(2) as pool:
            for opened in [pool.submit(it.open, make) for make, it in both.items()]:
                opened.result()
        for broker in both.values():
            namesrv = broker.plan.namesrv
            make_topic(driver, namesrv, broker.plan, TOPIC, 1)
            driver.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.plan.address, "-g", GROUP)
        yield both


def test_records_of_the_merge_buffer_are_those_of_java(merging: dict[str, TimerBroker]) -> None:
    for broker in merging.values():
        for number in range(4):
            assert broker.send(b"%d" % number, topic=TOPIC).code == 0
        until("messages can be read", partial(has_records, broker, TOPIC, 4))
        command = pop_command(TOPIC, invisibleTime="30000", maxMsgNums="3")
        got = popped(broker.ask(command), broker.plan.name)
        for number in (0, 2):
            assert broker.ask(ack_command(got.handles[number], TOPIC)).code == 0
        # Acknowledged whole: nothing of it is ever stored.
        whole = popped(broker.ask(pop_command(TOPIC, invisibleTime="30000")), broker.plan.name)
        assert whole.bodies == [b"3"]
        assert broker.ask(ack_command(whole.handles[0], TOPIC)).code == 0
        assert not has_records(broker, names.TIMER_TOPIC, 1)
    is_batch = merging["ours"].plan.extra["enablePopBatchAck"] == "true"
    tables: dict[str, list[dict[str, object]]] = {}
    for make, broker in merging.items():
        until("the checkpoint is stored", partial(has_records, broker, names.TIMER_TOPIC, 2), 30)
        until("acknowledgements", partial(has_records, broker, names.TIMER_TOPIC, 3 - is_batch), 5)
        tables[make] = [shown(broker, it) for it in broker.delivered(names.TIMER_TOPIC)]
    for ours, java in zip(tables["ours"], tables["java"], strict=True):
        assert ours == java
    assert len(tables["java"]) == 3 - is_batch


def has_records(broker: TimerBroker, topic: str, count: int) -> bool:
    """Tell whether queue 0 of a topic has so many messages."""
    return len(broker.delivered(topic)) >= count


def test_records_of_pops_and_their_copies_are_those_of_java(twins: dict[str, TimerBroker]) -> None:
    for broker in twins.values():
        pop_and_settle(broker)
    tables: dict[str, list[dict[str, object]]] = {}
    for make, broker in twins.items():
        until("records of the pop", partial(has_records, broker, names.TIMER_TOPIC, 5))
        tables[make] = [shown(broker, it) for it in broker.delivered(names.TIMER_TOPIC)]
    for ours, java in zip(tables["ours"], tables["java"], strict=True):
        assert ours == java
    assert len(tables["java"]) == 5
    copies: dict[str, list[tuple[object, ...]]] = {}
    for make, broker in twins.items():
        until("the redelivery", partial(has_records, broker, RETRY, 1), 60)
        copies[make] = [
            (
                it.body,
                it.queue_id,
                it.reconsume_times,
                it.flag,
                it.sys_flag,
                it.born_host == it.store_host,
                sorted(
                    (name, "" if name == props.FIRST_POP_TIME else value)
                    for name, value in props.read(it.properties).items()
                ),
            )
            for it in broker.delivered(RETRY)
        ]
    assert copies["ours"] == copies["java"]
    assert [copy[0] for copy in copies["java"]] == [b"3"]
