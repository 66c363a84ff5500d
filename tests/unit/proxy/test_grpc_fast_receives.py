"""Plain receives and acknowledgements over gRPC: the core answers as the front does."""

from __future__ import annotations

import asyncio
import json
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import (
    SHOWN,
    Answered,
    Calls,
    Counting,
    Gone,
    called,
    consumer,
    message,
    ready,
    received,
    shown,
)
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.message import ATTEMPTS_MAX
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
from roquet.proxy.services.convert import message_of
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHEEL = "rmq_sys_wheel_timer"


async def begun(calls: Calls, *groups: str, topic: str = "Normal") -> None:
    """Have groups begin at the first message: a new one begins behind the last."""
    for group in groups:
        calls.broker.metadata.groups.put(SubscriptionGroupConfig(name=group))
        calls.broker.metadata.offsets.commit(group, topic, 0, 0)


async def dispatched(calls: Calls, topic: str, count: int) -> None:
    while calls.broker.store.max_offset(topic, 0) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def answered(calls: Calls, topic: str, group: str, **more: Any) -> Answered:
    request = received(topic, group, **more)
    return await calls.raw("ReceiveMessage", request.SerializeToString())


class Slowly:
    """For a block the front looks at every message."""

    def __init__(self, calls: Calls) -> None:
        routes: Any = calls.front.routes
        self._brokers = routes._brokers

    def __enter__(self) -> None:
        self._fast, self._brokers._fast = self._brokers._fast, None

    def __exit__(self, *_: object) -> None:
        self._brokers._fast = self._fast


@pytest.mark.parametrize(("buffered", "threads"), [("false", "0"), ("true", "0"), ("true", "1")])
def test_receive_is_answered_byte_for_byte_as_the_front_does_it(
    tmp_path: Path, buffered: str, threads: str
) -> None:
    async def main() -> None:
        async with ready(tmp_path, enablePopBufferMerge=buffered, ioThreads=threads) as calls:
            for topic in ("Normal", "Fifo"):
                await begun(calls, "fast", "slow", topic=topic)
                given = [make() for make in SHOWN.values() if make().topic.name == topic]
                for made in given:
                    assert (await calls.send(made)).status.code == Code.OK
                await dispatched(calls, topic, len(given))
                fast = await answered(calls, topic, "fast")
                with Slowly(calls):
                    slow = await answered(calls, topic, "slow")
                assert (fast.framed, slow.framed) == (1, 0)
                assert fast.ended == slow.ended == (0, "")
                assert len(fast.parts) == len(given) + 2
                assert list(map(shown, fast.parts)) == list(map(shown, slow.parts))

    asyncio.run(main())


def test_receive_by_tag_passes_over_other_messages_as_the_front_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "fast", "slow")
            for tag in ("a", "b", "c", "b"):
                await calls.send(message(tag=tag))
            await dispatched(calls, "Normal", 4)
            fast = await answered(calls, "Normal", "fast", expression="b || c")
            with Slowly(calls):
                slow = await answered(calls, "Normal", "slow", expression="b || c")
            assert (fast.framed, slow.framed, len(fast.parts)) == (1, 0, 5)
            assert list(map(shown, fast.parts)) == list(map(shown, slow.parts))

    asyncio.run(main())


def test_group_with_as_many_attempts_as_there_can_be_receives(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "g")
            most = SubscriptionGroupConfig(name="g", retry_max_times=2**31 - 1)
            calls.broker.metadata.groups.put(most)
            await calls.send(message())
            await dispatched(calls, "Normal", 1)
            found = await answered(calls, "Normal", "g")
            assert (found.framed, len(found.parts)) == (1, 3)
            assert await calls.show(consumer("g", 3, "Normal")) is None
            (said,) = calls.told.commands
            assert said.settings.backoff_policy.max_attempts == ATTEMPTS_MAX

    asyncio.run(main())


def test_message_whose_sender_says_the_most_attempts_keeps_no_other_from_its_group(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "g")
            odd = send_command("Normal", b"odd", j=str(ATTEMPTS_MAX))
            with BlockingConnection(calls.broker.identity.address) as sender:
                assert (await asyncio.to_thread(sender.call, odd, 20.0)).code == 0
            await calls.send(message(body=b"good"))
            await dispatched(calls, "Normal", 2)
            found = await answered(calls, "Normal", "g")
            (_, part, _) = map(pb.ReceiveMessageResponse.FromString, found.parts)
            assert part.message.body == b"good"
            await dispatched(calls, "%DLQ%g", 1)
            (dead,) = read_records(calls.broker.store.get("%DLQ%g", 0, 0, 1).records)
            assert (dead.body, dead.reconsume_times) == (b"odd", ATTEMPTS_MAX)
            # A pull shows it as well.
            system = message_of(dead, "%DLQ%g", None).system_properties
            assert system.delivery_attempt == ATTEMPTS_MAX

    asyncio.run(main())


def test_messages_that_need_a_look_are_given_by_the_front(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "tags", "sql", "packed")
            # Both tags have one code.
            await calls.send(message(tag="Aa"))
            await dispatched(calls, "Normal", 1)
            found = await answered(calls, "Normal", "tags", expression="BB")
            assert (found.framed, _code(found)) == (0, Code.MESSAGE_NOT_FOUND)
            found = await answered(calls, "Normal", "sql", expression="TAGS = 'Aa'", type=2)
            assert (found.framed, len(found.parts)) == (0, 3)
            body = zlib.compress(b"of a client of remoting")
            await calls.send(message(body=body, body_encoding=2))
            await dispatched(calls, "Normal", 2)
            found = await answered(calls, "Normal", "packed")
            assert (found.framed, len(found.parts)) == (0, 4)
            last = pb.ReceiveMessageResponse.FromString(found.parts[2])
            assert last.message.body == b"of a client of remoting"

    asyncio.run(main())


def test_ordered_groups_and_settings_that_wait_are_the_fronts(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path, flushDiskType="SYNC_FLUSH") as calls:
            await begun(calls, "g")
            await calls.send(message())
            await dispatched(calls, "Normal", 1)
            found = await answered(calls, "Normal", "g")
            assert (found.framed, len(found.parts)) == (0, 3)

    asyncio.run(main())


def test_answer_that_nobody_takes_comes_again_soon(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "g")
            await calls.send(message())
            await dispatched(calls, "Normal", 1)
            request = received("Normal", "g", invisible_ms=600_000).SerializeToString()
            await calls.front.serve(calls.head("ReceiveMessage"), request, Gone())
            again = await answered(calls, "Normal", "g", wait_ms=20_000)
            (_, part, _) = again.parts
            system = pb.ReceiveMessageResponse.FromString(part).message.system_properties
            assert system.delivery_attempt == 2

    asyncio.run(main())


def test_messages_of_push_consumers_are_renewed(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "g")
            assert await calls.show(consumer("g", 2, "Normal")) is None
            for _ in range(3):
                await calls.send(message())
            await dispatched(calls, "Normal", 3)
            found = await answered(calls, "Normal", "g", auto_renew=True)
            assert (found.framed, len(calls.front.renewals)) == (1, 3)
            counting = Counting(calls)
            request = _acks(found, group="g")
            client = calls.client_id
            (parts,) = await asyncio.to_thread(_acked, calls, request, client)
            # The front knows which of them are renewed, and ends that.
            assert (counting.count, len(calls.front.renewals)) == (1, 0)
            assert parts.status.code == Code.OK

    asyncio.run(main())


@pytest.mark.parametrize("buffered", ["false", "true"])
def test_acknowledgements_are_stored_and_answered_as_the_front_does_it(
    tmp_path: Path, buffered: str
) -> None:
    async def main() -> None:
        async with ready(tmp_path, enablePopBufferMerge=buffered) as calls:
            await begun(calls, "fast", "slow")
            for _ in range(4):
                await calls.send(message())
            await dispatched(calls, "Normal", 4)
            request = _acks(await answered(calls, "Normal", "fast"), group="fast")
            of_slow = _acks(await answered(calls, "Normal", "slow"), group="slow")
            counting = Counting(calls)
            (fast,) = await asyncio.to_thread(_acked, calls, request)
            is_merged = buffered == "true"
            assert counting.count == int(is_merged), "checkpoints in memory are the front's"
            slow = await calls.call("AckMessage", of_slow)
            assert fast.status == slow.status
            assert [each.status for each in fast.entries] == [each.status for each in slow.entries]
            named = [(each.message_id, each.receipt_handle) for each in request.entries]
            assert [(each.message_id, each.receipt_handle) for each in fast.entries] == named
            if is_merged:
                return
            # Behind the checkpoints of both.
            await dispatched(calls, WHEEL, 10)
            records = read_records(calls.broker.store.get(WHEEL, 0, 2, 8).records)
            bodies = [json.loads(record.body) for record in records]
            for one, other in zip(bodies[:4], bodies[4:], strict=True):
                assert (one.pop("c"), other.pop("c")) == ("fast", "slow")
                # When they were popped, and so when they are due.
                assert {**one, "pt": 0} == {**other, "pt": 0}

    asyncio.run(main())


def test_acknowledgements_that_are_not_plain_are_answered_by_the_front(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            await begun(calls, "g")
            await calls.send(message())
            await dispatched(calls, "Normal", 1)
            good = _acks(await answered(calls, "Normal", "g"), group="g")
            handle = good.entries[0].receipt_handle.split(" ")
            changes: dict[str, Callable[[Any], Any]] = {
                "an unknown topic": lambda it: setattr(it.topic, "name", "Nowhere"),
                "a system topic": lambda it: setattr(it.topic, "name", "rmq_sys_a"),
                "a system group": lambda it: setattr(it.group, "name", "CID_RMQ_SYS_a"),
                "an unknown group": lambda it: setattr(it.group, "name", "nobody"),
                "no entry": lambda it: it.ClearField("entries"),
                "a lite topic": lambda it: setattr(it.entries[0], "lite_topic", "l"),
            }
            fields = {
                "an expired handle": (1, "1"),
                "a handle of a retry topic": (4, "1"),
                "a handle of another broker": (5, "other"),
                "a queue that is not there": (6, "7"),
                "an offset that is not there": (7, "99"),
                "a handle that is none": (0, "x"),
            }
            for name, (at, text) in fields.items():
                other = " ".join([*handle[:at], text, *handle[at + 1 :]])
                changes[name] = partial(_with_handle, other)
            for name, change in changes.items():
                request = pb.AckMessageRequest.FromString(good.SerializeToString())
                change(request)
                slow = await calls.call("AckMessage", request)
                counting = Counting(calls)
                (found,) = await asyncio.to_thread(_acked, calls, request)
                assert (counting.count, _told(found)) == (1, _told(slow)), name
            for client in ("", " ", "c" * 1025):
                counting = Counting(calls)
                (found,) = await asyncio.to_thread(_acked, calls, good, client)
                assert (counting.count, found.status.code != Code.OK) == (1, True), client
            counting = Counting(calls)
            (found,) = await asyncio.to_thread(_acked, calls, good)
            assert (counting.count, found.status.code) == (0, Code.OK)

    asyncio.run(main())


def _with_handle(handle: str, request: Any) -> None:
    request.entries[0].receipt_handle = handle


def _told(answer: Any) -> list[tuple[int, str]]:
    """Return the statuses of an answer, without the address of whoever asked."""
    statuses = [answer.status, *(each.status for each in answer.entries)]
    return [(each.code, each.message.partition(" consumer:")[0]) for each in statuses]


def _code(found: Answered) -> int:
    return int(pb.ReceiveMessageResponse.FromString(found.parts[0]).status.code)


def _acks(found: Answered, group: str, topic: str = "Normal") -> Any:
    """Return a request that acknowledges all messages of an answer."""
    request = pb.AckMessageRequest()
    request.topic.name, request.group.name = topic, group
    for part in map(pb.ReceiveMessageResponse.FromString, found.parts):
        if part.HasField("message"):
            system = part.message.system_properties
            names = {"message_id": system.message_id, "receipt_handle": system.receipt_handle}
            request.entries.add(**names)
    return request


def _acked(calls: Calls, request: Any, client: str = "c") -> list[Any]:
    data = request.SerializeToString()
    answers = called(calls.port.port, "AckMessage", data, client=client)
    return [pb.AckMessageResponse.FromString(part) for (part,) in answers]
