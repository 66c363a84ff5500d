"""The Java producer and push consumer with our name server and our broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop_world import assert_same, by_place, has_route, messages, until

if TYPE_CHECKING:
    from interop_world import World


@pytest.mark.parametrize("namesrv", ["ours", "java"])
def test_ordinary_messages(world: World, namesrv: str) -> None:
    address = getattr(world, namesrv).namesrv
    topic = world.topic(f"Ordinary-{namesrv}", world.ours)
    given = messages(40)
    sent = world.driver.send(address, topic, given)
    assert {answer["broker"] for answer in sent} == {world.ours.name}
    assert {answer["queue"] for answer in sent} == {0, 1, 2, 3}
    received = world.driver.consume(address, topic, f"ordinary_{namesrv}", len(given))
    assert_same(given, sent, received)


def test_tags_are_filtered(world: World) -> None:
    topic = world.topic("Tags", world.ours)
    given = messages(30)
    world.driver.send(world.ours.namesrv, topic, given)
    wanted = [message["body"] for message in given if message["tags"] == "b"]
    received = world.driver.consume(
        world.ours.namesrv, topic, "tags_b", len(wanted), tags="b || c", linger_s=1.0
    )
    assert sorted(one["body"] for one in received) == sorted(wanted)


def test_a_batch_is_stored_in_one_queue_in_order(world: World) -> None:
    topic = world.topic("Batch", world.ours)
    given = messages(5)
    (sent,) = world.driver.send(world.ours.namesrv, topic, given, mode="batch")
    assert sent["status"] == "SEND_OK"
    received = world.driver.consume(world.ours.namesrv, topic, "batch", len(given))
    places = by_place(received)
    for index, (message, unique, stored) in enumerate(
        zip(given, sent["msg_id"].split(","), sent["offset_msg_id"].split(","), strict=True)
    ):
        came = places[sent["queue"], sent["offset"] + index]
        assert came["body"] == message["body"]
        assert (came["msg_id"], came["offset_msg_id"]) == (unique, stored)


def test_an_orderly_consumer_sees_each_queue_in_order(world: World) -> None:
    topic = world.topic("Ordered", world.ours)
    given = messages(60)
    for index, message in enumerate(given):
        message["properties"]["shard"] = str(index % 7)
    sent = world.driver.send(world.ours.namesrv, topic, given, mode="ordered")
    received = world.driver.consume(world.ours.namesrv, topic, "ordered", len(given), orderly=True)
    assert_same(given, sent, received)
    for queue in range(4):
        offsets = [one["offset"] for one in received if one["queue"] == queue]
        assert offsets == list(range(len(offsets)))
    for shard in range(7):
        numbers = [
            int(one["properties"]["number"])
            for one in received
            if one["properties"]["shard"] == str(shard)
        ]
        assert numbers == list(range(shard, 60, 7))


def test_a_large_body_is_compressed_by_one_and_unpacked_by_the_other(world: World) -> None:
    topic = world.topic("Large", world.ours)
    given = [{"body": b"0123456789" * 1024, "tags": "a", "keys": "large", "properties": {}}]
    sent = world.driver.send(world.ours.namesrv, topic, given)
    received = world.driver.consume(world.ours.namesrv, topic, "large", 1)
    assert_same(given, sent, received)
    assert received[0]["stored_size"] < 1024


def test_one_way_messages_arrive(world: World) -> None:
    topic = world.topic("OneWay", world.ours)
    given = messages(10)
    assert world.driver.send(world.ours.namesrv, topic, given, mode="oneway") == []
    received = world.driver.consume(world.ours.namesrv, topic, "oneway", len(given))
    assert sorted(one["body"] for one in received) == sorted(one["body"] for one in given)


def test_a_failed_message_comes_again(world: World) -> None:
    topic = world.topic("Again", world.ours)
    # A consumer asks for routes when it starts and then each 30 s: the first one of a group
    # comes too early for the retry topic, which its own heartbeat makes.
    assert world.driver.consume(world.ours.namesrv, topic, "again", 0) == []
    retry = "%RETRY%again"
    until("the retry topic", lambda: has_route(world.ours.namesrv, retry, world.ours.name))
    given = messages(3, seed=7)
    sent = world.driver.send(world.ours.namesrv, topic, given)
    received = world.driver.consume(
        world.ours.namesrv, topic, "again", 4, fail_once=given[1]["keys"], linger_s=1.0
    )
    assert len(received) == 4
    (repeated,) = [one for one in received if one["times"] == 1]
    assert repeated["body"] == given[1]["body"]
    assert repeated["msg_id"] == sent[1]["msg_id"]
    assert repeated["topic"] == topic


def test_a_delayed_message_comes_late_with_its_own_topic_and_queue(world: World) -> None:
    topic = world.topic("Delayed", world.ours)
    given = [{**message, "delay": 1} for message in messages(4, seed=8)]
    world.driver.send(world.ours.namesrv, topic, given)
    received = world.driver.consume(world.ours.namesrv, topic, "delayed", len(given))
    assert {one["topic"] for one in received} == {topic}
    assert sorted(one["body"] for one in received) == sorted(one["body"] for one in given)


def test_two_groups_each_see_everything_and_a_group_goes_on_where_it_was(world: World) -> None:
    topic = world.topic("Groups", world.ours)
    first, second = messages(12, seed=9), messages(12, seed=10)
    sent = world.driver.send(world.ours.namesrv, topic, first)
    assert_same(first, sent, world.driver.consume(world.ours.namesrv, topic, "groups_1", 12))
    assert_same(first, sent, world.driver.consume(world.ours.namesrv, topic, "groups_2", 12))
    later = world.driver.send(world.ours.namesrv, topic, second)
    again = world.driver.consume(world.ours.namesrv, topic, "groups_1", 12, linger_s=1.0)
    assert_same(second, later, again)
