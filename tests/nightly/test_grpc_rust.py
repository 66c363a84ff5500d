"""The official Rust client of gRPC, crate `rocketmq` 5.0.0, before our broker and our proxy.

It has producers and simple consumers only: it cannot push, recall or change an invisible time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools.grpc_programs import RUST_S

import grpc_stories as stories
from grpc_harness import front_world
from roquet.testing.java import fetch_jars
from timer_harness import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpc_harness import Message, ProxyWorld

pytestmark = pytest.mark.timeout(RUST_S + 600)


@pytest.fixture(scope="module", params=["local", "ours"])
def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    with front_world(fetch_jars(), tmp_path_factory.mktemp("rust"), request.param) as built:
        yield built


def test_what_rust_does_not_acknowledge_comes_again(world: ProxyWorld) -> None:
    peer = world.peer("rust")
    topic, group = world.topic("Normal", "NORMAL"), world.group("simple")
    given: list[Message] = [
        {"body": b"m%d" % number, "tag": "ab"[number % 2], "keys": f"k{number}"}
        | {"properties": {"number": str(number)}}
        for number in range(5)
    ]
    ids = [answer["id"] for answer in stories.sent(peer, topic, given)]
    peer.ask("open", topic=topic, group=group)
    came = stories.received(peer, group, 5)
    assert sorted(one["id"] for one in came) == sorted(ids)
    for one in came:
        wanted = given[ids.index(one["id"])]
        assert (one["topic"], one["body"], one["tag"]) == (topic, wanted["body"], wanted["tag"])
        assert one["keys"] == [wanted["keys"]]
        assert one["properties"] == wanted["properties"]
        assert one["attempt"] == 1
    for message in ids[:3]:
        peer.ask("ack", group=group, message=message)
    first = {one["id"]: one["at_ms"] for one in came}
    again = stories.received(peer, group, 2)
    assert sorted(one["id"] for one in again) == sorted(ids[3:])
    for one in again:
        assert one["attempt"] == 2
        assert one["at_ms"] - first[one["id"]] >= 9_000
        peer.ask("ack", group=group, message=one["id"])
    peer.ask("close", group=group)


def test_simple_consumer_of_rust_gets_what_its_tags_take(world: ProxyWorld) -> None:
    stories.simple_consumer_gets_what_its_tags_take(world, world.peer("rust"))


def test_simple_consumer_of_rust_gets_what_its_sql_takes(world: ProxyWorld) -> None:
    stories.simple_consumer_gets_what_its_sql_takes(world, "rust", "SQL92")


def test_messages_of_a_group_come_to_rust_in_order(world: ProxyWorld) -> None:
    peer = world.peer("rust")
    topic = world.topic("Fifo", "FIFO")
    group = world.group("fifo", consumeMessageOrderly=True)
    given: list[Message] = [
        {"body": b"m%d" % number, "group": "xyz"[number % 3]} for number in range(12)
    ]
    stories.sent(peer, topic, given)
    peer.ask("open", topic=topic, group=group)
    came: list[Message] = []
    while len(came) < len(given):
        # The next of a queue comes only when those before it were acknowledged.
        found = stories.received(peer, group, 1)
        for one in found:
            peer.ask("ack", group=group, message=one["id"])
        came += found
    for name in "xyz":
        bodies = [one["body"] for one in came if one["group"] == name]
        assert bodies == [one["body"] for one in given if one["group"] == name]
    peer.ask("close", group=group)


def test_delayed_messages_of_rust_come_in_time(world: ProxyWorld) -> None:
    peer = world.peer("rust")
    topic, group = world.topic("Delay", "DELAY"), world.group("delay")
    # This client counts in whole seconds.
    now = now_ms() // 1000 * 1000
    dues = {b"m0": now + 4_000, b"m1": now + 6_000}
    stories.sent(peer, topic, [{"body": body, "due_ms": due} for body, due in dues.items()])
    peer.ask("open", topic=topic, group=group)
    came = stories.received(peer, group, 2)
    assert sorted(one["body"] for one in came) == [b"m0", b"m1"]
    assert all(one["at_ms"] >= dues[one["body"]] for one in came), (came, dues)
    peer.ask("close", group=group)


def test_halves_of_rust_end_as_their_producer_says(world: ProxyWorld) -> None:
    peer = world.peer("rust")
    topic, group = world.topic("Halves", "TRANSACTION"), world.group("halves")
    ids: dict[str, str] = {}
    for end in ("commit", "rollback", "none"):
        message = {"body": "bQ=="}
        asked = peer.ask("transaction", topic=topic, message=message, end=end, check="commit")
        ids[end] = asked["id"]
    peer.ask("open", topic=topic, group=group)
    came = stories.received(peer, group, 2)
    assert sorted(one["id"] for one in came) == sorted([ids["commit"], ids["none"]])
    # The one that nobody ended, and it alone, was asked for.
    assert set(peer.ask("checked", topic=topic, check="commit")) == {ids["none"]}
    for one in came:
        peer.ask("ack", group=group, message=one["id"])
    # The one rolled back is not behind them.
    assert peer.receive(group) == []
    peer.ask("close", group=group)
