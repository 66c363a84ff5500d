"""Each limit of SendMessage one below, at, and one above; codes and texts are Java's."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import fronted, message
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OK = Code.OK
KIB = 1024
NOW_S = int(time.time())


def user(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


def sized(size: int) -> dict[str, str]:
    """Return user properties whose keys and values, with tag `t` and key `kk`, have a size."""
    return {"key": "v" * (size - 3 - 1 - 2)}


def due(seconds: int) -> Any:
    made = message("Delay")
    made.system_properties.delivery_timestamp.seconds = NOW_S + seconds
    return made


def recovered(seconds: int) -> Any:
    made = message("Transaction", message_type=4)
    made.system_properties.orphaned_transaction_recovery_duration.seconds = seconds
    return made


def urgent(priority: int) -> Any:
    return message(priority=priority)


CASES: list[tuple[str, Callable[[], Any], Code]] = [
    ("body empty", lambda: message(body=b""), Code.MESSAGE_BODY_EMPTY),
    ("body 1", lambda: message(body=b"x"), OK),
    ("body 4 MiB - 1", lambda: message(body=bytes(4 * KIB * KIB - 1)), OK),
    ("body 4 MiB", lambda: message(body=bytes(4 * KIB * KIB)), OK),
    ("body 4 MiB + 1", lambda: message(body=bytes(4 * KIB * KIB + 1)), Code.MESSAGE_BODY_TOO_LARGE),
    ("127 properties", lambda: message(user=user(127)), OK),
    ("128 properties", lambda: message(user=user(128)), OK),
    ("129 properties", lambda: message(user=user(129)), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("properties 16 KiB - 1", lambda: message(user=sized(16383), tag="t", keys=["kk"]), OK),
    ("properties 16 KiB", lambda: message(user=sized(16384), tag="t", keys=["kk"]), OK),
    (
        "properties 16 KiB + 1",
        lambda: message(user=sized(16385), tag="t", keys=["kk"]),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    ("group 62", lambda: message("Fifo", message_group="g" * 62), OK),
    ("group 63", lambda: message("Fifo", message_group="g" * 63), OK),
    ("group 64", lambda: message("Fifo", message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
    ("group 63 by bytes", lambda: message("Fifo", message_group="é" * 31 + "g"), OK),
    (
        "group 64 by bytes",
        lambda: message("Fifo", message_group="é" * 32),
        Code.ILLEGAL_MESSAGE_GROUP,
    ),
    ("group blank", lambda: message("Fifo", message_group=" "), Code.ILLEGAL_MESSAGE_GROUP),
    ("group control", lambda: message("Fifo", message_group="a\x7f"), Code.ILLEGAL_MESSAGE_GROUP),
    ("delay of a day", lambda: due(86_400 - 10), OK),
    ("delay over a day", lambda: due(86_400 + 3_600), Code.ILLEGAL_DELIVERY_TIME),
    ("recovery 3599 s", lambda: recovered(3599), OK),
    ("recovery 3600 s", lambda: recovered(3600), OK),
    ("recovery 3601 s", lambda: recovered(3601), Code.BAD_REQUEST),
    ("no id", lambda: message(message_id=""), Code.ILLEGAL_MESSAGE_ID),
    ("blank id", lambda: message(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
    ("id with a separator", lambda: message(message_id="a\x01b"), Code.ILLEGAL_MESSAGE_ID),
    ("tag blank", lambda: message(tag=" "), Code.ILLEGAL_MESSAGE_TAG),
    ("tag with |", lambda: message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
    ("tag control", lambda: message(tag="a\x02"), Code.ILLEGAL_MESSAGE_TAG),
    ("key blank", lambda: message(keys=[" "]), Code.ILLEGAL_MESSAGE_KEY),
    ("key control", lambda: message(keys=["a\n"]), Code.ILLEGAL_MESSAGE_KEY),
    ("system key", lambda: message(user={"UNIQ_KEY": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("control in key", lambda: message(user={"a\x01": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("control in value", lambda: message(user={"a": "\x02"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("empty key", lambda: message(user={"": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("no topic", lambda: message(""), Code.ILLEGAL_TOPIC),
    ("topic of 128", lambda: message("t" * 128), Code.ILLEGAL_TOPIC),
    ("system topic", lambda: message("RMQ_SYS_TRANS_HALF_TOPIC"), Code.ILLEGAL_TOPIC),
    ("unknown topic", lambda: message("t" * 127), Code.TOPIC_NOT_FOUND),
    (
        "FIFO to NORMAL",
        lambda: message(message_group="g"),
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    ("NORMAL to FIFO", lambda: message("Fifo"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ("FIFO to MIXED", lambda: message("Mixed", message_group="g"), OK),
    ("priority to NORMAL", lambda: urgent(1), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ("negative priority", lambda: urgent(-1), Code.BAD_REQUEST),
    ("lite topic", lambda: message(lite_topic="l"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
]


def test_send_answers_each_limit_with_its_code(tmp_path: Path) -> None:
    async def main() -> None:
        async with fronted(tmp_path, mappedFileSizeCommitLog=str(64 << 20)) as calls:
            for what, make, code in CASES:
                answer = await calls.send(make())
                assert Code(answer.status.code) is code, (what, answer.status)
                assert answer.status.message, what
                assert bool(answer.entries) == (code is OK), what

    asyncio.run(main())


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ((), Code.MESSAGE_CORRUPTED),
        (("Normal", "Mixed"), Code.MESSAGE_CORRUPTED),
        (("Normal", "Normal"), OK),
    ],
)
def test_send_of_several_messages_needs_one_topic(
    tmp_path: Path, topics: tuple[str, ...], code: Code
) -> None:
    async def main() -> None:
        async with fronted(tmp_path) as calls:
            given = [
                message(topic, message_id=f"{number:034X}") for number, topic in enumerate(topics)
            ]
            answer = await calls.call("SendMessage", pb.SendMessageRequest(messages=given))
            assert answer.status.code == code
            if code is OK:
                ids = [one.system_properties.message_id for one in given]
                assert [entry.message_id for entry in answer.entries] == ids
                assert [entry.offset for entry in answer.entries] == [0, 1]

    asyncio.run(main())


def test_send_to_a_topic_that_takes_nothing_is_forbidden(tmp_path: Path) -> None:
    async def main() -> None:
        async with fronted(tmp_path) as calls:
            topics = calls.broker.metadata.topics
            normal = topics.get("Normal")
            assert normal is not None
            topics.put(type(normal)(name="Normal", perm=4))
            answer = await calls.send(message())
            assert answer.status.code == Code.FORBIDDEN
            assert answer.status.message == "no writable queue"

    asyncio.run(main())
