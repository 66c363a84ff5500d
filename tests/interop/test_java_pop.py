"""POP with the real RocketMQ 5.5.0: its push consumer, and handles from one make at the other."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import make_topic, messages, until
from pop_harness import (
    GROUP,
    ack_command,
    invisible_command,
    pop_command,
    popped,
)
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from timer_harness import TimerBroker, TimerWorld, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pop_harness import Popped
    from roquet.client import SimpleConsumer
    from roquet.testing.java import Driver

OTHER = {"java": "ours", "ours": "java"}


@pytest.fixture(scope="module")
def twins(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TimerBroker]]:
    """A Java broker and one of ours, with the same settings."""
    with TimerWorld(jars, tmp_path_factory.mktemp("pop-twins")) as world:
        both = {make: world.broker("pop-" + make) for make in OTHER}
        for make, broker in both.items():
            broker.open(make)
        yield both


def set_mode(driver: Driver, broker: TimerBroker, topic: str, group: str) -> None:
    """Have a group pop, the way operators do."""
    driver.mqadmin(
        *("updateSubGroup", "-n", broker.plan.namesrv, "-b", broker.plan.address, "-g", group)
    )
    shown = driver.mqadmin(
        *("setConsumeMode", "-n", broker.plan.namesrv, "-b", broker.plan.address),
        *("-t", topic, "-g", group, "-m", "POP", "-q", "0"),
    )
    assert "success" in shown, shown


def test_java_push_consumer_in_pop_mode_gets_all_and_acknowledges(
    twins: dict[str, TimerBroker], driver: Driver
) -> None:
    broker, topic, group = twins["ours"], "PopTopic", "pop_pushers"
    namesrv = broker.plan.namesrv
    make_topic(driver, namesrv, broker.plan, topic, 4)
    set_mode(driver, broker, topic, group)
    given = messages(200)
    driver.send(namesrv, topic, given)
    came = driver.consume(namesrv, topic, group, 200, pop_invisible_ms=10_000, linger_s=15)
    # None of them comes again after its invisible time: each was acknowledged.
    assert sorted(one["body"] for one in came) == sorted(one["body"] for one in given)
    assert all(one["properties"]["POP_CK"] for one in came)


def test_message_that_failed_comes_again(twins: dict[str, TimerBroker], driver: Driver) -> None:
    broker, topic, group = twins["ours"], "PopFails", "pop_failers"
    namesrv = broker.plan.namesrv
    make_topic(driver, namesrv, broker.plan, topic, 2)
    set_mode(driver, broker, topic, group)
    given = messages(10)
    driver.send(namesrv, topic, given)
    came = driver.consume(
        *(namesrv, topic, group, 11),
        fail_once=given[3]["keys"],
        pop_invisible_ms=10_000,
        timeout_s=60,
        linger_s=5,
    )
    bodies = [one["body"] for one in came]
    assert sorted(bodies) == sorted([*(one["body"] for one in given), given[3]["body"]])
    again = came[-1]
    assert (again["body"], again["times"], again["topic"]) == (given[3]["body"], 1, topic)


def pop(broker: TimerBroker, topic: str, /, **fields: str) -> Popped:
    """Pop once."""
    return popped(broker.ask(pop_command(topic, **fields)), broker.plan.name)


def answers(broker: TimerBroker, topic: str) -> dict[str, tuple[int, list[str]]]:
    """Return what a broker says to requests of all kinds: code, and names of fields."""
    first = pop(broker, topic, maxMsgNums="3").handles
    handle = first[0]
    asked = {
        "empty": pop_command(topic, queueId="3"),
        "33": pop_command(topic, maxMsgNums="33"),
        "late": pop_command(topic, bornTime="1"),
        "no topic": pop_command("NoSuchTopic"),
        "no queue": pop_command(topic, queueId="9"),
        "filter": pop_command(topic, exp="n >", expType="SQL92"),
        "no fields": Command(RequestCode.POP_MESSAGE, ext={}),
        "waited": pop_command(topic, queueId="3", pollTime="300", bornTime=str(now_ms())),
        "ack": ack_command(handle, topic),
        "ack again": ack_command(handle, topic),
        "ack queue": ack_command(handle, topic, queueId="9"),
        "ack offset": ack_command(handle, topic, offset="7777"),
        "ack topic": ack_command(handle, "NoSuchTopic"),
        "ack torn": ack_command(handle, topic, extraInfo="1 2 3"),
        "change": invisible_command(first[1], topic),
        "change queue": invisible_command(first[1], topic, queueId="9"),
        "change offset": invisible_command(first[1], topic, offset="7777"),
        "change torn": invisible_command(first[1], topic, extraInfo="x"),
        "batch empty": Command(RequestCode.BATCH_ACK_MESSAGE, ext={}, body=b'{"acks":[]}'),
        "batch none": Command(RequestCode.BATCH_ACK_MESSAGE, ext={}),
    }
    where = {"consumerGroup": GROUP, "topic": topic, "queueId": "-1"}
    for name, code in (
        ("peek", RequestCode.PEEK_MESSAGE),
        ("notification", RequestCode.NOTIFICATION),
        ("info", RequestCode.POLLING_INFO),
    ):
        fields = {**where, "maxMsgNums": "4", "pollTime": "0", "bornTime": str(now_ms())}
        asked[name] = Command(code, ext=fields)
        asked[f"{name} topic"] = Command(code, ext={**fields, "topic": "NoSuchTopic"})
        asked[f"{name} queue"] = Command(code, ext={**fields, "queueId": "9"})
    shown: dict[str, tuple[int, list[str]]] = {}
    for name, command in asked.items():
        answer = broker.ask(command)
        shown[name] = int(answer.code), sorted(answer.ext or {})
    return shown


def test_answers_are_those_of_java(twins: dict[str, TimerBroker], driver: Driver) -> None:
    topic = "PopAnswers"
    for broker in twins.values():
        namesrv = broker.plan.namesrv
        make_topic(driver, namesrv, broker.plan, topic, 4)
        driver.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.plan.address, "-g", GROUP)
        for number in range(6):
            assert broker.send(b"%d" % number, topic=topic).code == 0
        until("messages can be read", partial(has_messages, broker, topic, 6))
    shown = {make: answers(broker, topic) for make, broker in twins.items()}
    # Java fails over this one and answers it without fields; here it has those of every answer.
    torn = {make: table.pop("change torn") for make, table in shown.items()}
    assert torn["ours"][0] == torn["java"][0] == ResponseCode.SYSTEM_ERROR
    assert shown["ours"] == shown["java"]


def ordered_answers(broker: TimerBroker, topic: str) -> list[object]:
    """Return what a broker says to ordered pops, one after the other, without times."""
    shown: list[object] = []

    def note(answer: Popped) -> Popped:
        fields = {"reviveQid", "restNum", "startOffsetInfo", "msgOffsetInfo"}
        counts = set(answer.ext.get("orderCountInfo", "none").split(";"))
        ext = {name: answer.ext.get(name) for name in fields}
        shown.append((answer.code, answer.remark, ext, counts, answer.bodies))
        return answer

    def say(command: Command) -> None:
        answer = broker.ask(command)
        shown.append((int(answer.code), sorted(answer.ext or {})))

    ordered = {"order": "true", "queueId": "0", "maxMsgNums": "3"}
    first = note(pop(broker, topic, invisibleTime="2000", attemptId="a", **ordered))
    note(pop(broker, topic, attemptId="b", **ordered))
    note(pop(broker, topic, invisibleTime="2000", attemptId="a", **ordered))
    again = note(pop(broker, topic, pollTime="10000", attemptId="c", **ordered))
    # Of a pop that is over.
    say(ack_command(first.handles[0], topic))
    say(ack_command(again.handles[1], topic))
    say(ack_command(again.handles[1], topic, offset="5"))
    say(invisible_command(again.handles[2], topic, invisibleTime="1000"))
    say(ack_command(again.handles[0], topic))
    say(ack_command(again.handles[0], topic))
    note(pop(broker, topic, attemptId="d", **ordered))
    where = {"consumerGroup": GROUP, "topic": topic, "queueId": "0"}
    committed = broker.ask(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=where))
    shown.append(committed.ext)
    return shown


def test_ordered_answers_are_those_of_java(twins: dict[str, TimerBroker], driver: Driver) -> None:
    topic = "PopOrdered"
    for broker in twins.values():
        namesrv = broker.plan.namesrv
        make_topic(driver, namesrv, broker.plan, topic, 1)
        driver.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.plan.address, "-g", GROUP)
        for number in range(6):
            assert broker.send(b"%d" % number, topic=topic).code == 0
        until("messages can be read", partial(has_messages, broker, topic, 6))
    shown = {make: ordered_answers(broker, topic) for make, broker in twins.items()}
    assert shown["ours"] == shown["java"]


def test_java_push_consumer_pops_in_order(twins: dict[str, TimerBroker], driver: Driver) -> None:
    broker, topic, group = twins["ours"], "PopInOrder", "pop_in_order"
    namesrv = broker.plan.namesrv
    make_topic(driver, namesrv, broker.plan, topic, 2)
    set_mode(driver, broker, topic, group)
    given = messages(60)
    driver.send(namesrv, topic, given)
    came = driver.consume(
        *(namesrv, topic, group, 60), orderly=True, pop_invisible_ms=10_000, linger_s=12
    )
    assert sorted(one["body"] for one in came) == sorted(one["body"] for one in given)
    for queue in range(2):
        offsets = [one["offset"] for one in came if one["queue"] == queue]
        assert offsets == sorted(offsets)


PRIORITIES = (
    {props.PRIORITY: "0"},
    {props.PRIORITY: "2"},
    {props.PRIORITY: "9"},
    {props.PRIORITY: "+1"},
    {props.PRIORITY: "-0"},
    {props.PRIORITY: "-1"},
    {props.PRIORITY: "x"},
    {props.PRIORITY: "2147483647"},
    {props.PRIORITY: "2147483648"},
    {props.PRIORITY: "3", props.SHARDING_KEY: "k"},
    {props.PRIORITY: "3", props.TRANSACTION_PREPARED: "false"},
    {props.PRIORITY: "3", props.DELAY: "0"},
    {"other": "1"},
)


def is_answered(broker: TimerBroker, command: Command) -> bool:
    """Tell whether a request succeeds."""
    return broker.ask(command).code == 0


def placed(broker: TimerBroker, topic: str) -> list[tuple[str | None, str | None]]:
    """Send messages to queue 1; return the queue of each and its priority as stored."""
    found: list[tuple[str | None, str | None]] = []
    for number, named in enumerate(PRIORITIES):
        text = props.write({props.UNIQ_KEY: f"{topic}-{number}", **named})
        answer = broker.ask(send_command(topic, b"%d" % number, 1, text))
        assert answer.code == 0, answer.remark
        ext = answer.ext or {}
        queue, offset = ext["queueId"], int(ext["queueOffset"])
        asked = pull_command(topic, offset, queueId=queue)
        until("it can be read", partial(is_answered, broker, asked))
        record = read_records(broker.ask(asked).body)[0]
        found.append((queue, props.read(record.properties).get(props.PRIORITY)))
    return found


CHANGES: tuple[dict[str, str], ...] = (
    {"-priority.factor": ""},
    {"+priority.factor": "101"},
    {"+priority.factor": "100"},
    {},
    {"+priority.factor": "x"},
    {"+odd": "1"},
    {"-odd": ""},
    {"-priority.factor": ""},
    {"-priority.factor": ""},
    {"+priority.factor": "100", "-priority.factor": ""},
    {"+priority.factor": "99"},
    {"+priority.factor": "100"},
)


def changed(broker: TimerBroker) -> list[object]:
    """Change the attributes of a group; return each answer and what is there then."""
    shown: list[object] = []
    for change in CHANGES:
        body = json.dumps({"groupName": "by_priority", "attributes": change}).encode()
        answer = broker.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        ask = Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ext={"group": "by_priority"})
        found = json.loads(broker.ask(ask).body or b"{}")
        shown.append((change, int(answer.code), found.get("attributes")))
    return shown


def test_priorities_are_those_of_java(twins: dict[str, TimerBroker], driver: Driver) -> None:
    topic = "PopPriorities"
    shown: dict[str, tuple[object, object, list[list[bytes]]]] = {}
    for make, broker in twins.items():
        namesrv, where = broker.plan.namesrv, broker.plan.address
        made = driver.mqadmin(
            *("updateTopic", "-n", namesrv, "-b", where, "-t", topic, "-r", "4", "-w", "4"),
            *("-a", "+message.type=PRIORITY"),
        )
        assert "success" in made, made
        attributes = changed(broker)
        places = placed(broker, topic)
        group = {"consumerGroup": "by_priority"}
        pops = [pop(broker, topic, maxMsgNums="3", **group).bodies for _ in range(5)]
        shown[make] = attributes, places, pops
    assert shown["ours"] == shown["java"]
    assert shown["ours"][2][0] == [b"2", b"7", b"10"]


def has_messages(broker: TimerBroker, topic: str, count: int) -> bool:
    """Tell whether queue 0 has so many messages."""
    where = {"topic": topic, "queueId": "0"}
    ext = broker.ask(Command(RequestCode.GET_MAX_OFFSET, ext=where)).ext or {}
    return int(ext["offset"]) == count


INVISIBLE_S = (30, 120)
"""How long moved messages are invisible: the second only when a broker needs longer to start."""
SLACK_S = 5
"""What must be left of it when the other make settles."""


@pytest.mark.timeout(500)
@pytest.mark.parametrize("merges", ["false", "true"])
@pytest.mark.parametrize("first", OTHER)
def test_handles_of_one_make_are_settled_at_the_other(
    first: str, merges: str, jars: Path, driver: Driver, tmp_path: Path
) -> None:
    with TimerWorld(jars, tmp_path) as world:
        for invisible_s in INVISIBLE_S:
            # With the merge buffer the stop is what stores the checkpoint and the acknowledgement.
            broker = world.broker(f"mover-{invisible_s}", {"enablePopBufferMerge": merges})
            broker.open(first)
            if is_settled_in_time(broker, OTHER[first], driver, invisible_s):
                return
            # What is settled too late comes again at either make.
            broker.close("kill")
    pytest.fail(f"no broker started within the last of {INVISIBLE_S} s")


def is_settled_in_time(broker: TimerBroker, other: str, driver: Driver, invisible_s: int) -> bool:
    """Pop four messages, settle three of them on both sides of a move, see the fourth again.

    False, with nothing judged: the invisible time was over before the other make had started.
    """
    topic, namesrv = "PopMoves", broker.plan.namesrv
    make_topic(driver, namesrv, broker.plan, topic, 1)
    driver.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.plan.address, "-g", GROUP)
    for number in range(4):
        assert broker.send(b"%d" % number, topic=topic).code == 0
    until("messages can be read", partial(has_messages, broker, topic, 4))
    popped_at = time.monotonic()
    got = pop(broker, topic, invisibleTime=str(invisible_s * 1000))
    assert len(got.handles) == 4
    assert broker.ask(ack_command(got.handles[0], topic)).code == 0
    broker.close("stop")
    broker.open(other)
    # The first was acknowledged before, the next two are now, and the last never.
    acked = broker.ask(ack_command(got.handles[1], topic))
    changed = broker.ask(invisible_command(got.handles[2], topic, invisibleTime="600000"))
    if time.monotonic() - popped_at > invisible_s - SLACK_S:
        return False
    assert (acked.code, changed.code) == (0, 0)
    again: list[tuple[bytes, int]] = []

    def came() -> bool:
        found = pop(broker, topic)
        again.extend((one.body, one.reconsume_times) for one in found.records)
        return bool(again)

    until("the redelivery", came, invisible_s + 60)
    assert time.monotonic() - popped_at > invisible_s - SLACK_S
    assert again == [(b"3", 1)]
    time.sleep(3)
    came()
    assert again == [(b"3", 1)]
    return True


@pytest.mark.parametrize("make", ["java", "ours"])
def test_our_simple_consumer_gets_acknowledges_and_gets_again(
    twins: dict[str, TimerBroker], driver: Driver, make: str
) -> None:
    broker, topic = twins[make], f"Simple-{make}"
    make_topic(driver, broker.plan.namesrv, broker.plan, topic, 4)

    async def received(
        consumer: SimpleConsumer, count: int, invisible_s: float
    ) -> list[roquet.Popped]:
        found: list[roquet.Popped] = []
        while len(found) < count:
            found += await consumer.receive(wait_s=5, invisible_s=invisible_s)
        return found

    async def run() -> None:
        async with (
            asyncio.timeout(100),
            roquet.connect(f"rmq://{broker.plan.namesrv}") as mq,
            mq.producer("p") as producer,
            mq.simple_consumer("simple", topic, start="earliest") as consumer,
        ):
            for number in range(12):
                await producer.send(topic, f"{number}")
            found = await received(consumer, 12, 15)
            assert {it.body for it in found} == {b"%d" % number for number in range(12)}
            later = await consumer.change_invisible(found[0], 60)
            for popped in found[2:]:
                await consumer.ack(popped)
            await consumer.ack(later)
            (again,) = await received(consumer, 1, 60)
            assert (again.body, again.attempt) == (found[1].body, 2)
            await consumer.ack(again)

    asyncio.run(run())
