"""What official clients of gRPC do before a proxy: the same stories for Java's and for ours."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from interop_world import until
from roquet.protocol import properties as props
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command
from timer_harness import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpc_harness import Message, Peer, ProxyWorld
    from roquet.protocol.command import Command


def numbered(count: int, **more: Any) -> list[Message]:
    return [{"body": b"m%d" % number, **more} for number in range(count)]


def sent(peer: Peer, topic: str, given: Sequence[Message]) -> list[Message]:
    """Send messages, all of which are stored."""
    answers = peer.send(topic, given)
    assert not [answer for answer in answers if "error" in answer], answers
    assert len({answer["id"] for answer in answers}) == len(given)
    return answers


def received(peer: Peer, group: str, count: int, timeout_s: float = 40.0) -> list[Message]:
    """Receive until so many came."""
    found: list[Message] = []
    end = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count}"
        found += peer.receive(group)
    return found


def what_is_not_acknowledged_comes_again(world: ProxyWorld, make: str) -> None:
    peer = world.peer(make)
    topic = world.topic(f"Normal-{peer.make}", "NORMAL")
    group = world.group(f"simple-{peer.make}")
    given: list[Message] = [
        {"body": b"m%d" % number, "tag": "ab"[number % 2], "keys": f"k{number}"}
        | {"properties": {"number": str(number)}}
        for number in range(5)
    ]
    ids = [answer["id"] for answer in sent(peer, topic, given)]
    peer.ask("open", topic=topic, group=group)
    came = received(peer, group, 5)
    assert sorted(one["id"] for one in came) == sorted(ids)
    for one in came:
        wanted = given[ids.index(one["id"])]
        assert (one["topic"], one["body"], one["tag"]) == (topic, wanted["body"], wanted["tag"])
        assert one["keys"] == [wanted["keys"]]
        assert one["properties"]["number"] == wanted["properties"]["number"]
        assert one["attempt"] == 1
    for number in (0, 1, 2):
        peer.ask("ack", group=group, message=ids[number])
    peer.ask("change", group=group, message=ids[3], invisible_s=13)
    first = {one["id"]: one["at_ms"] for one in came}
    again = received(peer, group, 2)
    # Each once more, neither before its time, and the second by its changed time.
    assert sorted(one["id"] for one in again) == sorted(ids[3:])
    for one in again:
        assert one["attempt"] == 2
        wait_ms = 13_000 if one["id"] == ids[3] else 10_000
        assert one["at_ms"] - first[one["id"]] >= wait_ms - 1000
        peer.ask("ack", group=group, message=one["id"])
    peer.ask("close", group=group)


def push_consumer_gets_a_message_that_failed_again(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Push-{peer.make}", "NORMAL")
    group = world.group(f"push-{peer.make}")
    ids = [answer["id"] for answer in sent(peer, topic, numbered(20))]
    came = peer.push(topic, group, 21, fail_once=b"m7")
    assert sorted(one["id"] for one in came) == sorted([*ids, ids[7]])
    assert [(one["id"], one["attempt"]) for one in came if one["attempt"] > 1] == [(ids[7], 2)]


def messages_of_a_group_come_in_order(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Fifo-{peer.make}", "FIFO")
    group = world.group(f"fifo-{peer.make}", consumeMessageOrderly=True)
    given = [{"body": b"m%d" % number, "group": "xyz"[number % 3]} for number in range(18)]
    sent(peer, topic, given)
    came = peer.push(topic, group, 18)
    for name in "xyz":
        bodies = [one["body"] for one in came if one["group"] == name]
        assert bodies == [one["body"] for one in given if one["group"] == name]


def delayed_messages_come_in_time_but_for_the_one_recalled(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Delay-{peer.make}", "DELAY")
    group = world.group(f"delay-{peer.make}")
    # The Python client counts in whole seconds.
    now = now_ms() // 1000 * 1000
    dues = [now + 5_000, now + 6_000, now + 7_000]
    given = [{"body": b"m%d" % number, "due_ms": due} for number, due in enumerate(dues)]
    answers = sent(peer, topic, given)
    recalled = peer.ask("recall", topic=topic, handle=answers[1]["recall"])
    assert recalled == answers[1]["id"]
    came = peer.push(topic, group, 2, linger_s=1)
    assert [one["body"] for one in came] == [b"m0", b"m2"]
    assert [one["at_ms"] >= due for one, due in zip(came, dues[::2], strict=True)] == [True, True]


def messages_come_by_priority(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Priority-{peer.make}", "PRIORITY")
    group = world.group(f"priority-{peer.make}")
    # The Node.js client takes 0 for no priority.
    priorities = [1, 3, 2, 9] if peer.make == "node" else [1, 0, 3, 2, 9]
    given = [{"body": b"m%d" % number, "priority": number} for number in priorities]
    sent(peer, topic, given)
    # A receive before the last is dispatched gives what is there, in the order of that.
    until("all can be read", lambda: readable(world, topic) == len(given))
    peer.ask("open", topic=topic, group=group)
    came = received(peer, group, len(given))
    wanted = [number for number in (3, 9, 2, 1, 0) if number in priorities]
    assert [one["priority"] for one in came] == wanted
    assert [one["body"] for one in came] == [b"m%d" % number for number in wanted]
    peer.ask("close", group=group)


def simple_consumer_gets_what_its_tags_take(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Tags-{peer.make}", "NORMAL")
    group = world.group(f"tags-{peer.make}")
    given = [{"body": b"m%d" % number, "tag": "abc"[number % 3]} for number in range(9)]
    sent(peer, topic, given)
    peer.ask("open", topic=topic, group=group, expression="a || c")
    came = received(peer, group, 6)
    assert sorted(one["body"] for one in came) == [b"m0", b"m2", b"m3", b"m5", b"m6", b"m8"]
    peer.ask("close", group=group)


def simple_consumer_gets_what_its_sql_takes(world: ProxyWorld, make: str, kind: str) -> None:
    peer = world.peer(make)
    topic = world.topic(f"Sql-{make}", "NORMAL")
    group = world.group(f"sql-{make}")
    given = [
        {"body": b"m%d" % number, "properties": {"number": str(number)}} for number in range(6)
    ]
    sent(peer, topic, given)
    peer.ask("open", topic=topic, group=group, expression="number > 2", kind=kind)
    came = received(peer, group, 3)
    assert sorted(one["body"] for one in came) == [b"m3", b"m4", b"m5"]
    peer.ask("close", group=group)


def halves_end_as_their_producer_says(world: ProxyWorld, make: str) -> None:
    peer = world.peer(make)
    topic = world.topic(f"Halves-{make}", "TRANSACTION")
    group = world.group(f"halves-{make}")
    wanted: list[str] = []
    for end in ("commit", "rollback", "none"):
        message = {"body": "bQ=="}
        asked = peer.ask("transaction", topic=topic, message=message, end=end, check="commit")
        if end != "rollback":
            wanted.append(asked["id"])
    came = peer.push(topic, group, 2, linger_s=2)
    # They may lie in different queues.
    assert sorted(one["id"] for one in came) == sorted(wanted), (came, wanted)
    # The one that nobody ended, and it alone, was asked for.
    assert set(peer.ask("checked", topic=topic, check="commit")) == {wanted[1]}


def kind_of_message_that_the_topic_does_not_take_is_refused(world: ProxyWorld) -> None:
    peer = world.peer("python")
    topic = world.topic("OnlyNormal", "NORMAL")
    (answer,) = peer.send(topic, [{"body": b"m", "priority": 1}])
    assert "not match" in answer["error"]


def message_that_fails_too_often_goes_to_the_dead_letters(world: ProxyWorld) -> None:
    peer = world.peer("python")
    topic = world.topic("Fails", "NORMAL")
    group = world.group("failing", retryMaxTimes=1)
    dead = f"%DLQ%{group}"
    ids = [answer["id"] for answer in sent(peer, topic, numbered(3))]
    came = peer.push(topic, group, 4, fail_always=b"m1", linger_s=1)
    assert sorted(one["id"] for one in came) == sorted([*ids, ids[1]])
    asked = pull_command(dead)
    until("a dead letter", partial(is_answered, world, asked))
    (record,) = read_records(world.broker.ask(asked).body)
    assert (record.body, props.read(record.properties)[props.UNIQ_KEY]) == (b"m1", ids[1])


def readable(world: ProxyWorld, topic: str, queues: int = 4) -> int:
    """Return how many messages a broker gives to who reads a topic now."""
    answers = [world.ask(pull_command(topic, queueId=str(number))) for number in range(queues)]
    return sum(len(read_records(answer.body or b"")) for answer in answers)


def is_answered(world: ProxyWorld, command: Command, messages: int = 0) -> bool:
    """Tell whether a request succeeds; a pull, whether it finds so many messages."""
    answer = world.broker.ask(command)
    return answer.code == 0 and (not messages or len(read_records(answer.body)) >= messages)
