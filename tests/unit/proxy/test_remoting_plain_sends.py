"""Plain sends of the remoting port pass to brokers without the handlers, which see the rest."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

from odd_broker import OddBroker
from remoting_proxy_harness import ProxyClient, proxy, proxy_client
from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.protocol import properties as props
from roquet.protocol.codes import ResponseCode
from roquet.proxy.remoting import plain_sends
from roquet.proxy.remoting.forwarding import ForwardedRequests
from roquet.proxy.remoting.limits import REQUEST_S
from roquet.store.records import read_records
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import pytest

    from roquet.protocol.command import Command
    from roquet.remoting.router import Request
    from roquet.testing.cluster import Cluster

TOPIC = "Through"
TYPED = props.write({props.SHARDING_KEY: "k"})


class Counting:
    """Counts the sends that the handlers see."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        send = ForwardedRequests.send

        async def counted(handlers: ForwardedRequests, request: Request) -> Command | None:
            self.count += 1
            return await send(handlers, request)

        patch.setattr(ForwardedRequests, "send", counted)


@dataclasses.dataclass
class World:
    """A client of a proxy before one broker."""

    client: ProxyClient
    behind: Cluster
    seen: Counting


@contextlib.asynccontextmanager
async def world(folder: Path, patch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    seen = Counting(patch)
    # A look counts for longer than any machine stands still.
    patch.setattr(plain_sends, "LOOK_MS", 60_000)
    async with cluster(folder) as behind:
        assert (await behind.send(TOPIC)).code == 0
        async with proxy(behind.name_servers) as door, proxy_client(door) as client:
            yield World(client, behind, seen)


async def passed(it: World, properties: str = "") -> Command:
    """Return the answer to a send that the handlers have not seen."""
    for _ in range(500):
        before = it.seen.count
        answer = await it.client.send(TOPIC, properties=properties)
        if it.seen.count == before:
            return answer
        await asyncio.sleep(0.01)
    raise AssertionError("the handlers see every send")


def test_plain_send_is_stored_and_answered_as_the_handlers_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path, monkeypatch) as it:
            text = props.write({"a": "1", props.TAGS: "t", props.UNIQ_KEY: "U"})
            slow = await it.client.send(TOPIC, properties=text)
            fast = await passed(it, text)
            assert (fast.code, fast.remark, fast.flag) == (slow.code, slow.remark, slow.flag)
            assert slow.ext is not None
            assert fast.ext is not None
            assert fast.ext.keys() == slow.ext.keys()
            store = it.behind.broker.store
            offsets = [int(answer.ext["queueOffset"]) for answer in (slow, fast) if answer.ext]
            while store.max_offset(TOPIC, 0) <= offsets[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stored = [read_records(store.get(TOPIC, 0, at, 1).records)[0] for at in offsets]
            assert stored[0].properties == stored[1].properties
            assert stored[0].body == stored[1].body

    asyncio.run(main())


def test_many_sends_in_flight_have_each_their_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path, monkeypatch) as it:
            await passed(it)
            before = it.seen.count
            answers = await asyncio.gather(*[it.client.send(TOPIC) for _ in range(200)])
            assert {answer.code for answer in answers} == {0}
            offsets = [int(answer.ext["queueOffset"]) for answer in answers if answer.ext]
            assert len(set(offsets)) == 200
            assert it.seen.count - before < 200

    asyncio.run(main())


def test_message_of_a_type_is_refused_while_plain_ones_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path, monkeypatch) as it:
            slow = await it.client.send(TOPIC, properties=TYPED)
            await passed(it)
            found = await it.client.send(TOPIC, properties=TYPED)
            assert (found.code, found.remark) == (slow.code, slow.remark)
            assert found.code == ResponseCode.MESSAGE_ILLEGAL
            unknown = await it.client.send(TOPIC, broker="nobody")
            assert unknown.code != 0

    asyncio.run(main())


async def before_an_odd_broker(
    folder: Path, patch: pytest.MonkeyPatch, odd: OddBroker
) -> tuple[Command, float]:
    """Return the answer to a send that goes to an odd broker, and what it took."""
    async with await odd.stand_in(patch):
        async with world(folder, patch) as it:
            while True:
                began = time.monotonic()
                answer = await it.client.send(TOPIC)
                if odd.asked:
                    break
            took_s = time.monotonic() - began
        assert odd.served is not None
        await odd.served
        return answer, took_s


def test_send_that_a_broker_sends_away_is_forwarded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(ResponseCode.GO_AWAY)
    answer, _ = asyncio.run(before_an_odd_broker(tmp_path, monkeypatch, odd))
    assert odd.asked == 1
    assert answer.code == 0, answer.remark


def test_send_that_a_broker_does_not_answer_ends_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(None)
    answer, took_s = asyncio.run(before_an_odd_broker(tmp_path, monkeypatch, odd))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "did not answer 'send message v2' within 3 s" in answer.remark
    assert took_s >= REQUEST_S


def test_send_whose_connection_to_the_broker_ends_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(None)
    odd.closes = True
    answer, _ = asyncio.run(before_an_odd_broker(tmp_path, monkeypatch, odd))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("broker broker-a: ")
    assert answer.remark.endswith("closed the connection")


def test_port_stops_while_a_broker_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(None)

    async def asks(client: ProxyClient) -> None:
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            while True:
                await client.send(TOPIC)

    async def main() -> None:
        async with await odd.stand_in(monkeypatch):
            async with world(tmp_path, monkeypatch) as it:
                asking = asyncio.create_task(asks(it.client))
                while not odd.asked:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.wait_for(asking, 2 * REQUEST_S)
            assert odd.served is not None
            await odd.served

    asyncio.run(main())
