"""Names of light topics and their queues, and which broker a light topic belongs to."""

from __future__ import annotations

import pytest

from roquet.protocol import properties as props
from roquet.protocol.light import light_topics

QUEUE = "%LMQ%$chats$room-7"


def test_queue_of_light_topic_names_parent_and_topic() -> None:
    assert light_topics.queue_of("chats", "room-7") == QUEUE
    assert light_topics.split(QUEUE) == ("chats", "room-7")
    assert light_topics.belongs_to(QUEUE, "chats")
    assert not light_topics.belongs_to(QUEUE, "chat")


@pytest.mark.parametrize(
    "queue", ["%LMQ%a", "%LMQ%$", "%LMQ%$a", "%LMQ%$a$", "%LMQ%$$b", "%LMQ%$a$b$c", "a$b", ""]
)
def test_other_queue_is_no_light_topic(queue: str) -> None:
    assert light_topics.split(queue) is None


@pytest.mark.parametrize("name", ["", " ", "a$b", "a,%LMQ%b", "a/b", "..\n"])
def test_name_that_no_light_topic_can_have_names_no_queue(name: str) -> None:
    properties = {props.LITE_TOPIC: name}
    with pytest.raises(ValueError, match="no name of a light topic"):
        light_topics.name_queue("chats", properties)
    assert properties == {props.LITE_TOPIC: name}


def test_light_topic_replaces_queues_that_the_sender_names() -> None:
    properties = {props.LITE_TOPIC: "room-7", props.INNER_MULTI_DISPATCH: "%LMQ%$other$x"}
    light_topics.name_queue("chats", properties)
    assert properties[props.INNER_MULTI_DISPATCH] == QUEUE


def test_bucket_is_that_of_guava() -> None:
    """Recorded from `Hashing.consistentHash(name.hashCode(), n)` of Guava 32.0.1."""
    found = [light_topics.bucket(name, count) for name, count in BUCKETS]
    assert found == list(BUCKETS.values())


BUCKETS = {
    ("a", 1): 0,
    ("a", 2): 0,
    ("a", 4): 0,
    ("a", 7): 0,
    ("a", 16): 0,
    ("a", 1000): 346,
    ("room-7", 1): 0,
    ("room-7", 2): 0,
    ("room-7", 4): 2,
    ("room-7", 7): 2,
    ("room-7", 16): 2,
    ("room-7", 1000): 447,
    ("chat_1", 1): 0,
    ("chat_1", 2): 0,
    ("chat_1", 4): 0,
    ("chat_1", 7): 0,
    ("chat_1", 16): 12,
    ("chat_1", 1000): 194,
    ("0123456789", 1): 0,
    ("0123456789", 2): 0,
    ("0123456789", 4): 2,
    ("0123456789", 7): 2,
    ("0123456789", 16): 2,
    ("0123456789", 1000): 325,
    ("device-00042", 1): 0,
    ("device-00042", 2): 0,
    ("device-00042", 4): 2,
    ("device-00042", 7): 6,
    ("device-00042", 16): 14,
    ("device-00042", 1000): 242,
    ("zzzzzzzzzzzz", 1): 0,
    ("zzzzzzzzzzzz", 2): 0,
    ("zzzzzzzzzzzz", 4): 3,
    ("zzzzzzzzzzzz", 7): 3,
    ("zzzzzzzzzzzz", 16): 3,
    ("zzzzzzzzzzzz", 1000): 220,
    ("ä€", 1): 0,
    ("ä€", 2): 0,
    ("ä€", 4): 0,
    ("ä€", 7): 0,
    ("ä€", 16): 0,
    ("ä€", 1000): 343,
}
